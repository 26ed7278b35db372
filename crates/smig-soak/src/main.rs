//! Transfers over real sockets with forced migrations and killed connections.
//!
//! Each run transfers large bodies in both directions through a relay that kills, stalls and slows
//! TCP connections, while both ends migrate the streams at random offsets. A transfer must be
//! correct or fail with an error that names its connection; the runs must leak nothing.

mod body;
mod census;
mod content;
mod plan;
mod relay;
mod rng;
mod run;
mod server;
mod service;
mod tally;
mod transfer;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

use census::Census;
use plan::ServerMigration;
use run::{RunContext, RunReport};
use server::{SelfSignedCert, serve};
use service::HandlerContext;
use tally::{LeakReport, Tally};

/// Runs per batch. After a batch everything must have ended, and memory is measured.
const RUNS_PER_BATCH: usize = 20;
/// Limit on the growth of resident memory since the first batch. One leaked buffer of 64 KiB per
/// run is 11 MiB after 180 runs; the allocator's own variation stays well below.
const MAX_MEMORY_GROWTH_KIB: u64 = 10 << 10;
/// Timeout for everything to end after a batch.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Random migrations and connection failures over real sockets.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Options {
    /// Number of runs
    #[arg(long, default_value_t = 200)]
    runs: usize,
    /// Seed of the plans; the same seed and size give the same plans
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Size of each large transfer in bytes, optionally with kB, MB, KiB or MiB
    #[arg(long, default_value = "50MB", value_parser = parse_bytes)]
    size: u64,
    /// Number of concurrent runs
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Repeat only the run with this number
    #[arg(long)]
    only: Option<usize>,
    /// Seconds without progress after which a transfer counts as hung
    #[arg(long, default_value_t = 40)]
    stall_timeout: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print each run's plan before it starts
    #[arg(long)]
    plans: bool,
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is not a number of bytes"))?;
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        other => return Err(format!("unknown unit {other:?}: kB, MB, KiB or MiB")),
    };
    match number.checked_mul(unit) {
        Some(bytes @ 1..=0x7fff_ffff) => Ok(bytes),
        _ => Err(format!("{text} is not between 1 byte and 2 GiB")),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("SOAK_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match soak(&options) {
        Ok(tally) if tally.violations.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn soak(options: &Options) -> Result<Tally> {
    if options.runs == 0 || options.jobs == 0 {
        bail!("--runs and --jobs must be at least 1");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let tally = runtime.block_on(run_all(options))?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&tally)?);
    } else {
        print!("{tally}");
    }
    if let Some(first) = tally.violations.first().filter(|first| first.starts_with("run ")) {
        let number: String = first.chars().skip(4).take_while(char::is_ascii_digit).collect();
        let (seed, size) = (options.seed, options.size);
        eprintln!(
            "repeat: cargo run --release -p smig-soak -- --seed {seed} --size {size} --only {number}"
        );
    }
    Ok(tally)
}

async fn run_all(options: &Options) -> Result<Tally> {
    let handler_context = HandlerContext::new(options.size.max(64 << 10));
    let identity = SelfSignedCert::new()?;
    let shared_server = serve(&handler_context, &identity, &ServerMigration::HandlersOnly, 8)?;
    let context = Arc::new(RunContext {
        handler_context,
        identity,
        shared_server,
        seed: options.seed,
        size: options.size,
        stall_timeout: Duration::from_secs(options.stall_timeout),
        transferred_bytes: AtomicU64::new(0),
    });
    let start_time = Instant::now();
    let mut tally = Tally::new(options.seed, options.size);
    let baseline = stable_census(&context).await;
    let run_numbers: Vec<_> = match options.only {
        Some(number) => vec![number],
        None => (0..options.runs).collect(),
    };
    let bar = progress_bar(run_numbers.len() as u64);
    let mut leaks = LeakReport {
        before: baseline,
        after: baseline,
        resident_kib: Vec::new(),
        max_growth_kib: MAX_MEMORY_GROWTH_KIB,
    };
    for batch in run_numbers.chunks(RUNS_PER_BATCH) {
        run_batch(&context, batch, options, &mut tally, &bar).await?;
        leaks.after = settle(&context, &baseline, &mut tally).await;
        leaks.resident_kib.push(census::resident_kib());
    }
    bar.finish_and_clear();
    tally.server.add(&context.shared_server.stats());
    tally.uploads_complete_at_server =
        context.handler_context.uploads_complete.load(Ordering::Relaxed);
    let handler_violations = context
        .handler_context
        .violations
        .lock()
        .map(|violations| violations.clone())
        .unwrap_or_default();
    tally.violations.extend(handler_violations);
    let growth_kib = leaks.growth_kib();
    if growth_kib > MAX_MEMORY_GROWTH_KIB.cast_signed() {
        tally.violations.push(format!("memory grew by {growth_kib} KiB since the first batch"));
    }
    let panics = tally.client.panics + tally.server.panics;
    if panics > 0 {
        tally.violations.push(format!("{panics} panics"));
    }
    tally.limits_hit = context.handler_context.limit_hits.counts();
    for (limit, count) in &tally.limits_hit {
        // Plans exceed the limit on migrations on purpose. A carrier remains unbound if the
        // connection whose MIGRATE names it is killed after the mover has sent everything.
        let kills = tally.kills.interactive + tally.kills.bulk + tally.kills.other;
        let is_expected = match *limit {
            "migrations" => true,
            "unbound carrier time" => *count <= kills,
            _ => false,
        };
        if !is_expected {
            tally
                .violations
                .push(format!("limit reached {count} times by well-behaved peers: {limit}"));
        }
    }
    tally.leaks = Some(leaks);
    tally.seconds = start_time.elapsed().as_secs_f64();
    Ok(tally)
}

