//! `smig lab identify`: which congestion control a sender has, by the queue that it fills.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result};
use clap::Args;
use indicatif::ProgressBar;
use smig_chart::table;
use smig_lab::identify::{
    self, Accuracy, Classifier, Identification, IdentifyError, KnownSenders, ProbeSpec, QueueTrace,
    Sample, Sender, Series,
};
use smig_settings::value::{parse_size, parse_time};
use smig_testbed::netns::enter_user_namespace;

use super::check::progress_bar;
use crate::exit::{CliError, Exit};
use crate::stderr;
use crate::stdout::{out, outln};

/// Linux's common ones; what the kernel does not have is left out.
const DEFAULT_SENDERS: [&str; 6] = ["reno", "cubic", "cubic-hystart", "bbr", "yeah", "illinois"];

/// Tell which congestion control a sender has, by the queue that it fills
#[derive(Debug, Args)]
#[command(
    long_about = "Tell which congestion control a sender has, by the queue that it fills.\n\nAn object \
        is fetched over an emulated link so narrow that one initial window fills a round trip, with a \
        queue of 100 packets. A sender that goes by losses (CUBIC without HyStart, Reno) fills the queue \
        within two seconds; one that goes by delays (BBR, and CUBIC with HyStart, Linux's default) stops \
        before. That is Igor's rule (\"Mind the Delay\", CoNEXT 2020), with the exact queue instead of \
        samples of it.\n\nSenders are congestion controls of this machine: reno, bbr, vegas and so on, as far as the \
        kernel has them; cubic is CUBIC without HyStart, cubic-hystart with it. While either is measured, \
        the machine's HyStart setting is held, for which root is needed.\n\nColumns: the longest queue in packets and after \
        how long; the same in the paper's Table 1, where it has this cell; the first dropped packet; \
        what follows by the rule as published (a loss within 2 s) and as its program decides (2.5 s); with \
        --known, which known sender it is like, by the whole course of the queue, or that it is like none.",
    after_help = "\
Examples:
  smig lab identify                                   reno, cubic, cubic-hystart and bbr with 320 KB
  smig lab identify cubic cubic-hystart --object 40kB,80kB,160kB,320kB --mtu 500
  smig lab identify bbr --rtt 150ms --svg bbr.svg     with a picture of queue and window
  smig lab identify --runs 5 --json | jq '{sender, max_queue, paper_rule}'
  smig lab identify --sack --runs 3 --rtt 100ms,200ms --object 320kB,400kB --learn known.json     what known senders do
  smig lab identify bbr --sack --rtt 150ms --known known.json         which of them this one is like
  smig lab identify --sack --runs 10 --rtt 150ms --object 330kB,450kB --learn others.json
  smig lab identify --known known.json --judge others.json            how often it names the right one

