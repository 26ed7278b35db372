//! `smig lab reproduce`: measures the figures of a published study again and writes one report.
//!
//! Owns the command line and its output. smig-lab defines the studies, the runs of each figure, and evaluates
//! their results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use smig_chart::table::to_text;
use smig_lab::campaign::{
    self, CampaignError, CampaignOptions, CampaignSummary, Jobs, MissingServer, Plan, plan_trials,
    read_results,
};
use smig_lab::reproduce::{
    Evidence, Experiment, Extent, SENDERS, SURVEY, Study, render_json, summary, survey_test_web,
    write_report,
};
use smig_lab::scenario::{Diagnostics, Filter};
use smig_lab::trial::AcceptedBuilds;
use tokio_util::sync::CancellationToken;

use super::build::{BuildArgs, identify_build};
use super::probe_senders::probe_senders;
use super::run::{CampaignProgress, DisturbedRuns, check_setting, exit_status, parse_jobs};
use crate::exit::{CliError, Exit};
use crate::interrupt;
use crate::stderr;
use crate::stdout::{out, outln};

/// Parallel runs per processor. Measured with six on two processors that also compiled: over 228
/// runs, the p99 lateness had a median of 0.1 ms and a maximum of 1.1 ms; runs above 2 ms are
/// rejected. A run at 10 Mbit/s takes a few hundredths of a processor.
const JOBS_PER_PROCESSOR: usize = 3;

/// Measure the figures of a study again (SMig, Mind the Delay, the mosaic), with its claims beside ours
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    long_about = "Measure the figures and tables of a study again, and write one report with \
        the study's claims and numbers beside ours.\n\nThree studies: `all`, the SMig paper (CoNEXT 2016); \
        `delay`, \"Mind the Delay\" (CoNEXT 2020), when six connections of HTTP/1.1 load a page before one of \
        HTTP/2; `mosaic`, a page of many small pictures (2015). Pages are loaded by the lab's page player, not by a \
        browser.\n\nEach figure is a scenario (`smig lab reproduce list`). The \
        full version has as many repetitions as the paper (three where the setting is ours) and takes \
        hours; --quick takes a quarter of an hour on two processors. Results are appended to \
        DIR/results.jsonl; runs that have a result are skipped, so the same command resumes where it \
        was stopped. DIR/report.html is the report, with figures/*.svg and tables/*.csv and *.json \
        beside it.\n\nVerdicts: a claim is reproduced, reproduced in part, or not, if all of its uncertainty says so; \
        otherwise it is undecided. What has too few runs is not judged. The report states the rules; \
        the limits were fixed before anything was measured.",
    after_help = "\
Examples:
  smig lab reproduce all --quick
  smig lab reproduce figure-4 figure-5 --quick --out small-objects
  smig lab reproduce delay --quick                   ten minutes, as root: YeAH and Illinois are BPF programs
  smig lab reproduce delay-windows --repetitions 3   one figure of it
  smig lab reproduce mosaic --quick --json | jq '.figures[].claims[] | [.claim.text, .ours, .verdict]'
  smig lab reproduce list
  smig lab reproduce report reproduction-quick       write the report again, without runs

Exit codes: 0 each run has a result, or needs a server that is not installed; 1 some have none, or no run has;
2 usage error; 130 stopped."
)]
pub(crate) struct ReproduceArgs {
    #[command(subcommand)]
    command: Option<ReproduceCommand>,
    /// Names of figures of one study, or of a study: all (the SMig paper), delay, mosaic
    #[arg(value_name = "NAME", required = true, value_parser = parse_name)]
    names: Vec<String>,
    /// Measure less of each figure: minutes instead of hours; the report says what is missing
    #[arg(long)]
    quick: bool,
    /// Directory for results and report [default: reproduction, reproduction-delay, reproduction-mosaic; with
    /// --quick reproduction-quick and so on]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of parallel runs [default: three per processor; for pages as many as the processors can carry, by an estimate of each]
    #[arg(long, value_name = "N", value_parser = parse_jobs)]
    jobs: Option<usize>,
    /// Number of repetitions of each setting, instead of the figure's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Whether to keep a run that was disturbed in every attempt, with a mark, or to drop it
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = DisturbedRuns::Keep)]
    disturbed: DisturbedRuns,
    /// Print the report as JSON on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    build: BuildArgs,
}

#[derive(Debug, Subcommand)]
enum ReproduceCommand {
    /// List the figures, and how long each takes
    List,
    /// Write the report of existing results again, without runs
    Report {
        /// Directory with results
        dir: PathBuf,
        /// Print the report as JSON on standard output
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        build: BuildArgs,
    },
}

