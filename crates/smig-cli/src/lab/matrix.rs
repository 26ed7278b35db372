//! `smig lab matrix`: measures many networks and many ways to transfer, and reports the worst first.
//!
//! Owns the command line and the files of the report. smig-lab has the cells, runs them and judges.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use smig_chart::format_count;
use smig_chart::html::{Align, Table};
use smig_chart::table::{to_csv, to_text};
use smig_lab::campaign::{self, CampaignOptions, CampaignSummary, Jobs, plan, read_results};
use smig_lab::matrix::{
    self, MatrixReport, SCENARIO_TEXT, Verdict, draw, keep_machine_hystart, select, select_quick,
    to_csv_table, to_table,
};
use smig_lab::scenario::{Campaign, Cell, Condition, Diagnostics, Filter, Shard};
use smig_lab::trial::estimated_duration;
use smig_testbed::hystart;
use tokio_util::sync::CancellationToken;

use super::build::{BuildArgs, identify_build};
use super::run::{
    CampaignProgress, DisturbedRuns, check_setting, exit_status, format_duration, parse_jobs,
    plan_error,
};
use crate::exit::{CliError, Exit};
use crate::interrupt;
use crate::stderr;
use crate::stdout::{out, outln};

/// Measure many networks and many ways to transfer; print the best for each, the networks where smig loses most first
#[derive(Debug, Args)]
#[command(
    long_about = "Measure many networks and workloads (cells), each with many ways to transfer (arms), and print \
        the cells in which smig loses most first.\n\nThe cells are a fraction of all combinations, chosen before \
        anything was measured (scenarios/matrix/). Results are appended to DIR/results.jsonl; what has a result there \
        is not measured again, so the same command resumes. At the end DIR gets matrix.svg, matrix.csv and \
        matrix.json.\n\nThe cells that switch HyStart off need root, and are left out without.",
    after_help = "\
Examples:
  smig lab matrix --quick                          eight cells, five arms, ten minutes
  smig lab matrix                                  everything, about three hours
  smig lab matrix --cells r10-t50 --cells cross=bbr --arms off,paced,moved
  smig lab matrix --shard 1/4 --out matrix-1       then: smig lab merge matrix-results matrix-?
  smig lab matrix --report --out matrix-results    only the report of what is there
  smig lab matrix --plan                           the cells, the arms, and how long it takes

Arms of servers that are not installed are left out, with a note on how to install them.

