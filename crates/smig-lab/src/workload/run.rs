//! Runs all clients: opens connections, then runs every transfer by its schedule until the last one
//! has ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::WorkloadClient;
use super::command::{CommandClient, CommandEnv};
use super::connections::ConnectionNumbers;
use super::event::{EventKind, EventSender, EventSink};
use super::http3::Http3Client;
use super::result::{ObjectResult, Observation};
use super::schedule::Schedule;
use crate::scenario::{ArrivalProcess, ClientKind, ClientSpec, Scenario, Transfer};

/// Time limit for opening all connections of a client.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Input of a run.
#[derive(Debug, Clone)]
pub struct WorkloadSpec {
    /// The scenario.
    pub scenario: Scenario,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Address of each client's server.
    pub server_by_client: BTreeMap<String, SocketAddr>,
    /// The certificate of all servers, PEM.
    pub certificate: String,
    /// Environment of clients that are commands.
    pub(crate) command_env: CommandEnv,
    /// Transfers that are unfinished after this time since the start are aborted.
    pub time_limit: Duration,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A client could not open its connections.
    #[error("client {client} cannot use its server: {reason}")]
    Open {
        /// Name of the client in the scenario.
        client: String,
        /// Cause of the failure.
        reason: String,
    },
    /// The runtime could not be created.
    #[error("the clients cannot run: {0}")]
    Io(#[from] std::io::Error),
    /// Clients other than [`ScenarioClients`] failed.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// The receiver of its events was closed.
    #[error("the run was stopped")]
    Stopped,
    /// A bug in the lab.
    #[error("a client's task panicked; this is a bug, please report it")]
    Panicked,
}

/// State that all tasks of a run share.
#[derive(Debug)]
pub(super) struct WorkloadRun {
    scenario: Scenario,
    seed: u64,
    clients: BTreeMap<String, WorkloadClient>,
    command_clients: BTreeMap<String, CommandClient>,
    pub(super) connections: ConnectionNumbers,
    /// Bytes of the bodies of all downloads so far, except those of clients that are commands.
    pub(super) body_bytes: AtomicU64,
    pub(super) progress_interval: Duration,
    pub(super) events: EventSink,
    pub(super) start_monotonic_ns: u64,
    began: Instant,
    pub(super) deadline: Instant,
    /// By transfer: whether it has ended.
    ended_senders: BTreeMap<String, watch::Sender<bool>>,
}

/// Returns nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A point of the run at which no transfer is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPhase {
    /// All connections are open; the first transfer starts after this.
    Ready,
    /// The last transfer has ended; all connections are still open.
    Finished,
}

/// What uses the servers of a trial.
pub trait Clients: Send + 'static {
    /// Runs the clients, on a thread in their host, from which threads and processes inherit it. Calls
    /// `pause` at each [`RunPhase`] in turn, which blocks the caller; only a failed run may leave one out.
    ///
    /// # Errors
    /// [`WorkloadError`]. The failure of a single object is recorded in its result.
    fn run(
        self,
        workload_spec: WorkloadSpec,
        pause: &mut dyn FnMut(RunPhase),
    ) -> Result<Observation, WorkloadError>;
}

/// The clients that the scenario describes: they run its workload.
#[derive(Debug)]
pub struct ScenarioClients {
    /// Channel for the run's events. The run stops soon after its receiver is closed.
    pub events: Option<EventSender>,
}

impl Clients for ScenarioClients {
    fn run(
        self,
        workload_spec: WorkloadSpec,
        pause: &mut dyn FnMut(RunPhase),
    ) -> Result<Observation, WorkloadError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let events = EventSink::new(self.events);
        runtime.block_on(async {
            tokio::select! {
                observation = observe(workload_spec, events.clone(), pause) => observation,
                () = events.closed() => Err(WorkloadError::Stopped),
            }
        })
    }
}

async fn observe(
    workload_spec: WorkloadSpec,
    events: EventSink,
    pause: &mut dyn FnMut(RunPhase),
) -> Result<Observation, WorkloadError> {
    let clients = open_clients(&workload_spec).await?;
    sleep(workload_spec.scenario.workload.settle.0).await;
    pause(RunPhase::Ready);
    let transfers = workload_spec.scenario.workload.transfers.keys();
    let began = Instant::now();
    let run = WorkloadRun {
        seed: workload_spec.seed,
        clients,
        command_clients: build_command_clients(&workload_spec)?,
        connections: ConnectionNumbers::default(),
        body_bytes: AtomicU64::new(0),
        progress_interval: workload_spec.scenario.record.progress.0,
        start_monotonic_ns: now_ns(),
        began,
        deadline: began + workload_spec.time_limit,
        ended_senders: transfers.map(|name| (name.clone(), watch::Sender::new(false))).collect(),
        events,
        scenario: workload_spec.scenario,
    };
    let run = Arc::new(run);
    let observation = Arc::clone(&run).run_transfers().await;
    pause(RunPhase::Finished);
    observation
}

