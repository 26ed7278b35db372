//! Runs all clients: opens connections, then runs every transfer by its schedule until the last one
//! has ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::browser::BrowserClient;
use super::client::WorkloadClient;
use super::command::{CommandClient, CommandEnv};
use super::connections::{ConnectionKey, ConnectionNumbers};
use super::event::{EventKind, EventSender, EventSink};
use super::open::{build_command_clients, open_clients, prepare_page_clients, start_browsers};
use super::page_clients::PageClients;
use super::result::{ObjectResult, Observation, Outcome};
use super::schedule::Schedule;
use super::screen::{KeptFrames, evaluate_frames};
use super::transfer::ObjectRequest;
use crate::replay::ReplayIndex;
use crate::scenario::{ArrivalProcess, Scenario, Transfer};

/// Input of a run.
#[derive(Debug, Clone)]
pub struct WorkloadSpec {
    /// The scenario.
    pub scenario: Scenario,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Address of each client's server.
    pub server_by_client: BTreeMap<String, SocketAddr>,
    /// What browsers need for recorded pages.
    pub(crate) replays: Replays,
    /// The certificate of all servers, PEM.
    pub certificate: String,
    /// Environment of clients that are commands.
    pub(crate) command_env: CommandEnv,
    /// Transfers that are unfinished after this time since the start are aborted.
    pub time_limit: Duration,
}

/// What browsers need for recorded pages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replays {
    /// Where names lead, for each client that loads such pages.
    pub(crate) resolver_rules: BTreeMap<String, String>,
    /// What the servers answer, by the recording's digest.
    pub(crate) indexes: BTreeMap<String, Arc<ReplayIndex>>,
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
    pub(super) spec: WorkloadSpec,
    clients: BTreeMap<String, Arc<WorkloadClient>>,
    /// Number of sessions so far.
    pub(super) sessions: AtomicU32,
    command_clients: BTreeMap<String, CommandClient>,
    pub(super) connections: ConnectionNumbers,
    /// Local addresses of connections whose clients have gone: those of loads of pages.
    pub(super) page_addresses: Mutex<BTreeMap<ConnectionKey, SocketAddr>>,
    /// What the browsers' screens showed.
    pub(super) frames: Mutex<KeptFrames>,
    pub(super) browsers: BTreeMap<String, Arc<BrowserClient>>,
    /// Clients of the players' first loads, which have started.
    pub(super) prepared_clients: Mutex<BTreeMap<String, PageClients>>,
    /// Bytes of the bodies of all downloads so far, except those of clients that are commands.
    pub(super) body_bytes: AtomicU64,
    pub(super) progress_interval: Duration,
    pub(super) events: EventSink,
    pub(super) start_monotonic_ns: u64,
    pub(super) began: Instant,
    pub(super) deadline: Instant,
    /// By transfer or page: whether it has ended.
    ended_senders: BTreeMap<String, watch::Sender<bool>>,
}

/// Returns nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Returns the same of an instant in the past.
pub(super) fn monotonic_ns(at: std::time::Instant) -> u64 {
    let ago_ns = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
    now_ns().saturating_sub(ago_ns)
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
    let sessions = AtomicU32::new(0);
    let clients = open_clients(&workload_spec, &sessions).await?;
    let browsers = start_browsers(&workload_spec).await?;
    let prepared_clients = prepare_page_clients(&workload_spec, &sessions).await?;
    sleep(workload_spec.scenario.workload.settle.0).await;
    pause(RunPhase::Ready);
    let workload = &workload_spec.scenario.workload;
    let names = workload.transfers.keys().chain(workload.pages.keys());
    let began = Instant::now();
    let run = WorkloadRun {
        clients,
        sessions,
        command_clients: build_command_clients(&workload_spec)?,
        connections: ConnectionNumbers::default(),
        page_addresses: Mutex::default(),
        frames: Mutex::default(),
        browsers,
        prepared_clients: Mutex::new(prepared_clients),
        body_bytes: AtomicU64::new(0),
        progress_interval: workload_spec.scenario.record.progress.0,
        start_monotonic_ns: now_ns(),
        began,
        deadline: began + workload_spec.time_limit,
        ended_senders: names.map(|name| (name.clone(), watch::Sender::new(false))).collect(),
        events,
        spec: workload_spec,
    };
    let run = Arc::new(run);
    let observation = Arc::clone(&run).run_transfers().await;
    pause(RunPhase::Finished);
    // Decoding frames takes a processor: not while anything is measured.
    observation.map(evaluate_frames)
}

