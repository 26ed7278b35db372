//! Pacing of a connection without migration: it is used where configured.

use std::fs::File;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use rcgen::{CertificateParams, KeyPair};
use smig::{Client, Config, Pacing, Server, ServerTls, Trust};
use smig_files::{FileOptions, Files};
use smig_link::Rate;
use smig_testbed::netns::Testbed;

use crate::tcp::link;

const FILE_BYTES: u64 = 1_500_000;
/// Polling interval of the server's state.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) fn one_connection_is_paced_only_where_configured() -> Result<()> {
    ensure!(was_pacing_capped(Pacing::On)?, "bulk must be paced without migration, and was not");
    ensure!(!was_pacing_capped(Pacing::Off)?, "pacing is off, and the connection was paced");
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Returns whether the server ever capped the pacing rate of a download's connection.
fn was_pacing_capped(pacing: Pacing) -> Result<bool> {
    let testbed = Testbed::start(link(Rate::mbit(10), 20, 75))?;
    let address: SocketAddr = (testbed.server().address(), 443).into();
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![address.ip().to_string()])?.self_signed(&key)?;
    let certificate = certificate.pem();
    let tls = ServerTls::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes())?;
    let directory = tempfile::tempdir()?;
    File::create(directory.path().join("big"))?.set_len(FILE_BYTES)?;
    let files = Files::new(directory.path(), FileOptions::default())?;

    let (ready_tx, ready_rx) = mpsc::channel();
    let (download_done_tx, download_done_rx) = mpsc::channel::<()>();
    let (check_done_tx, check_done_rx) = mpsc::channel::<()>();
    let server = testbed.server().run(move || -> Result<bool> {
        let _checked = check_done_tx;
        let mut config = Config::server();
        config.smig = None;
        let server = Server::builder()
            .listen(address, tls)
            .workers(NonZeroUsize::MIN)
            .engine(config)
            .pacing(pacing)
            .start(files)?;
        ready_tx.send(())?;
        let (runtime, view) = (runtime()?, server.view());
        let is_capped = || {
            let sessions = runtime.block_on(view.sessions()).sessions;
            sessions
                .iter()
                .flat_map(|session| &session.connections)
                .any(|connection| connection.pacing_cap.is_some())
        };
        let mut was_seen_capped = false;
        while download_done_rx.recv_timeout(POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            was_seen_capped |= is_capped();
        }
        // The client's connection is still open, so a cap would still be set.
        Ok(was_seen_capped | is_capped())
    })?;
    ready_rx.recv().context("the server did not start")?;
    let client = testbed.client().run(move || -> Result<u64> {
        let runtime = runtime()?;
        let (length, client) = runtime.block_on(async {
            let client = Client::builder().trust(Trust::Pem(certificate.into_bytes())).build()?;
            let request = Request::get(format!("https://{address}/big"));
            let response = client.request(request.body(Empty::<bytes::Bytes>::new())?).await?;
            let length = response.into_body().collect().await?.to_bytes().len() as u64;
            anyhow::Ok((length, client))
        })?;
        download_done_tx.send(())?;
        // Returns once the server has checked.
        let _ = check_done_rx.recv();
        drop((client, runtime));
        Ok(length)
    })?;
    let was_capped = server.join().map_err(|_| anyhow!("the server's thread panicked"))??;
    let length = client.join().map_err(|_| anyhow!("the client's thread panicked"))??;
    ensure!(length == FILE_BYTES, "{length} bytes received");
    Ok(was_capped)
}
