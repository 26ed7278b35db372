//! Runs one trial: sets up hosts, servers and clients, and tears everything down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Instant, SystemTime};

use smig_link::LinkReport;
use smig_testbed::bpf::{self, BpfControl, BpfError, BpfGuard};
use smig_testbed::hystart::{self, HystartError, HystartGuard};
use smig_testbed::netns::{Host, HostSpec, LinkSetup, Privilege, Testbed, TestbedError};

use super::device_events::{DeviceEvents, DropsWhileDown};
use super::duration::time_limit;
use super::origin::{Origin, load_average};
use super::result::{FORMAT_VERSION, Machine, TrialResult, disturbances};
use super::setup::TrialRequest;
use crate::recording::{TIMELINES_DIR, TrialRecorder};
use crate::replay::ReplayIndex;
use crate::scenario::{
    AddressPlan, ClientLink, DeviceEvent, HostRole, HostSettings, Scenario, ServerKind, ServerSpec,
};
use crate::servers::{RunAs, ServerEnv, ServerError, ServerProcess, resolver_rules};
use crate::workload::{
    Clients, CommandEnv, Observation, Replays, RunPhase, ServerFiles, WorkloadError, WorkloadSpec,
};

/// Why a trial has no result.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The hosts or the link failed.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// HyStart could not be set.
    #[error(transparent)]
    Hystart(#[from] HystartError),
    /// A congestion control could not be registered.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A server failed to start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The clients failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A server exited during the run.
    #[error("{0}")]
    ServerExited(String),
    /// A file could not be read or written.
    #[error("{operation}: {cause}")]
    Io {
        /// Attempted operation.
        operation: &'static str,
        /// Error of the system call.
        cause: io::Error,
    },
    /// A bug in the lab: a thread panicked, or ended without its result.
    #[error("a thread of the lab failed; this is a bug, please report it")]
    ThreadFailed,
}

fn io_error(operation: &'static str) -> impl Fn(io::Error) -> TrialError {
    move |cause| TrialError::Io { operation, cause }
}

/// Checks whether hosts and a link can be set up on this machine.
///
/// # Errors
/// What the machine lacks, and how to fix it.
pub fn check_testbed() -> Result<(), TestbedError> {
    Testbed::start(smig_link::LinkSpec::paper_wired()).map(drop)
}

/// Runs a trial. [`smig_testbed::netns::enter_user_namespace`] must have been called before the process
/// started a second thread; `privilege` is its result.
///
/// # Errors
/// [`TrialError`]; everything has been torn down.
pub fn run(
    request: &TrialRequest,
    privilege: Privilege,
    clients: impl Clients,
) -> Result<TrialResult, TrialError> {
    let started_at = Instant::now();
    let load_before = load_average();
    let unix_time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let scenario = &request.trial.scenario;
    let hystart_guard = scenario
        .hosts
        .hystart()
        .map(|on| HystartGuard::start(keeper_command(&request.smig, "hystart"), on))
        .transpose()?;
    let bpf_guards = bpf_controls(scenario)
        .into_iter()
        .map(|control| hold_bpf_control(&request.smig, control))
        .collect::<Result<Vec<_>, _>>()?;
    let recorder = request.timeline.as_ref().map(|path| TrialRecorder::new(&request.trial, path));
    let plan = AddressPlan::of(scenario);
    let mut testbed = start_testbed(request, &plan, recorder.as_ref())?;
    let drops_before = testbed.device_drops().map_err(io_error("reading the devices' counters"))?;
    let (servers, addresses) = start_servers(request, &plan, privilege, &testbed)?;
    let mut trial_run = TrialRun {
        testbed: &mut testbed,
        plan: &plan,
        recorder,
        events: scenario.events.clone(),
        running_events: None,
        drops_while_down: DropsWhileDown::default(),
    };
    let observe_result = trial_run.observe(request, &addresses, clients);
    let TrialRun { recorder, drops_while_down, .. } = trial_run;
    // Check the servers before the clients' error: clients fail when their server has exited.
    for server in &servers {
        server.check_running().map_err(TrialError::ServerExited)?;
    }
    let (observation, links) = observe_result?;
    let drops = testbed.device_drops().map_err(io_error("reading the devices' counters"))?;
    let excused_drops = drops_while_down
        .count(|link| testbed.client().device_drops_on(link))
        .map_err(io_error("reading the devices' counters"))?;
    // Proxies are stopped before the servers behind them.
    servers.into_iter().rev().for_each(drop);
    drop(testbed);
    let hystart_was_on = hystart::current_value();
    let mut versions = request.versions.clone();
    for guard in &bpf_guards {
        versions.insert(guard.control().to_string(), "bpf".to_owned());
    }
    let removed = removed_controls(scenario);
    drop((hystart_guard, bpf_guards));
    if let Some(recorder) = recorder {
        recorder.write(&observation, &request.scratch).map_err(io_error("writing the timeline"))?;
    }
    let device_drops = (drops - drops_before).saturating_sub(excused_drops);
    let mut disturbance_reasons = disturbances(scenario, &observation, &links, device_drops);
    disturbance_reasons.extend(removed);
    let mut links = links.into_iter();
    let link = links.next().ok_or(TrialError::ThreadFailed)?;
    Ok(TrialResult {
        format: FORMAT_VERSION,
        id: request.trial.id.clone(),
        hash: request.trial.hash().to_owned(),
        seed: request.trial.seed,
        scenario: scenario.clone(),
        versions,
        machine: Machine::current(request.jobs),
        origin: Some(Origin { build: request.build.clone(), load: [load_before, load_average()] }),
        unix_time: unix_time.map_or(0, |time| time.as_secs()),
        attempt: request.attempt,
        seconds: started_at.elapsed().as_secs_f64(),
        disturbed: disturbance_reasons,
        link,
        more_links: links.collect(),
        device_drops,
        hystart: hystart_was_on,
        observation,
        server_events: read_server_events(request),
        timeline: request
            .timeline
            .as_ref()
            .and_then(|path| path.file_name())
            .map(|name| format!("{TIMELINES_DIR}/{}", name.to_string_lossy())),
    })
}

