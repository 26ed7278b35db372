//! The admin pages of an agent and of its gateway under load: local programs fetch small objects
//! all the time and large ones now and then, through each of the agent's protocols, at a limited
//! pacing rate.
//!
//! `cargo run -p smig-agent --example agent`, then open the addresses that it prints. Arguments, if
//! any, are the addresses of the agent's page and of the gateway's.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use smig::{BoxError, CleartextTrust, Incoming, Origin, Server, Trust};
use smig_admin::AdminSpec;
use smig_agent::{self as agent, Agent, AgentOptions, Credentials};
use smig_gateway::Gateway;
use smig_gateway::config::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const BIG_BYTES: usize = 24_000_000;
/// Maximum rate at which a program reads.
const READ_BYTES_PER_S: f64 = 2e6;

/// `/small/...` is 6 kB, all else is large.
fn origin() -> Result<Server, smig::Error> {
    let (small_body, big_body) =
        (Bytes::from(vec![0x5a; 6000]), Bytes::from(vec![0x5a; BIG_BYTES]));
    let handle = move |request: Request<Incoming>| {
        let is_small = request.uri().path().starts_with("/small");
        let body = if is_small { small_body.clone() } else { big_body.clone() };
        async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
    };
    Server::builder()
        .listen_cleartext(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), CleartextTrust::None)
        .start(tower::service_fn(handle))
}

/// A gateway for one user, and the PEM of its certificate.
fn gateway(admin: SocketAddr) -> Result<(Gateway, String), BoxError> {
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("chain.pem"), certificate.cert.pem())?;
    std::fs::write(directory.path().join("key.pem"), certificate.signing_key.serialize_pem())?;
    // The hash of "a-long-secret".
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[route]]\nstatus = 404\n\
         [[certificate]]\nchain = 'chain.pem'\nkey = 'key.pem'\n\
         [forward_proxy]\nallow = ['127.0.0.0/8']\n[forward_proxy.users]\nann = 'sha256:\
         7a22da1ddf51a945bde6a3e940cdf91c9815108dc7235fe60da782dec55fb883'\n\
         [admin]\nlisten = '{admin}'\n[migration]\nmin_transfer_time = '0ms'\n\
         [bulk]\npacing_rate = 1500000\n"
    );
    let config = Config::parse(&text, &directory.path().join("gateway.toml"))
        .map_err(|faults| format!("{faults:?}"))?;
    Ok((Gateway::start(config)?, certificate.cert.pem()))
}

/// Requests `target` on an open connection, and reads the response, at most [`READ_BYTES_PER_S`].
async fn fetch(mut tcp: TcpStream, target: &str, host: SocketAddr) -> Result<(), BoxError> {
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    tcp.write_all(head.as_bytes()).await?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match tcp.read(&mut buffer).await? {
            0 => return Ok(()),
            read => {
                tokio::time::sleep(Duration::from_secs_f64(read as f64 / READ_BYTES_PER_S)).await
            }
        }
    }
}

/// Opens a tunnel through the HTTP proxy.
async fn open_connect_tunnel(proxy: SocketAddr, target: SocketAddr) -> Result<TcpStream, BoxError> {
    let mut tcp = TcpStream::connect(proxy).await?;
    tcp.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())
        .await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await?);
    }
    Ok(tcp)
}

/// Opens a tunnel through the SOCKS proxy.
async fn open_socks_tunnel(proxy: SocketAddr, target: SocketAddr) -> Result<TcpStream, BoxError> {
    let mut tcp = TcpStream::connect(proxy).await?;
    let [high, low] = target.port().to_be_bytes();
    tcp.write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low]).await?;
    tcp.read_exact(&mut [0; 12]).await?;
    Ok(tcp)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let mut argument = || args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse();
    let (agent_admin, gateway_admin) = (argument()?, argument()?);
    let server = origin()?;
    let origin_addr = *server.local_addrs().first().ok_or("no origin")?;
    let (gateway, pem) = gateway(gateway_admin)?;
    let (address, _) = gateway.listeners().next().ok_or("no gateway")?;
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = AgentOptions {
        credentials: Credentials::bearer("a-long-secret"),
        http: vec![loopback],
        socks: vec![loopback],
        forwards: vec![format!("127.0.0.1:0=tcp://{origin_addr}").parse()?],
        admin: Some(AdminSpec { listen: agent_admin }),
        ..AgentOptions::new(Origin::https("localhost", address.port()))
    };
    let agent =
        Agent::start(options, agent::client_builder().trust(Trust::Pem(pem.into()))).await?;
    for (name, page) in [("agent", agent.admin_addr()), ("gateway", gateway.admin_addr())] {
        println!("{name}: http://{}/", page.ok_or("no page")?);
    }
    let [http_addr, socks_addr, forward_addr] =
        [agent.http_addrs(), agent.socks_addrs(), agent.forward_addrs()]
            .map(|addrs| addrs.first().copied().unwrap_or(loopback));
    let small_downloads = async {
        for number in 0.. {
            let target = format!("http://{origin_addr}/small/{number}.json");
            fetch(TcpStream::connect(http_addr).await?, &target, origin_addr).await?;
            if number % 20 == 0 {
                fetch(TcpStream::connect(forward_addr).await?, "/small", origin_addr).await?;
            }
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        Ok::<_, BoxError>(())
    };
    let big_downloads = async {
        loop {
            let target = format!("http://{origin_addr}/images/debian-12.iso?token=unseen");
            fetch(TcpStream::connect(http_addr).await?, &target, origin_addr).await?;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        #[expect(unreachable_code, reason = "gives the error its type")]
        Ok::<_, BoxError>(())
    };
    let tunnels = async {
        loop {
            tokio::time::sleep(Duration::from_secs(4)).await;
            fetch(open_connect_tunnel(http_addr, origin_addr).await?, "/", origin_addr).await?;
            // This one is cancelled by its client.
            let cancelled =
                fetch(open_socks_tunnel(socks_addr, origin_addr).await?, "/", origin_addr);
            drop(tokio::time::timeout(Duration::from_secs(6), cancelled).await);
        }
        #[expect(unreachable_code, reason = "gives the error its type")]
        Ok::<_, BoxError>(())
    };
    tokio::try_join!(small_downloads, big_downloads, tunnels)?;
    Ok(())
}
