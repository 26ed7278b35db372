//! One run: a client, a relay, a concurrent download and upload, and small requests beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use smig::{Client, Config, MigrationConfig, MigrationMode, Server, Stats, Trust};
use tokio::time::Instant;

use crate::plan::{ClientMigration, Plan, ServerMigration, Transfer};
use crate::relay::{Kill, Relay};
use crate::rng::Rng;
use crate::server::{HANDSHAKE_TIMEOUT, SelfSignedCert, serve};
use crate::service::{HandlerContext, LimitHits};
use crate::transfer::{TransferClient, TransferOutcome, TransferProgress};

/// Maximum number of attempts of a large transfer.
const MAX_ATTEMPTS: usize = 3;
/// Timeout for the connections of unused sessions to close, and for a server to shut down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// State shared by the runs.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) handler_context: Arc<HandlerContext>,
    pub(crate) identity: SelfSignedCert,
    /// The server of all runs without one of their own.
    pub(crate) shared_server: Server,
    pub(crate) seed: u64,
    pub(crate) size: u64,
    /// A transfer without progress for this long counts as hung.
    pub(crate) stall_timeout: Duration,
    /// Bytes of large transfers so far, for the progress bar.
    pub(crate) transferred_bytes: AtomicU64,
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct RunReport {
    pub(crate) downloads: Vec<TransferOutcome>,
    pub(crate) uploads: Vec<TransferOutcome>,
    pub(crate) small_downloads: Vec<TransferOutcome>,
    pub(crate) kills: Vec<Kill>,
    /// The counters of the client, and those of the run's own server.
    pub(crate) client_stats: Stats,
    pub(crate) own_server_stats: Option<Stats>,
    pub(crate) violations: Vec<String>,
}

/// Executes one run.
pub(crate) async fn run(context: &RunContext, number: usize) -> Result<RunReport> {
    let mut rng = Rng::of_run(context.seed, number);
    let plan = Plan::generate(&mut rng, context.size);
    let own_server = match &plan.server_migration {
        ServerMigration::HandlersOnly => None,
        migration => Some(serve(
            &context.handler_context,
            &context.identity,
            migration,
            plan.max_migrations,
        )?),
    };
    let server = own_server.as_ref().unwrap_or(&context.shared_server);
    let addr = *server.local_addrs().first().context("the server listens nowhere")?;
    let relay = Relay::start(addr, plan.faults.clone()).await.context("the relay cannot listen")?;
    let client = build_client(context, &plan)?;
    let transfer_client = TransferClient {
        client: client.clone(),
        handler_context: Arc::clone(&context.handler_context),
        base_url: format!("https://localhost:{}", relay.port()),
    };
    let mut violations = Vec::new();
    let large_done = AtomicBool::new(false);
    let (downloads, uploads, small_downloads) = tokio::join!(
        run_large_transfer(
            context,
            &plan.download,
            &transfer_client,
            &relay,
            TransferKind::Download,
            &large_done
        ),
        run_large_transfer(
            context,
            &plan.upload,
            &transfer_client,
            &relay,
            TransferKind::Upload,
            &large_done
        ),
        transfer_client.run_small_downloads(&large_done, rng),
    );
    drop(transfer_client);
    let kills = relay.kills();
    let failure_allowed = !kills.is_empty() || relay.failed_connects() > 0;
    let outcomes = downloads.iter().chain(&uploads).chain(&small_downloads);
    violations.extend(outcomes.filter_map(|outcome| violation_of(outcome, failure_allowed)));
    let client_stats = client.stats();
    drop(client);
    drop(relay);
    let own_server_stats = match own_server {
        None => None,
        Some(server) => {
            let stats = wait_until_closed(&server, &mut violations).await;
            if let Err(error) = server.shutdown(SHUTDOWN_TIMEOUT).await {
                violations.push(format!("the server did not shut down: {error}"));
            }
            Some(stats)
        }
    };
    Ok(RunReport {
        downloads,
        uploads,
        small_downloads,
        kills,
        client_stats,
        own_server_stats,
        violations,
    })
}

