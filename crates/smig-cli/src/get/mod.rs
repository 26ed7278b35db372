//! `smig get`: fetches URLs to files.

mod args;
mod clients;
mod errors;
mod part_metadata;
mod plan;
mod report;
mod screen;
mod sink;
mod transfer;
mod upload;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use anyhow::Result;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

pub(crate) use args::GetArgs;

use crate::exit::{CliError, Exit};
use crate::logging;
use crate::suffix::with_suffix;
use clients::Clients;
use plan::Job;
use report::Report;
use screen::{Screen, Verbosity};
use transfer::{FetchOptions, Resume};
use upload::Upload;

/// Maximum number of worker threads.
const MAX_THREADS: usize = 4;

pub(crate) fn run(args: GetArgs) -> Result<ExitCode> {
    logging::start(if args.verbose > 1 { logging::Level::Debug } else { logging::Level::Errors });
    let verbosity = match args.verbose {
        _ if args.quiet => Verbosity::Quiet,
        0 => Verbosity::Normal,
        _ => Verbosity::Detailed,
    };
    let screen = Arc::new(Screen::new(verbosity));
    let jobs = plan::plan(&args)?;
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.clamp(2, MAX_THREADS))
        .enable_all()
        .build()?;
    let exit = runtime.block_on(fetch_all(&args, jobs, &screen))?;
    // Threads that are still blocked end with the process.
    runtime.shutdown_background();
    Ok(exit.into())
}

/// Fetches all URLs; the exit code is that of the first URL that failed.
async fn fetch_all(args: &GetArgs, jobs: Vec<Job>, screen: &Arc<Screen>) -> Result<Exit> {
    let options = fetch_options(args, &jobs, screen)?;
    // Runs on the main thread, which is not a worker thread: a write that blocks on a slow disk or
    // a full pipe does not block a session.
    let mut results = stream::iter(jobs.iter().enumerate())
        .map(|(number, job)| {
            let options = &options;
            async move {
                let (report, result) = options.fetch(job).await;
                (number, job, report, result)
            }
        })
        .buffer_unordered(usize::from(args.parallel));
    let mut first_failure: Option<(usize, Exit)> = None;
    while let Some((number, job, report, result)) = results.next().await {
        let failure = result.err();
        report_result(args, screen, job, &report, failure.as_ref())?;
        if let Some(failure) = failure
            && first_failure.is_none_or(|(earlier, _)| number < earlier)
        {
            first_failure = Some((number, failure.exit));
        }
    }
    Ok(first_failure.map_or(Exit::Success, |(_, exit)| exit))
}

fn report_result(
    args: &GetArgs,
    screen: &Screen,
    job: &Job,
    report: &Report,
    failure: Option<&CliError>,
) -> Result<(), CliError> {
    match failure {
        Some(failure) => screen.print_error(&format!("{}: {failure}", job.url)),
        None if !args.head => screen.print_done(&report.summary(&transfer::display_name(job))),
        None => {}
    }
    for line in report.details() {
        screen.print_detail(&format!("{}: {line}", transfer::display_name(job)));
    }
    if args.json {
        let line = report.to_json(&job.url, job.destination.to_text(), failure);
        writeln!(std::io::stdout(), "{line}").map_err(|error| {
            CliError::new(Exit::Write, format!("cannot write standard output: {error}"))
        })?;
    }
    Ok(())
}

fn fetch_options(args: &GetArgs, jobs: &[Job], screen: &Arc<Screen>) -> Result<FetchOptions> {
    let uris: Vec<_> = jobs.iter().map(|job| &job.uri).collect();
    let clients = Clients::new(args, &uris, screen)
        .map_err(|error| CliError::new(Exit::Usage, format!("{error:#}")))?;
    let upload = Upload::parse(args.data.as_deref());
    let method = match (&args.request, args.head) {
        (Some(method), _) => method.parse().map_err(|_| {
            CliError::new(Exit::Usage, format!("--request {method:?}: not an HTTP method"))
        })?,
        (None, true) => Method::HEAD,
        (None, false) if upload == Upload::Empty => Method::GET,
        (None, false) => Method::POST,
    };
    Ok(FetchOptions {
        clients,
        screen: Arc::clone(screen),
        method,
        headers: parse_headers(&args.header)?,
        upload,
        resume: if args.resume { Resume::Yes } else { Resume::No },
        retries: args.retry,
        max_time: args.max_time,
    })
}

fn parse_headers(fields: &[String]) -> Result<HeaderMap, CliError> {
    let mut headers = HeaderMap::new();
    for field in fields {
        let bad = |why| CliError::new(Exit::Usage, format!("--header {field:?}: {why}"));
        let (name, value) =
            field.split_once(':').ok_or_else(|| bad("no colon; write \"name: value\""))?;
        let name: HeaderName =
            name.trim().parse().map_err(|_| bad("a field name has letters, digits and -"))?;
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| bad("the value has characters that a field value cannot have"))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Returns the path of a partial file.
fn part_path(path: &Path) -> PathBuf {
    with_suffix(path, ".part")
}
