//! The client of a run: small objects at a fixed interval, and the big file. It emits events while
//! they arrive, for the live view.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::{BodyExt as _, Empty};
use sha2::{Digest, Sha256};
use smig::{Client, Config, Incoming, Segment, StreamInfo, Trust};
use smig_lab::scenario::{ClientKind, Scenario, SizeClass, TransferDirection};
use smig_lab::trial::Clients;
use smig_lab::workload::{
    ConnectionBytes, MigrationRecord, ObjectResult, Observation, Outcome, RunPhase, WorkloadError,
    WorkloadSpec,
};
use smig_testbed::netns::now;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::scenario::{BIG, CLIENT, SMALL};
use crate::demo::data::{BackgroundLoad, BulkSample, ConnectionId, Move, SmallObject};
use crate::demo::recorder::DemoEvent;

type Events = mpsc::UnboundedSender<DemoEvent>;

/// Timeout of a small object; exceeding it is reported as a problem of the run.
const PATIENCE: Duration = Duration::from_secs(60);

/// The demonstration's [`Clients`]: transfers `small` and `big` of its scenario.
#[derive(Debug)]
pub(super) struct LiveClients {
    pub(super) events: Events,
    pub(super) stop: CancellationToken,
    /// SHA-256 of the big file.
    pub(super) big_file_digest: [u8; 32],
}

impl Clients for LiveClients {
    fn run(
        self,
        spec: WorkloadSpec,
        pause: &mut dyn FnMut(RunPhase),
    ) -> Result<Observation, WorkloadError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let plan = Plan::of(&spec, self.big_file_digest).map_err(unusable)?;
            let client = client(&spec).map_err(|error| unusable(error.to_string()))?;
            let events = self.events.clone();
            let run = Run { plan, client, events: self.events, began: Instant::now() };
            // The setup of the connection is not measured: it is open before the first object.
            let first = run.object().await.map_err(unusable)?;
            pause(RunPhase::Begins);
            let (began_ns, run) = (now().as_nanos(), Run { began: Instant::now(), ..run });
            let objects = tokio::select! {
                objects = Arc::new(run).all(&first) => objects?,
                // Whoever stops a run discards its result.
                () = self.stop.cancelled() => Vec::new(),
                () = events.closed() => Vec::new(),
            };
            pause(RunPhase::Ended);
            let ended_ns = objects.iter().map(|object| object.ended_ns).max().unwrap_or(0);
            Ok(Observation { began_ns, ended_ns, objects, connections: Vec::new() })
        })
    }
}

fn unusable(why: String) -> WorkloadError {
    WorkloadError::Open { client: CLIENT.to_owned(), why }
}

fn client(spec: &WorkloadSpec) -> Result<Client, smig::Error> {
    let mut config = Config::client();
    let kind = spec.scenario.clients.get(CLIENT).map(|client| client.kind);
    if kind != Some(ClientKind::Smig) {
        config.smig = None;
    }
    let trust = Trust::Pem(spec.certificate.clone().into_bytes());
    Client::builder().trust(trust).engine(config).build()
}

/// What the scenario asks for.
#[derive(Debug, Clone)]
struct Plan {
    server: SocketAddr,
    object_bytes: u64,
    interval: Duration,
    big_bytes: u64,
    big_start: Duration,
    big_file_digest: [u8; 32],
}

impl Plan {
    fn of(spec: &WorkloadSpec, big_file_digest: [u8; 32]) -> Result<Self, String> {
        let Scenario { workload, .. } = &spec.scenario;
        let transfer =
            |name: &str| workload.transfers.get(name).ok_or_else(|| format!("no {name} object"));
        let (small, big) = (transfer(SMALL)?, transfer(BIG)?);
        Ok(Self {
            server: *spec.servers.get(CLIENT).ok_or("no server")?,
            object_bytes: small.size_of(0),
            interval: small.every.ok_or("no interval")?.0,
            big_bytes: big.size_of(0),
            big_start: big.start.0,
            big_file_digest,
        })
    }
}

/// Numbers connections in the order in which they were first seen.
#[derive(Debug, Default)]
struct Connections {
    seen: Vec<smig::ConnId>,
}

