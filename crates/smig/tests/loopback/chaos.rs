//! Transfers whose streams migrate, and whose connections are cut, at random points: the body is
//! complete and correct, or the transfer fails.
//!
//! `SMIG_CHAOS_RUNS` sets the number of runs (each a download and an upload), `SMIG_CHAOS_MIB` the
//! size, `SMIG_CHAOS_SEED` the first seed. The setup of a run depends only on its seed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use smig::{Client, Error, MigrationConfig, MigrationMode, ObserverEvent, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::service_fn;

use crate::support::{EventRecorder, answer, bytes, digest, get, pair, sha256, wait_for_event};

/// A pseudo-random generator: the setup of each run depends only on its seed.
struct Rng(u64);

impl Rng {
    fn next_below(&mut self, below: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn migration_config(&mut self, len: u64) -> MigrationConfig {
        let mut offsets: Vec<u64> = (0..self.next_below(5)).map(|_| self.next_below(len)).collect();
        offsets.sort_unstable();
        let mut rules = MigrationConfig::default();
        rules.mode = MigrationMode::At(offsets);
        rules
    }
}

/// A TCP proxy between client and server that cuts connections after a number of bytes.
struct CuttingProxy {
    addr: SocketAddr,
    task: tokio::task::JoinHandle<()>,
    open_connections: Arc<AtomicUsize>,
}

impl CuttingProxy {
    /// Starts the proxy. The `n`th connection is cut after `cuts[n]` bytes, if that is set.
    async fn start(server: SocketAddr, cuts: Vec<Option<u64>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let open_connections = Arc::new(AtomicUsize::new(0));
        let open_counter = Arc::clone(&open_connections);
        let task = tokio::spawn(async move {
            let mut cuts = cuts.into_iter();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(server).await.unwrap();
                let cut = cuts.next().flatten().unwrap_or(u64::MAX);
                open_counter.fetch_add(1, Ordering::SeqCst);
                let open_counter = Arc::clone(&open_counter);
                tokio::spawn(async move {
                    relay(client, server, cut).await;
                    open_counter.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { addr, task, open_connections }
    }
}

/// Copies in both directions until one end closes or `cut` bytes were copied.
async fn relay(client: TcpStream, server: TcpStream, cut: u64) {
    let (remaining_bytes, stop) = (Arc::new(Mutex::new(cut)), watch::channel(()).0);
    let stop = Arc::new(stop);
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let down = copy(server_read, client_write, Arc::clone(&remaining_bytes), Arc::clone(&stop));
    let up = copy(client_read, server_write, remaining_bytes, stop);
    tokio::join!(down, up);
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    remaining_bytes: Arc<Mutex<u64>>,
    stop: Arc<watch::Sender<()>>,
) {
    let mut stopped = stop.subscribe();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            _ = stopped.changed() => return,
        };
        let allowed_len = {
            let mut remaining_bytes = remaining_bytes.lock().unwrap();
            let allowed_len = (read as u64).min(*remaining_bytes);
            *remaining_bytes -= allowed_len;
            allowed_len as usize
        };
        let written = tokio::select! {
            written = to.write_all(&buffer[..allowed_len]) => written,
            _ = stopped.changed() => return,
        };
        if read == 0 || allowed_len < read || written.is_err() {
            // Stop both directions at once, as when a route is lost.
            let _ = stop.send(());
            return;
        }
    }
}

struct Run {
    seed: u64,
    server: Server,
    client: Client,
    proxy: CuttingProxy,
    len: usize,
}

impl Run {
    async fn set_up(seed: u64, len: usize) -> Self {
        let mut rng = Rng(seed);
        let (server, client) = pair();
        let server =
            server.migration(rng.migration_config(len as u64)).start(service_fn(answer)).unwrap();
        let cuts = (0..4)
            .map(|_| (rng.next_below(3) == 0).then(|| 5_000 + rng.next_below(len as u64 * 2)))
            .collect();
        let proxy = CuttingProxy::start(server.local_addrs()[0], cuts).await;
        let mut config = smig::Config::client();
        // Small, so that migrations happen before the end of the transfer.
        config.stream_window = 1 << 20;
        let (observer, mut events) = EventRecorder::new();
        let client = client
            .engine(config)
            .spares(1 + rng.next_below(2) as usize)
            .migration(rng.migration_config(len as u64))
            .observer(observer)
            .build()
            .unwrap();
        let run = Self { seed, server, client, proxy, len };
        // The download begins with a joined spare, or after a connection that was cut before it
        // had one; the upload with the connections that the download leaves.
        if run.client.request(get(run.url("/"))).await.is_ok() {
            wait_for_event(&mut events, |event| {
                let ends = matches!(event, ObserverEvent::ConnectionClosed { .. });
                ends || matches!(event, ObserverEvent::Joined { .. })
            })
            .await;
        }
        run
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.proxy.addr.port())
    }

    async fn download(&self) -> Result<([u8; 32], u64), Error> {
        let url = self.url(&format!("/bytes/{}", self.len));
        digest(self.client.request(get(url)).await?.into_body()).await
    }

    async fn upload(&self, body: Bytes) -> Result<Bytes, Error> {
        let request = Request::post(self.url("/digest")).body(Full::new(body)).unwrap();
        Ok(self.client.request(request).await?.into_body().collect().await?.to_bytes())
    }
}

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_with_random_migrations_and_cuts_are_correct_or_fail() {
    let len = (env_number("SMIG_CHAOS_MIB", 6) << 20) as usize;
    let first_seed = env_number("SMIG_CHAOS_SEED", 1);
    let (body, mut complete_count, mut failed_count, mut migrations) = (bytes(len), 0, 0, 0);
    let expected = sha256(&body);
    for seed in first_seed..first_seed + env_number("SMIG_CHAOS_RUNS", 12) {
        let run = Run::set_up(seed, len).await;
        let limit = Duration::from_secs(120);
        let down = tokio::time::timeout(limit, run.download());
        match down.await.unwrap_or_else(|_| panic!("seed {seed}: the download hangs")) {
            Ok(got) => {
                assert_eq!(got, (expected, len as u64), "seed {seed}: wrong download");
                complete_count += 1;
            }
            Err(error) => failed_count += check_clean_failure(seed, &error),
        }
        let up = tokio::time::timeout(limit, run.upload(body.clone()));
        match up.await.unwrap_or_else(|_| panic!("seed {seed}: the upload hangs")) {
            Ok(got) => {
                assert_eq!(got, &expected[..], "seed {seed}: wrong upload");
                complete_count += 1;
            }
            Err(error) => failed_count += check_clean_failure(seed, &error),
        }
        migrations += run.server.stats().migrations;
        tear_down(run).await;
    }
    println!("{complete_count} complete, {failed_count} failed cleanly, {migrations} migrations");
    assert!(complete_count > 0);
}

/// Checks that the error is one of the connection or of the stream, or allows a retry. Returns 1.
fn check_clean_failure(seed: u64, error: &Error) -> u32 {
    println!("seed {seed}: {error}");
    let ended = error.is_transport() || error.is_remote() || error.is_connect();
    assert!(ended || error.is_retryable() || error.code().is_some(), "seed {seed}: {error}");
    1
}

/// Checks that a run leaves no server task and no connection.
async fn tear_down(run: Run) {
    let Run { seed, server, client, proxy, .. } = run;
    drop(client);
    let stopped = server.shutdown(Duration::from_secs(60));
    let stopped = tokio::time::timeout(Duration::from_secs(30), stopped).await;
    stopped.unwrap_or_else(|_| panic!("seed {seed}: the server does not drain")).unwrap();
    proxy.task.abort();
    let gone = async {
        while proxy.open_connections.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
    assert!(gone.is_ok(), "seed {seed}: connections are left open");
}
