//! The admin page beside a server that has something to show: a client on the same machine that
//! fetches small objects all the time and large ones now and then, at a limited pacing rate.
//!
//! `cargo run -p smig-admin --example admin`, then open the address that it prints. Arguments, if any,
//! are the addresses of the page and of the server.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use smig::{
    BoxError, Cleartext, CleartextTrust, Client, Incoming, MigrationConfig, MigrationMode, Server,
    SocketOptions,
};
use smig_admin::{
    self as admin, AdminObserver, AdminSpec, AdminTarget, ReportedStats, StatsSource,
    UpstreamServerReport,
};

/// Pacing rate of each connection.
const PACING_RATE_BYTES_PER_S: u64 = 1_500_000;
const CHUNK_BYTES: usize = 16 << 10;

/// A body of filler bytes, whose length is announced or not.
struct Filler {
    remaining: usize,
    is_length_announced: bool,
}

impl Body for Filler {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let len = self.remaining.min(CHUNK_BYTES);
        self.remaining -= len;
        let piece = Bytes::from_static(&[0x5a; CHUNK_BYTES]).slice(..len);
        Poll::Ready((len > 0).then(|| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_length_announced {
            SizeHint::with_exact(self.remaining as u64)
        } else {
            SizeHint::default()
        }
    }
}

/// `/small/...` is 6 kB, all else is large; the length of `/live/...` is not announced.
async fn handle(request: Request<Incoming>) -> Result<Response<Filler>, Infallible> {
    let path = request.uri().path();
    let remaining = if path.starts_with("/small") { 6000 } else { 9_000_000 };
    Ok(Response::new(Filler { remaining, is_length_announced: !path.starts_with("/live") }))
}

/// Statistics of a made-up upstream, so that the page shows their table.
struct FakeUpstream;

impl StatsSource for FakeUpstream {
    fn report(&self, to: &mut ReportedStats) {
        to.upstream_servers.push(UpstreamServerReport {
            upstream: "app".into(),
            server: "unix:/run/app.sock".into(),
            healthy: true,
            active: 2,
            connections: 4,
            attempts: 1824,
            failures: 1,
        });
    }
}

async fn fetch(client: &Client, url: String) -> Result<(), BoxError> {
    let request = Request::get(url).body(Full::<Bytes>::default())?;
    let mut body = client.request(request).await?.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let mut argument = || args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let (listen, server_addr) = (argument().parse()?, argument().parse()?);
    let (mut slow_interactive, mut slow_bulk) =
        (SocketOptions::interactive(), SocketOptions::bulk());
    slow_interactive.pacing_rate = Some(PACING_RATE_BYTES_PER_S);
    slow_bulk.pacing_rate = Some(PACING_RATE_BYTES_PER_S);
    let mut migration = MigrationConfig::default();
    migration.policy.unknown_length_after = 2 << 20;
    let observer = AdminObserver::new();
    let server = Server::builder()
        .listen_cleartext(server_addr, CleartextTrust::TrustedNetwork)
        .interactive_socket(slow_interactive)
        .bulk_socket(slow_bulk)
        .migration(migration)
        .observer(observer.clone())
        .request_label_limit(admin::MAX_LABEL_BYTES)
        .start(tower::service_fn(handle))?;
    let target = AdminTarget::new("smig gateway", server.view(), observer)
        .with_stats(std::sync::Arc::new(FakeUpstream));
    let admin = admin::start(&AdminSpec { listen }, target)?;
    println!("http://{}/", admin.local_addr());

    // The client moves no stream itself, but follows the server's migrations.
    let mut passive = MigrationConfig::default();
    passive.mode = MigrationMode::Never;
    let client = Client::builder()
        .cleartext(Cleartext::PriorKnowledge(CleartextTrust::TrustedNetwork))
        .migration(passive)
        .spares(2)
        .build()?;
    let base_url = format!("http://{}", server.local_addrs()[0]);
    let small_downloads = async {
        for number in 0.. {
            fetch(&client, format!("{base_url}/small/{number}.json")).await?;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        Ok::<_, BoxError>(())
    };
    let download_repeatedly = async |path: &'static str, first_delay_s: u64, pause_s: u64| {
        tokio::time::sleep(Duration::from_secs(first_delay_s)).await;
        loop {
            fetch(&client, format!("{base_url}{path}")).await?;
            tokio::time::sleep(Duration::from_secs(pause_s)).await;
        }
        #[expect(unreachable_code, reason = "gives the error its type")]
        Ok::<_, BoxError>(())
    };
    tokio::try_join!(
        small_downloads,
        download_repeatedly("/images/debian-12.iso?token=unseen", 3, 6),
        download_repeatedly("/live/camera-4.ts", 7, 5)
    )?;
    Ok(())
}
