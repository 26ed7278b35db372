//! What a page loads from which host, and which hosts HTTPX turns HTTP/2 off for ("Mind the Delay", section 5): the paper's primer.

use std::collections::BTreeMap;

use serde::Serialize;
use smig_chart::html::{Align, Table};

use super::host_plan::HostPlan;
use crate::identify::Family;
use crate::scenario::Page;

/// What a page loads from a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PageHostLoad {
    /// The host; `None` for the document's.
    pub host: Option<String>,
    /// Number of objects.
    pub objects: usize,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Size of the biggest one, by which the sender is identified.
    pub biggest_bytes: u64,
}

impl PageHostLoad {
    /// Returns what a page loads, the document's host first, the others by bytes.
    #[must_use]
    pub fn all(page: &Page) -> Vec<Self> {
        let mut hosts: BTreeMap<Option<String>, Self> = BTreeMap::new();
        for resource in page.resources() {
            let new = Self { host: resource.host.clone(), objects: 0, bytes: 0, biggest_bytes: 0 };
            let load = hosts.entry(resource.host).or_insert(new);
            load.objects += 1;
            load.bytes += resource.size;
            load.biggest_bytes = load.biggest_bytes.max(resource.size);
        }
        let mut hosts: Vec<_> = hosts.into_values().collect();
        hosts.sort_by_key(|load| (load.host.is_some(), std::cmp::Reverse(load.bytes)));
        hosts
    }

    /// Returns its name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        self.host.as_deref().unwrap_or("the document's")
    }
}

/// What is known of a host's server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostChoice {
    /// What is loaded from it.
    #[serde(flatten)]
    pub load: PageHostLoad,
    /// The congestion control that it has.
    pub control: String,
    /// What Igor's rule takes it for, by an object as big as the biggest.
    pub family: Family,
}

impl HostChoice {
    /// Returns whether HTTPX turns HTTP/2 off.
    #[must_use]
    pub fn is_without_http2(&self) -> bool {
        self.family == Family::DelayBased
    }

    /// Returns the plan of a page with these hosts.
    #[must_use]
    pub fn plan(choices: &[Self], default_control: &str) -> HostPlan {
        let mut plan = HostPlan::default();
        for choice in choices {
            match &choice.load.host {
                None => plan.document_without_http2 = choice.is_without_http2(),
                Some(host) => {
                    if choice.control != default_control {
                        plan.controls.insert(host.clone(), choice.control.clone());
                    }
                    if choice.is_without_http2() {
                        plan.without_http2.insert(host.clone());
                    }
                }
            }
        }
        plan
    }

    /// Returns the share of the page's bytes whose senders go by delays.
    #[must_use]
    pub fn delay_based_share(choices: &[Self]) -> f64 {
        let delay_based = choices.iter().filter(|choice| choice.is_without_http2());
        let delay_based_bytes: u64 = delay_based.map(|choice| choice.load.bytes).sum();
        let all_bytes: u64 = choices.iter().map(|choice| choice.load.bytes).sum();
        delay_based_bytes as f64 / all_bytes.max(1) as f64
    }
}

/// Returns hosts and choices as a table.
#[must_use]
pub fn choices_table(choices: &[HostChoice]) -> Table {
    let columns = [
        ("host", Align::Left),
        ("objects", Align::Right),
        ("bytes", Align::Right),
        ("biggest", Align::Right),
        ("congestion control", Align::Left),
        ("by Igor's rule", Align::Left),
        ("HTTPX", Align::Left),
    ];
    let row = |choice: &HostChoice| {
        let bytes = |bytes: u64| smig_chart::format_bytes(bytes);
        vec![
            choice.load.name().to_owned(),
            choice.load.objects.to_string(),
            bytes(choice.load.bytes),
            bytes(choice.load.biggest_bytes),
            choice.control.clone(),
            choice.family.to_string(),
            if choice.is_without_http2() { "HTTP/1.1" } else { "HTTP/2" }.to_owned(),
        ]
    };
    Table {
        columns: columns.map(|(name, align)| (name.to_owned(), align)).to_vec(),
        rows: choices.iter().map(row).collect(),
    }
}
