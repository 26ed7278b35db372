//! `smig lab check`: checks whether the emulated links behave as configured.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use smig_link::{LinkSpec, Profile};
use smig_testbed::check::{self, CheckOptions, CheckResult, ProfileCheck};
use smig_testbed::netns::enter_user_namespace;

use crate::exit::{CliError, Exit};
use crate::paint;
use crate::stdout::outln;

/// Check the emulated links against their profiles
#[derive(Debug, Args)]
#[command(
    long_about = "Check the emulated links against their profiles, with real packets through the \
        kernel.\n\nEach profile specifies a rate, a delay and possibly loss. These are measured in both \
        directions and must match: the rate within 1 %, the delay within 1 ms for half of the packets \
        and 2 ms for 99 of 100, loss within what chance allows. Where the kernel has a token bucket \
        (tc, TBF), the same rate is measured through it for comparison. A profile that misses a bound \
        while the lab's own threads were scheduled late is marked as disturbed; check it again when the \
        machine is idle.\n\n\
        Columns: the specified and the measured values, and their difference; p50 and p99 are the excess \
        delays of packets; \"late p99\" is the lateness of the lab's own threads.",
    after_help = "\
Examples:
  smig lab check                            all profiles, about seven seconds each
  smig lab check paper-wired fiber --seconds 10
  smig lab check my-link.toml --json        a file with [to_client] and [to_server], or with [both]

Exit codes: 0 all links match their profiles, or were disturbed; 1 a link does not match; 2 usage
error, or an invalid file."
)]
pub(crate) struct CheckArgs {
    /// Names of profiles (smig lab profiles lists them), or TOML files of links [default: all
    /// profiles]
    #[arg(value_name = "PROFILE")]
    profiles: Vec<String>,
    /// Seconds that each measurement of a profile takes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Seed of the random number generators
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the measurements as JSON lines
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode> {
    let links = resolve_links(&args.profiles)?;
    // User namespaces require a single-threaded process.
    enter_user_namespace()?;
    let options = CheckOptions {
        duration: Duration::from_secs(args.seconds),
        seed: args.seed,
        ..CheckOptions::default()
    };
    let bar = progress_bar(links.len());
    let mut results = Vec::new();
    for (name, link) in &links {
        bar.set_message(name.clone());
        let profile_check = check::check(name, link, &options)?;
        bar.suspend(|| {
            if results.is_empty() && !args.json {
                outln!("{}", paint::STDOUT.bold(&check::table_header()));
            }
            show(args, &profile_check)
        })?;
        results.push(profile_check.result());
        bar.inc(1);
    }
    bar.finish_and_clear();
    print_summary(args, &results)
}

/// Returns a bar of so many measurements; hidden if nobody looks.
pub(super) fn progress_bar(length: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{pos} of {len} {wide_bar} {msg}, {eta} left");
    let bar = ProgressBar::new(length as u64);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(args: &CheckArgs, profile_check: &ProfileCheck) -> Result<()> {
    if args.json {
        let mut value = serde_json::to_value(profile_check)?;
        value["verdict"] = serde_json::to_value(profile_check.result())?;
        outln!("{value}");
        return Ok(());
    }
    for line in check::table_rows(profile_check) {
        match profile_check.result() {
            CheckResult::Good => outln!("{line}"),
            CheckResult::Disturbed => outln!("{}", paint::STDOUT.dim(&line)),
            CheckResult::OutOfBounds => outln!("{}", paint::STDOUT.error(&line)),
        }
    }
    Ok(())
}

fn print_summary(args: &CheckArgs, results: &[CheckResult]) -> Result<ExitCode> {
    let count = |verdict| results.iter().filter(|other| **other == verdict).count();
    let (good_count, disturbed_count, out_of_bounds_count) =
        (count(CheckResult::Good), count(CheckResult::Disturbed), count(CheckResult::OutOfBounds));
    if !args.json {
        let mut text = format!("{good_count} of {} links match their profiles", results.len());
        if disturbed_count > 0 {
            text += &format!("; {disturbed_count} were disturbed: the machine was busy");
        }
        if out_of_bounds_count > 0 {
            text += &format!("; {out_of_bounds_count} do not");
        }
        outln!("{text}.");
    }
    Ok(if out_of_bounds_count > 0 { Exit::Failure.into() } else { ExitCode::SUCCESS })
}

/// Returns the named links, or all profiles if no name is given.
fn resolve_links(names: &[String]) -> Result<Vec<(String, LinkSpec)>> {
    if names.is_empty() {
        let all = Profile::all().into_iter();
        return Ok(all.map(|profile| (profile.name.to_owned(), profile.spec)).collect());
    }
    names.iter().map(|name| Ok((name.clone(), resolve_link(name)?))).collect()
}

/// Returns a profile's link, or the link that a file describes.
pub(super) fn resolve_link(name: &str) -> Result<LinkSpec, CliError> {
    let wrong = |text: String| CliError::new(Exit::Usage, text);
    if let Some(profile) = Profile::by_name(name) {
        return Ok(profile.spec);
    }
    let path = Path::new(name);
    if path.extension().is_none() && !path.exists() {
        let known: Vec<_> = Profile::all().iter().map(|profile| profile.name).collect();
        let suggestion = smig_settings::suggest(name, known);
        let hint = suggestion.map_or_else(String::new, |near| format!(" Did you mean {near}?"));
        return Err(wrong(format!(
            "unknown profile {name:?}.{hint} `smig lab profiles` lists all profiles"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("{name}: {error}")))?;
    let spec: LinkSpec = toml::from_str(&text).map_err(|error| {
        wrong(format!("{name}: not a valid link: {}", error.to_string().trim_end()))
    })?;
    let spec = spec.resolve_trace_paths(path.parent().unwrap_or_else(|| Path::new(".")));
    spec.check().map_err(|error| wrong(format!("{name}: {error}")))?;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_name_or_a_file() {
        assert_eq!(resolve_links(&[]).unwrap().len(), Profile::all().len());
        assert_eq!(resolve_link("paper-wired").unwrap(), LinkSpec::paper_wired());
        let error = resolve_link("paper-wird").unwrap_err().to_string();
        assert!(error.contains("paper-wired") && error.contains("smig lab profiles"), "{error}");
        assert!(resolve_link("no/such.toml").unwrap_err().to_string().contains("no/such.toml"));
    }

    #[test]
    fn an_invalid_file_is_reported_with_its_location() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link.toml");
        let name = path.to_str().unwrap();
        let valid_toml =
            "[both]\nrate = { trace = \"a.trace\" }\ndelay_ms = 5\nqueue = { packets = 9 }\n";
        std::fs::write(&path, valid_toml).unwrap();
        let error = resolve_link(name).unwrap_err().to_string();
        assert!(error.contains("a.trace"), "{error}");
        std::fs::write(dir.path().join("a.trace"), "1\n2\n").unwrap();
        resolve_link(name).unwrap();
        std::fs::write(&path, valid_toml.replace("delay_ms", "dely_ms")).unwrap();
        let error = resolve_link(name).unwrap_err().to_string();
        assert!(error.contains("line") && error.contains("dely_ms"), "{error}");
    }
}
