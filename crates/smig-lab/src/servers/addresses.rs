//! How a browser gets to the servers of recorded pages: by the names that it resolves, and those of the certificate.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::scenario::{AddressPlan, Scenario};

/// Pattern of all addresses of the testbed.
const ALL_ADDRESSES: &str = "10.99.*";

/// Returns the names that the certificate needs for browsers to share connections: of hosts that shared one when their page was recorded.
#[must_use]
pub(crate) fn shared_names(scenario: &Scenario) -> Vec<String> {
    let recordings = scenario.browser_pages().filter_map(|page| page.recording.as_ref());
    let groups = recordings
        .flat_map(|recording| recording.replayed_origins())
        .filter(|group| group.len() > 1);
    groups.flatten().map(|host| host.split(':').next().unwrap_or(host).to_owned()).collect()
}

/// Returns where names lead for each client that loads recorded pages with a browser: to the servers, whose addresses these are, and no
/// other name anywhere.
#[must_use]
pub(crate) fn resolver_rules(
    scenario: &Scenario,
    plan: &AddressPlan,
    servers: &BTreeMap<String, SocketAddr>,
) -> BTreeMap<String, String> {
    let mut rules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((page, host), (server, address)) in plan.hosts() {
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
    use crate::scenario::{Recording, RecordingSource};

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
        let (main, slow) = (plan.address_of("main"), plan.address_of("slow"));
        assert_ne!(slow, main);
        let servers = BTreeMap::from([
            ("main".to_owned(), "10.99.0.1:8443".parse().unwrap()),
            ("slow".to_owned(), SocketAddr::from((slow, 8444))),
        ]);
        let rules = resolver_rules(&scenario, &plan, &servers);
        let expected = "MAP a.example 10.99.0.1:8443,MAP b.example 10.99.0.12:8443,MAP img.a.example 10.99.0.1:8443,\
            MAP s.example 10.99.0.11:8444,MAP t.example 10.99.0.13:8444,MAP * ~NOTFOUND,EXCLUDE 10.99.*";
        assert_eq!(rules["c"], expected);
        let reno = Some("reno".to_owned());
        let further = plan.further().iter();
        let controls: Vec<_> = further.map(|one| one.congestion_control.clone()).collect();
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
        let plan = AddressPlan::of(&scenario);
        assert_eq!(resolver_rules(&scenario, &plan, &servers)["c"], expected);
    }

    #[test]
    fn a_host_that_a_browser_cannot_be_sent_to_has_no_address() {
        let scenario = with_origins("", &[&["a.example", "[::1]"], &["a,b.example"]]);
        let plan = AddressPlan::of(&scenario);
        // That of the other server alone.
        assert_eq!(plan.further().len(), 1, "{plan:?}");
        let servers = BTreeMap::from([("main".to_owned(), "10.99.0.1:8443".parse().unwrap())]);
        let expected = "MAP a.example 10.99.0.1:8443,MAP * ~NOTFOUND,EXCLUDE 10.99.*";
        assert_eq!(resolver_rules(&scenario, &plan, &servers)["c"], expected);
        assert_eq!(shared_names(&scenario), Vec::<String>::new());
    }
}
