//! `smig lab page`: loads one page over some networks by some versions of HTTP, and reports why it was late.
//!
//! Owns the command line and the report's files. smig-lab loads, summarizes and draws.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use smig_chart::table::{to_csv, to_text};
use smig_lab::campaign::{self, CampaignOptions, Jobs, plan, read_results};
use smig_lab::page_study::{
    Budget, BudgetCheck, HostPlan, Loader, MeasuredLoad, PageSource, PageStudy, PageSummary,
    Protocol, keep_recordings, render_filmstrips, render_html, render_svg, results_of, summarize,
    times_table, to_har, to_junit, to_tidy_table, warnings,
};
use smig_lab::scenario::{Campaign, Filter};
use smig_lab::timeline::Timeline;
use smig_lab::trial::TrialResult;
use tokio_util::sync::CancellationToken;

use super::build::{BuildArgs, identify_build};
use super::control::check_control;
use super::run::{
    CampaignProgress, DisturbedRuns, check_setting, exit_status, parse_jobs, plan_error,
};
use crate::exit::{CliError, Exit};
use crate::interrupt;
use crate::stderr;
use crate::stdout::{out, outln};

/// Load one page over emulated networks by several versions of HTTP; report why it was late
#[derive(Debug, Args)]
#[command(
    long_about = "Load one page over emulated networks, by HTTP/1.1 with six connections, HTTP/2, and others, and report \
        how long it took and why.\n\nThe page is loaded by the lab's page player, which needs no browser, or with \
        --browser by Chromium. Each load has hosts, link, server and connections of its own. DIR/page.html is the report: \
        times, each load as a dot, what the critical path waited for, and for each combination requests, critical path, congestion windows and \
        the link's queue on one clock; beside it are a picture and a HAR of each (*.svg, *.har), a table with a row for each \
        load (loads.csv), the recordings and the scenario. With --browser the screen is recorded too: filmstrips side by side, and \
        SpeedIndex by frames. The same command resumes.",
    after_help = "\
Examples:
  smig lab page mosaic                                         234 small pictures, http1 and http2 over fiber
  smig lab page 48x550kB --link lte-like,slowdown --protocol http1,http2,smig --control bbr
  smig lab page front.toml --link sitespeed-3g --runs 5        a page of your own: docs/lab.md, Pages
  smig lab page example/page.har --link lte-like --out example-lte      a recorded page
  smig lab page 12x60kB --browser --out chromium
  smig lab page front.toml --link sitespeed-4g --protocol http2 --budget loaded=2s --junit page.xml

Networks: smig lab profiles. Congestion controls: those of the kernel, and cubic_nohs, yeah, illinois (as root).

Exit codes: 0 everything loaded, and every budget kept; 1 a budget exceeded, a load failed, or a combination without a
result; 2 usage error; 130 stopped."
)]
pub(crate) struct PageArgs {
    /// mosaic, tiles as OBJECTSxTOTAL (48x550kB), a recording (FILE.har: smig lab record), or a TOML file with the keys of a page
    page: String,
    /// Networks, by profile
    #[arg(
        long = "link",
        value_name = "PROFILE,...",
        value_delimiter = ',',
        default_value = "fiber"
    )]
    links: Vec<String>,
    /// Versions of HTTP: http1, http2 (both nginx), paced (smig serve), smig (at both ends), http3 (quic-go)
    #[arg(
        long = "protocol",
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "http1,http2"
    )]
    protocols: Vec<Protocol>,
    /// Congestion control of the server
    #[arg(long, value_name = "NAME", default_value = "cubic", value_parser = parse_control)]
    control: String,
    /// Directory for results and report
    #[arg(long, value_name = "DIR", default_value = "page-results")]
    out: PathBuf,
    /// Longest median time, as loaded=2s, rendered=1s, speed-index=1s, or with --browser speed-index-by-frames=1s, visually-85=1s or visually-complete=2s; may be repeated. Exit code 1 if it is exceeded
    #[arg(long = "budget", value_name = "METRIC=TIME", action = clap::ArgAction::Append)]
    budgets: Vec<Budget>,
    /// Write the budgets' results as JUnit XML
    #[arg(long, value_name = "FILE", requires = "budgets")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    loads: LoadArgs,
}

