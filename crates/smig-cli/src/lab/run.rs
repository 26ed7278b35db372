//! `smig lab run`: runs a scenario's trials, serially or in parallel, and shows their progress.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use smig_lab::campaign::{
    self, CampaignError, CampaignEvent, CampaignOptions, CampaignSummary, Jobs, OnDisturbed, Plan,
    copy_scenario, plan,
};
use smig_lab::scenario::{
    self, AddressPlan, Campaign, Filter, HostRole, ServerSpec, Shard, SizeClass,
};
use smig_lab::servers::{RunAs, ServerEnv, find_server_tool};
use smig_lab::trial::TrialResult;
use smig_lab::workload::{Outcome, PageLoad, ServerFiles};
use smig_settings::Diagnostic;
use tokio_util::sync::CancellationToken;

use super::build::{BuildArgs, identify_build};
use crate::exit::{CliError, Exit};
use crate::interrupt::{self, INTERRUPTED_STATUS};
use crate::paint;
use crate::settings;
use crate::stderr;
use crate::stdout::outln;

/// Run the measurements of a scenario file
#[derive(Debug, Args)]
#[command(
    long_about = "Run the measurements of a scenario file: every condition, with all its repetitions.\n\n\
        Each run has its own hosts, link, servers and clients, in its own process. Results are appended \
        to DIR/results.jsonl, one line per run. Runs that have a result there are skipped, so a campaign \
        can be stopped at any time, and the same command resumes it. Runs that the machine disturbed \
        (packets late, or dropped outside the link) do not count and are repeated.\n\nRuns with a server \
        that is not installed are left out, with a note on how to install it.",
    after_help = "\
Examples:
  smig lab run scenarios/smoke.toml
  smig lab run scenarios/small-beside-big.toml --out paper --filter buffer=large --repetitions 2
  smig lab run scenarios/small-beside-big.toml --out shard-3 --shard 3/8     (then: smig lab merge all shard-*)
  smig lab run scenarios/small-beside-big.toml --show-config --filter scheme=nginx

Exit codes: 0 each run has a result, or needs a server that is not installed; 1 some have none, or no run has;
2 usage error, or an invalid scenario; 130 stopped."
)]
pub(crate) struct RunArgs {
    /// The scenario file
    file: PathBuf,
    /// Directory for results [default: NAME-results, after the scenario's name]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only shard I of N
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    shard: Option<Shard>,
    /// Number of parallel runs; fast links need a processor or two each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_jobs)]
    jobs: usize,
    /// Only conditions with these levels, may be repeated; several names of an axis are alternatives
    #[arg(long, value_name = "AXIS=NAME", action = clap::ArgAction::Append)]
    filter: Vec<String>,
    /// Number of repetitions of each condition, instead of the scenario's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
    /// Whether to keep a run that was disturbed in every attempt, with a mark, or to drop it
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = DisturbedRuns::Drop)]
    disturbed: DisturbedRuns,
    #[command(flatten)]
    build: BuildArgs,
    /// Print the configuration of each server, without running anything
    #[arg(long)]
    show_config: bool,
    /// Print a summary as JSON on standard output at the end
    #[arg(long)]
    json: bool,
}

/// Whether a run that was disturbed in every attempt has a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DisturbedRuns {
    /// It is a result, marked as disturbed
    Keep,
    /// It is no result; the same command retries it
    Drop,
}

impl From<DisturbedRuns> for OnDisturbed {
    fn from(runs: DisturbedRuns) -> Self {
        match runs {
            DisturbedRuns::Keep => Self::Keep,
            DisturbedRuns::Drop => Self::Reject,
        }
    }
}

pub(super) fn parse_jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs @ 1..=256) => Ok(jobs),
        _ => Err("expected 1 to 256".into()),
    }
}

pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let mut campaign = scenario::load(&args.file, &check_setting)
        .map_err(|faults| CliError::new(Exit::Usage, faults.to_string()))?;
    if let Some(repetitions) = args.repetitions {
        campaign.repetitions = repetitions;
    }
    let filter = Filter::parse(&args.filter, &campaign)
        .map_err(|why| CliError::new(Exit::Usage, format!("--filter: {why}")))?;
    let smig = std::env::current_exe().context("cannot find the path of this program")?;
    if args.show_config {
        show_config(&campaign, &filter, &smig)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = CampaignOptions {
        out: args.out.clone().unwrap_or_else(|| format!("{}-results", campaign.name).into()),
        shard: args.shard,
        filter,
        jobs: Jobs::Number(args.jobs),
        build: identify_build(&smig)?,
        builds: args.build.accepted_builds(),
        smig,
        version: concat!("smig ", env!("CARGO_PKG_VERSION")).into(),
        on_disturbed: args.disturbed.into(),
    };
    let plan = plan(&campaign, &options).map_err(plan_error)?;
    copy_scenario(&options, &args.file)
        .with_context(|| format!("cannot write to {}", options.out.display()))?;
    let stop = CancellationToken::default();
    interrupt::cancel_on_interrupt(stop.clone())?;
    let view = CampaignProgress::new(&campaign.name, &plan, options.jobs);
    let summary = campaign::run(plan, &options, &stop, &mut |event| view.show(event));
    view.clear();
    print_summary(args, &options, &summary?)
}