fn parse_name(text: &str) -> Result<String, String> {
    if study_of_name(text).is_some() {
        return Ok(text.to_owned());
    }
    let names = Study::all().iter().flat_map(|study| {
        let figures = study.figure_names().filter(|name| is_measurable(name));
        std::iter::once(study.word).chain(figures)
    });
    Err(format!("known names: {}", names.collect::<Vec<_>>().join(", ")))
}

/// Returns whether a figure is measured: by trials, or by a command of its own.
fn is_measurable(figure: &str) -> bool {
    [SURVEY, SENDERS].contains(&figure) || Experiment::by_name(figure).is_some()
}

/// Returns the study that a name is of: the study's own, or that of a figure.
fn study_of_name(name: &str) -> Option<&'static Study> {
    let by_word = Study::all().iter().find(|study| study.word == name);
    by_word.or_else(|| Study::of_figure(name).filter(|_| is_measurable(name)))
}

/// Returns the one study that all names are of: a report has one.
fn common_study(names: &[String]) -> Result<&'static Study> {
    let mut studies = names.iter().filter_map(|name| study_of_name(name));
    let first = studies.next().context("no name")?;
    match studies.find(|study| study.name != first.name) {
        None => Ok(first),
        Some(other) => {
            let (first, other) = (first.word, other.word);
            let text = format!(
                "figures of two studies ({first} and {other}): each has a report of its own, so use one command for each"
            );
            Err(CliError::new(Exit::Usage, text).into())
        }
    }
}

pub(super) fn run(args: &ReproduceArgs) -> Result<ExitCode> {
    match &args.command {
        Some(ReproduceCommand::List) => print_experiments(),
        Some(ReproduceCommand::Report { dir, json, build }) => {
            if !dir.is_dir() {
                let text = format!("{}: not a directory", dir.display());
                return Err(CliError::new(Exit::Usage, text).into());
            }
            write_and_print_report(dir, None, *json, build.accepted_builds())?;
            Ok(ExitCode::SUCCESS)
        }
        None => measure(args),
    }
}

fn print_experiments() -> Result<ExitCode> {
    outln!("{:<14} {:<28} {:>10} {:>10}  about", "name", "scenario", "quick", "full");
    for study in Study::all() {
        print_study(study)?;
    }
    outln!(
        "\nTimes are for the defaults on this machine: {} parallel runs, of pages up to {}.",
        paper_jobs().max(),
        Jobs::by_load().max()
    );
    Ok(ExitCode::SUCCESS)
}

fn print_study(study: &Study) -> Result<()> {
    outln!("\n{:<14} {}", study.word, study.about());
    let jobs = default_jobs(study);
    for name in study.figure_names() {
        let duration = |experiment: &Experiment, extent| -> Result<String> {
            let trials = selected_trials(experiment, extent, None)?.1;
            let minutes = jobs.total_time(&trials).as_secs_f64() / 60.0;
            Ok(if minutes < 90.0 {
                format!("{:.0} min", minutes.max(1.0))
            } else {
                format!("{:.1} h", minutes / 60.0)
            })
        };
        let (path, quick, full, title) = match (Experiment::by_name(name), name) {
            (Some(experiment), _) => (
                experiment.scenario_path.trim_start_matches("scenarios/"),
                duration(experiment, Extent::Quick)?,
                duration(experiment, Extent::Full)?,
                experiment.title,
            ),
            (None, SURVEY) => ("", "1 min".into(), "1 min".into(), "Sites with large objects"),
            (None, SENDERS) => ("", "2 min".into(), "2 min".into(), "What senders do with a queue"),
            // Only the report mentions it.
            (None, _) => continue,
        };
        outln!("{name:<14} {path:<28} {quick:>10} {full:>10}  {title}");
    }
    Ok(())
}

fn paper_jobs() -> Jobs {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    Jobs::Number(processors * JOBS_PER_PROCESSOR)
}

/// Loads of a page are short, and differ by their network in how busy they keep a processor.
fn default_jobs(study: &Study) -> Jobs {
    if study.name == "smig" { paper_jobs() } else { Jobs::by_load() }
}