/// Builds the command of a process that keeps something of the machine for the trial.
fn keeper_command(smig: &Path, what: &str) -> Command {
    let mut command = Command::new(smig);
    command.args(["lab", what]);
    command
}

/// Registers a congestion control that the kernel lacks until the guard is dropped.
pub(crate) fn hold_bpf_control(smig: &Path, control: BpfControl) -> Result<BpfGuard, BpfError> {
    BpfGuard::start(keeper_command(smig, "bpf"), control)
}

/// Returns the congestion controls of hosts and servers.
pub(crate) fn congestion_controls(scenario: &Scenario) -> impl Iterator<Item = &str> {
    let hosts = [&scenario.hosts.server, &scenario.hosts.client];
    let of_hosts = hosts.into_iter().filter_map(|host| host.congestion_control.as_deref());
    let servers = scenario.servers.values();
    of_hosts.chain(servers.filter_map(|server| server.congestion_control.as_deref()))
}

/// Returns why a run is invalid whose congestion controls are not there any more, so that connections may have had another one.
fn removed_controls(scenario: &Scenario) -> Vec<String> {
    let names = congestion_controls(scenario);
    let removed = names.filter(|name| !bpf::is_available(name));
    removed
        .map(|name| format!("the congestion control {name} was removed during the run"))
        .collect()
}

/// Returns the congestion controls of a scenario that the kernel lacks and the testbed has.
pub(crate) fn bpf_controls(scenario: &Scenario) -> BTreeSet<BpfControl> {
    let of_roles = scenario.servers.values().flat_map(|server| {
        let of_role = |role| server.settings.get(role)?.get("congestion_control")?.as_str();
        ["interactive", "bulk"].into_iter().filter_map(of_role)
    });
    congestion_controls(scenario).chain(of_roles).filter_map(BpfControl::needed_for).collect()
}

fn start_testbed(
    request: &TrialRequest,
    plan: &AddressPlan,
    recorder: Option<&TrialRecorder>,
) -> Result<Testbed, TrialError> {
    let scenario = &request.trial.scenario;
    let server = plan.further().iter().fold(host_spec(&scenario.hosts.server), |spec, further| {
        spec.address(further.address, further.congestion_control.as_deref())
    });
    let mut builder = Testbed::builder(scenario.link.clone())
        .seed(request.trial.seed)
        .server(server)
        .client(host_spec(&scenario.hosts.client))
        // The set-up is no part of the run.
        .hold_back_outages();
    for link in &scenario.more_links {
        builder = builder.add_link(LinkSetup::new(link.clone()));
    }
    if let Some(recorder) = recorder {
        builder = builder.log_to_client(recorder.queue_log());
    }
    Ok(builder.start()?)
}

