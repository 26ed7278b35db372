//! Addresses of servers: most share their host's, and some need their own.
//!
//! A server has one for its congestion control, which the kernel chooses by the route from the address. A recorded page has one for each
//! group of hosts that did not share connections with others: a browser shares connections by address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use crate::scenario::{HostRole, Page, Recording, Scenario};

/// Address of the servers' host on the first link, and the first of its further ones.
const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const FIRST_FURTHER: u8 = 11;
/// Pattern of all addresses of the testbed.
const ALL_ADDRESSES: &str = "10.99.*";

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
    pub fn into_further(self) -> Vec<FurtherAddress> {
        self.further
    }

    fn add(&mut self, congestion_control: Option<String>) -> Ipv4Addr {
        let [a, b, c, _] = HOST_ADDRESS.octets();
        // The testbed rejects more addresses than there are.
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
        for group in &recording.origins {
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
                let key = (name.to_owned(), host.clone());
                self.hosts.insert(key, (server.to_owned(), address));
            }
        }
    }
}

/// Returns the names that the certificate needs for browsers to share connections: of hosts that shared one when their page was recorded.
#[must_use]
pub(crate) fn shared_names(scenario: &Scenario) -> Vec<String> {
    let recordings = scenario.browser_pages().filter_map(|page| page.recording.as_ref());
    let groups =
        recordings.flat_map(|recording| &recording.origins).filter(|group| group.len() > 1);
    let name = |host: &String| host.split(':').next().unwrap_or(host).to_owned();
    groups.flatten().map(name).collect()
}

/// Returns where names lead for each client that loads recorded pages with a browser: to the servers, whose addresses these are, and no
/// other name anywhere.
#[must_use]
pub(crate) fn resolver_rules(
    scenario: &Scenario,
    servers: &BTreeMap<String, SocketAddr>,
) -> BTreeMap<String, String> {
    let plan = AddressPlan::of(scenario);
    let mut rules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((page, host), (server, address)) in &plan.hosts {
        let page = scenario.workload.pages.get(page);
        let client = page.and_then(|page| scenario.client_of(page.client.as_deref()));
        if let (Some(client), Some(server)) = (client, servers.get(server)) {
            let port = server.port();
            let rule = format!("MAP {host} {address}:{port}");
            rules.entry(client.to_owned()).or_default().push(rule);
        }
    }
    let text = |(client, mut rules): (String, Vec<String>)| {
        // Rules for a host with a port come before those for all its ports.
        rules.sort_by_key(|rule| !rule.split(' ').nth(1).unwrap_or_default().contains(':'));
        rules.push("MAP * ~NOTFOUND".to_owned());
        rules.push(format!("EXCLUDE {ALL_ADDRESSES}"));
        (client, rules.join(","))
    };
    rules.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::scenario::RecordingSource;

    fn scenario(page_keys: &str) -> Scenario {
        let text = format!(
            "link = 'paper-wired'\n[servers.main]\nkind = 'nginx'\n[servers.slow]\nkind = 'nginx'\ncongestion_control = 'reno'\n\
             [clients.c]\nkind = 'chromium'\nserver = 'main'\n[workload.pages.p]\ndocument = 9\n{page_keys}"
        );
        toml::from_str(&text).unwrap()
    }

    fn with_origins(page_keys: &str, origins: &[&[&str]]) -> Scenario {
        let mut scenario = scenario(page_keys);
        let recording = Recording {
            url: "https://a.example/".into(),
            resources: Vec::new(),
            origins: origins
                .iter()
                .map(|group| group.iter().map(ToString::to_string).collect())
                .collect(),
            digest: "d".into(),
            source: RecordingSource::default(),
        };
        scenario.workload.pages.get_mut("p").unwrap().recording = Some(Arc::new(recording));
        scenario
    }

    #[test]
    fn each_group_of_hosts_has_an_address_of_its_server() {
        let scenario = with_origins(
            "hosts.\"s.example\" = { server = 'slow' }\nhosts.\"t.example\" = { server = 'slow' }",
            &[&["a.example", "img.a.example"], &["b.example"], &["s.example"], &["t.example"]],
        );
        let plan = AddressPlan::of(&scenario);
        assert_eq!(plan.address_of("main"), HOST_ADDRESS);
        let slow = plan.address_of("slow");
        assert_ne!(slow, HOST_ADDRESS);
        let servers = BTreeMap::from([
            ("main".to_owned(), "10.99.0.1:8443".parse().unwrap()),
            ("slow".to_owned(), SocketAddr::from((slow, 8444))),
        ]);
        let rules = resolver_rules(&scenario, &servers);
        let expected = "MAP a.example 10.99.0.1:8443,MAP b.example 10.99.0.12:8443,MAP img.a.example 10.99.0.1:8443,\
            MAP s.example 10.99.0.11:8444,MAP t.example 10.99.0.13:8444,MAP * ~NOTFOUND,EXCLUDE 10.99.*";
        assert_eq!(rules["c"], expected);
        let of_reno = plan.into_further();
        let reno = Some("reno".to_owned());
        let controls: Vec<_> =
            of_reno.into_iter().map(|further| further.congestion_control).collect();
        assert_eq!(controls, [reno.clone(), None, reno]);
        assert_eq!(shared_names(&scenario), ["a.example", "img.a.example"]);
    }

    #[test]
    fn hosts_of_one_connection_on_two_servers_have_two_addresses() {
        let scenario = with_origins(
            "hosts.\"b.example:8000\" = { server = 'slow' }",
            &[&["b.example", "b.example:8000"]],
        );
        let servers = BTreeMap::from([
            ("main".to_owned(), "10.99.0.1:8443".parse().unwrap()),
            ("slow".to_owned(), "10.99.0.11:8444".parse().unwrap()),
        ]);
        // A pattern without a port is for all ports, so the one with a port comes first.
        let expected = "MAP b.example:8000 10.99.0.11:8444,MAP b.example 10.99.0.1:8443,MAP * ~NOTFOUND,EXCLUDE 10.99.*";
        assert_eq!(resolver_rules(&scenario, &servers)["c"], expected);
    }
}
