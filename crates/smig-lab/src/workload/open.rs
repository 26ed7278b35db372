//! Opens the clients of a run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::browser::{BrowserClient, BrowserOptions, create_home};
use super::client::WorkloadClient;
use super::command::CommandClient;
use super::http3::Http3Client;
use super::page_clients::PageClients;
use super::run::{WorkloadError, WorkloadSpec};
use crate::scenario::{ClientKind, ClientSpec, Page, Scenario};

/// Time limit for opening all connections of a client.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens every client's connections, one client after the other.
pub(super) async fn open_clients(
    workload_spec: &WorkloadSpec,
    sessions: &AtomicU32,
) -> Result<BTreeMap<String, Arc<WorkloadClient>>, WorkloadError> {
    let mut clients = BTreeMap::new();
    for (name, spec) in &workload_spec.scenario.clients {
        if spec.command.is_some() || !needs_open_connections(&workload_spec.scenario, name) {
            continue;
        }
        let fail = |why| WorkloadError::Open { client: name.clone(), reason: why };
        let client = new_client(workload_spec, name, None, sessions).map_err(fail)?;
        match timeout(OPEN_TIMEOUT, client.open()).await {
            Ok(opened) => opened.map_err(fail)?,
            Err(_) => {
                return Err(fail(format!("no response within {} s", OPEN_TIMEOUT.as_secs())));
            }
        }
        clients.insert(name.clone(), Arc::new(client));
    }
    Ok(clients)
}

/// Starts the browsers, by the clients' names: their start is part neither of a page's time nor of that of a link that changes with
/// time.
pub(super) async fn start_browsers(
    workload_spec: &WorkloadSpec,
) -> Result<BTreeMap<String, Arc<BrowserClient>>, WorkloadError> {
    let scenario = &workload_spec.scenario;
    let mut browsers = BTreeMap::new();
    for page in scenario.browser_pages() {
        let name = scenario.client_of(page.client.as_deref()).unwrap_or_default();
        let Some(spec) = scenario.clients.get(name).filter(|_| !browsers.contains_key(name)) else {
            continue;
        };
        let fail = |reason| WorkloadError::Open { client: name.to_owned(), reason };
        let home = create_home(&workload_spec.command_env.scratch, browsers.len()).map_err(fail)?;
        let certificate = workload_spec.certificate.clone();
        let options = BrowserOptions {
            http2: spec.http2.unwrap_or(true),
            // On the time axis of a recording, responses are joined with connections.
            logs_sockets: scenario.record.timeline,
            takes_frames: spec.frames.unwrap_or(false),
            resolver_rules: workload_spec.replays.resolver_rules.get(name).cloned(),
        };
        let browser = BrowserClient::start(home, certificate, options).await;
        browsers.insert(name.to_owned(), Arc::new(browser.map_err(fail)?));
    }
    Ok(browsers)
}

/// Creates the clients of the players' first loads, by the pages' names, without connections: some are programs, too.
pub(super) async fn prepare_page_clients(
    workload_spec: &WorkloadSpec,
    sessions: &AtomicU32,
) -> Result<BTreeMap<String, PageClients>, WorkloadError> {
    let scenario = &workload_spec.scenario;
    let mut prepared = BTreeMap::new();
    let is_player = |page: &Page| !page.warm && !scenario.is_browser_page(page);
    for (name, page) in scenario.workload.pages.iter().filter(|(_, page)| is_player(page)) {
        let client_name = scenario.client_of(page.client.as_deref()).unwrap_or_default();
        let fail = |reason| WorkloadError::Open { client: client_name.to_owned(), reason };
        let clients = PageClients::new(workload_spec, page, client_name, sessions).map_err(fail)?;
        let ready = timeout(OPEN_TIMEOUT, clients.ready()).await;
        ready.unwrap_or_else(|_| Err("it does not start".to_owned())).map_err(fail)?;
        prepared.insert(name.clone(), clients);
    }
    Ok(prepared)
}

/// Returns whether a client's connections are open when the run begins: all but those that each load of a page opens.
fn needs_open_connections(scenario: &Scenario, name: &str) -> bool {
    let is_own = |client: Option<&str>| client == Some(name);
    let mut transfers = scenario.workload.transfers.values();
    let mut pages = scenario.workload.pages.values();
    transfers.any(|transfer| is_own(scenario.client_of(transfer.client.as_deref())))
        || pages.any(|page| page.warm && is_own(scenario.client_of(page.client.as_deref())))
}

/// Creates a client of the lab's own, without connections. `server` names another server than the client's own.
pub(super) fn new_client(
    workload_spec: &WorkloadSpec,
    name: &str,
    server: Option<&str>,
    sessions: &AtomicU32,
) -> Result<WorkloadClient, String> {
    let spec = workload_spec.scenario.clients.get(name).ok_or("there is no such client")?;
    let mut address = *workload_spec.server_by_client.get(name).ok_or("it has no server")?;
    if let Some(server) = server {
        let other = workload_spec.command_env.servers.get(server);
        let other = *other.ok_or("a host's server has no address")?;
        if spec.link.is_first() {
            address = other;
        } else {
            // All servers have their host's address on this link.
            address.set_port(other.port());
        }
    }
    let server_name = server.or_else(|| workload_spec.scenario.server_of(spec));
    let speaks_http2 = server_name
        .and_then(|name| workload_spec.scenario.servers.get(name)?.http2)
        .unwrap_or(true);
    if spec.kind == ClientKind::Http3 {
        return start_http3(workload_spec, spec, address);
    }
    // A client has as many sessions as connections without migration; a pool of HTTP/1.1 needs one number.
    let first_session = sessions.fetch_add(spec.connections.unwrap_or(1), Ordering::Relaxed);
    if !speaks_http2 && matches!(spec.kind, ClientKind::Smig | ClientKind::H2) {
        let http1 = ClientSpec { kind: ClientKind::Http1, connections: None, ..spec.clone() };
        return WorkloadClient::new(&http1, address, &workload_spec.certificate, first_session);
    }
    WorkloadClient::new(spec, address, &workload_spec.certificate, first_session)
}

/// Starts the program of an HTTP/3 client: that of its server.
fn start_http3(
    workload_spec: &WorkloadSpec,
    client: &ClientSpec,
    server: SocketAddr,
) -> Result<WorkloadClient, String> {
    let env = &workload_spec.command_env;
    let program = workload_spec.scenario.server_of(client).and_then(|name| env.programs.get(name));
    let program = program.ok_or("its server has no program")?;
    let client = Http3Client::start(program, &env.smig, server, &env.certificate)?;
    Ok(WorkloadClient::http3(client, server))
}

/// Returns the clients that are commands.
pub(super) fn build_command_clients(
    workload_spec: &WorkloadSpec,
) -> Result<BTreeMap<String, CommandClient>, WorkloadError> {
    let mut command_clients = BTreeMap::new();
    for (name, spec) in &workload_spec.scenario.clients {
        let Some(command) = &spec.command else { continue };
        let fail = |why| WorkloadError::Open { client: name.clone(), reason: why };
        let server =
            *workload_spec.server_by_client.get(name).ok_or_else(|| fail("it has none".into()))?;
        let has_tls = workload_spec
            .scenario
            .server_of(spec)
            .and_then(|server| workload_spec.scenario.servers.get(server)?.command.as_ref())
            .is_none_or(|command| command.tls);
        let client = CommandClient::new(
            command,
            server,
            has_tls,
            workload_spec.seed,
            &workload_spec.command_env,
        );
        command_clients.insert(name.clone(), client.map_err(fail)?);
    }
    Ok(command_clients)
}