fn host_spec(host: &HostSettings) -> HostSpec {
    let mut spec = HostSpec::default();
    if let Some(name) = &host.congestion_control {
        spec = spec.congestion_control(name);
    }
    if let Some(segments) = host.initial_window {
        spec = spec.initial_window(segments);
    }
    if let Some([min, initial, max]) = host.send_buffer {
        spec = spec.send_buffer(min.0, initial.0, max.0);
    }
    if let Some([min, initial, max]) = host.receive_buffer {
        spec = spec.receive_buffer(min.0, initial.0, max.0);
    }
    if let Some(sack) = host.sack {
        spec = spec.sysctl("ipv4/tcp_sack", if sack { "1" } else { "0" });
    }
    if let Some(size) = host.not_sent_low_water {
        spec = spec.sysctl("ipv4/tcp_notsent_lowat", &size.0.to_string());
    }
    if let Some(subflows) = host.subflows {
        spec = spec.subflows(subflows);
    }
    host.sysctls.iter().fold(spec, |spec, (name, value)| spec.sysctl(name, value))
}

/// Running servers, and the address of each, on the first link.
type StartedServers = (Vec<ServerProcess>, BTreeMap<String, SocketAddr>);

fn start_servers(
    request: &TrialRequest,
    plan: &AddressPlan,
    privilege: Privilege,
    testbed: &Testbed,
) -> Result<StartedServers, TrialError> {
    let env = server_env(request, privilege);
    let program =
        |name: &str, _: &ServerSpec| request.programs.get(name).unwrap_or(&request.smig).clone();
    let (mut servers, mut addresses) = (Vec::new(), BTreeMap::new());
    for launch in env.launches(&request.trial.scenario, plan, program) {
        let host = match launch.host {
            HostRole::Server => testbed.server(),
            HostRole::Client => testbed.client(),
        };
        servers.push(launch.start(host, &request.smig)?);
        addresses.insert(launch.name, launch.address);
    }
    Ok((servers, addresses))
}

fn server_env(request: &TrialRequest, privilege: Privilege) -> ServerEnv {
    let paths = ServerFiles::at(&request.server_files);
    let replays = paths.replays(&request.trial.scenario);
    ServerEnv {
        root: paths.files_dir,
        certificate: paths.certificate,
        key: paths.key,
        cert_and_key: paths.cert_and_key,
        scratch_dir: request.scratch.clone(),
        smig: request.smig.clone(),
        replays,
        run_as: match privilege {
            Privilege::AlreadyHeld => RunAs::Root,
            Privilege::UserNamespace => RunAs::User,
        },
    }
}

/// The run of the clients, on a testbed whose servers are ready.
struct TrialRun<'a> {
    testbed: &'a mut Testbed,
    plan: &'a AddressPlan,
    recorder: Option<TrialRecorder>,
    events: Vec<DeviceEvent>,
    running_events: Option<DeviceEvents>,
    drops_while_down: DropsWhileDown,
}