fn build_client(context: &RunContext, plan: &Plan) -> Result<Client> {
    let mut engine = Config::client();
    engine.stream_window = plan.stream_window;
    if let Some(smig) = &mut engine.smig {
        smig.max_migrations_per_stream = plan.max_migrations;
    }
    let mut migration_config = MigrationConfig::default();
    migration_config.mode = match &plan.client_migration {
        ClientMigration::TransfersOnly => MigrationMode::Never,
        ClientMigration::At(offsets) => MigrationMode::At(offsets.clone()),
        ClientMigration::Policy => MigrationMode::Policy,
    };
    let client = Client::builder()
        .trust(Trust::Pem(context.identity.certificate_pem.clone().into_bytes()))
        .engine(engine)
        .migration(migration_config)
        .observer(Arc::<LimitHits>::clone(&context.handler_context.limit_hits))
        .spares(plan.spares)
        .connect_timeout(HANDSHAKE_TIMEOUT)
        .handshake_timeout(HANDSHAKE_TIMEOUT)
        .build()?;
    Ok(client)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferKind {
    Download,
    Upload,
}

/// Makes a large transfer, repeated after a failure: at most [`MAX_ATTEMPTS`] times in all.
async fn run_large_transfer(
    context: &RunContext,
    transfer: &Transfer,
    transfer_client: &TransferClient,
    relay: &Relay,
    kind: TransferKind,
    large_done: &AtomicBool,
) -> Vec<TransferOutcome> {
    let mut outcomes = Vec::new();
    for _ in 0..MAX_ATTEMPTS {
        let progress = TransferProgress::default();
        let attempt = async {
            match kind {
                TransferKind::Download => transfer_client.download(transfer, &progress).await,
                TransferKind::Upload => transfer_client.upload(transfer, &progress).await,
            }
        };
        let outcome = tokio::select! {
            outcome = attempt => outcome,
            () = watch_for_stall(context, &progress) => {
                let text = format!(
                    "{kind:?} hangs: {}; relay: {}; {:?}",
                    progress.describe(),
                    relay.describe(),
                    transfer_client.client.stats()
                );
                relay.reset_all();
                TransferOutcome::Violation(text)
            }
        };
        let failed = matches!(outcome, TransferOutcome::Failed(_));
        outcomes.push(outcome);
        if !failed {
            break;
        }
    }
    // The first large transfer that ends stops the small ones.
    large_done.store(true, Ordering::Relaxed);
    outcomes
}

/// Adds the bytes of a transfer to the progress bar's total; returns when the transfer makes no
/// progress for too long.
async fn watch_for_stall(context: &RunContext, progress: &TransferProgress) {
    let (mut last_position, mut last_progress_at) = (0, Instant::now());
    let mut interval = tokio::time::interval(Duration::from_millis(100));
    loop {
        interval.tick().await;
        let position = progress.position.load(Ordering::Relaxed);
        if position != last_position {
            context
                .transferred_bytes
                .fetch_add(position.saturating_sub(last_position), Ordering::Relaxed);
            (last_position, last_progress_at) = (position, Instant::now());
        } else if last_progress_at.elapsed() >= context.stall_timeout {
            return;
        }
    }
}

/// Returns what is wrong with an outcome, if anything. `failure_allowed`: in this run a connection was
/// killed, or the relay could not open one.
fn violation_of(outcome: &TransferOutcome, failure_allowed: bool) -> Option<String> {
    let error = match outcome {
        TransferOutcome::Complete | TransferOutcome::Cancelled => return None,
        TransferOutcome::Violation(violation) => return Some(violation.clone()),
        TransferOutcome::Failed(error) => error,
    };
    if !failure_allowed {
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
async fn wait_until_closed(server: &Server, violations: &mut Vec<String>) -> Stats {
    let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
    let mut interval = tokio::time::interval(Duration::from_millis(5));
    loop {
        interval.tick().await;
        let stats = server.stats();
        if stats.connections_opened == stats.connections_closed {
            return stats;
        }
        if Instant::now() >= deadline {
            violations.push(format!("connections remain open at the server: {stats:?}"));
            return stats;
        }
    }
}