impl WorkloadRun {
    async fn run_transfers(self: Arc<Self>) -> Result<Observation, WorkloadError> {
        let (mut tasks, mut pages) = (JoinSet::new(), JoinSet::new());
        for name in self.spec.scenario.workload.transfers.keys() {
            tasks.spawn(Arc::clone(&self).run_transfer(name.clone()));
        }
        for name in self.spec.scenario.workload.pages.keys() {
            pages.spawn(Arc::clone(&self).run_page(name.clone()));
        }
        let (mut objects, mut page_loads) = (Vec::new(), Vec::new());
        while let Some(joined) = tasks.join_next().await {
            objects.extend(joined.map_err(|_| WorkloadError::Panicked)??);
        }
        while let Some(joined) = pages.join_next().await {
            for (load, resources) in joined.map_err(|_| WorkloadError::Panicked)?? {
                page_loads.push(load);
                objects.extend(resources);
            }
        }
        page_loads.sort_by_key(|load| load.started_ns);
        objects.sort_by(|a, b| {
            (a.started_ns, &a.name, a.number).cmp(&(b.started_ns, &b.name, b.number))
        });
        let ends = objects.iter().map(|object| object.ended_ns);
        let ended_ns = ends.chain(page_loads.iter().map(|load| load.ended_ns)).max().unwrap_or(0);
        let of_pages = self.page_addresses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let connections = self.connections.records(|key| {
            of_pages
                .get(&key)
                .copied()
                .or_else(|| self.clients.values().find_map(|client| client.address(key)))
        });
        Ok(Observation {
            start_monotonic_ns: self.start_monotonic_ns,
            ended_ns,
            objects,
            pages: page_loads,
            connections,
            frames: std::mem::take(
                &mut *self.frames.lock().unwrap_or_else(PoisonError::into_inner),
            )
            .into_frames(),
        })
    }

    /// Runs all objects of one transfer.
    async fn run_transfer(
        self: Arc<Self>,
        name: String,
    ) -> Result<Vec<ObjectResult>, WorkloadError> {
        let Some(transfer) = self.spec.scenario.workload.transfers.get(&name).cloned() else {
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
        let times = Schedule::new(name, transfer, self.spec.seed);
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
            None => vec![self.transfer_by_open_client(initial_result, transfer).await],
        };
        for object in &objects {
            self.events.send(object, || EventKind::Ended(Box::new(object.clone())));
        }
        objects
    }

    async fn transfer_by_open_client(
        &self,
        mut result: ObjectResult,
        transfer: &Transfer,
    ) -> ObjectResult {
        match self.open_client(self.client_name(transfer)) {
            Ok(client) => {
                let request = ObjectRequest { transfer, client: &client, received: None };
                self.transfer_object(result, &request).await
            }
            Err(why) => {
                (result.outcome, result.ended_ns) = (Outcome::Failed(why), result.started_ns);
                result
            }
        }
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
        self.spec.scenario.client_of(transfer.client.as_deref()).unwrap_or_default()
    }

    /// Returns a client whose connections are open since the run began.
    pub(super) fn open_client(&self, name: &str) -> Result<Arc<WorkloadClient>, String> {
        self.clients.get(name).map(Arc::clone).ok_or_else(|| "it has no client".into())
    }
}
