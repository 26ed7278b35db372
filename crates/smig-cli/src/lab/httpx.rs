//! `smig lab httpx`: which version of HTTP for which host of a page, and what that gains.
//!
//! Owns the command line. The primer and the loads are smig-lab's; senders are probed by `smig lab identify`, in processes of its own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use clap::Args;
use smig_chart::table::to_text;
use smig_lab::identify::{Family, Sender};
use smig_lab::page_study::{
    HostChoice, HostPlan, PageHostLoad, PageSource, PageStudy, Protocol, choices_table,
};
use smig_lab::scenario::{Diagnostics, Page};

use super::control::check_control;
use super::page::{LoadArgs, StudyRun, run_study};
use super::probe_senders::family_of;
use super::run::check_setting;
use crate::exit::{CliError, Exit};
use crate::stderr;

/// A probe takes less than a minute with as much; what it shows, it shows by then.
const MAX_OBJECT_BYTES: u64 = 320_000;
/// Smaller objects end before their sender shows what it goes by (Igor's rule as published).
const MIN_OBJECT_BYTES: u64 = 50_000;

/// Choose the version of HTTP for each host of a page by its server's congestion control, and load it
#[derive(Debug, Args)]
#[command(
    long_about = "Choose the version of HTTP for each host of a page by its server's congestion control, and load it: HTTPX of \
        \"Mind the Delay\" (CoNEXT 2020, section 5).\n\nThe primer lists the page's hosts and the biggest object of each. A probe as \
        big as that one, from a sender with the host's congestion control, tells by Igor's rule whether it goes by delays \
        (smig lab identify). Then the page is loaded by HTTP/1.1, by HTTP/2, by HTTPX, which is HTTP/1.1 with the hosts whose \
        senders go by delays and HTTP/2 with the others, and by one that migrates streams (smig), or with --browser by \
        Chromium and smig serve (paced).\n\nThe servers are the lab's: which congestion control each host has is yours to say. The \
        report is that of smig lab page, in DIR.",
    after_help = "\
Examples:
  smig lab httpx example/page.har --host-control cdn.example=bbr
  smig lab httpx example/page.har --control bbr --host-control ads.example=cubic --link lte-like --runs 10
  smig lab httpx example/page.har --host-control cdn.example=bbr --browser

Exit codes: as those of smig lab page; 1 also if a sender cannot be probed."
)]
pub(crate) struct HttpxArgs {
    /// A recording (FILE.har: smig lab record), or a TOML file with the keys of a page
    page: String,
    /// Congestion control of the servers of all hosts that --host-control does not name
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    control: String,
    /// Congestion control of a host's servers; may be repeated
    #[arg(long = "host-control", value_name = "HOST=NAME,...", value_delimiter = ',')]
    host_controls: Vec<HostControl>,
    /// Networks, by profile
    #[arg(
        long = "link",
        value_name = "PROFILE,...",
        value_delimiter = ',',
        default_value = "jitter"
    )]
    links: Vec<String>,
    /// Directory for results and report
    #[arg(long, value_name = "DIR", default_value = "httpx-results")]
    out: PathBuf,
    #[command(flatten)]
    loads: LoadArgs,
}

/// A host and a congestion control.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostControl {
    host: String,
    control: String,
}

impl FromStr for HostControl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((host, control)) if !host.is_empty() && !control.is_empty() => {
                Ok(Self { host: host.to_ascii_lowercase(), control: control.to_owned() })
            }
            _ => Err("expected HOST=NAME, such as cdn.example=bbr".to_owned()),
        }
    }
}

