//! The same service and client, with smig instead of tonic's transport: large responses migrate.
//!
//!     tonic-direct server ADDRESS CHAIN KEY
//!     tonic-direct client https://ADDRESS AUTHORITY checks
//!     tonic-direct client https://ADDRESS AUTHORITY load BIGS CHUNKS
//!
//! In addition to the figures of `load`, it prints the number of migrations of the client's session.

use anyhow::{Result, bail};
use interop_tonic::client::Client;
use interop_tonic::service::Peer;
use smig::{Server, ServerTls, Trust};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words {
        ["server", address, chain, key] => {
            let tls = ServerTls::from_files(chain.as_ref(), key.as_ref())?;
            let server = Server::builder().listen(address.parse()?, tls).start(Peer::default())?;
            println!("listening on {:?}", server.local_addrs());
            std::future::pending().await
        }
        ["client", url, authority, "checks"] => {
            let (_, mut client) = connect(url, authority)?;
            println!("{}", client.checks().await?);
        }
        ["client", url, authority, "load", bigs, chunks] => {
            let (smig, client) = connect(url, authority)?;
            let mut found = client.load(bigs.parse()?, chunks.parse()?).await?;
            found["migrations"] = smig.stats().migrations.into();
            println!("{found}");
        }
        _ => bail!("server ADDRESS CHAIN KEY, or client URL AUTHORITY checks | load BIGS CHUNKS"),
    }
    Ok(())
}

fn connect(url: &str, authority: &str) -> Result<(smig::Client, Client<smig::Client>)> {
    let smig = smig::Client::builder().trust(Trust::File(authority.into())).build()?;
    Ok((smig.clone(), Client::with_origin(smig, url.parse()?)))
}
