//! Transfers over real sockets with forced migrations and killed connections.
//!
//! Each run transfers big bodies in both directions through a relay that kills, stalls and slows TCP
//! connections, while both ends migrate the streams at random offsets. A transfer must be correct or fail
//! with an error that names its connection; nothing may be left when the runs are over.

mod body;
mod census;
mod content;
mod dice;
mod plan;
mod relay;
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
use plan::ServerMoves;
use run::{Report, RunContext};
use server::{Identity, serve};
use service::HandlerContext;
use tally::{LeakReport, Tally};

/// Runs per batch. After a batch everything must have ended, and memory is measured.
const BATCH: usize = 20;
/// Limit on the growth of resident memory since the first batch. One leaked buffer of 64 KiB per run is
/// 11 MiB after 180 runs; the allocator's own noise stays well below.
const MEMORY_BOUND_KIB: u64 = 10 << 10;
/// Timeout for everything to end after a batch.
const SETTLE: Duration = Duration::from_secs(20);

/// Random migrations and connection failures over real sockets.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Options {
    /// How many runs
    #[arg(long, default_value_t = 200)]
    runs: usize,
    /// Seed of the plans; the same seed gives the same plans
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Size of each big transfer in bytes, optionally with kB, MB, KiB or MiB
    #[arg(long, default_value = "50MB", value_parser = bytes)]
    size: u64,
    /// Runs at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Repeat only the run with this number
    #[arg(long)]
    only: Option<usize>,
    /// Seconds without progress after which a transfer counts as hung
    #[arg(long, default_value_t = 40)]
    patience: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print each run's plan before it starts
    #[arg(long)]
    plans: bool,
}

fn bytes(text: &str) -> Result<u64, String> {
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
    let tally = runtime.block_on(all(options))?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&tally)?);
    } else {
        print!("{tally}");
    }
    if let Some(first) = tally.violations.first().filter(|first| first.starts_with("run ")) {
        let number: String = first.chars().skip(4).take_while(char::is_ascii_digit).collect();
        let (seed, size) = (options.seed, options.size);
        eprintln!(
            "again: cargo run --release -p smig-soak -- --seed {seed} --size {size} --only {number}"
        );
    }
    Ok(tally)
}

async fn all(options: &Options) -> Result<Tally> {
    let stage = HandlerContext::new(options.size.max(64 << 10));
    let identity = Identity::new()?;
    let lasting = serve(&stage, &identity, &ServerMoves::Asked, 8)?;
    let ground = Arc::new(RunContext {
        stage,
        identity,
        lasting,
        seed: options.seed,
        size: options.size,
        patience: Duration::from_secs(options.patience),
        moved: AtomicU64::new(0),
    });
    let started = Instant::now();
    let mut tally = Tally::new(options.seed, options.size);
    let before = until_services(&ground).await;
    let numbers: Vec<_> = match options.only {
        Some(number) => vec![number],
        None => (0..options.runs).collect(),
    };
    let bar = bar(numbers.len() as u64);
    let mut residue =
        LeakReport { before, after: before, resident_kib: Vec::new(), bound_kib: MEMORY_BOUND_KIB };
    for batch in numbers.chunks(BATCH) {
        runs(&ground, batch, options, &mut tally, &bar).await?;
        residue.after = settle(&ground, &before, &mut tally).await;
        residue.resident_kib.push(census::resident_kib());
    }
    bar.finish_and_clear();
    tally.server.add(&ground.lasting.stats());
    tally.uploads_whole_at_server = ground.stage.uploads_whole.load(Ordering::Relaxed);
    let accused = ground.stage.violations.lock().map(|said| said.clone()).unwrap_or_default();
    tally.violations.extend(accused);
    let growth = residue.growth_kib();
    if growth > MEMORY_BOUND_KIB.cast_signed() {
        tally.violations.push(format!("memory grew by {growth} KiB since the first batch"));
    }
    let panics = tally.client.panics + tally.server.panics;
    if panics > 0 {
        tally.violations.push(format!("{panics} panics"));
    }
    tally.limits_hit = ground.stage.fired.counts();
    for (limit, count) in &tally.limits_hit {
        // Migrations beyond the limit of a run's plan are planned. A carrier remains unbound if the connection
        // that had to name it is killed after the migrating side has sent everything.
        let kills = tally.kills.interactive + tally.kills.bulk + tally.kills.spare;
        let planned = match *limit {
            "migrations" => true,
            "unbound carrier time" => *count <= kills,
            _ => false,
        };
        if !planned {
            tally
                .violations
                .push(format!("limit reached {count} times by well-behaved peers: {limit}"));
        }
    }
    tally.residue = Some(residue);
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

fn bar(runs: u64) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left  {msg}");
    let bar = ProgressBar::with_draw_target(Some(runs), target);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Makes the runs of a batch, `--jobs` at a time.
async fn runs(
    ground: &Arc<RunContext>,
    batch: &[usize],
    options: &Options,
    tally: &mut Tally,
    bar: &ProgressBar,
) -> Result<()> {
    let numbers: Arc<[usize]> = batch.into();
    let next = Arc::new(AtomicUsize::new(0));
    let (sender, mut reports) = mpsc::unbounded_channel::<(usize, Result<Report>)>();
    for _ in 0..options.jobs {
        let (ground, numbers, next) = (Arc::clone(ground), Arc::clone(&numbers), Arc::clone(&next));
        let (sender, plans) = (sender.clone(), options.plans);
        tokio::spawn(async move {
            while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                if plans {
                    let mut dice = dice::Rng::of_run(ground.seed, number);
                    eprintln!("run {number}: {:#?}", plan::Plan::throw(&mut dice, ground.size));
                }
                let report = run::run(&ground, number).await;
                if sender.send((number, report)).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    while let Some((number, report)) = reports.recv().await {
        let report = report.with_context(|| format!("run {number}"))?;
        for wrong in &report.wrong {
            bar.suspend(|| eprintln!("run {number}: {wrong}"));
        }
        tally.add(number, &report);
        bar.inc(1);
        let moved = ground.moved.load(Ordering::Relaxed) / 1_000_000;
        bar.set_message(format!("{moved} MB, {} wrong", tally.violations.len()));
    }
    Ok(())
}

fn census(ground: &RunContext) -> Census {
    let stats = ground.lasting.stats();
    Census {
        tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        descriptors: census::descriptors(),
        connections: stats.connections_opened - stats.connections_closed,
        services: ground.stage.services.load(Ordering::Relaxed),
        handlers: ground.stage.handlers.load(Ordering::Relaxed),
    }
}

/// Returns the census once it is stable: the shared server's workers have their copies of the service.
async fn until_services(ground: &RunContext) -> Census {
    let mut last = census(ground);
    let mut look = tokio::time::interval(Duration::from_millis(50));
    let mut same = 0;
    while same < 4 {
        look.tick().await;
        let now = census(ground);
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Waits until nothing is left of the runs, and returns what is left at the deadline.
async fn settle(ground: &RunContext, before: &Census, tally: &mut Tally) -> Census {
    let deadline = Instant::now() + SETTLE;
    let mut look = tokio::time::interval(Duration::from_millis(20));
    loop {
        look.tick().await;
        let now = census(ground);
        let Some(excess) = now.excess(before) else { return now };
        if Instant::now() >= deadline {
            tally.violations.push(format!("left over after {} runs: {excess}", tally.runs));
            return now;
        }
    }
}
