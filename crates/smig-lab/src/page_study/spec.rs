//! The scenario that a page becomes: networks and versions of HTTP as axes.

use toml::{Table, Value};

use super::host_plan::HostPlan;
use super::protocol::{Loader, Protocol};
use super::source::PageSource;
use crate::scenario::{Campaign, Diagnostic, SettingsCheck, parse};

/// Axes of the study's conditions.
pub(super) const LINK_AXIS: &str = "link";
pub(super) const PROTOCOL_AXIS: &str = "protocol";
/// Name of the page in the scenario.
pub(super) const PAGE_NAME: &str = "page";

/// What to load, how, and how often.
#[derive(Debug, Clone, PartialEq)]
pub struct PageStudy {
    /// The page.
    pub page: PageSource,
    /// Names of profiles.
    pub links: Vec<String>,
    /// Versions of HTTP.
    pub protocols: Vec<Protocol>,
    /// Congestion control of the server: as the kernel names it, or one of the lab's.
    pub control: String,
    /// Hosts whose servers have another, and those that HTTPX turns HTTP/2 off for.
    pub hosts: HostPlan,
    /// What loads it.
    pub loader: Loader,
    /// Number of loads of each combination, each in a run of its own.
    pub runs: u32,
}

impl PageStudy {
    /// Builds the campaign: each load has hosts, link and server of its own, and is recorded on one clock.
    ///
    /// # Errors
    /// The page's keys, a link or the congestion control are wrong.
    pub fn campaign(&self, check: SettingsCheck<'_>) -> Result<Campaign, Vec<Diagnostic>> {
        parse(&self.scenario_text(), "page", &self.page.dir, check)
    }

    /// Returns a fault of the campaign as who gave the options knows it: with the option or the key of the page's file, and without a
    /// line of the scenario, which was generated. `page` is the page as it was given.
    #[must_use]
    pub fn explain(&self, page: &str, fault: &Diagnostic) -> String {
        let key = fault.key.as_str();
        let of_page =
            key.strip_prefix("workload.pages.").and_then(|key| key.strip_prefix(PAGE_NAME));
        let of_page = of_page.map(|key| key.trim_start_matches('.'));
        let is_in = |table: &str| {
            key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let hosts_differ = self.hosts != HostPlan::default();
        let subject = match of_page {
            Some("hosts") if hosts_differ => "--host-control".to_owned(),
            Some(key) if self.page.has_file_of_keys() && !key.is_empty() => {
                format!("{page}: {key}")
            }
            Some(_) => page.to_owned(),
            None if is_in("link") || is_in("variants.link") => "--link".to_owned(),
            None if is_in("hosts.server") => "--control".to_owned(),
            None if is_in("servers") && hosts_differ => "--host-control".to_owned(),
            None if key.is_empty() => page.to_owned(),
            None => format!("{page}: {key}"),
        };
        format!("{subject}: {}", fault.message)
    }

    /// Returns the scenario, as `smig lab run` takes it.
    #[must_use]
    pub fn scenario_text(&self) -> String {
        let table = |entries: Vec<(&str, Value)>| {
            Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        let first = self.protocols.first().copied().unwrap_or(Protocol::Http2);
        let mut scenario = first.variant(self.loader, &self.hosts);
        let mut insert = |key: &str, value: Value| scenario.insert(key.to_owned(), value);
        insert("about", format!("The page {}", self.page.name).into());
        insert("repetitions", i64::from(self.runs).into());
        insert("seed", 1.into());
        let link = self.links.first().map_or("fiber", String::as_str);
        insert("link", link.into());
        insert("record", table(vec![("timeline", true.into())]));
        let server = table(vec![("congestion_control", self.control.as_str().into())]);
        insert("hosts", table(vec![("server", server)]));
        let mut page = self.page.keys.clone();
        page.insert("client".into(), "browser".into());
        let of_first = scenario
            .remove("workload")
            .and_then(|workload| workload.get("pages")?.get(PAGE_NAME)?.get("hosts").cloned());
        if let Some(hosts) = of_first {
            page.insert("hosts".into(), hosts);
        }
        let pages = table(vec![(PAGE_NAME, Value::Table(page))]);
        let mut insert = |key: &str, value: Value| scenario.insert(key.to_owned(), value);
        // A browser's start is not part of the page, and other clients have no connection before it.
        let settle = if self.loader == Loader::Player { "0s" } else { "300ms" };
        insert("workload", table(vec![("settle", settle.into()), ("pages", pages)]));
        let links = self.links.iter().map(|link| {
            let change = Table::from_iter([("link".to_owned(), Value::from(link.as_str()))]);
            (link.clone(), Value::Table(change))
        });
        let protocols = self.protocols.iter().map(|protocol| {
            let change = protocol.variant(self.loader, &self.hosts);
            (protocol.to_string(), Value::Table(change))
        });
        let variants = table(vec![
            (LINK_AXIS, Value::Table(links.collect())),
            (PROTOCOL_AXIS, Value::Table(protocols.collect())),
        ]);
        insert("variants", variants);
        scenario.to_string()
    }
}
