//! A run of all clients: connections first, then every transfer by its schedule, until the last ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::connections::Connections;
use super::endpoint::Endpoint;
use super::result::{ObjectResult, Observation};
use super::schedule::Schedule;
use crate::scenario::{Arrival, Scenario, Transfer};

/// How long opening all connections may take.
const OPEN_PATIENCE: Duration = Duration::from_secs(60);

/// What the clients are to do.
#[derive(Debug, Clone)]
pub struct WorkloadOrder {
    /// The scenario.
    pub scenario: Scenario,
    /// For everything random.
    pub seed: u64,
    /// Where each client's server listens.
    pub servers: BTreeMap<String, SocketAddr>,
    /// The certificate of all servers, PEM.
    pub certificate: String,
    /// What has not ended so long after the beginning is given up.
    pub time_limit: Duration,
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A client could not open its connections.
    #[error("client {client} cannot use its server: {why}")]
    Open {
        /// The client's name in the scenario.
        client: String,
        /// What went wrong.
        why: String,
    },
    /// The runtime.
    #[error("the clients cannot run: {0}")]
    Io(#[from] std::io::Error),
    /// A bug of the lab.
    #[error("a client's task panicked; this is a bug, please report it")]
    Panicked,
}

/// What all tasks of a run share.
#[derive(Debug)]
pub(super) struct Run {
    scenario: Scenario,
    seed: u64,
    endpoints: BTreeMap<String, Endpoint>,
    pub(super) connections: Connections,
    /// Octets of all downloads' bodies so far.
    pub(super) body_bytes: AtomicU64,
    pub(super) progress_every: Duration,
    pub(super) began_ns: u64,
    began: Instant,
    pub(super) deadline: Instant,
    /// By transfer: whether it has ended.
    ended: BTreeMap<String, watch::Sender<bool>>,
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A moment at which nothing is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// All connections are open; the first transfer comes after this.
    Begins,
    /// The last transfer has ended; all connections are still open.
    Ended,
}

/// Does it, on a runtime of its own. Must be called in the clients' host. Stands still in `pause` at
/// each [`Moment`].
///
/// # Errors
/// [`WorkloadError`]. What happens to a single object is in its result.
pub fn run(
    order: WorkloadOrder,
    pause: &mut dyn FnMut(Moment),
) -> Result<Observation, WorkloadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let endpoints = open(&order).await?;
        sleep(order.scenario.workload.settle.0).await;
        pause(Moment::Begins);
        let transfers = order.scenario.workload.transfers.keys();
        let began = Instant::now();
        let run = Run {
            seed: order.seed,
            endpoints,
            connections: Connections::default(),
            body_bytes: AtomicU64::new(0),
            progress_every: order.scenario.record.progress.0,
            began_ns: now_ns(),
            began,
            deadline: began + order.time_limit,
            ended: transfers.map(|name| (name.clone(), watch::Sender::new(false))).collect(),
            scenario: order.scenario,
        };
        let run = Arc::new(run);
        let observation = Arc::clone(&run).all().await;
        pause(Moment::Ended);
        observation
    })
}

/// Opens every client's connections, one client after the other.
async fn open(order: &WorkloadOrder) -> Result<BTreeMap<String, Endpoint>, WorkloadError> {
    let mut endpoints = BTreeMap::new();
    let mut sessions = 0;
    for (name, spec) in &order.scenario.clients {
        let fail = |why| WorkloadError::Open { client: name.clone(), why };
        let server = *order.servers.get(name).ok_or_else(|| fail("it has none".into()))?;
        let endpoint = Endpoint::new(spec, server, &order.certificate, sessions).map_err(fail)?;
        sessions += endpoint.sessions();
        match tokio::time::timeout(OPEN_PATIENCE, endpoint.open()).await {
            Ok(opened) => opened.map_err(fail)?,
            Err(_) => {
                return Err(fail(format!("no answer within {} s", OPEN_PATIENCE.as_secs())));
            }
        }
        endpoints.insert(name.clone(), endpoint);
    }
    Ok(endpoints)
}

impl Run {
    async fn all(self: Arc<Self>) -> Result<Observation, WorkloadError> {
        let mut tasks = JoinSet::new();
        for name in self.scenario.workload.transfers.keys() {
            tasks.spawn(Arc::clone(&self).transfer(name.clone()));
        }
        let mut objects = Vec::new();
        while let Some(joined) = tasks.join_next().await {
            objects.extend(joined.map_err(|_| WorkloadError::Panicked)??);
        }
        objects.sort_by(|a, b| {
            (a.started_ns, &a.name, a.number).cmp(&(b.started_ns, &b.name, b.number))
        });
        let ended_ns = objects.iter().map(|object| object.ended_ns).max().unwrap_or(0);
        let address = |key| self.endpoints.values().find_map(|endpoint| endpoint.address(key));
        let connections = self.connections.seen(address);
        Ok(Observation { began_ns: self.began_ns, ended_ns, objects, connections })
    }

    /// All objects of one transfer.
    async fn transfer(self: Arc<Self>, name: String) -> Result<Vec<ObjectResult>, WorkloadError> {
        let Some(transfer) = self.scenario.workload.transfers.get(&name).cloned() else {
            return Ok(Vec::new());
        };
        let objects = match transfer.arrival {
            Arrival::OneByOne => self.one_by_one(&name, &transfer).await,
            Arrival::Periodic | Arrival::Poisson => {
                Arc::clone(&self).by_the_clock(&name, &transfer).await?
            }
        };
        self.tell_end(&name);
        Ok(objects)
    }

    /// A transfer has ended: those that last until then end as well.
    pub(super) fn tell_end(&self, name: &str) {
        if let Some(ended) = self.ended.get(name) {
            ended.send_replace(true);
        }
    }

    async fn one_by_one(&self, name: &str, transfer: &Transfer) -> Vec<ObjectResult> {
        let mut objects = Vec::new();
        let mut next = self.began + transfer.start.0;
        for number in 0..transfer.most() {
            if self.ends_before(transfer, next).await {
                break;
            }
            objects.push(self.object(name, number, transfer).await);
            next = Instant::now() + transfer.every.map_or(Duration::ZERO, |every| every.0);
        }
        objects
    }

    async fn by_the_clock(
        self: Arc<Self>,
        name: &str,
        transfer: &Transfer,
    ) -> Result<Vec<ObjectResult>, WorkloadError> {
        let mut open = JoinSet::new();
        let times = Schedule::new(name, transfer, self.seed);
        for (number, at) in (0..transfer.most()).zip(times) {
            if self.ends_before(transfer, self.began + at).await {
                break;
            }
            let (run, name, transfer) = (Arc::clone(&self), name.to_owned(), transfer.clone());
            open.spawn(async move { run.object(&name, number, &transfer).await });
        }
        let mut objects = Vec::new();
        while let Some(joined) = open.join_next().await {
            objects.push(joined.map_err(|_| WorkloadError::Panicked)?);
        }
        Ok(objects)
    }

    /// Waits for the next request's time; whether there is none any more.
    async fn ends_before(&self, transfer: &Transfer, next: Instant) -> bool {
        let other = transfer.until.as_ref().and_then(|until| self.ended.get(until));
        let other_ended = async {
            match other {
                Some(ended) => {
                    // Fails only when the sender is gone, and this run holds it.
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

    pub(super) fn endpoint(&self, transfer: &Transfer) -> Result<&Endpoint, String> {
        self.endpoints.get(self.client_name(transfer)).ok_or_else(|| "it has no client".into())
    }
}