pub(super) fn run(args: &HttpxArgs) -> Result<ExitCode> {
    check_controls(args)?;
    let mut study = study_of(args)?;
    let page = page_of(args, &study)?;
    let loads = PageHostLoad::all(&page);
    let controls = controls_of(args, &page, &loads)?;
    let smig = std::env::current_exe().context("cannot find the path of this program")?;
    let mut known = BTreeMap::new();
    let mut choices = Vec::new();
    for load in loads {
        let own = load.host.as_ref().and_then(|host| controls.get(host));
        let control = own.unwrap_or(&args.control).clone();
        let object_bytes = load.biggest_bytes.min(MAX_OBJECT_BYTES);
        let family = if object_bytes < MIN_OBJECT_BYTES {
            Family::TooSmall
        } else {
            match known.entry((control.clone(), object_bytes)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let sender = Sender::of_server(&control).map_err(anyhow::Error::msg)?;
                    *new.insert(family_of(&smig, &sender, object_bytes)?)
                }
            }
        };
        choices.push(HostChoice { load, control, family });
    }
    stderr::print_line(&to_text(&choices_table(&choices)));
    let share = HostChoice::delay_based_share(&choices);
    stderr::print_line(&format!(
        "{:.0} % of the bytes come from senders that go by delays\n",
        100.0 * share
    ));
    study.hosts = HostChoice::plan(&choices, &args.control);
    let HttpxArgs { page, out, loads, .. } = args;
    run_study(&StudyRun { page, out, loads, budgets: &[], junit: None }, &study)
}

/// A name that nobody has would be found by each run only, and after the probes.
fn check_controls(args: &HttpxArgs) -> Result<(), CliError> {
    check_control("--control", &args.control)?;
    args.host_controls.iter().try_for_each(|HostControl { host, control }| {
        check_control(&format!("--host-control {host}"), control)
    })
}

fn study_of(args: &HttpxArgs) -> Result<PageStudy> {
    let page = PageSource::parse(&args.page)
        .map_err(|error| CliError::new(Exit::Usage, error.to_string()))?;
    let last = if args.loads.browser { Protocol::Paced } else { Protocol::Smig };
    Ok(PageStudy {
        page,
        links: args.links.clone(),
        protocols: vec![Protocol::Http1, Protocol::Http2, Protocol::Httpx, last],
        control: args.control.clone(),
        hosts: HostPlan::default(),
        loader: args.loads.loader(),
        runs: args.loads.runs,
    })
}

/// Returns the page, which is read from its file when the study's scenario is.
fn page_of(args: &HttpxArgs, study: &PageStudy) -> Result<Page> {
    let campaign = study.campaign(&check_setting).map_err(|diagnostics| {
        let file = args.page.clone();
        CliError::new(Exit::Usage, Diagnostics { file, diagnostics }.to_string())
    })?;
    let condition = campaign.conditions.first().context("the study has no condition")?;
    let page = condition.scenario.workload.pages.values().next();
    page.cloned().context("the study has no page")
}

/// Returns the congestion control of each host that has one of its own.
fn controls_of(
    args: &HttpxArgs,
    page: &Page,
    loads: &[PageHostLoad],
) -> Result<BTreeMap<String, String>, CliError> {
    let document = page.recording.as_ref().and_then(|recording| recording.document_host());
    let mut controls = BTreeMap::new();
    for HostControl { host, control } in &args.host_controls {
        if Some(host.as_str()) == document {
            let what = format!(
                "--host-control {host}: this is the document's host, whose congestion control is --control's"
            );
            return Err(CliError::new(Exit::Usage, what));
        }
        if !loads.iter().any(|load| load.host.as_ref() == Some(host)) {
            let names: Vec<_> = loads.iter().filter_map(|load| load.host.as_deref()).collect();
            let known = match names.as_slice() {
                [] => "it has only the document's".to_owned(),
                names => format!("known: {}", names.join(", ")),
            };
            let what = format!("--host-control {host}: the page has no such host; {known}");
            return Err(CliError::new(Exit::Usage, what));
        }
        if controls.insert(host.clone(), control.clone()).is_some() {
            let what = format!("--host-control {host}: it is named twice");
            return Err(CliError::new(Exit::Usage, what));
        }
    }
    Ok(controls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_congestion_control() {
        let parsed: HostControl = "CDN.example=bbr".parse().unwrap();
        assert_eq!((parsed.host.as_str(), parsed.control.as_str()), ("cdn.example", "bbr"));
        for text in ["cdn.example", "=bbr", "cdn.example=", ""] {
            assert!(text.parse::<HostControl>().is_err(), "{text}");
        }
    }
}
