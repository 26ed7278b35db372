//! One run: a client, a relay, a concurrent download and upload, and small requests beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use smig::{Client, Config, MigrationConfig, MigrationMode, Server, Stats, Trust};
use tokio::time::Instant;

use crate::dice::Rng;
use crate::plan::{ClientMoves, Plan, ServerMoves, Transfer};
use crate::relay::{Kill, Relay};
use crate::server::{HANDSHAKE, Identity, serve};
use crate::service::{HandlerContext, LimitHits};
use crate::transfer::{Outcome, TransferClient, Watched};

/// Maximum number of attempts of a big transfer.
const ATTEMPTS: usize = 3;
/// How long a session may take to end when it is no longer used.
const WIND_DOWN: Duration = Duration::from_secs(15);

/// State shared by the runs.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) stage: Arc<HandlerContext>,
    pub(crate) identity: Identity,
    /// The server that exists for the complete soak.
    pub(crate) lasting: Server,
    pub(crate) seed: u64,
    pub(crate) size: u64,
    /// How long a transfer may make no progress; then it counts as hung.
    pub(crate) patience: Duration,
    /// Bytes of big transfers so far, for the progress bar.
    pub(crate) moved: AtomicU64,
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) downloads: Vec<Outcome>,
    pub(crate) uploads: Vec<Outcome>,
    pub(crate) smalls: Vec<Outcome>,
    pub(crate) kills: Vec<Kill>,
    /// The counters of the client, and those of the run's own server.
    pub(crate) client: Stats,
    pub(crate) server: Option<Stats>,
    pub(crate) wrong: Vec<String>,
}

/// Makes one run.
pub(crate) async fn run(ground: &RunContext, number: usize) -> Result<Report> {
    let mut dice = Rng::of_run(ground.seed, number);
    let plan = Plan::throw(&mut dice, ground.size);
    let own = match &plan.server_moves {
        ServerMoves::Asked => None,
        moves => Some(serve(&ground.stage, &ground.identity, moves, plan.max_moves)?),
    };
    let server = own.as_ref().unwrap_or(&ground.lasting);
    let addr = *server.local_addrs().first().context("the server listens nowhere")?;
    let relay =
        Relay::start(addr, plan.troubles.clone()).await.context("the relay cannot listen")?;
    let client = client(ground, &plan)?;
    let customer = TransferClient {
        client: client.clone(),
        stage: Arc::clone(&ground.stage),
        base: format!("https://localhost:{}", relay.port()),
    };
    let mut wrong = Vec::new();
    let over = AtomicBool::new(false);
    let (downloads, uploads, smalls) = tokio::join!(
        big(ground, &plan.download, &customer, &relay, TransferKind::Download, &over),
        big(ground, &plan.upload, &customer, &relay, TransferKind::Upload, &over),
        customer.smalls(&over, dice),
    );
    drop(customer);
    let stats = client.clone();
    drop(client);
    let kills = relay.kills();
    let excused = !kills.is_empty() || relay.refused() > 0;
    let outcomes = downloads.iter().chain(&uploads).chain(&smalls);
    wrong.extend(outcomes.filter_map(|outcome| verdict(outcome, excused)));
    let counters = stats.stats();
    drop(stats);
    drop(relay);
    let server = match own {
        None => None,
        Some(server) => {
            let counters = wind_down(&server, &mut wrong).await;
            if let Err(error) = server.shutdown(WIND_DOWN).await {
                wrong.push(format!("the server does not stop: {error}"));
            }
            Some(counters)
        }
    };
    Ok(Report { downloads, uploads, smalls, kills, client: counters, server, wrong })
}

fn client(ground: &RunContext, plan: &Plan) -> Result<Client> {
    let mut engine = Config::client();
    engine.stream_window = plan.stream_window;
    if let Some(smig) = &mut engine.smig {
        smig.max_migrations_per_stream = plan.max_moves;
    }
    let mut rules = MigrationConfig::default();
    rules.mode = match &plan.client_moves {
        ClientMoves::Nobody => MigrationMode::Never,
        ClientMoves::At(offsets) => MigrationMode::At(offsets.clone()),
        ClientMoves::Policy => MigrationMode::Policy,
    };
    let client = Client::builder()
        .trust(Trust::Pem(ground.identity.certificate.clone().into_bytes()))
        .engine(engine)
        .migration(rules)
        .observer(Arc::<LimitHits>::clone(&ground.stage.fired))
        .spares(plan.spares)
        .connect_timeout(HANDSHAKE)
        .handshake_timeout(HANDSHAKE)
        .build()?;
    Ok(client)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferKind {
    Download,
    Upload,
}

/// Makes a big transfer, repeated on failure up to [`ATTEMPTS`] times.
async fn big(
    ground: &RunContext,
    transfer: &Transfer,
    customer: &TransferClient,
    relay: &Relay,
    way: TransferKind,
    over: &AtomicBool,
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for _ in 0..ATTEMPTS {
        let watched = Watched::default();
        let transferring = async {
            match way {
                TransferKind::Download => customer.download(transfer, &watched).await,
                TransferKind::Upload => customer.upload(transfer, &watched).await,
            }
        };
        let outcome = tokio::select! {
            outcome = transferring => outcome,
            () = hang(ground, &watched) => {
                let text = format!(
                    "{way:?} hangs: {}; relay: {}; {:?}",
                    watched.describe(),
                    relay.describe(),
                    customer.client.stats()
                );
                relay.cut();
                Outcome::Wrong(text)
            }
        };
        let failed = matches!(outcome, Outcome::Failed(_));
        outcomes.push(outcome);
        if !failed {
            break;
        }
    }
    // The first big transfer that ends stops the small ones.
    over.store(true, Ordering::Relaxed);
    outcomes
}

/// Returns when a transfer makes no progress for too long.
async fn hang(ground: &RunContext, watched: &Watched) {
    let (mut last, mut since) = (0, Instant::now());
    let mut look = tokio::time::interval(Duration::from_millis(100));
    loop {
        look.tick().await;
        let position = watched.position.load(Ordering::Relaxed);
        if position != last {
            ground.moved.fetch_add(position.saturating_sub(last), Ordering::Relaxed);
            (last, since) = (position, Instant::now());
        } else if since.elapsed() >= ground.patience {
            return;
        }
    }
}

/// Returns what is wrong with an outcome, if anything. `excused`: a connection was killed in this run.
fn verdict(outcome: &Outcome, excused: bool) -> Option<String> {
    let error = match outcome {
        Outcome::Complete | Outcome::Cancelled => return None,
        Outcome::Wrong(wrong) => return Some(wrong.clone()),
        Outcome::Failed(error) => error,
    };
    if !excused {
        return Some(format!("failed though no connection was killed: {error}"));
    }
    if error.connection().is_none() && !error.is_connect() && !error.is_retryable() {
        return Some(format!("the error names no connection: {error}"));
    }
    if error.is_user() {
        return Some(format!("the error blames the application: {error}"));
    }
    None
}

/// Waits until a server has no open connections.
async fn wind_down(server: &Server, wrong: &mut Vec<String>) -> Stats {
    let deadline = Instant::now() + WIND_DOWN;
    let mut look = tokio::time::interval(Duration::from_millis(5));
    loop {
        look.tick().await;
        let stats = server.stats();
        if stats.connections_opened == stats.connections_closed {
            return stats;
        }
        if Instant::now() >= deadline {
            wrong.push(format!("connections stay open at the server: {stats:?}"));
            return stats;
        }
    }
}