impl Connections {
    fn number(&mut self, id: smig::ConnId) -> u32 {
        let at = self.seen.iter().position(|&other| other == id).unwrap_or_else(|| {
            self.seen.push(id);
            self.seen.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }

    fn totals(&mut self, segments: &[Segment]) -> BTreeMap<u32, u64> {
        let mut totals = BTreeMap::new();
        for segment in segments {
            *totals.entry(self.number(segment.connection)).or_default() +=
                segment.end - segment.start;
        }
        totals
    }

    fn bytes(&mut self, segments: &[Segment]) -> Vec<ConnectionBytes> {
        let totals = self.totals(segments).into_iter();
        totals.map(|(connection, bytes)| ConnectionBytes { connection, bytes }).collect()
    }
}

/// A small object, and the connections that carried it.
type Fetched = (ObjectResult, Vec<Segment>);

struct Run {
    plan: Plan,
    client: Client,
    events: Events,
    began: Instant,
}

impl Run {
    /// Requests all objects. `first` is what carried the first one.
    async fn all(self: Arc<Self>, first: &[Segment]) -> Result<Vec<ObjectResult>, WorkloadError> {
        let mut connections = Connections::default();
        let first = first.first().map(|segment| connections.number(segment.connection));
        let (loaded, watch_load) = watch::channel(BackgroundLoad::Unloaded);
        let (done, watch_done) = watch::channel(false);
        let small = tokio::spawn(Arc::clone(&self).small_objects(watch_load, watch_done));
        tokio::time::sleep(self.plan.big_start).await;
        loaded.send_replace(BackgroundLoad::BigFile);
        let big_file = self.big_file(&mut connections, first).await;
        done.send_replace(true);
        let small = small.await.map_err(|_| WorkloadError::Panicked)??;
        let mut objects = vec![big_file];
        for (mut object, segments) in small {
            object.connections = connections.bytes(&segments);
            objects.push(object);
        }
        objects.sort_by_key(|object| object.started_ns);
        Ok(objects)
    }

    fn tell(&self, event: DemoEvent) {
        // The receiver is closed while the demonstration is being cancelled.
        let _ = self.events.send(event);
    }

    /// Returns an object that is requested now.
    fn requested(&self, name: &str, number: u32, role: SizeClass, size: u64) -> ObjectResult {
        ObjectResult {
            name: name.to_owned(),
            number,
            client: CLIENT.to_owned(),
            role,
            direction: TransferDirection::Download,
            size,
            started_ns: nanos(self.began.elapsed()),
            head_ns: None,
            first_byte_ns: None,
            ended_ns: 0,
            bytes: 0,
            connections: Vec::new(),
            moves: Vec::new(),
            outcome: Outcome::TimedOut,
            cancel: None,
            progress: Vec::new(),
        }
    }

    /// Requests a small object at each interval, whether or not the last one has arrived.
    async fn small_objects(
        self: Arc<Self>,
        load: watch::Receiver<BackgroundLoad>,
        mut done: watch::Receiver<bool>,
    ) -> Result<Vec<Fetched>, WorkloadError> {
        let interval = self.plan.interval;
        let mut clock = interval_at(tokio::time::Instant::now() + interval, interval);
        clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut open = tokio::task::JoinSet::new();
        for number in 0.. {
            tokio::select! {
                _ = clock.tick() => {
                    let (run, load) = (Arc::clone(&self), *load.borrow());
                    open.spawn(async move { run.timed_object(number, load).await });
                }
                _ = done.changed() => break,
            }
        }
        let mut objects = Vec::new();
        while let Some(joined) = open.join_next().await {
            objects.push(joined.map_err(|_| WorkloadError::Panicked)?);
        }
        Ok(objects)
    }

    async fn timed_object(&self, number: u32, load: BackgroundLoad) -> Fetched {
        let asked = Instant::now();
        let mut result = self.requested(SMALL, number, SizeClass::Small, self.plan.object_bytes);
        let fetched = tokio::time::timeout(PATIENCE, self.object()).await;
        let (at, took) = (asked.duration_since(self.began), asked.elapsed());
        result.ended_ns = nanos(at + took);
        match fetched {
            Ok(Ok(segments)) => {
                result.bytes = result.size;
                result.outcome = Outcome::Complete;
                self.tell(DemoEvent::Object(SmallObject { at, took, load }));
                return (result, segments);
            }
            Ok(Err(why)) => result.outcome = Outcome::Failed(why),
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                let text = format!("A small object did not arrive within {seconds} seconds.");
                self.tell(DemoEvent::Problem(text));
            }
        }
        (result, Vec::new())
    }

    async fn get(&self, size: u64) -> Result<Incoming, String> {
        let uri = format!("https://{}/{size}.bin", self.plan.server);
        let request = Request::get(uri).body(Empty::<bytes::Bytes>::new()).map_err(shown)?;
        let response = self.client.request(request).await.map_err(shown)?;
        let status = response.status();
        if status.is_success() { Ok(response.into_body()) } else { Err(format!("status {status}")) }
    }

    async fn object(&self) -> Result<Vec<Segment>, String> {
        let mut body = self.get(self.plan.object_bytes).await?;
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.map_err(shown)?.data_ref().map_or(0, |data| data.len() as u64);
        }
        let expected = self.plan.object_bytes;
        if bytes == expected {
            Ok(body.segments())
        } else {
            Err(format!("{bytes} bytes arrived instead of {expected}"))
        }
    }