Exit codes: 0 each run has a result, or needs a server that is not installed; 1 some have none, or no run has;
2 usage error; 130 stopped."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct MatrixArgs {
    /// Only cells with this in their name, or with this level; may be repeated
    #[arg(long, value_name = "PART|AXIS=LEVEL", action = clap::ArgAction::Append)]
    cells: Vec<String>,
    /// Only these arms; the objects alone are always measured
    #[arg(long, value_name = "ARM,...", value_delimiter = ',')]
    arms: Vec<String>,
    /// Eight cells and five arms
    #[arg(long, conflicts_with_all = ["cells", "arms"])]
    quick: bool,
    /// Directory for results and report
    #[arg(long, value_name = "DIR", default_value = "matrix-results")]
    out: PathBuf,
    /// Only shard I of N; a cell is never divided
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    shard: Option<Shard>,
    /// Number of parallel runs; fast links need a processor or two each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_jobs)]
    jobs: usize,
    /// Number of repetitions of each arm of each cell
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Whether to keep a run that was disturbed in every attempt, with a mark, or to drop it
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = DisturbedRuns::Keep)]
    disturbed: DisturbedRuns,
    #[command(flatten)]
    build: BuildArgs,
    /// Print the cells, the arms and an estimate of the time, without measuring
    #[arg(long, conflicts_with = "report")]
    plan: bool,
    /// Only report what DIR has, without measuring
    #[arg(long)]
    report: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &MatrixArgs) -> Result<ExitCode> {
    let campaign = selected_campaign(args)?;
    if args.plan {
        print_plan(args, &campaign)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.report {
        if !args.out.is_dir() {
            let text = format!("{}: not a directory", args.out.display());
            return Err(CliError::new(Exit::Usage, text).into());
        }
        report(args, &campaign)?;
        return Ok(ExitCode::SUCCESS);
    }
    let summary = measure(args, &campaign)?;
    let status = exit_status(&summary);
    // A campaign that was stopped before its first result has no report.
    if summary.has_results() {
        report(args, &campaign)?;
    }
    Ok(status)
}

fn selected_campaign(args: &MatrixArgs) -> Result<Campaign> {
    let mut campaign = matrix::campaign(&check_setting).map_err(|diagnostics| {
        let file = matrix::SCENARIO_PATH.to_owned();
        CliError::new(Exit::Failure, Diagnostics { file, diagnostics }.to_string())
    })?;
    campaign.repetitions = args.repetitions;
    if args.quick {
        select_quick(&mut campaign);
    } else {
        select(&mut campaign, &args.cells, &args.arms)
            .map_err(|error| CliError::new(Exit::Usage, error.to_string()))?;
    }
    if !args.plan
        && !args.report
        && !args.quick
        && let Err(error) = hystart::check()
    {
        stderr::print_line(&format!(
            "HyStart stays as it is, and cells that switch it off are left out: {error}"
        ));
        keep_machine_hystart(&mut campaign);
    }
    Ok(campaign)
}

fn print_plan(args: &MatrixArgs, campaign: &Campaign) -> Result<()> {
    let rows = campaign.cells.iter().map(|cell| plan_row(args, campaign, cell)).collect();
    let columns = [
        ("cell", Align::Left),
        ("link", Align::Left),
        ("control", Align::Left),
        ("work", Align::Left),
        ("runs", Align::Right),
        ("time", Align::Right),
    ];
    let columns = columns.map(|(name, align)| (name.to_owned(), align)).to_vec();
    out!("{}", to_text(&Table { columns, rows }));
    let arms: BTreeSet<_> =
        campaign.conditions.iter().filter_map(|condition| condition.name.level("arm")).collect();
    outln!("arms: {}", arms.into_iter().collect::<Vec<_>>().join(", "));
    let time: Duration =
        campaign.conditions.iter().map(|condition| estimated_duration(&condition.scenario)).sum();
    let shards = args.shard.map_or(1, |shard| shard.count);
    let jobs = u32::try_from(args.jobs).unwrap_or(u32::MAX);
    outln!(
        "{}, {}, about {}{}",
        format_count(campaign.cells.len(), "cell"),
        format_count(campaign.conditions.len() * args.repetitions as usize, "run"),
        format_duration(time * args.repetitions / shards / jobs),
        if shards > 1 { format!(" for each of {shards} shards") } else { String::new() }
    );
    Ok(())
}

fn plan_row(args: &MatrixArgs, campaign: &Campaign, cell: &Cell) -> Vec<String> {
    let is_of_cell = |condition: &&Condition| condition.name.level("cell") == Some(&cell.name);
    let conditions = || campaign.conditions.iter().filter(is_of_cell);
    let time: Duration =
        conditions().map(|condition| estimated_duration(&condition.scenario)).sum();
    let link = conditions().next().map(|condition| condition.scenario.link.to_string());
    let work = [cell.level("work"), cell.level("cross").filter(|cross| *cross != "none")];
    vec![
        cell.name.clone(),
        link.unwrap_or_default(),
        cell.level("control").unwrap_or_default().to_owned(),
        work.into_iter().flatten().collect::<Vec<_>>().join(" beside "),
        conditions().count().to_string(),
        format_duration(time * args.repetitions),
    ]
}

fn measure(args: &MatrixArgs, campaign: &Campaign) -> Result<CampaignSummary> {
    let smig = std::env::current_exe().context("cannot find the path of this program")?;
    let options = CampaignOptions {
        out: args.out.clone(),
        shard: args.shard,
        filter: Filter::default(),
        jobs: Jobs::Number(args.jobs),
        build: identify_build(&smig)?,
        builds: args.build.accepted_builds(),
        smig,
        version: concat!("smig ", env!("CARGO_PKG_VERSION")).into(),
        on_disturbed: args.disturbed.into(),
    };
    let plan = plan(campaign, &options).map_err(plan_error)?;
    fs::create_dir_all(&args.out)
        .and_then(|()| fs::write(args.out.join("scenario.toml"), SCENARIO_TEXT))
        .with_context(|| format!("cannot write to {}", args.out.display()))?;
    let stop = CancellationToken::default();
    interrupt::cancel_on_interrupt(stop.clone())?;
    let view = CampaignProgress::new(&campaign.name, &plan, options.jobs);
    let summary = campaign::run(plan, &options, &stop, &mut |event| view.show(event));
    view.clear();
    Ok(summary?)
}

/// Prints the report, and writes its files.
fn report(args: &MatrixArgs, campaign: &Campaign) -> Result<()> {
    let dir = &args.out;
    let results = read_results(dir)?;
    let report = MatrixReport::new(campaign, &results);
    if report.cells.is_empty() {
        let message = format!("{}: no results of these cells", dir.display());
        return Err(CliError::new(Exit::Failure, message).into());
    }
    let json = serde_json::to_string(&report)?;
    write(&dir.join("matrix.svg"), &draw(&report))?;
    write(&dir.join("matrix.csv"), &to_csv(&to_csv_table(&report)))?;
    write(&dir.join("matrix.json"), &format!("{json}\n"))?;
    if args.json {
        outln!("{json}");
        return Ok(());
    }
    out!("{}", to_text(&to_table(&report)));
    outln!("{}", summary_line(&report));
    Ok(())
}

fn summary_line(report: &MatrixReport) -> String {
    let verdicts = || {
        report.cells.iter().flat_map(|cell| &cell.arms).filter_map(|arm| {
            let verdict = arm.verdict?;
            Some((arm.arm, verdict))
        })
    };
    let mut line = format!("{}; ", format_count(report.cells.len(), "cell"));
    let mut arms: Vec<_> = verdicts().map(|(arm, _)| arm).collect();
    arms.sort_unstable();
    arms.dedup();
    let of_arm = |arm: &&str| {
        let count = |verdict: Verdict| {
            let found =
                verdicts().filter(|(other, found)| other == arm && *found == verdict).count();
            (found > 0).then(|| format!("{found} {}", verdict.as_str()))
        };
        let counts = Verdict::ALL.into_iter().filter_map(count);
        format!("{arm}: {}", counts.collect::<Vec<_>>().join(", "))
    };
    line += &arms.iter().map(of_arm).collect::<Vec<_>>().join("; ");
    if report.missing_cells > 0 {
        line += &format!("; {} without results", format_count(report.missing_cells, "cell"));
    }
    line += &format!("\nmeasured by {}", report.builds.join(" and "));
    line
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
