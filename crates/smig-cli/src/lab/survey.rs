//! `smig lab survey`: counts the sites that hold large objects, Table 1 of the paper.
//!
//! Owns the command lines, the progress and the output. smig-survey decides what counts.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use smig::Trust;
use smig_survey::crawl::{
    self, CrawlEvent, CrawlOptions, CrawlSummary, PRODUCT_TOKEN, RequestRate, ResultsFile, Url,
    VisitOutcome, WalkLimits,
};
use smig_survey::{
    DamagedInput, DataSource, OnDamaged, SizeRule, SurveyCounts, SurveyError, Table, read_export,
    read_har,
};

use crate::exit::{CliError, Exit};
use crate::interrupt::INTERRUPTED_STATUS;
use crate::{paint, stderr};

/// Count the sites with large objects, and measure object sizes: the paper's Table 1
#[derive(Debug, Args)]
#[command(
    long_about = "Count the sites with large objects on the host of their landing page, and measure \
        object sizes, beside Table 1 of the paper.\n\nThe objects come from HAR files, from an export \
        of the HTTP Archive, or from a polite crawl of sites that you name. docs/survey.md defines \
        what is counted, and has the query for the HTTP Archive.",
    after_help = "\
Examples:
  smig lab survey har visits/*.har
  zcat requests-*.json.gz | smig lab survey httparchive -
  smig lab survey crawl --contact https://example.org/about-us example.com example.net
  smig lab survey results survey-*.jsonl --csv > table1.csv"
)]
pub(crate) struct SurveyArgs {
    #[command(subcommand)]
    command: SurveyCommand,
}

#[derive(Debug, Subcommand)]
enum SurveyCommand {
    Har(HarArgs),
    Httparchive(ExportArgs),
    Crawl(CrawlArgs),
    Results(ResultsArgs),
}

/// Read HAR 1.2 files, as browsers save them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smig lab survey har visits/*.har
  smig lab survey har --decoded --json visit.har")]
struct HarArgs {
    /// HAR files; each page belongs to the site of its first request, after redirects
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Count sizes after decompression, not as transferred
    #[arg(long)]
    decoded: bool,
    /// Skip damaged files with a warning
    #[arg(long)]
    skip_damaged: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Read an export of the HTTP Archive: JSON lines or CSV
#[derive(Debug, Args)]
#[command(
    long_about = "Read an export of the HTTP Archive: JSON lines or CSV, one row per request, with the \
        columns root_page or page; url; and size, respBodySize, respSize, summary or payload. \
        docs/survey.md has the query.",
    after_help = "\
Examples:
  smig lab survey httparchive requests.csv
  zcat requests-*.json.gz | smig lab survey httparchive -"
)]
struct ExportArgs {
    /// Exported files; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Skip damaged rows with a warning
    #[arg(long)]
    skip_damaged: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Crawl sites, politely
#[derive(Debug, Args)]
#[command(
    long_about = "Crawl sites, politely: one request at a time per host, with a pause after each \
        response, nothing that robots.txt disallows, and only HEAD requests or single bytes of anything \
        but HTML.\n\nThe outcome of each URL is a line of the results file. The same command resumes a \
        crawl that was stopped (Ctrl-C).",
    after_help = "\
Examples:
  smig lab survey crawl --contact https://example.org/about-us example.com https://example.net/start
  smig lab survey crawl --contact me@example.org --list sites.txt --rate 30/min --out sites.jsonl"
)]
struct CrawlArgs {
    /// Landing pages: URLs, or host names for https
    #[arg(value_name = "URL", required_unless_present = "list")]
    urls: Vec<String>,
    /// A file with one landing page per line; lines that begin with # are skipped
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// URL or email address at which site owners can reach you; it is sent in User-Agent
    #[arg(long, value_name = "CONTACT")]
    contact: String,
    /// Levels of a site's object tree; the landing page is the first
    #[arg(long, value_name = "N", default_value_t = WalkLimits::default().levels, value_parser = clap::value_parser!(u8).range(1..=10))]
    levels: u8,
    /// Maximum request rate per host: N/s, N/min or N/h; Crawl-delay can lower it
    #[arg(long, value_name = "RATE", default_value = "1/s")]
    rate: RequestRate,
    /// Maximum number of HTML pages per site that are read for links
    #[arg(long, value_name = "N", default_value_t = WalkLimits::default().max_pages, value_parser = clap::value_parser!(u32).range(1..))]
    max_pages: u32,
    /// Maximum number of URLs per site that are requested
    #[arg(long, value_name = "N", default_value_t = WalkLimits::default().max_urls, value_parser = clap::value_parser!(u32).range(1..))]
    max_urls: u32,
    /// Number of sites to crawl at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// The results file, from which a stopped crawl resumes
    #[arg(long, value_name = "FILE", default_value = "survey.jsonl")]
    out: PathBuf,
    /// Trust only the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Read the results files of crawls, also of several machines
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  smig lab survey results survey-1.jsonl survey-2.jsonl --json")]
struct ResultsArgs {
    /// Results files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// How the table is written to standard output.
#[derive(Debug, Args)]
struct OutputArgs {
    /// Print the table as JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the table as CSV
    #[arg(long)]
    csv: bool,
}

pub(super) fn run(args: &SurveyArgs) -> Result<ExitCode> {
    match &args.command {
        SurveyCommand::Har(args) => count_har_files(args)?,
        SurveyCommand::Httparchive(args) => count_exports(args)?,
        SurveyCommand::Crawl(args) => return crawl(args),
        SurveyCommand::Results(args) => print_results(&args.files, &args.output)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn count_har_files(args: &HarArgs) -> Result<()> {
    let rule = if args.decoded { SizeRule::Decoded } else { SizeRule::Transferred };
    let bar = progress_bar(args.files.len() as u64, "{bar:24} {pos}/{len} files");
    let (mut counts, mut damaged_files) = (SurveyCounts::default(), 0);
    for path in &args.files {
        match read_har(open(path)?, &path.display().to_string(), rule, &mut counts) {
            Err(SurveyError::Damaged(damage)) if args.skip_damaged => {
                print_skipped(&bar, &damage);
                damaged_files += 1;
            }
            result => result.map_err(to_cli_error)?,
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut table = Table::new(DataSource::Har, &counts);
    if damaged_files > 0 {
        table.notes.push(format!("{damaged_files} damaged files were skipped."));
    }
    print(&table, &args.output)
}

fn count_exports(args: &ExportArgs) -> Result<()> {
    let mut counts = SurveyCounts::default();
    for path in &args.files {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "standard input".into() } else { path.display().to_string() };
        let file: Box<dyn Read> =
            if is_stdin { Box::new(io::stdin().lock()) } else { Box::new(open(path)?) };
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let template = if is_stdin {
            "{binary_bytes} {binary_bytes_per_sec}"
        } else {
            "{bar:24} {binary_bytes}/{binary_total_bytes} {eta} left"
        };
        let bar = progress_bar(bytes, template);
        let mut report = |damage: &DamagedInput| print_skipped(&bar, damage);
        let on_damaged =
            if args.skip_damaged { OnDamaged::Skip(&mut report) } else { OnDamaged::Stop };
        let result = read_export(bar.wrap_read(file), &name, &mut counts, on_damaged);
        bar.finish_and_clear();
        result.map_err(to_cli_error)?;
    }
    print(&Table::new(DataSource::HttpArchive, &counts), &args.output)
}

fn print_results(files: &[PathBuf], output: &OutputArgs) -> Result<()> {
    let (mut counts, mut summary) = (SurveyCounts::default(), CrawlSummary::default());
    for path in files {
        let name = path.display().to_string();
        summary.read(open(path)?, &name, &mut counts).map_err(to_cli_error)?;
    }
    let mut table = Table::new(DataSource::Crawl, &counts);
    table.notes = summary.notes();
    print(&table, output)
}

fn crawl(args: &CrawlArgs) -> Result<ExitCode> {
    let starts = parse_starts(args)?;
    let limits =
        WalkLimits { levels: args.levels, max_pages: args.max_pages, max_urls: args.max_urls };
    let mut results = ResultsFile::open(&args.out, limits).map_err(to_cli_error)?;
    let trust = args.cacert.clone().map_or(Trust::System, Trust::File);
    let client = crawl::build_client(trust).map_err(to_cli_error)?;
    let options = CrawlOptions {
        rate: args.rate,
        parallel_sites: args.parallel.into(),
        contact: args.contact.clone(),
    };
    let done_sites = starts.iter().filter(|start| results.is_done(start)).count();
    let view = CrawlProgress::new(starts.len() as u64, done_sites as u64, &args.out);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let crawl_result = runtime.block_on(async {
        let mut show = |event: CrawlEvent<'_>| view.show(event);
        tokio::select! {
            result = crawl::crawl(&starts, &options, client, &mut results, &mut show) => {
                result.map(|()| false)
            }
            // If the handler cannot be installed, Ctrl-C ends the process; the results file stays valid.
            Ok(()) = tokio::signal::ctrl_c() => Ok(true),
        }
    });
    drop(results);
    view.bar.finish_and_clear();
    let is_stopped = crawl_result.map_err(to_cli_error)?;
    print_results(std::slice::from_ref(&args.out), &args.output)?;
    if is_stopped {
        stderr::print_line(&format!(
            "stopped; the same command resumes from {}",
            args.out.display()
        ));
        return Ok(ExitCode::from(INTERRUPTED_STATUS));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the sites of the command line and of the list, without duplicates.
fn parse_starts(args: &CrawlArgs) -> Result<Vec<Url>> {
    let mut texts = args.urls.clone();
    if let Some(path) = &args.list {
        let text = io::read_to_string(open(path)?).map_err(|cause| {
            to_cli_error(SurveyError::Read { name: path.display().to_string(), cause })
        })?;
        let lines = text.lines().map(str::trim);
        texts.extend(
            lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(Into::into),
        );
    }
    let mut starts = Vec::new();
    for text in texts {
        let url = crawl::parse_start(&text)
            .map_err(|error| CliError::new(Exit::MalformedUrl, error.to_string()))?;
        if !starts.contains(&url) {
            starts.push(url);
        }
    }
    Ok(starts)
}

/// Progress on standard error.
struct CrawlProgress {
    bar: ProgressBar,
}

impl CrawlProgress {
    fn new(sites: u64, done_sites: u64, out: &Path) -> Self {
        let bar = progress_bar(sites, "{bar:24} {pos}/{len} sites  {elapsed} elapsed  {msg}");
        bar.set_position(done_sites);
        let view = Self { bar };
        let remaining_sites = sites - done_sites;
        view.println(&format!(
            "{remaining_sites} sites to crawl as {PRODUCT_TOKEN}, {done_sites} done already: {}",
            out.display()
        ));
        view.println(&paint::STDERR.dim("Ctrl-C stops, the same command resumes"));
        view.bar.enable_steady_tick(Duration::from_secs(1));
        view
    }

    fn println(&self, line: &str) {
        self.bar.suspend(|| stderr::print_line(line));
    }

    fn show(&self, event: CrawlEvent<'_>) {
        match event {
            CrawlEvent::Visited(visit) => {
                if let VisitOutcome::Failed { why } = &visit.outcome {
                    self.println(&format!(
                        "{} {}: {why}",
                        paint::STDERR.error("no response:"),
                        visit.url
                    ));
                }
                self.bar.set_message(visit.url.to_string());
            }
            CrawlEvent::Ended(ended) => {
                self.bar.inc(1);
                self.println(&format!("{}: {}", ended.start, ended.end.description()));
            }
            _ => {}
        }
    }
}

fn progress_bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn print_skipped(bar: &ProgressBar, input: &DamagedInput) {
    bar.suspend(|| stderr::print_line(&format!("{} {input}", paint::STDERR.error("skipped:"))));
}

fn open(path: &Path) -> Result<File, CliError> {
    File::open(path).map_err(|cause| {
        to_cli_error(SurveyError::Read { name: path.display().to_string(), cause })
    })
}

fn to_cli_error(error: SurveyError) -> CliError {
    let exit = match error {
        SurveyError::Write { .. } => Exit::Write,
        SurveyError::UnusableResults { .. } | SurveyError::InvalidArgument(_) => Exit::Usage,
        _ => Exit::Read,
    };
    CliError::new(exit, error.to_string())
}

fn print(table: &Table, output: &OutputArgs) -> Result<()> {
    let text = if output.json {
        serde_json::to_string_pretty(table).context("cannot serialize the table")? + "\n"
    } else if output.csv {
        table.to_csv()
    } else {
        table.to_text()
    };
    Ok(crate::stdout::write(format_args!("{text}"))?)
}

#[cfg(test)]
#[path = "survey/tests.rs"]
mod tests;