/// Returns an experiment's campaign and the trials to measure.
fn selected_trials(
    experiment: &Experiment,
    extent: Extent,
    repetitions: Option<u32>,
) -> Result<(smig_lab::scenario::Campaign, Vec<smig_lab::scenario::Trial>)> {
    let mut campaign = experiment.campaign(extent, &check_setting).map_err(|faults| {
        CliError::new(
            Exit::Failure,
            Diagnostics { file: experiment.scenario_path.into(), diagnostics: faults }.to_string(),
        )
    })?;
    if let Some(repetitions) = repetitions {
        campaign.repetitions = repetitions;
    }
    let mut trials = campaign.trials();
    if repetitions.is_none() {
        trials.retain(|trial| {
            trial.id.repetition <= experiment.repetitions(extent, &campaign, &trial.id.condition)
        });
    }
    Ok((campaign, trials))
}

fn measure(args: &ReproduceArgs) -> Result<ExitCode> {
    let extent = if args.quick { Extent::Quick } else { Extent::Full };
    let study = common_study(&args.names)?;
    let default_out = || {
        let of_study =
            if study.name == "smig" { String::new() } else { format!("-{}", study.name) };
        format!("reproduction{of_study}{}", if args.quick { "-quick" } else { "" }).into()
    };
    let out = args.out.clone().unwrap_or_else(default_out);
    let smig = std::env::current_exe().context("cannot find the path of this program")?;
    let options = CampaignOptions {
        out,
        shard: None,
        filter: Filter::default(),
        jobs: args.jobs.map_or_else(|| default_jobs(study), Jobs::Number),
        build: identify_build(&smig)?,
        builds: args.build.accepted_builds(),
        smig,
        version: concat!("smig ", env!("CARGO_PKG_VERSION")).into(),
        on_disturbed: args.disturbed.into(),
    };
    let plan = combined_plan(args, study, extent, &options)?;
    let stop = CancellationToken::default();
    interrupt::cancel_on_interrupt(stop.clone())?;
    let view = CampaignProgress::new(
        if args.quick { "reproduce --quick" } else { "reproduce" },
        &plan,
        options.jobs,
    );
    let campaign_summary = campaign::run(plan, &options, &stop, &mut |event| view.show(event));
    view.clear();
    let campaign_summary = campaign_summary?;
    let includes = |figure: &str| {
        study.figure_names().any(|name| name == figure)
            && args.names.iter().any(|name| name == study.word || name == figure)
            && !stop.is_cancelled()
    };
    let (has_survey, has_senders) = (includes(SURVEY), includes(SENDERS));
    if has_survey {
        survey_test_web(&options.out)?;
    }
    let senders = if has_senders { probe_senders(&options.smig, &options.out) } else { Ok(()) };
    if let Err(error) = &senders {
        stderr::print_line(&format!("the senders were not probed: {error:#}"));
    }
    // A campaign that was stopped before its first result has no report.
    if campaign_summary.has_results() || has_survey || has_senders && senders.is_ok() {
        // The plan has checked the builds. The report marks a build without a commit.
        let study = common_study(&args.names)?;
        write_and_print_report(&options.out, Some(study), args.json, AcceptedBuilds::Any)?;
    }
    let status = print_summary(&campaign_summary);
    Ok(if senders.is_err() { Exit::Failure.into() } else { status })
}

/// Joins the plans of all selected experiments, so that processors do not idle at the end of each.
fn combined_plan(
    args: &ReproduceArgs,
    study: &Study,
    extent: Extent,
    options: &CampaignOptions,
) -> Result<Plan> {
    let is_selected = |experiment: &&Experiment| {
        args.names.iter().any(|name| name == study.word || name == experiment.name)
    };
    let mut merged_plan = Plan {
        trials: Vec::new(),
        done_count: 0,
        missing_servers: Vec::new(),
        programs: BTreeMap::new(),
        versions: BTreeMap::new(),
    };
    for experiment in study.experiments().filter(is_selected) {
        let (campaign, trials) = selected_trials(experiment, extent, args.repetitions)?;
        let experiment_plan =
            plan_trials(&campaign, trials, options).map_err(|error| match error {
                CampaignError::OtherScenario { .. } => {
                    anyhow::Error::from(CliError::new(Exit::Usage, error.to_string()))
                }
                error => error.into(),
            })?;
        merged_plan.done_count += experiment_plan.done_count;
        merged_plan.trials.extend(experiment_plan.trials);
        merged_plan.programs.extend(experiment_plan.programs);
        merged_plan.versions.extend(experiment_plan.versions);
        for missing in experiment_plan.missing_servers {
            add_missing(&mut merged_plan.missing_servers, missing);
        }
    }
    // All first repetitions before any second one: an interrupted campaign still yields a report
    // with all figures.
    merged_plan.trials.sort_by_key(|trial| trial.id.repetition);
    Ok(merged_plan)
}