/// Returns the error of a plan: of usage, unless the machine or a file is at fault.
pub(super) fn plan_error(error: CampaignError) -> anyhow::Error {
    match error {
        CampaignError::Machine(_) | CampaignError::Io { .. } => anyhow::Error::from(error),
        _ => CliError::new(Exit::Usage, error.to_string()).into(),
    }
}

/// Checks one setting of `smig serve` with the parser of `smig serve`; returns its faults.
pub(super) fn check_setting(text: &str) -> Result<(), String> {
    settings::check(text).map_err(|faults| {
        let text = |fault: &Diagnostic| match fault.key.as_str() {
            "" => fault.message.clone(),
            key => format!("{key}: {}", fault.message),
        };
        faults.iter().map(text).collect::<Vec<_>>().join("; ")
    })
}

fn show_config(campaign: &Campaign, filter: &Filter, smig: &Path) -> Result<()> {
    let dir = Path::new("RUN");
    let files = ServerFiles::at(dir);
    let env = ServerEnv {
        root: files.files_dir.clone(),
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        cert_and_key: files.cert_and_key.clone(),
        scratch_dir: dir.join("scratch"),
        smig: smig.to_owned(),
        replays: Vec::new(),
        run_as: if rustix::process::getuid().is_root() { RunAs::Root } else { RunAs::User },
    };
    for condition in campaign.conditions.iter().filter(|condition| filter.matches(&condition.name))
    {
        outln!("{}", paint::STDOUT.bold(&format!("== {}", condition.name)));
        outln!("link: {}", condition.scenario.link);
        let program = |_: &str, server: &ServerSpec| {
            let command = server.command.as_ref().and_then(|command| command.argv.first());
            let fallback = command.map_or_else(|| server.kind.as_str(), String::as_str);
            find_server_tool(server, smig).unwrap_or_else(|| fallback.into())
        };
        let plan = AddressPlan::of(&condition.scenario);
        let env = ServerEnv { replays: files.replays(&condition.scenario), ..env.clone() };
        for launch in env.launches(&condition.scenario, &plan, program) {
            let host = if launch.host == HostRole::Client { " on the clients' host" } else { "" };
            outln!("-- server {}{host}\n{}", launch.name, launch.to_config_text());
        }
    }
    Ok(())
}

/// Progress on standard error.
pub(super) struct CampaignProgress {
    bar: ProgressBar,
    is_drawn: bool,
}

impl CampaignProgress {
    pub(super) fn new(name: &str, plan: &Plan, jobs: Jobs) -> Self {
        let total = plan.trials.len() as u64;
        let bar = ProgressBar::new(total);
        let template = "{bar:24} {pos}/{len}  {elapsed} elapsed{msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let view = Self { is_drawn: !bar.is_hidden(), bar };
        view.println(&format!("{name}: {} to run, {} done already", total, plan.done_count));
        for missing in &plan.missing_servers {
            view.println(&format!("{} {missing}", paint::STDERR.error("warning:")));
        }
        if total > 0 {
            view.println(&paint::STDERR.dim(&format!(
                "about {}; Ctrl-C stops, the same command resumes",
                format_duration(jobs.total_time(&plan.trials))
            )));
            view.bar.enable_steady_tick(Duration::from_secs(1));
        }
        view
    }

    /// Removes the progress bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn println(&self, line: &str) {
        self.bar.suspend(|| stderr::print_line(line));
    }

    pub(super) fn show(&self, event: &CampaignEvent<'_>) {
        match event {
            CampaignEvent::Started { id, attempt } if self.is_drawn => {
                let suffix =
                    if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
                self.bar.set_message(format!("  {id}{suffix}"));
            }
            CampaignEvent::Started { .. } => {}
            CampaignEvent::Rejected { id, attempt, reason } => {
                self.println(&format!("disturbed, retrying: {id} (attempt {attempt}): {reason}"));
            }
            CampaignEvent::GivenUp { id, reason } => {
                self.bar.inc(1);
                self.println(&format!("{} {id}: {reason}", paint::STDERR.error("no result:")));
            }
            CampaignEvent::Finished { result, time_left } => {
                self.bar.inc(1);
                let remaining = format!("about {} left", format_duration(*time_left));
                let line = format!("{}: {}", result.id, summarize(result));
                if self.is_drawn {
                    self.println(&line);
                    self.bar.set_message(format!("  {remaining}"));
                } else {
                    self.println(&format!("{line}; {remaining}"));
                }
            }
        }
    }
}