fn progress_bar(runs: u64) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left  {msg}");
    let bar = ProgressBar::with_draw_target(Some(runs), target);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Executes the runs of a batch, `--jobs` at a time.
async fn run_batch(
    context: &Arc<RunContext>,
    batch: &[usize],
    options: &Options,
    tally: &mut Tally,
    bar: &ProgressBar,
) -> Result<()> {
    let run_numbers: Arc<[usize]> = batch.into();
    let next_index = Arc::new(AtomicUsize::new(0));
    let (sender, mut reports) = mpsc::unbounded_channel::<(usize, Result<RunReport>)>();
    for _ in 0..options.jobs {
        let (context, run_numbers, next_index) =
            (Arc::clone(context), Arc::clone(&run_numbers), Arc::clone(&next_index));
        let (sender, plans) = (sender.clone(), options.plans);
        tokio::spawn(async move {
            while let Some(&number) = run_numbers.get(next_index.fetch_add(1, Ordering::Relaxed)) {
                if plans {
                    let mut rng = rng::Rng::of_run(context.seed, number);
                    eprintln!("run {number}: {:#?}", plan::Plan::generate(&mut rng, context.size));
                }
                let report = run::run(&context, number).await;
                if sender.send((number, report)).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    while let Some((number, report)) = reports.recv().await {
        let report = report.with_context(|| format!("run {number}"))?;
        for violation in &report.violations {
            bar.suspend(|| eprintln!("run {number}: {violation}"));
        }
        tally.add(number, &report);
        bar.inc(1);
        let transferred_mb = context.transferred_bytes.load(Ordering::Relaxed) / 1_000_000;
        bar.set_message(format!("{transferred_mb} MB, {} violations", tally.violations.len()));
    }
    Ok(())
}

fn take_census(context: &RunContext) -> Census {
    let stats = context.shared_server.stats();
    Census {
        tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        descriptors: census::descriptor_count(),
        connections: stats.connections_opened - stats.connections_closed,
        services: context.handler_context.live_services.load(Ordering::Relaxed),
        handlers: context.handler_context.live_handlers.load(Ordering::Relaxed),
    }
}

/// Returns the census once it is stable: each worker of the shared server has its copy of the
/// service.
async fn stable_census(context: &RunContext) -> Census {
    let mut last_census = take_census(context);
    let mut interval = tokio::time::interval(Duration::from_millis(50));
    let mut equal_count = 0;
    while equal_count < 4 {
        interval.tick().await;
        let now = take_census(context);
        equal_count = if now == last_census { equal_count + 1 } else { 0 };
        last_census = now;
    }
    last_census
}

/// Waits until no count is above `baseline`, and returns the counts; after [`SETTLE_TIMEOUT`],
/// reports the excess as a violation and returns them as they are.
async fn settle(context: &RunContext, baseline: &Census, tally: &mut Tally) -> Census {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    let mut interval = tokio::time::interval(Duration::from_millis(20));
    loop {
        interval.tick().await;
        let now = take_census(context);
        let Some(excess) = now.excess(baseline) else { return now };
        if Instant::now() >= deadline {
            tally.violations.push(format!("leaked after {} runs: {excess}", tally.runs));
            return now;
        }
    }
}