/// How a page is loaded, as far as `smig lab httpx` takes the same.
#[derive(Debug, Args)]
pub(super) struct LoadArgs {
    /// Load the page with Chromium instead of the page player
    #[arg(long)]
    pub(super) browser: bool,
    /// Take no frames of the browser's screen: less work for it, and no filmstrip and SpeedIndex by frames
    #[arg(long, requires = "browser")]
    no_frames: bool,
    /// Number of loads of each combination
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) runs: u32,
    /// Number of parallel loads; more than one disturbs loads over fast links, and browsers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_jobs)]
    jobs: usize,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    build: BuildArgs,
}

impl LoadArgs {
    /// Returns what loads the page.
    pub(super) const fn loader(&self) -> Loader {
        if self.browser { Loader::Browser { frames: !self.no_frames } } else { Loader::Player }
    }
}

/// What is done with a study.
pub(super) struct StudyRun<'a> {
    /// The page, as the command line names it.
    pub(super) page: &'a str,
    /// Directory for results and report.
    pub(super) out: &'a Path,
    pub(super) loads: &'a LoadArgs,
    pub(super) budgets: &'a [Budget],
    pub(super) junit: Option<&'a Path>,
}

pub(super) fn run(args: &PageArgs) -> Result<ExitCode> {
    check_control("--control", &args.control)?;
    let study = study_of(args)?;
    let PageArgs { page, out, loads, budgets, junit, .. } = args;
    run_study(&StudyRun { page, out, loads, budgets, junit: junit.as_deref() }, &study)
}

/// Loads the page of a study, and writes its report.
pub(super) fn run_study(args: &StudyRun<'_>, study: &PageStudy) -> Result<ExitCode> {
    let campaign = study.campaign(&check_setting).map_err(|faults| {
        let mut texts: Vec<_> =
            faults.iter().map(|fault| study.explain(args.page, fault)).collect();
        texts.dedup();
        CliError::new(Exit::Usage, texts.join("\n"))
    })?;
    let smig = std::env::current_exe().context("cannot find the path of this program")?;
    let options = CampaignOptions {
        out: args.out.to_owned(),
        shard: None,
        filter: Filter::default(),
        jobs: Jobs::Number(args.loads.jobs),
        build: identify_build(&smig)?,
        builds: args.loads.build.accepted_builds(),
        smig,
        version: concat!("smig ", env!("CARGO_PKG_VERSION")).into(),
        on_disturbed: DisturbedRuns::Keep.into(),
    };
    let plan = plan(&campaign, &options).map_err(plan_error)?;
    let stop = CancellationToken::default();
    interrupt::cancel_on_interrupt(stop.clone())?;
    let view = CampaignProgress::new(&study.page.name, &plan, options.jobs);
    let summary = campaign::run(plan, &options, &stop, &mut |event| view.show(event));
    view.clear();
    let summary = summary?;
    let status = exit_status(&summary);
    let is_kept = report(args, study, &campaign)?;
    Ok(if status == ExitCode::SUCCESS && !is_kept { Exit::Failure.into() } else { status })
}

fn study_of(args: &PageArgs) -> Result<PageStudy, CliError> {
    let usage = |text: String| CliError::new(Exit::Usage, text);
    let page = PageSource::parse(&args.page).map_err(|error| usage(error.to_string()))?;
    if let Some(budget) = args.budgets.iter().find(|budget| budget.metric.needs_screen())
        && args.loads.loader() != (Loader::Browser { frames: true })
    {
        let metric = budget.metric;
        return Err(usage(format!(
            "--budget {metric}: only frames of a browser's screen show it; add --browser"
        )));
    }
    if args.protocols.contains(&Protocol::Httpx) {
        return Err(usage(
            "--protocol httpx: smig lab httpx chooses the version for each host".to_owned(),
        ));
    }
    let without_browser = args.protocols.iter().find(|protocol| !protocol.has_browser());
    if let Some(protocol) = without_browser.filter(|_| args.loads.browser) {
        return Err(usage(format!(
            "--browser: no browser speaks {protocol} with the lab; leave it out of --protocol"
        )));
    }
    Ok(PageStudy {
        page,
        links: without_repeats(&args.links),
        protocols: without_repeats(&args.protocols),
        control: args.control.clone(),
        hosts: HostPlan::default(),
        loader: args.loads.loader(),
        runs: args.loads.runs,
    })
}

