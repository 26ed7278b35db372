//! TLS handshakes of servers and clients.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection as Tls, ServerConfig, ServerConnection};
use tokio::net::TcpStream;

use super::tls_io::Socket;
use super::{Channel, Transport, invalid_data};

/// Performs a server's handshake. The caller sets the time limit.
pub(crate) async fn accept(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<Transport> {
    let tls = ServerConnection::new(config).map_err(invalid_data)?;
    handshake(tcp, Tls::Server(tls)).await
}

/// Performs a client's handshake with the server `name`. The caller sets the time limit.
pub(crate) async fn connect(
    tcp: TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> io::Result<Transport> {
    let tls = ClientConnection::new(config, name).map_err(invalid_data)?;
    handshake(tcp, Tls::Client(tls)).await
}

async fn handshake(mut tcp: TcpStream, mut tls: Tls) -> io::Result<Transport> {
    // The driver limits what the engine writes, not rustls.
    tls.set_buffer_limit(None);
    poll_fn(|cx| poll_handshake(&mut tcp, &mut tls, cx)).await?;
    let mut transport = Transport::new(tcp, Channel::Tls(Box::new(tls)))?;
    transport.take_handshake_input()?;
    Ok(transport)
}

fn poll_handshake(
    tcp: &mut TcpStream,
    tls: &mut Tls,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        while tls.wants_write() {
            match tls.write_tls(&mut Socket::new(tcp, cx)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if !tls.is_handshaking() {
            return Poll::Ready(Ok(()));
        }
        match tls.read_tls(&mut Socket::new(tcp, cx)) {
            Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert gives the peer the cause; a failure to send it is ignored.
            let _ = tls.write_tls(&mut Socket::new(tcp, cx));
            return Poll::Ready(Err(invalid_data(error)));
        }
    }
}