    /// Downloads the big file. `first` is the connection on which it is requested.
    async fn big_file(&self, connections: &mut Connections, first: Option<u32>) -> ObjectResult {
        let mut result = self.requested(BIG, 0, SizeClass::Big, self.plan.big_bytes);
        self.tell(DemoEvent::BulkStarted(self.began.elapsed()));
        let fetched = self.read_big_file(connections, first, &mut result).await;
        let finished = self.began.elapsed();
        result.ended_ns = nanos(finished);
        result.outcome = match fetched {
            Ok(true) => Outcome::Complete,
            Ok(false) => Outcome::Damaged,
            Err(why) => Outcome::Failed(why),
        };
        result
    }

    /// Reads the big file; returns whether it is what was sent.
    async fn read_big_file(
        &self,
        connections: &mut Connections,
        first: Option<u32>,
        result: &mut ObjectResult,
    ) -> Result<bool, String> {
        let mut body = self.get(self.plan.big_bytes).await?;
        result.head_ns = Some(nanos(self.began.elapsed()));
        let info = body.stream_info();
        let mut meter = Meter { told: BTreeMap::new(), at: first };
        let mut clock = tokio::time::interval(self.plan.interval);
        clock.tick().await;
        let mut digest = Sha256::new();
        loop {
            tokio::select! {
                frame = body.frame() => {
                    let Some(frame) = frame else { break };
                    if let Ok(data) = frame.map_err(shown)?.into_data() {
                        let now = nanos(self.began.elapsed());
                        result.first_byte_ns.get_or_insert(now);
                        result.bytes += data.len() as u64;
                        digest.update(&data);
                    }
                    if let Some(info) = &info {
                        meter.look_for_a_move(self, info, connections, result);
                    }
                }
                _ = clock.tick() => meter.sample(self, connections.totals(&body.segments())),
            }
        }
        let finished = self.began.elapsed();
        meter.sample(self, connections.totals(&body.segments()));
        self.tell(DemoEvent::BulkFinished(finished));
        result.connections = connections.bytes(&body.segments());
        Ok(<[u8; 32]>::from(digest.finalize()) == self.plan.big_file_digest)
    }
}

/// What has been reported of the big file so far.
#[derive(Debug)]
struct Meter {
    /// Bytes by connection.
    told: BTreeMap<u32, u64>,
    /// The connection of its stream, which may migrate before its first byte.
    at: Option<u32>,
}

impl Meter {
    fn look_for_a_move(
        &mut self,
        run: &Run,
        info: &StreamInfo,
        connections: &mut Connections,
        result: &mut ObjectResult,
    ) {
        let now = info.connection().map(|id| connections.number(id));
        if let (Some(from), Some(to)) = (self.at, now)
            && from != to
        {
            let at = run.began.elapsed();
            run.tell(DemoEvent::Moved(Move { at, from: ConnectionId(from), to: ConnectionId(to) }));
            let (at_ns, bytes) = (nanos(at), result.bytes);
            result.moves.push(MigrationRecord { at_ns, bytes, from, to });
        }
        self.at = now.or(self.at);
    }

    fn sample(&mut self, run: &Run, totals: BTreeMap<u32, u64>) {
        let at = run.began.elapsed();
        for (connection, total) in totals {
            let told = self.told.insert(connection, total).unwrap_or(0);
            let bytes = total - told;
            if bytes > 0 {
                let connection = ConnectionId(connection);
                run.tell(DemoEvent::Bulk(BulkSample { at, connection, bytes }));
            }
        }
    }
}

fn nanos(since_start: Duration) -> u64 {
    u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX)
}

fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}