fn without_repeats<T: Clone + PartialEq>(all: &[T]) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(one) {
            distinct.push(one.clone());
        }
    }
    distinct
}

/// Accepts one name.
fn parse_control(text: &str) -> Result<String, String> {
    if text.contains(',') {
        return Err(
            "one congestion control in a run: call the command once for each, with another --out"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Writes the report and prints its table; returns whether everything was measured, nothing failed, and every budget is kept.
fn report(args: &StudyRun<'_>, study: &PageStudy, campaign: &Campaign) -> Result<bool> {
    let dir = args.out;
    let results = read_results(dir)?;
    let mut loads = results_of(campaign, &results)
        .into_iter()
        .map(|result| Ok(MeasuredLoad::new(result, read_timeline(dir, result)?.as_ref())))
        .collect::<Result<Vec<_>>>()?;
    let mut summaries = summarize(campaign, &loads);
    keep_recordings(&mut loads, &mut summaries, |result| read_timeline(dir, result))?;
    let page = dir.join("page.html");
    write(&page, &render_html(&study.page.name, &loads, &summaries))?;
    for summary in &summaries {
        let name = format!("{}-{}", summary.link, summary.protocol);
        write_or_remove(dir, &format!("{name}.svg"), render_svg(&loads, &summaries, summary))?;
        let har = to_har(&study.page.name, &loads, summary).map(|har| format!("{har:#}\n"));
        write_or_remove(dir, &format!("{name}.har"), har)?;
    }
    for link in &study.links {
        let filmstrips = render_filmstrips(&loads, &summaries, link);
        write_or_remove(dir, &format!("{link}-screens.svg"), filmstrips)?;
    }
    write(&dir.join("loads.csv"), &to_csv(&to_tidy_table(&loads)))?;
    write(&dir.join("page.toml"), &study.scenario_text())?;
    let checks = BudgetCheck::all(args.budgets, &summaries);
    if let Some(junit) = args.junit {
        write(junit, &to_junit(&study.page.name, &checks))?;
    }
    print(args, &summaries, &checks)?;
    stderr::print_line(&format!("\nThe report: {}", page.display()));
    let is_measured = summaries.iter().all(|summary| summary.failed == 0 && summary.loads > 0);
    Ok(is_measured && checks.iter().all(BudgetCheck::is_kept))
}

fn read_timeline(dir: &Path, result: &TrialResult) -> Result<Option<Timeline>> {
    let Some(name) = &result.timeline else { return Ok(None) };
    let path = dir.join(name);
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let timeline = Timeline::read_from(&mut BufReader::new(file));
    Ok(Some(timeline.with_context(|| path.display().to_string())?))
}

/// Writes a file, or removes that of an earlier study, which would pass for this one's.
fn write_or_remove(dir: &Path, name: &str, text: Option<String>) -> Result<(), CliError> {
    let path = dir.join(name);
    match text {
        Some(text) => write(&path, &text),
        None => {
            let _ = fs::remove_file(&path);
            Ok(())
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    fs::write(path, text).map_err(|error| {
        CliError::new(Exit::Write, format!("cannot write {}: {error}", path.display()))
    })
}

fn print(args: &StudyRun<'_>, summaries: &[PageSummary], checks: &[BudgetCheck]) -> Result<()> {
    if args.loads.json {
        let budgets: Vec<_> = checks
            .iter()
            .map(|check| {
                serde_json::json!({
                    "condition": check.condition, "metric": check.budget.metric,
                    "limit_s": check.budget.limit.0.as_secs_f64(), "measured_s": check.measured_s,
                    "kept": check.is_kept(),
                })
            })
            .collect();
        outln!("{:#}", serde_json::json!({"summaries": summaries, "budgets": budgets}));
        return Ok(());
    }
    out!("{}", to_text(&times_table(summaries)));
    for warning in summaries.iter().flat_map(warnings) {
        outln!("{warning}");
    }
    for check in checks {
        outln!("{}: {}", if check.is_kept() { "kept" } else { "exceeded" }, check.describe());
    }
    Ok(())
}
