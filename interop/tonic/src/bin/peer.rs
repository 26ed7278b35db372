//! A tonic client and a tonic server without smig.
//!
//!     tonic-peer server ADDRESS
//!     tonic-peer client http://ADDRESS checks
//!     tonic-peer client http://ADDRESS load BIGS CHUNKS

use anyhow::{Context as _, Result, bail};
use interop_tonic::client::Client;
use interop_tonic::service::Peer;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match *words {
        ["server", address] => {
            let listener = tokio::net::TcpListener::bind(address).await?;
            println!("listening on {}", listener.local_addr()?);
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            return Ok(Server::builder().serve_with_incoming(Peer::default(), incoming).await?);
        }
        ["client", url, "checks"] => connect(url).await?.checks().await?,
        ["client", url, "load", bigs, chunks] => {
            connect(url).await?.load(bigs.parse()?, chunks.parse()?).await?
        }
        _ => bail!("server ADDRESS, client URL checks, or client URL load BIGS CHUNKS"),
    };
    println!("{found}");
    Ok(())
}

async fn connect(url: &str) -> Result<Client<tonic::transport::Channel>> {
    let channel = Endpoint::new(url.to_owned())?.connect().await.context(url.to_owned())?;
    Ok(Client::new(channel))
}
