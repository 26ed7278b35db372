//! Addresses of servers: most share their host's, and some need their own.
//!
//! A server has one for its congestion control, which the kernel chooses by the route from the address. A recorded page has one for each
//! group of hosts that did not share connections with others: a browser shares connections by address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use smig_testbed::netns::MAX_FURTHER_ADDRESSES;

use super::faults::Faults;
use super::hosts::HostRole;
use super::page::Page;
use super::recorded::Recording;
use super::spec::Scenario;

/// Address of the servers' host on the first link, and the first of its further ones.
const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const FIRST_FURTHER: u8 = 11;

/// Which addresses the servers' host has on the first link, and whose they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressPlan {
    further: Vec<FurtherAddress>,
    servers: BTreeMap<String, Ipv4Addr>,
    /// By page and host: the server, and the address that the host has.
    hosts: BTreeMap<(String, String), (String, Ipv4Addr)>,
}

/// An address besides the host's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FurtherAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// That of its connections; the host's if absent.
    pub congestion_control: Option<String>,
}

impl AddressPlan {
    /// Plans the addresses of a scenario.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        let mut plan = Self::default();
        for (name, server) in &scenario.servers {
            if server.host == HostRole::Server && server.congestion_control.is_some() {
                let address = plan.add(server.congestion_control.clone());
                plan.servers.insert(name.clone(), address);
            }
        }
        for (name, page) in &scenario.workload.pages {
            if let Some(recording) =
                page.recording.as_ref().filter(|_| scenario.is_browser_page(page))
            {
                plan.add_page(name, page, recording, scenario);
            }
        }
        plan
    }

    /// Returns the address of a server on its host.
    #[must_use]
    pub fn address_of(&self, server: &str) -> Ipv4Addr {
        self.servers.get(server).copied().unwrap_or(HOST_ADDRESS)
    }

    /// Returns the addresses besides the host's own.
    #[must_use]
    pub fn further(&self) -> &[FurtherAddress] {
        &self.further
    }

    /// Returns what hosts of pages have: page and host, with the server and the address.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = ((&str, &str), (&str, Ipv4Addr))> {
        self.hosts.iter().map(|((page, host), (server, address))| {
            ((page.as_str(), host.as_str()), (server.as_str(), *address))
        })
    }

    fn add(&mut self, congestion_control: Option<String>) -> Ipv4Addr {
        let [a, b, c, _] = HOST_ADDRESS.octets();
        // Scenarios with more addresses than there are have a fault.
        let last =
            u8::try_from(self.further.len()).unwrap_or(u8::MAX).saturating_add(FIRST_FURTHER);
        let address = Ipv4Addr::new(a, b, c, last);
        self.further.push(FurtherAddress { address, congestion_control });
        address
    }

    /// The first group of a server's hosts has the server's address, and each other one its own.
    fn add_page(&mut self, name: &str, page: &Page, recording: &Recording, scenario: &Scenario) {
        let client = scenario.client_of(page.client.as_deref());
        let client = client.and_then(|client| scenario.clients.get(client));
        let Some(own) = client.and_then(|client| scenario.server_of(client)) else { return };
        let mut taken = BTreeSet::new();
        for group in recording.replayed_origins() {
            let mut of_group: BTreeMap<&str, Ipv4Addr> = BTreeMap::new();
            for host in group {
                let server = page.server_of_host(host).unwrap_or(own);
                let address = *of_group.entry(server).or_insert_with(|| {
                    if taken.insert(server) {
                        return self.address_of(server);
                    }
                    let spec = scenario.servers.get(server);
                    self.add(spec.and_then(|spec| spec.congestion_control.clone()))
                });
                let key = (name.to_owned(), host.to_owned());
                self.hosts.insert(key, (server.to_owned(), address));
            }
        }
    }
}

/// A host has a limited number of addresses.
pub(super) fn check_addresses(scenario: &Scenario, faults: &mut Faults) {
    let count = AddressPlan::of(scenario).further.len();
    if count <= usize::from(MAX_FURTHER_ADDRESSES) {
        return;
    }
    let what = |advice: &str| {
        format!(
            "{count} addresses would be needed, and {MAX_FURTHER_ADDRESSES} are the limit: {advice}"
        )
    };
    let pages = scenario.workload.pages.iter();
    let recorded: Vec<_> = pages
        .filter(|(_, page)| page.recording.is_some() && scenario.is_browser_page(page))
        .map(|(name, _)| format!("workload.pages.{name}.har"))
        .collect();
    for path in &recorded {
        let advice = "a browser needs one for each of the page's hosts that shared no connection: take entries of some hosts out of \
            the file, or load the page by another client";
        faults.add(path, what(advice));
    }
    if recorded.is_empty() {
        faults.add("servers", what("each server with a congestion_control has its own"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_addresses_than_there_are_is_a_fault() {
        let scenario = |count: usize| -> Scenario {
            let servers: String = (0..count)
                .map(|n| format!("[servers.s{n}]\nkind = 'smig'\ncongestion_control = 'reno'\n"))
                .collect();
            let rest =
                "[clients.c]\nkind = 'h2'\nserver = 's0'\n[workload.transfers.t]\nsize = 1\n";
            toml::from_str(&format!("link = 'paper-wired'\n{servers}{rest}")).unwrap()
        };
        let faults = |count| {
            let mut faults = Faults::default();
            check_addresses(&scenario(count), &mut faults);
            faults.0
        };
        assert!(faults(240).is_empty());
        let [(path, what)] = &faults(241)[..] else { panic!() };
        assert_eq!(path, &["servers"]);
        assert!(what.contains("241 addresses") && what.contains("240 are the limit"), "{what}");
    }
}