impl TrialRun<'_> {
    /// Runs the clients; returns their observation and the links' reports.
    fn observe(
        &mut self,
        request: &TrialRequest,
        addresses: &BTreeMap<String, SocketAddr>,
        clients: impl Clients,
    ) -> Result<(Observation, Vec<LinkReport>), TrialError> {
        let certificate = fs::read_to_string(ServerFiles::at(&request.server_files).certificate)
            .map_err(io_error("reading the certificate"))?;
        let spec = WorkloadSpec {
            scenario: request.trial.scenario.clone(),
            seed: request.trial.seed,
            server_by_client: server_addrs(request, self.testbed.server(), addresses),
            replays: read_replays(request, self.plan, addresses)
                .map_err(io_error("reading the recording"))?,
            certificate,
            command_env: CommandEnv {
                smig: request.smig.clone(),
                scratch: request.scratch.clone(),
                certificate: ServerFiles::at(&request.server_files).certificate,
                servers: addresses.clone(),
                programs: request.programs.clone(),
            },
            time_limit: time_limit(&request.trial.scenario),
        };
        let (phase_sender, phases) = mpsc::channel();
        let (resume_sender, resume_receiver) = mpsc::channel();
        // The clients are blocked while this thread does the work of the phase.
        let mut pause = move |phase| {
            if phase_sender.send(phase).is_ok() {
                // Fails only if this thread has returned early; then the result is discarded
                // anyway.
                let _ = resume_receiver.recv();
            }
        };
        let clients = self
            .testbed
            .client()
            .run(move || clients.run(spec, &mut pause))
            .map_err(io_error("entering the clients' host"))?;
        let mut links = None;
        for phase in phases {
            match phase {
                RunPhase::Ready => self.begin()?,
                RunPhase::Finished => links = Some(self.end()?),
            }
            // Fails only if the clients have returned; `join` reports why.
            let _ = resume_sender.send(());
        }
        let observation = clients.join().map_err(|_| TrialError::ThreadFailed)??;
        Ok((observation, links.ok_or(TrialError::ThreadFailed)?))
    }

    fn begin(&mut self) -> Result<(), TrialError> {
        self.testbed.restart_clock();
        self.testbed.reset_lateness();
        if let Some(recorder) = &mut self.recorder {
            recorder.start_samplers(self.testbed).map_err(io_error("sampling TCP"))?;
        }
        let events = std::mem::take(&mut self.events);
        if !events.is_empty() {
            let started = DeviceEvents::start(events, self.testbed.client().clone());
            self.running_events = Some(started.map_err(io_error("starting a thread"))?);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<LinkReport>, TrialError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.stop_samplers().map_err(io_error("sampling TCP"))?;
        }
        if let Some(events) = self.running_events.take() {
            self.drops_while_down = events.stop()?;
        }
        Ok(self.testbed.reports())
    }
}

fn read_replays(
    request: &TrialRequest,
    plan: &AddressPlan,
    addresses: &BTreeMap<String, SocketAddr>,
) -> io::Result<Replays> {
    let scenario = &request.trial.scenario;
    let dirs = ServerFiles::at(&request.server_files).replays(scenario);
    let read = |(digest, dir)| Ok((digest, Arc::new(ReplayIndex::read(dir)?)));
    let digest = |dir: &PathBuf| Some(dir.file_name()?.to_string_lossy().into_owned());
    let named = dirs.iter().filter_map(|dir| Some((digest(dir)?, dir.as_path())));
    Ok(Replays {
        resolver_rules: resolver_rules(scenario, plan, addresses),
        indexes: named.map(read).collect::<io::Result<_>>()?,
    })
}

/// Returns the address of each client's server: on the client's link, or on their host's loopback.
fn server_addrs(
    request: &TrialRequest,
    host: &Host,
    addresses: &BTreeMap<String, SocketAddr>,
) -> BTreeMap<String, SocketAddr> {
    let scenario = &request.trial.scenario;
    let clients = scenario.clients.iter();
    clients
        .filter_map(|(name, client)| {
            let mut address = *addresses.get(scenario.server_of(client)?)?;
            if !address.ip().is_loopback() {
                match client.link {
                    // On the first link servers may have addresses of their own.
                    ClientLink::Number(0) => {}
                    ClientLink::Number(link) => address.set_ip(host.address_on(link).into()),
                    ClientLink::All => address.set_ip(Testbed::SHARED_ADDRESS.into()),
                }
            }
            Some((name.clone(), address))
        })
        .collect()
}

/// Reads the events that our own servers logged.
fn read_server_events(request: &TrialRequest) -> BTreeMap<String, Vec<serde_json::Value>> {
    let is_smig = |(_, server): &(&String, &ServerSpec)| server.kind == ServerKind::Smig;
    let events = |(name, _): (&String, &ServerSpec)| {
        let text = fs::read_to_string(request.server_output(name)).unwrap_or_default();
        // The file also contains warnings.
        let events = text.lines().filter(|line| line.starts_with('{'));
        (name.clone(), events.filter_map(|line| serde_json::from_str(line).ok()).collect())
    };
    request.trial.scenario.servers.iter().filter(is_smig).map(events).collect()
}