pub(super) fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Summarizes a run in one line.
fn summarize(result: &TrialResult) -> String {
    let mut parts = Vec::new();
    let mut by_name: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    let mut pages: BTreeMap<&str, Vec<&PageLoad>> = BTreeMap::new();
    for load in &result.observation.pages {
        pages.entry(&load.name).or_default().push(load);
    }
    let is_resource = |name: &str| pages.contains_key(name);
    for object in result.observation.objects.iter().filter(|object| !is_resource(&object.name)) {
        by_name.entry(&object.name).or_default().push(object);
    }
    for (name, objects) in by_name {
        let is_expected =
            |object: &&&_| matches!(outcome(object), Outcome::Complete | Outcome::Cancelled);
        let expected_count = objects.iter().filter(is_expected).count();
        let mut seconds: Vec<_> = objects.iter().map(|object| object.duration_s()).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
        let mut part = match objects.first().map(|object| object.size_class) {
            Some(SizeClass::Large) => format!("{name} {median:.2} s"),
            _ => format!("{name} {:.0} ms", median * 1e3),
        };
        if objects.len() > 1 {
            part += &format!(" (median of {})", objects.len());
        }
        if expected_count < objects.len() {
            part += &format!(", {} failed", objects.len() - expected_count);
        }
        parts.push(part);
    }
    parts.extend(pages.iter().map(|(name, loads)| summarize_page(name, loads)));
    parts.join(", ")
}

fn summarize_page(name: &str, loads: &[&PageLoad]) -> String {
    let complete = || loads.iter().filter(|load| load.outcome == Outcome::Complete);
    let mut seconds: Vec<_> = complete().map(|load| load.duration_s()).collect();
    seconds.sort_by(f64::total_cmp);
    let time = seconds.get(seconds.len() / 2).map(|median| format!(" loaded in {median:.2} s"));
    let mut part = format!("{name}{}", time.unwrap_or_default());
    if seconds.len() > 1 {
        part += &format!(" (median of {})", seconds.len());
    }
    if seconds.len() < loads.len() {
        part += &format!(", {} failed", loads.len() - seconds.len());
        if let Some(Outcome::Failed(why)) = loads
            .iter()
            .map(|load| &load.outcome)
            .find(|outcome| matches!(outcome, Outcome::Failed(_)))
        {
            part += &format!(" ({why})");
        }
    }
    part
}

const fn outcome(object: &smig_lab::workload::ObjectResult) -> &Outcome {
    &object.outcome
}

fn print_summary(
    args: &RunArgs,
    options: &CampaignOptions,
    summary: &CampaignSummary,
) -> Result<ExitCode> {
    if args.json {
        let given_up: Vec<_> = summary
            .given_up_trials
            .iter()
            .map(|(id, why)| serde_json::json!({"id": id, "why": why}))
            .collect();
        let missing: Vec<_> = summary
            .missing_servers
            .iter()
            .map(|missing| serde_json::json!({"server": missing.kind, "trials": missing.trials}))
            .collect();
        let line = serde_json::json!({
            "out": options.out, "done_before": summary.done_before_count, "finished": summary.finished_count,
            "rejected": summary.rejected_count, "left": summary.left_count, "given_up": given_up, "missing": missing,
        });
        outln!("{line}");
    }
    let out = options.out.display();
    let done = match summary.done_before_count + summary.finished_count {
        1 => "1 run has a result".to_owned(),
        count => format!("{count} runs have results"),
    };
    stderr::print_line(&format!("{done} in {out}"));
    if summary.rejected_count > 0 {
        stderr::print_line(&format!(
            "{} disturbed runs do not count: {out}/rejected.jsonl",
            summary.rejected_count
        ));
    }
    Ok(exit_status(summary))
}

/// Prints why a campaign has not all its results; returns the exit code. Runs that were left out for a missing server are
/// no failure, unless there is nothing else: a campaign would never succeed on a machine without all servers.
pub(super) fn exit_status(summary: &CampaignSummary) -> ExitCode {
    if summary.left_count > 0 {
        stderr::print_line(&format!(
            "stopped; {} runs are left, the same command resumes",
            summary.left_count
        ));
        return ExitCode::from(INTERRUPTED_STATUS);
    }
    if !summary.given_up_trials.is_empty() {
        stderr::print_line(&format!(
            "{} runs have no result; the same command retries them",
            summary.given_up_trials.len()
        ));
        return Exit::Failure.into();
    }
    if !summary.has_results() && !summary.missing_servers.is_empty() {
        stderr::print_line("no run has a result: each needs a server that is not installed");
        return Exit::Failure.into();
    }
    ExitCode::SUCCESS
}