Exit codes: 0 success; 2 usage error; 1 another error, such as a sender that was named and cannot \
be measured"
)]
pub(crate) struct IdentifyArgs {
    /// Congestion controls [default: reno, cubic, cubic-hystart and bbr]
    #[arg(value_name = "SENDER")]
    senders: Vec<Sender>,
    /// Sizes of the object
    #[arg(long, value_name = "SIZE", value_parser = parse_size, value_delimiter = ',', default_value = "320kB")]
    object: Vec<u64>,
    /// MTU of the link in bytes [default: 500; 100 below 100 kB, 1500 above 1 MB; with --sack 250 at 320 kB and so on]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(100..=9000))]
    mtu: Option<u32>,
    /// Round-trip times to the sender; the link's is the next multiple of 50 ms, and at least 100 ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, value_delimiter = ',', default_value = "100ms")]
    rtt: Vec<Duration>,
    /// Let the client say which packets it has (SACK), which Igor switches off, and give the object 1,600 packets: a sender then also shows how
    /// it goes on after its first losses. For --learn and --known
    #[arg(long)]
    sack: bool,
    /// Compare with the known senders of this file
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Judge the probes of this file (--learn writes one) instead of new ones: how well --known tells them, and a sender that it does not know
    #[arg(long, value_name = "FILE", requires = "known", conflicts_with_all = ["senders", "learn", "svg"])]
    judge: Option<PathBuf>,
    /// Add what is measured to this file of known senders
    #[arg(long, value_name = "FILE")]
    learn: Option<PathBuf>,
    /// How many transfers run at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// How often each transfer is repeated
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Draw queue and congestion window of the last run of each sender, with the last size, into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print each result as a line of JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &IdentifyArgs) -> Result<ExitCode> {
    let known = args.known.as_deref().map(read_known).transpose()?;
    if let (Some(known), Some(probes)) = (&known, &args.judge) {
        return judge(known, &read_known(probes)?, args.json);
    }
    // User namespaces require a single-threaded process.
    enter_user_namespace()?;
    let classifier = known.as_ref().map(Classifier::new);
    let mut learnt = match &args.learn {
        Some(path) if path.exists() => read_known(path)?,
        _ => KnownSenders::default(),
    };
    let defaults: Vec<Sender> =
        DEFAULT_SENDERS.iter().filter_map(|name| name.parse().ok()).collect();
    let is_default = args.senders.is_empty();
    let senders = if is_default { &defaults } else { &args.senders };
    let specs = specs(args)?;
    let bar = progress_bar(senders.len() * specs.len());
    let (mut results, mut pictures, mut failure) = (Vec::new(), Vec::new(), None);
    for sender in senders {
        bar.set_message(sender.to_string());
        match probe_all(args, sender, &specs, &bar) {
            Ok(traces) => {
                for (spec, trace) in specs.iter().zip(&traces) {
                    let result =
                        Identification::new(sender.clone(), *spec, trace, classifier.as_ref());
                    results.push(result);
                    let series = Series::new(spec, trace);
                    learnt.samples.push(Sample { sender: sender.clone(), spec: *spec, series });
                }
                pictures.extend(traces.into_iter().last().map(|trace| (sender.clone(), trace)));
            }
            Err(error) if is_default && error.is_unavailable() => {
                bar.suspend(|| stderr::print_line(&format!("left out: {error}")));
            }
            // What was measured before is shown and written all the same.
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    bar.finish_and_clear();
    if args.json {
        for result in &results {
            outln!("{}", serde_json::to_string(result)?);
        }
    } else {
        out!("{}", table::to_text(&identify::table(&results)));
        if let Some(confusion) = identify::confusion(&results) {
            out!("\n{}", table::to_text(&confusion));
        }
    }
    if let Some(path) = &args.svg {
        write_file(path, &identify::render_svg(&pictures))?;
    }
    if let Some(path) = &args.learn {
        write_file(path, &serde_json::to_string(&learnt)?)?;
    }
    failure.map_or(Ok(ExitCode::SUCCESS), |error| Err(error.into()))
}

/// Prints how well known senders are told.
fn judge(known: &KnownSenders, probes: &KnownSenders, is_json: bool) -> Result<ExitCode> {
    let accuracy = Accuracy::of(known, &probes.samples);
    if accuracy.skipped > 0 {
        let skipped = accuracy.skipped;
        stderr::print_line(&format!(
            "{skipped} probes are compared with nothing: no known sender was measured with --sack as they were, or without as they were"
        ));
    }
    if is_json {
        for sender in &accuracy.senders {
            outln!("{}", serde_json::to_string(sender)?);
        }
    } else {
        out!("{}", table::to_text(&identify::accuracy_table(&accuracy)));
        if let Some(confusion) = &accuracy.confusion {
            out!("\n{}", table::to_text(confusion));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read_known(path: &Path) -> Result<KnownSenders> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let what = || format!("{} is no file of known senders (--learn writes one)", path.display());
    serde_json::from_str(&text).with_context(what)
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    // A run that is killed leaves the file as it was.
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Returns what is measured of each sender.
///
/// # Errors
/// A transfer that would take too long.
fn specs(args: &IdentifyArgs) -> Result<Vec<ProbeSpec>> {
    let mut specs = Vec::new();
    for object_bytes in &args.object {
        for rtt in &args.rtt {
            let new = if args.sack { ProbeSpec::with_sack } else { ProbeSpec::new };
            let mut spec = new(*object_bytes, *rtt);
            spec.mtu = args.mtu.unwrap_or(spec.mtu);
            if spec.least_time() >= identify::TRANSFER_TIMEOUT {
                let ProbeSpec { object_bytes, mtu, rtt_ms, .. } = spec;
                let why = format!(
                    "{} with an MTU of {mtu} bytes and a round trip of {rtt_ms} ms take {} s at least, and a transfer \
                     may take {} s: use a larger --mtu or a smaller --object",
                    smig_chart::format_bytes(object_bytes),
                    spec.least_time().as_secs(),
                    identify::TRANSFER_TIMEOUT.as_secs()
                );
                return Err(CliError::new(Exit::Usage, why).into());
            }
            specs.extend((0..args.runs).map(|_| spec));
        }
    }
    Ok(specs)
}

/// Measures a sender, several transfers at a time; returns the traces in the order of `specs`.
fn probe_all(
    args: &IdentifyArgs,
    sender: &Sender,
    specs: &[ProbeSpec],
    bar: &ProgressBar,
) -> Result<Vec<QueueTrace>, IdentifyError> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<_, IdentifyError> {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(spec) = specs.get(index) else { return Ok(done) };
            let trace = identify::probe(spec, sender, keeper).inspect_err(|_| {
                next.store(specs.len(), Ordering::Relaxed);
            })?;
            done.push((index, trace));
            bar.inc(1);
        }
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut traces = Vec::new();
    for result in results {
        traces.extend(result?);
    }
    traces.sort_by_key(|(index, _)| *index);
    Ok(traces.into_iter().map(|(_, trace)| trace).collect())
}

/// Returns the command of `smig lab hystart` or `smig lab bpf`, without its last argument.
fn keeper(what: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["lab", what]);
    command
}