/// Opens every client's connections, one client after the other.
async fn open_clients(
    workload_spec: &WorkloadSpec,
) -> Result<BTreeMap<String, WorkloadClient>, WorkloadError> {
    let mut clients = BTreeMap::new();
    let mut sessions = 0;
    let is_built_in = |(_, spec): &(&String, &ClientSpec)| spec.command.is_none();
    for (name, spec) in workload_spec.scenario.clients.iter().filter(is_built_in) {
        let fail = |why| WorkloadError::Open { client: name.clone(), reason: why };
        let server =
            *workload_spec.server_by_client.get(name).ok_or_else(|| fail("it has none".into()))?;
        let client = match spec.kind {
            ClientKind::Http3 => start_http3(workload_spec, spec, server),
            _ => WorkloadClient::new(spec, server, &workload_spec.certificate, sessions),
        };
        let client = client.map_err(fail)?;
        sessions += client.session_count();
        match tokio::time::timeout(OPEN_TIMEOUT, client.open()).await {
            Ok(opened) => opened.map_err(fail)?,
            Err(_) => {
                return Err(fail(format!("no response within {} s", OPEN_TIMEOUT.as_secs())));
            }
        }
        clients.insert(name.clone(), client);
    }
    Ok(clients)
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
fn build_command_clients(
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

impl WorkloadRun {
    async fn run_transfers(self: Arc<Self>) -> Result<Observation, WorkloadError> {
        let mut tasks = JoinSet::new();
        for name in self.scenario.workload.transfers.keys() {
            tasks.spawn(Arc::clone(&self).run_transfer(name.clone()));
        }
        let mut objects = Vec::new();
        while let Some(joined) = tasks.join_next().await {
            objects.extend(joined.map_err(|_| WorkloadError::Panicked)??);
        }
        objects.sort_by(|a, b| {
            (a.started_ns, &a.name, a.number).cmp(&(b.started_ns, &b.name, b.number))
        });
        let ended_ns = objects.iter().map(|object| object.ended_ns).max().unwrap_or(0);
        let address = |key| self.clients.values().find_map(|client| client.address(key));
        let connections = self.connections.records(address);
        Ok(Observation {
            start_monotonic_ns: self.start_monotonic_ns,
            ended_ns,
            objects,
            connections,
        })
    }

    /// Runs all objects of one transfer.
    async fn run_transfer(
        self: Arc<Self>,
        name: String,
    ) -> Result<Vec<ObjectResult>, WorkloadError> {
        let Some(transfer) = self.scenario.workload.transfers.get(&name).cloned() else {
            return Ok(Vec::new());
        };
        let mut objects = match transfer.arrival {
            ArrivalProcess::ClosedLoop => self.run_closed_loop(&name, &transfer).await,
            ArrivalProcess::Periodic | ArrivalProcess::Poisson => {
                Arc::clone(&self).run_open_loop(&name, &transfer).await?
            }
        };
        if self.command_client(&transfer).is_some() {
            // A command may have requested any number of objects.
            objects.sort_by_key(|object| object.started_ns);
            for (number, object) in (0..).zip(&mut objects) {
                object.number = number;
            }
        }
        self.mark_ended(&name);
        Ok(objects)
    }

    /// Marks a transfer as ended, which also ends transfers with `until` set to it.
    pub(super) fn mark_ended(&self, name: &str) {
        if let Some(ended) = self.ended_senders.get(name) {
            ended.send_replace(true);
        }
    }

    async fn run_closed_loop(&self, name: &str, transfer: &Transfer) -> Vec<ObjectResult> {
        let mut objects = Vec::new();
        let mut next_at = self.began + transfer.start.0;
        for number in 0..transfer.max_objects() {
            if self.ended_while_waiting(transfer, next_at).await {
                break;
            }
            objects.extend(self.transfer_objects(name, number, transfer).await);
            next_at = Instant::now() + transfer.every.map_or(Duration::ZERO, |every| every.0);
        }
        objects
    }

    async fn run_open_loop(
        self: Arc<Self>,
        name: &str,
        transfer: &Transfer,
    ) -> Result<Vec<ObjectResult>, WorkloadError> {
        let mut requests = JoinSet::new();
        let times = Schedule::new(name, transfer, self.seed);
        for (number, offset) in (0..transfer.max_objects()).zip(times) {
            if self.ended_while_waiting(transfer, self.began + offset).await {
                break;
            }
            let (run, name, transfer) = (Arc::clone(&self), name.to_owned(), transfer.clone());
            requests.spawn(async move { run.transfer_objects(&name, number, &transfer).await });
        }
        let mut objects = Vec::new();
        while let Some(joined) = requests.join_next().await {
            objects.extend(joined.map_err(|_| WorkloadError::Panicked)?);
        }
        Ok(objects)
    }

    /// Transfers the object of a request, or all objects of a command.
    async fn transfer_objects(
        &self,
        name: &str,
        number: u32,
        transfer: &Transfer,
    ) -> Vec<ObjectResult> {
        let initial_result = self.new_result(name, number, transfer);
        self.events
            .send(&initial_result, || EventKind::Requested { at_ns: initial_result.started_ns });
        let objects = match self.command_client(transfer) {
            Some(command) => command.run(self, initial_result).await,
            None => vec![self.transfer_object(initial_result, transfer).await],
        };
        for object in &objects {
            self.events.send(object, || EventKind::Ended(Box::new(object.clone())));
        }
        objects
    }

    fn command_client(&self, transfer: &Transfer) -> Option<&CommandClient> {
        self.command_clients.get(self.client_name(transfer))
    }

    /// Waits until the time of the next request; returns whether the transfer ends before it.
    async fn ended_while_waiting(&self, transfer: &Transfer, next: Instant) -> bool {
        let other = transfer.until.as_ref().and_then(|until| self.ended_senders.get(until));
        let other_ended = async {
            match other {
                Some(ended) => {
                    // Fails only if the sender is dropped, and this run owns it.
                    let _ = ended.subscribe().wait_for(|ended| *ended).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = other_ended => true,
            () = sleep_until(self.deadline) => true,
            () = sleep_until(next) => false,
        }
    }

    pub(super) fn client_name<'a>(&'a self, transfer: &'a Transfer) -> &'a str {
        self.scenario.client_of(transfer).unwrap_or_default()
    }

    pub(super) fn client(&self, transfer: &Transfer) -> Result<&WorkloadClient, String> {
        self.clients.get(self.client_name(transfer)).ok_or_else(|| "it has no client".into())
    }
}
