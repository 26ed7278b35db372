//! The local SOCKS5 proxy (RFC 1928): CONNECT, no authentication, names resolved by the gateway.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use smig_admin::spans::RequestSpan;
use smig_proxy::tunnel::{Socket, TunnelKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::SocksReply;
use crate::shared::SharedState;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHODS: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const DOMAIN_NAME: u8 = 3;
const IPV6: u8 = 4;

/// Timeout of a client's request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a local connection to its end.
pub(crate) async fn serve(mut tcp: TcpStream, shared: Arc<SharedState>) {
    let request = timeout(REQUEST_TIMEOUT, read_request(&mut tcp)).await;
    let target = match request {
        Ok(Ok(Ok(target))) => target,
        Ok(Ok(Err(reply))) => return refuse(tcp, reply).await,
        Ok(Err(error)) => {
            return tracing::debug!(%error, "invalid SOCKS request");
        }
        Err(_) => return tracing::debug!("SOCKS request timed out"),
    };
    let span = RequestSpan::for_local_tunnel("SOCKS5", &target, shared.tracer.as_ref());
    let stream = match shared.uplink.open_tunnel(&target, &span).await {
        Ok(stream) => stream,
        Err(failure) => {
            span.set_status(failure.status());
            tracing::debug!(%target, why = failure.text(), "SOCKS request failed");
            return refuse(tcp, failure.reply()).await;
        }
    };
    if tcp.write_all(&encode_reply(SocksReply::Succeeded)).await.is_ok() {
        shared.relay_tunnel(TunnelKind::Socks, Socket::new(tcp), stream, span).await;
    }
}

/// Reads the client's request: returns the destination, or the reply that refuses it.
async fn read_request(tcp: &mut TcpStream) -> io::Result<Result<Authority, SocksReply>> {
    if tcp.read_u8().await? != VERSION {
        return Err(io::Error::other("unsupported version of SOCKS"));
    }
    let mut methods = [0; 255];
    let count = usize::from(tcp.read_u8().await?);
    let methods = methods.get_mut(..count).unwrap_or_default();
    tcp.read_exact(methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        tcp.write_all(&[VERSION, NO_ACCEPTABLE_METHODS]).await?;
        return Err(io::Error::other("the client requires authentication"));
    }
    tcp.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let [version, command, _, address_type] = {
        let mut head = [0; 4];
        tcp.read_exact(&mut head).await?;
        head
    };
    if version != VERSION {
        return Err(io::Error::other("wrong version of SOCKS in the request"));
    }
    let host = match address_type {
        IPV4 => Ipv4Addr::from_bits(tcp.read_u32().await?).to_string(),
        IPV6 => format!("[{}]", Ipv6Addr::from_bits(tcp.read_u128().await?)),
        DOMAIN_NAME => {
            let mut name = [0; 255];
            let len = usize::from(tcp.read_u8().await?);
            let name = name.get_mut(..len).unwrap_or_default();
            tcp.read_exact(name).await?;
            String::from_utf8_lossy(name).into_owned()
        }
        _ => return Ok(Err(SocksReply::AddressTypeNotSupported)),
    };
    let port = tcp.read_u16().await?;
    if command != CONNECT {
        return Ok(Err(SocksReply::CommandNotSupported));
    }
    // Reject any other character that an authority may contain.
    let is_host_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if address_type == DOMAIN_NAME && (host.is_empty() || !host.bytes().all(is_host_name_byte)) {
        return Ok(Err(SocksReply::HostUnreachable));
    }
    let target = format!("{host}:{port}").parse();
    Ok(target.map_err(|_| SocksReply::GeneralFailure))
}

/// Encodes a reply. The bound address is left unspecified (0.0.0.0:0): it is the gateway's.
const fn encode_reply(reply: SocksReply) -> [u8; 10] {
    [VERSION, reply as u8, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

async fn refuse(mut tcp: TcpStream, reply: SocksReply) {
    // The client may have closed the connection.
    let _ = tcp.write_all(&encode_reply(reply)).await;
    let _ = tcp.shutdown().await;
}
