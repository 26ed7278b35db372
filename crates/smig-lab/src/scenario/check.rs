//! Checks what the types of a scenario cannot express: references to names, and keys that conflict.

use super::address_plan::check_addresses;
use super::check_page::check_page;
use super::client_link::{ClientLink, check_link_number};
use super::device_event::check_events;
use super::faults::{Faults, KeyFault, check_name, resolve};
use super::hosts::{HostRole, HostSettings};
use super::spec::{
    ArrivalProcess, CancelScope, ClientKind, ClientSpec, Priorities, Scenario, ServerKind,
    ServerSpec, Transfer, TransferDirection,
};
use smig_link::LinkSpec;

/// Maximum number of connections of one client.
const MAX_CONNECTIONS: u32 = 100;

/// Links found valid. A campaign has few links and many conditions, and checking a link with a varying rate
/// generates the rate.
#[derive(Debug, Default)]
pub(super) struct ValidLinks(Vec<LinkSpec>);

impl ValidLinks {
    /// Returns the fault of a link, if it has one.
    fn check_link(&mut self, link: &LinkSpec) -> Option<String> {
        if self.0.contains(link) {
            return None;
        }
        match link.check() {
            Ok(()) => {
                self.0.push(link.clone());
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Returns all faults.
pub(super) fn faults(scenario: &Scenario, links: &mut ValidLinks) -> Vec<KeyFault> {
    let mut faults = Faults::default();
    for (path, count) in [
        ("servers", scenario.servers.len()),
        ("clients", scenario.clients.len()),
        ("workload.transfers", scenario.workload.transfers.len() + scenario.workload.pages.len()),
    ] {
        if count == 0 {
            faults.add(path, "at least one is required");
        }
    }
    if let Some(fault) = links.check_link(&scenario.link) {
        faults.add("link", fault);
    }
    for (number, link) in scenario.more_links.iter().enumerate() {
        if let Some(fault) = links.check_link(link) {
            faults.add(&format!("more_links.{number}"), fault);
        }
    }
    check_events(scenario, &mut faults);
    check_host("hosts.server", &scenario.hosts.server, &mut faults);
    check_host("hosts.client", &scenario.hosts.client, &mut faults);
    if scenario.hosts.client.starved.is_some() {
        faults.add("hosts.client.starved", "only the servers' host has this");
    }
    if scenario.hosts.server.subflows.is_some() {
        faults.add("hosts.server.subflows", "only the clients' host has this");
    }
    if scenario.hosts.client.subflows.is_some() && scenario.more_links.is_empty() {
        faults.add("hosts.client.subflows", "there is one link only: add more_links");
    }
    let hystart = (scenario.hosts.server.hystart, scenario.hosts.client.hystart);
    if let (Some(server), Some(client)) = hystart
        && server != client
    {
        let what = "it applies to the whole machine, and hosts.server has another value";
        faults.add("hosts.client.hystart", what);
    }
    for (name, spec) in &scenario.servers {
        check_server(name, spec, scenario, &mut faults);
    }
    for (name, spec) in &scenario.clients {
        check_client(name, spec, scenario, &mut faults);
    }
    for (name, spec) in &scenario.workload.transfers {
        check_transfer(name, spec, scenario, &mut faults);
    }
    for (name, page) in &scenario.workload.pages {
        check_page(name, page, scenario, &mut faults);
    }
    check_addresses(scenario, &mut faults);
    if scenario.accept.attempts == 0 {
        faults.add("accept.attempts", "0 would measure nothing");
    }
    if scenario.record.progress.0.is_zero() {
        faults.add("record.progress", "it must be more than 0, such as \"250ms\"");
    }
    faults.0
}

fn check_host(path: &str, host: &HostSettings, faults: &mut Faults) {
    for (key, sizes) in [("send_buffer", host.send_buffer), ("receive_buffer", host.receive_buffer)]
    {
        if let Some(sizes) = sizes
            && !(sizes[0] <= sizes[1] && sizes[1] <= sizes[2] && sizes[0].0 > 0)
        {
            let what = "these are minimum, initial and maximum size, and must not decrease";
            faults.add(&format!("{path}.{key}"), what);
        }
    }
    if host.initial_window == Some(0) {
        faults.add(&format!("{path}.initial_window"), "it must be at least 1 segment");
    }
    if let Some(starved) = host.starved
        && (starved.runs.0.is_zero() || starved.runs >= starved.every)
    {
        let what = "runs must be more than 0 and less than every";
        faults.add(&format!("{path}.starved"), what);
    }
    for name in host.sysctls.keys() {
        if name.starts_with('/') || name.contains("..") || !name.contains('/') {
            let what = format!("{name:?} is not a file in /proc/sys/net, such as \"ipv4/tcp_ecn\"");
            faults.add(&format!("{path}.sysctls"), what);
        }
    }
}

/// Reports faults of a command, a command without its kind, and the kind without its command.
fn check_command(
    path: &str,
    is_command_kind: bool,
    command_faults: Option<Vec<(String, String)>>,
    faults: &mut Faults,
) {
    match command_faults {
        Some(found) if is_command_kind => {
            for (key, what) in found {
                faults.add(&format!("{path}.command.{key}"), what);
            }
        }
        Some(_) => faults.add(&format!("{path}.command"), "only the kind \"command\" has this"),
        None if is_command_kind => {
            let what = format!("the kind \"command\" needs a table [{path}.command] with argv");
            faults.add(&format!("{path}.kind"), what);
        }
        None => {}
    }
}

fn hosts_by_server(scenario: &Scenario) -> Vec<(&str, HostRole)> {
    scenario.servers.iter().map(|(name, server)| (name.as_str(), server.host)).collect()
}

fn check_server(name: &str, server: &ServerSpec, scenario: &Scenario, faults: &mut Faults) {
    let path = format!("servers.{name}");
    check_name(name, &path, faults);
    let is_command = server.kind == ServerKind::Command;
    let mut others = hosts_by_server(scenario);
    others.retain(|(other, _)| *other != name);
    let command_faults =
        server.command.as_ref().map(|command| command.faults(server.host, &others));
    check_command(&path, is_command, command_faults, faults);
    if is_command && server.program.is_some() {
        faults.add(&format!("{path}.program"), "command.argv names the program of this kind");
    }
    if server.kind != ServerKind::Smig && !server.settings.is_empty() {
        let what = format!(
            "only a server of kind \"smig\" has settings; this is {:?}",
            server.kind.as_str()
        );
        faults.add(&format!("{path}.settings"), what);
    }
    for (section, key) in
        [("server", "root"), ("server", "listen"), ("server", "cert"), ("server", "key")]
    {
        let is_set = server.settings.get(section).and_then(|keys| keys.get(key)).is_some();
        if is_set {
            faults.add(&format!("{path}.settings.{section}.{key}"), "the lab sets this itself");
        }
    }
    if server.http2.is_some() && server.kind != ServerKind::Nginx {
        faults.add(&format!("{path}.http2"), "only a server of kind \"nginx\" has this");
    }
    if server.congestion_control.is_some() && server.host == HostRole::Client {
        let what =
            "it has no packets on a link; those of its host have hosts.client.congestion_control";
        faults.add(&format!("{path}.congestion_control"), what);
    }
    if server.kind != ServerKind::H2o && server.latency_optimization.is_some() {
        faults
            .add(&format!("{path}.latency_optimization"), "only a server of kind \"h2o\" has this");
    }
    let takes_lines = [ServerKind::Nginx, ServerKind::H2o, ServerKind::Haproxy, ServerKind::Caddy];
    if !server.lines.is_empty() && !takes_lines.contains(&server.kind) {
        faults.add(&format!("{path}.lines"), "only nginx, h2o, haproxy and caddy have lines");
    }
}

/// Checks a client whose server is on the clients' host.
fn check_local_server(path: &str, client: &ClientSpec, server: &ServerSpec, faults: &mut Faults) {
    if !client.link.is_first() {
        let what = "its server is on the clients' host, and proxies there use the first link";
        faults.add(&format!("{path}.link"), what);
    }
    if server.kind != ServerKind::Command {
        let what = "no packet would cross the link: of servers on the clients' host, clients use only commands";
        faults.add(&format!("{path}.server"), what);
    }
}

fn check_client_limits(path: &str, client: &ClientSpec, faults: &mut Faults) {
    if let Some(connections) = client.connections
        && !(1..=MAX_CONNECTIONS).contains(&connections)
    {
        faults.add(&format!("{path}.connections"), format!("it must be 1 to {MAX_CONNECTIONS}"));
    }
    for (key, window) in
        [("stream_window", client.stream_window), ("connection_window", client.connection_window)]
    {
        if window.is_some_and(|window| !(65_535..=i32::MAX as u64).contains(&window.0)) {
            faults.add(&format!("{path}.{key}"), "a window must be 65535 to 2147483647 bytes");
        }
    }
}

/// Returns the keys that a client of this kind does not have, each with the kinds that have it.
fn keys_of_other_kinds(client: &ClientSpec) -> Vec<(&'static str, &'static str)> {
    use ClientKind::{Chromium, Command, H2, Http1, Http3, Smig};
    const SMIG: &str = "\"smig\"";
    const SMIG_OR_H2: &str = "\"smig\" or \"h2\"";
    const MANY: &str = "\"h2\" or \"http1\" (of a session: settings.smig of the server)";
    let kind = client.kind;
    let has_own_stack = matches!(kind, Http3 | Chromium | Command);
    let is_smig_or_h2 = matches!(kind, Smig | H2);
    let sends_priorities = client.priorities == Priorities::Sent;
    let keys = [
        ("migrate", client.migrate.is_some(), kind == Smig, SMIG),
        ("spares", client.spares.is_some(), kind == Smig, SMIG),
        ("plain_connections", client.plain_connections.is_some(), kind == Smig, SMIG),
        ("receive_pacing", client.receive_pacing.is_some(), kind == Smig, SMIG),
        ("plain_sending", client.plain_sending.is_some(), is_smig_or_h2, SMIG_OR_H2),
        ("stream_window", client.stream_window.is_some(), is_smig_or_h2, SMIG_OR_H2),
        ("connection_window", client.connection_window.is_some(), is_smig_or_h2, SMIG_OR_H2),
        ("priorities", sends_priorities, !has_own_stack, "\"smig\", \"h2\" or \"http1\""),
        ("connections", client.connections.is_some(), matches!(kind, H2 | Http1), MANY),
        ("assignment", client.assignment.is_some(), kind == H2, "\"h2\""),
        ("http2", client.http2.is_some(), kind == Chromium, "\"chromium\""),
        ("frames", client.frames.is_some(), kind == Chromium, "\"chromium\""),
    ];
    let is_foreign = |(_, is_set, has_it, _): &(_, bool, bool, _)| *is_set && !*has_it;
    keys.into_iter().filter(is_foreign).map(|(key, _, _, kinds)| (key, kinds)).collect()
}

fn check_client(name: &str, client: &ClientSpec, scenario: &Scenario, faults: &mut Faults) {
    let path = format!("clients.{name}");
    check_name(name, &path, faults);
    let server = resolve(client.server.as_deref(), &scenario.servers, &path, "server", faults);
    let only_for = |key: &str, kinds: &str| {
        (format!("{path}.{key}"), format!("only a client of kind {kinds} has this"))
    };
    if !client.link.is_first() && server.is_some_and(|server| server.congestion_control.is_some()) {
        let what = "a server with a congestion control of its own has it on the first link only";
        faults.add(&format!("{path}.link"), what);
    }
    if let ClientLink::Number(number) = client.link {
        check_link_number(&format!("{path}.link"), number, scenario, faults);
    }
    let foreign = keys_of_other_kinds(client).into_iter();
    let mut conflicts: Vec<_> = foreign.map(|(key, kinds)| only_for(key, kinds)).collect();
    if let Some(server) = server
        && (client.kind == ClientKind::Http3) != (server.kind == ServerKind::Http3)
        && client.kind != ClientKind::Command
    {
        let what = "a client of kind \"http3\" needs a server of this kind, and only it and commands can use that";
        conflicts.push((format!("{path}.kind"), what.to_owned()));
    }
    let is_command = client.kind == ClientKind::Command;
    let servers = hosts_by_server(scenario);
    let found = client.command.as_ref().map(|command| command.faults(&servers));
    check_command(&path, is_command, found, faults);
    if let Some(server) = server.filter(|server| server.host == HostRole::Client) {
        check_local_server(&path, client, server, faults);
    }
    let uses_tls =
        server.and_then(|server| server.command.as_ref()).is_none_or(|command| command.tls);
    if !uses_tls && !is_command {
        let what =
            "its server has tls = false, and only a client of kind \"command\" can do without";
        conflicts.push((format!("{path}.kind"), what.to_owned()));
    }
    for (path, what) in conflicts {
        faults.add(&path, what);
    }
    check_client_limits(&path, client, faults);
    let is_http1 = client.kind == ClientKind::Http1
        || (client.kind == ClientKind::Chromium && client.http2 == Some(false));
    if is_http1 && server.is_some_and(|server| server.kind == ServerKind::Nghttpd) {
        faults.add(
            &format!("{path}.kind"),
            "nghttpd does not support HTTP/1.1; use another kind of server or client",
        );
    }
}

fn check_transfer(name: &str, transfer: &Transfer, scenario: &Scenario, faults: &mut Faults) {
    let path = format!("workload.transfers.{name}");
    check_name(name, &path, faults);
    let client = resolve(transfer.client.as_deref(), &scenario.clients, &path, "client", faults);
    if transfer.size.0.is_empty() || transfer.size.0.iter().any(|size| size.0 == 0) {
        faults.add(&format!("{path}.size"), "nothing would be transferred");
    }
    if transfer.count == Some(0) {
        faults.add(&format!("{path}.count"), "0 would transfer nothing");
    }
    let is_repeated = transfer.max_objects() > 1;
    let is_open_loop = transfer.arrival != ArrivalProcess::ClosedLoop;
    match transfer.every {
        None if is_repeated && is_open_loop => {
            faults.add(
                &format!("{path}.every"),
                "an interval is required, every = \"1s\", or arrival = \"one-by-one\"",
            );
        }
        Some(every) if every.0.is_zero() && is_open_loop => {
            faults.add(&format!("{path}.every"), "it must be more than 0");
        }
        _ => {}
    }
    if let Some(until) = &transfer.until {
        let workload = &scenario.workload;
        let until_transfer = workload.transfers.get(until);
        let is_page = workload.pages.contains_key(until);
        if until == name || (until_transfer.is_none() && !is_page) {
            let names = workload.transfers.keys().chain(workload.pages.keys());
            let others: Vec<_> = names.filter(|&other| other != name).cloned().collect();
            let what =
                format!("{until:?} is not another transfer or page; known: {}", others.join(", "));
            faults.add(&format!("{path}.until"), what);
        } else if until_transfer.is_some_and(|other| other.until.is_some()) {
            faults.add(
                &format!("{path}.until"),
                format!("{until:?} waits for another transfer itself"),
            );
        }
    }
    if client.is_some_and(|client| client.kind == ClientKind::Chromium) {
        let what = "a client of kind \"chromium\" loads pages only";
        faults.add(&format!("{path}.client"), what);
    }
    if let Some(cancel) = &transfer.cancel {
        if cancel.at.is_none() && cancel.after.is_none() {
            faults.add(&format!("{path}.cancel"), "at = \"1MB\" or after = \"5s\" is required");
        }
        if transfer.direction == TransferDirection::Upload {
            faults.add(&format!("{path}.cancel"), "only downloads can be cancelled");
        }
        if client.is_some_and(|client| client.kind == ClientKind::Command) {
            let what = "the lab cannot cancel the requests of a client of kind \"command\"";
            faults.add(&format!("{path}.cancel"), what);
        }
        if cancel.how == CancelScope::Close
            && client.is_some_and(|client| client.kind == ClientKind::Http3)
        {
            let what = "the lab closes TCP connections only; a client of kind \"http3\" cancels its stream";
            faults.add(&format!("{path}.cancel.how"), what);
        }
    }
    if transfer.direction == TransferDirection::Upload
        && let Some(client) = client
        && let Some(server) = scenario.server_of(client).and_then(|name| scenario.servers.get(name))
        && !server.kind.accepts_uploads()
    {
        let what = format!("{} does not accept uploads here; smig and go do", server.kind);
        faults.add(&format!("{path}.direction"), what);
    }
}
