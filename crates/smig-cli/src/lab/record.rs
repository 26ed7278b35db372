//! `smig lab record`: records a page with Chromium.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use smig_chart::format_bytes;
use smig_lab::record::{BrowserError, PageUrl, RecordError, RecordSpec, RecordedSummary, record};
use smig_settings::value::parse_time;
use tokio_util::sync::CancellationToken;

use crate::dev_cert;
use crate::exit::{CliError, Exit};
use crate::interrupt::{self, INTERRUPTED_STATUS};
use crate::stderr;
use crate::stdout::outln;
use crate::trust::is_loopback;

/// Failures that are shown; the others are in the recording.
const MAX_SHOWN_FAILURES: usize = 5;

/// Record a page with Chromium, to be loaded over emulated links
#[derive(Debug, Args)]
#[command(
    long_about = "Record a page with Chromium, to be loaded over emulated links.\n\nThe page is loaded once, over this \
        machine's own network, by a headless Chromium with an empty profile. DIR/page.har is the recording, \
        HAR 1.2, which other viewers open too: each request with its times, its connection, its server's address, \
        its priority and initiator. DIR/bodies has the bodies, decoded. Cookies, header fields whose names say that they are secret, and what the \
        page sent as bodies are not written; queries of URLs and the bodies of responses are, with what is in them. A scenario's page with har = \"DIR/page.har\" is loaded from the \
        lab's own servers; nothing of a recorded page leaves the machine.\n\nA load that has no load event within \
        --time-limit is not recorded. After that event requests are recorded for as long as something is in flight, \
        --after-load at most.\n\nStrangers' pages are best recorded as an ordinary user: for root, Chromium has no sandbox.",
    after_help = "\
Examples:
  smig lab record https://www.example.org/ --out example
  smig lab record https://localhost:8443/ --out mine --cacert ca.pem      a server with a private authority
  smig lab record https://www.example.org/ --out example --http1 --json

  In a scenario, beside the directory:
    [workload.pages.example]
    har = \"example/page.har\"

Exit codes: 0 success; 2 usage error; 6 host not resolved; 7 cannot connect; 28 the page did not load in \
time; 35 TLS failed; 60 the certificate is not trusted; 130 interrupted; 1 another error"
)]
pub(crate) struct RecordArgs {
    /// The page, an http or https URL
    #[arg(value_name = "URL")]
    url: PageUrl,
    /// Directory to create, for the recording and the bodies
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Trust the certificates of this file too, PEM [default: for localhost, the development authority of smig serve]
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Speak HTTP/1.1 only
    #[arg(long)]
    http1: bool,
    /// Time until the load event
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "60s")]
    time_limit: Duration,
    /// Record at most this long after the load event
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s")]
    after_load: Duration,
    /// Path of the browser, if it is not in PATH
    #[arg(long, value_name = "FILE")]
    chromium: Option<PathBuf>,
    /// Print what was recorded as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RecordArgs) -> Result<ExitCode> {
    let is_local = is_loopback(args.url.host());
    let authority = || dev_cert::authority_path().filter(|_| is_local);
    let spec = RecordSpec {
        url: args.url.clone(),
        out: args.out.clone(),
        cacert: args.cacert.clone().or_else(authority),
        browser: args.chromium.clone(),
        http2: !args.http1,
        time_limit: args.time_limit,
        after_load: args.after_load,
    };
    let stop = CancellationToken::new();
    interrupt::cancel_on_interrupt(stop.clone())?;
    match record(&spec, &stop) {
        Ok(summary) => {
            show(args, &summary)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(RecordError::Browser(BrowserError::Stopped)) => {
            stderr::print_line("Stopped; nothing was written.");
            Ok(INTERRUPTED_STATUS.into())
        }
        Err(error) => {
            let exit = exit_of(&error);
            let remedy = match exit {
                Exit::Certificate => "; --cacert FILE trusts a private authority",
                Exit::Timeout => "; --time-limit gives it more time",
                _ => "",
            };
            Err(CliError::new(exit, format!("{error}{remedy}")).into())
        }
    }
}

fn exit_of(error: &RecordError) -> Exit {
    let text = error.to_string();
    // The URL before it can be anything.
    let text = text.rsplit_once("net::").map_or("", |(_, code)| code);
    match error {
        RecordError::Exists(_) | RecordError::Trust(_) => Exit::Usage,
        RecordError::Browser(BrowserError::TimedOut(_)) => Exit::Timeout,
        RecordError::Browser(BrowserError::Incomplete(_)) => {
            let codes = [
                ("ERR_NAME_", Exit::Resolve),
                ("ERR_CERT_", Exit::Certificate),
                ("ERR_SSL_", Exit::Tls),
                ("ERR_CONNECTION_", Exit::Connect),
                ("ERR_ADDRESS_", Exit::Connect),
                ("ERR_TIMED_OUT", Exit::Timeout),
            ];
            let found = codes.into_iter().find(|(code, _)| text.starts_with(code));
            found.map_or(Exit::Failure, |(_, exit)| exit)
        }
        _ => Exit::Failure,
    }
}

fn show(args: &RecordArgs, summary: &RecordedSummary) -> Result<()> {
    if args.json {
        outln!("{}", serde_json::to_string(summary)?);
        return Ok(());
    }
    let bytes = summary.hosts.iter().map(|host| host.bytes).sum();
    outln!(
        "{}: {} requests, {} from {}, loaded after {:.2} s in {}",
        summary.url,
        summary.requests,
        format_bytes(bytes),
        counted(summary.hosts.len(), "host"),
        summary.load_ms / 1e3,
        summary.browser
    );
    for host in &summary.hosts {
        outln!("  {:<40} {:>5} {:>10}", host.host, host.requests, format_bytes(host.bytes));
    }
    let left_out = summary.left_out.reasons();
    if !left_out.is_empty() {
        let reasons: Vec<_> =
            left_out.iter().map(|(count, why)| format!("{count} {why}")).collect();
        outln!("Not part of the load: {}", reasons.join(", "));
    }
    for failed in summary.failed.iter().take(MAX_SHOWN_FAILURES) {
        outln!("Failed: {} ({})", failed.url, failed.reason);
    }
    if summary.failed.len() > MAX_SHOWN_FAILURES {
        outln!("... and {} more", summary.failed.len() - MAX_SHOWN_FAILURES);
    }
    outln!("Written: {}, with {}", summary.har.display(), counted(summary.bodies, "body"));
    Ok(())
}

fn counted(count: usize, what: &str) -> String {
    match (count, what) {
        (1, what) => format!("1 {what}"),
        (count, "body") => format!("{count} bodies"),
        (count, what) => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_other_clients() {
        let browser = |text: &str| RecordError::Browser(BrowserError::Incomplete(text.to_owned()));
        assert_eq!(exit_of(&browser("https://x/: net::ERR_NAME_NOT_RESOLVED")), Exit::Resolve);
        assert_eq!(exit_of(&browser("net::ERR_CERT_AUTHORITY_INVALID")), Exit::Certificate);
        assert_eq!(exit_of(&browser("net::ERR_CONNECTION_REFUSED")), Exit::Connect);
        assert_eq!(exit_of(&browser("net::ERR_ABORTED")), Exit::Failure);
        let misleading = "https://x/?ERR_NAME_: net::ERR_CONNECTION_REFUSED";
        assert_eq!(exit_of(&browser(misleading)), Exit::Connect);
    }
}
