//! The same service and client, with smig instead of tonic's transport: large responses migrate.
//!
//!     tonic-direct server ADDRESS CHAIN KEY
//!     tonic-direct client https://ADDRESS CA checks
//!     tonic-direct client https://ADDRESS CA load BIGS CHUNKS
//!
//! CA is a file with the certificates to trust. In addition to the figures of `load`, it prints the
//! number of migrations of the client's session.

use anyhow::{Result, bail};
use interop_tonic::client::Client;
use interop_tonic::service::Peer;
use smig::{MigrationConfig, PacedStreams, Server, ServerTls, Trust};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words {
        ["server", address, chain, key] => {
            let tls = ServerTls::from_files(chain.as_ref(), key.as_ref())?;
            // By default a paced response stays while no packets are lost.
            let mut rules = MigrationConfig::default();
            rules.policy.paced = PacedStreams::Move;
            let server = Server::builder()
                .listen(address.parse()?, tls)
                .migration(rules)
                .start(Peer::default())?;
            println!("listening on {:?}", server.local_addrs());
            std::future::pending().await
        }
        ["client", url, ca, "checks"] => {
            let (_, mut client) = connect(url, ca)?;
            println!("{}", client.checks().await?);
        }
        ["client", url, ca, "load", bigs, chunks] => {
            let (smig, client) = connect(url, ca)?;
            let mut found = client.load(bigs.parse()?, chunks.parse()?).await?;
            found["migrations"] = smig.stats().migrations.into();
            println!("{found}");
        }
        _ => bail!("server ADDRESS CHAIN KEY, or client URL CA checks | load BIGS CHUNKS"),
    }
    Ok(())
}

fn connect(url: &str, ca: &str) -> Result<(smig::Client, Client<smig::Client>)> {
    let smig = smig::Client::builder().trust(Trust::File(ca.into())).build()?;
    Ok((smig.clone(), Client::with_origin(smig, url.parse()?)))
}