fn add_missing(missing_servers: &mut Vec<MissingServer>, missing: MissingServer) {
    match missing_servers.iter_mut().find(|known| known.kind == missing.kind) {
        Some(known) => known.trials += missing.trials,
        None => missing_servers.push(missing),
    }
}

/// Writes the report of a study, or of that whose results are in `dir`, and prints its summary.
fn write_and_print_report(
    dir: &Path,
    study: Option<&'static Study>,
    json: bool,
    builds: AcceptedBuilds,
) -> Result<()> {
    let results = read_results(dir)?;
    builds
        .check(results.iter().map(|result| result.origin.as_ref()))
        .map_err(|error| CliError::new(Exit::Failure, format!("{}: {error}", dir.display())))?;
    let evidence = Evidence::read(dir, &results)?;
    if results.is_empty() && evidence.is_empty() {
        let text = format!("{}: no results", dir.display());
        return Err(CliError::new(Exit::Failure, text).into());
    }
    // Results of no study's campaign are reported as they always were: as none of the SMig paper's.
    let study = study
        .or_else(|| Study::of_results(&results))
        .or_else(|| evidence.study())
        .or_else(|| Study::by_name("smig"))
        .context("no study")?;
    let findings = study.findings(&results, &evidence);
    let report_files = write_report(dir, study, &findings, &results)?;
    if json {
        outln!("{:#}", render_json(study, &findings));
    } else {
        out!("{}", to_text(&summary(study, &findings)));
    }
    stderr::print_line(&format!("\nThe report: {}", report_files.page.display()));
    Ok(())
}

fn print_summary(campaign_summary: &CampaignSummary) -> ExitCode {
    if campaign_summary.rejected_count > 0 {
        stderr::print_line(&format!(
            "{} disturbed runs were repeated or dropped",
            campaign_summary.rejected_count
        ));
    }
    let status = exit_status(campaign_summary);
    for (id, why) in &campaign_summary.given_up_trials {
        stderr::print_line(&format!("  {} {id}: {why}", id.campaign));
    }
    status
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use clap::Parser;
    use smig_lab::trial::Build;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ReproduceArgs,
    }

    fn options(out: &Path) -> CampaignOptions {
        CampaignOptions {
            out: out.to_owned(),
            shard: None,
            filter: Filter::default(),
            jobs: Jobs::Number(1),
            build: Build { commit: None, program_sha256: "p1".into() },
            builds: AcceptedBuilds::Any,
            smig: "/bin/true".into(),
            version: "smig".into(),
            on_disturbed: DisturbedRuns::Keep.into(),
        }
    }

    #[test]
    fn runs_that_are_not_wanted_are_neither_done_nor_missing() {
        let dir = tempfile::tempdir().unwrap();
        let experiment = Experiment::by_name("figure-4").unwrap();
        let (campaign, wanted) = selected_trials(experiment, Extent::Quick, None).unwrap();
        let mut results = std::fs::File::create(dir.path().join("results.jsonl")).unwrap();
        let is_wanted = |id| wanted.iter().any(|trial| trial.id == id);
        let mut unwanted_count = 0;
        for trial in campaign.trials().into_iter().filter(|trial| !is_wanted(trial.id.clone())) {
            let line = serde_json::json!({"format": 2, "id": trial.id, "hash": trial.hash()});
            writeln!(results, "{line}").unwrap();
            unwanted_count += 1;
        }
        assert!(unwanted_count > 0);
        let Cli { args } = Cli::parse_from(["reproduce", "figure-4", "--quick"]);
        let study = common_study(&args.names).unwrap();
        let plan = combined_plan(&args, study, Extent::Quick, &options(dir.path())).unwrap();
        let missing: usize = plan.missing_servers.iter().map(|missing| missing.trials).sum();
        assert_eq!((plan.done_count, plan.trials.len() + missing), (0, wanted.len()));
    }

    #[test]
    fn names_are_of_one_study() {
        let study = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            common_study(&names).map(|study| study.name)
        };
        assert_eq!(study(&["all"]).unwrap(), "smig");
        assert_eq!(study(&["figure-4", SURVEY]).unwrap(), "smig");
        assert_eq!(study(&["delay"]).unwrap(), "delay");
        assert_eq!(study(&["mosaic-large", "mosaic"]).unwrap(), "mosaic");
        let error = study(&["figure-4", "delay"]).unwrap_err().to_string();
        assert!(error.contains("all and delay"), "{error}");
        // What only the report mentions cannot be measured.
        let error = parse_name("mosaic-push").unwrap_err();
        assert!(error.contains("delay-grid") && !error.contains("mosaic-push"), "{error}");
    }
}
