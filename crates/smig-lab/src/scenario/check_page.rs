//! Checks a page: its names, and what its client can load.

use super::faults::{Faults, check_name, resolve};
use super::hosts::HostRole;
use super::page::{Page, PageHost};
use super::recorded::Recording;
use super::spec::{ClientKind, ClientSpec, Scenario, ServerKind};
use super::tiles::Tiles;
use crate::replay::is_replayable_host;

pub(super) fn check_page(name: &str, page: &Page, scenario: &Scenario, faults: &mut Faults) {
    let path = format!("workload.pages.{name}");
    check_name(name, &path, faults);
    for resource in page.resources.keys() {
        check_name(resource, &format!("{path}.resources.{resource}"), faults);
    }
    if scenario.workload.transfers.contains_key(name) {
        faults.add(&path, "a transfer has this name; results would not tell them apart");
    }
    let client = resolve(page.client.as_deref(), &scenario.clients, &path, "client", faults);
    if client.is_some_and(|client| client.kind == ClientKind::Command) {
        let what = "a client of kind \"command\" sends its own requests: it cannot load a page";
        faults.add(&format!("{path}.client"), what);
    }
    if let Some(client) = client {
        check_hosts(&path, page, client, scenario, faults);
    }
    if let Some(client) = client.filter(|client| client.kind == ClientKind::Chromium) {
        check_browser_page(&path, page, client, scenario, faults);
    }
    for (key, what) in page.faults() {
        faults.add(&format!("{path}.{key}"), what);
    }
}

/// Each host that is named must have resources, and a server that the page's client can use. Names of hosts have dots, so the faults are
/// those of the table.
fn check_hosts(
    path: &str,
    page: &Page,
    client: &ClientSpec,
    scenario: &Scenario,
    faults: &mut Faults,
) {
    let known = page.host_names();
    for (host, PageHost { server }) in &page.hosts {
        let mut add =
            |what: String| faults.add(&format!("{path}.hosts"), format!("{host}: {what}"));
        // Of a recording that cannot be read nothing is known.
        let is_unknown = page.har.is_some() && page.recording.is_none();
        if !is_unknown && !known.contains(host) {
            let names: Vec<_> = known.iter().map(String::as_str).collect();
            add(match names.as_slice() {
                [] => "no resource has a host other than the document's".to_owned(),
                names => format!("no resource has this host; known: {}", names.join(", ")),
            });
        }
        let Some(spec) = scenario.servers.get(server) else {
            let names: Vec<_> = scenario.servers.keys().map(String::as_str).collect();
            add(format!("unknown server {server:?}; known: {}", names.join(", ")));
            continue;
        };
        let own = scenario.server_of(client).and_then(|name| scenario.servers.get(name));
        let is_http3 = spec.kind == ServerKind::Http3;
        let has_tls = spec.command.as_ref().is_none_or(|command| command.tls);
        if own.is_some_and(|own| own.host != spec.host) {
            add(format!("{server} is on another of the two hosts than the client's server"));
        } else if (client.kind == ClientKind::Http3) != is_http3 || !has_tls {
            add(format!("the page's client cannot use {server}, which is of another protocol"));
        } else if client.kind == ClientKind::Http1 && spec.kind == ServerKind::Nghttpd {
            add("nghttpd does not support HTTP/1.1".to_owned());
        }
    }
}

/// What a browser loads is there: tiles in a document that names them, or what was recorded.
fn check_browser_page(
    path: &str,
    page: &Page,
    client: &ClientSpec,
    scenario: &Scenario,
    faults: &mut Faults,
) {
    let is_recorded = page.har.is_some();
    let limits = [
        ("warm", page.warm, "each load by a browser opens its own connections"),
        (
            "hosts",
            !is_recorded && !page.hosts.is_empty(),
            "the tiles that a browser loads are on one host",
        ),
        ("resources", !page.resources.is_empty(), "a browser loads tiles and recorded pages only"),
        (
            "document",
            page.document.is_some() && page.har.is_none(),
            "a browser needs a document that names its tiles",
        ),
    ];
    for (key, _, what) in limits.into_iter().filter(|(_, is_set, _)| *is_set) {
        faults.add(&format!("{path}.{key}"), what);
    }
    if let Some(recording) = &page.recording {
        check_replay(path, page, (recording, client), scenario, faults);
        check_shared_hosts(path, page, recording, scenario, faults);
    }
    if !client.link.is_first() {
        faults.add(&format!("{path}.client"), "a browser uses the first link");
    }
    if let Some(fault) = page.tiles.as_ref().and_then(Tiles::picture_fault) {
        faults.add(&format!("{path}.tiles"), fault);
    }
}

/// A recorded page needs servers that answer as recorded, and names that a browser can be sent to.
fn check_replay(
    path: &str,
    page: &Page,
    (recording, client): (&Recording, &ClientSpec),
    scenario: &Scenario,
    faults: &mut Faults,
) {
    if let Some(host) = recording.document_host().filter(|host| !is_replayable_host(host)) {
        let what = format!("{host:?} is no name of a host that a browser can be sent to");
        faults.add(&format!("{path}.har"), what);
    } else if let Some(fault) = recording.source.0.as_ref().and_then(|source| source.fault()) {
        faults.add(&format!("{path}.har"), fault.to_string());
    }
    let named = page.hosts.values().map(|host| host.server.as_str());
    for name in scenario.server_of(client).into_iter().chain(named) {
        let Some(server) = scenario.servers.get(name) else { continue };
        if server.host == HostRole::Client {
            let what = format!(
                "servers.{name} is on the client's host, and a browser's servers are beyond the link"
            );
            faults.add(&format!("{path}.har"), what);
        } else if !server.kind.replays() {
            let what = format!(
                "servers.{name} of kind \"{}\" serves files only: smig, nginx, h2o and haproxy answer as recorded",
                server.kind
            );
            faults.add(&format!("{path}.har"), what);
        }
    }
}

/// All servers answer for all recorded pages, and a browser knows one address of a name: hosts in two pages must be the same there.
fn check_shared_hosts(
    path: &str,
    page: &Page,
    recording: &Recording,
    scenario: &Scenario,
    faults: &mut Faults,
) {
    for (name, other) in &scenario.workload.pages {
        let Some(others) = other.recording.as_ref().filter(|_| !std::ptr::eq(other, page)) else {
            continue;
        };
        if !scenario.is_browser_page(other)
            || (others.digest == recording.digest && other.hosts == page.hosts)
        {
            continue;
        }
        let of_other: Vec<_> = others.replayed_origins().flatten().collect();
        if let Some(host) = recording.replayed_origins().flatten().find(|h| of_other.contains(h)) {
            let what = format!(
                "{host} is also a host of workload.pages.{name}, recorded or served otherwise: load the two in variants of the scenario"
            );
            faults.add(&format!("{path}.har"), what);
        }
    }
}
