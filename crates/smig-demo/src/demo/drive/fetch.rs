//! The client's side of a run: small objects at a fixed interval, and the big file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::{BodyExt as _, Empty};
use sha2::{Digest, Sha256};
use smig::{Client, Config, Incoming, Segment, StreamInfo, Trust};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval_at};

use super::DriveError;
use super::material::{BIG_FILE, OBJECT};
use crate::demo::data::{
    BackgroundLoad, BulkSample, ConnectionBytes, ConnectionId, Move, SmallObject, Variant,
};
use crate::demo::recorder::DemoEvent;
use tokio_util::sync::CancellationToken;

type Events = mpsc::UnboundedSender<DemoEvent>;

/// Timeout of a small object; exceeding it is reported as a problem of the run.
const PATIENCE: Duration = Duration::from_secs(60);

/// The client's parameters.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) server: SocketAddr,
    pub(super) variant: Variant,
    pub(super) ca: String,
    pub(super) big_file_digest: [u8; 32],
    pub(super) object_bytes: u64,
    pub(super) object_interval: Duration,
    pub(super) unloaded_objects: u32,
}

/// Runs the client on a runtime of its own. Must be called in the client's host.
pub(super) fn run(
    plan: Plan,
    stop: &CancellationToken,
    events: &Events,
) -> Result<Vec<ConnectionBytes>, DriveError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut config = Config::client();
        if plan.variant != Variant::Smig {
            config.smig = None;
        }
        let trust = Trust::Pem(plan.ca.clone().into_bytes());
        let client = Client::builder().trust(trust).engine(config).build()?;
        let run = Run { plan, client, events: events.clone(), began: Instant::now() };
        tokio::select! {
            fetched = run.all() => fetched,
            () = stop.cancelled() => Err(DriveError::Stopped),
            () = events.closed() => Err(DriveError::Stopped),
        }
    })
}

/// Numbers connections in the order in which they were first seen.
#[derive(Debug, Default)]
struct Connections {
    seen: Vec<smig::ConnId>,
    bytes: BTreeMap<u32, u64>,
}

impl Connections {
    fn number(&mut self, id: smig::ConnId) -> ConnectionId {
        let at = self.seen.iter().position(|&other| other == id).unwrap_or_else(|| {
            self.seen.push(id);
            self.seen.len() - 1
        });
        ConnectionId(u32::try_from(at + 1).unwrap_or(u32::MAX))
    }

    fn count(&mut self, segments: &[Segment]) {
        for segment in segments {
            let number = self.number(segment.connection);
            *self.bytes.entry(number.0).or_default() += segment.end - segment.start;
        }
    }

    fn into_totals(self) -> Vec<ConnectionBytes> {
        let total = |(number, bytes)| ConnectionBytes { connection: ConnectionId(number), bytes };
        self.bytes.into_iter().map(total).collect()
    }
}

struct Run {
    plan: Plan,
    client: Client,
    events: Events,
    began: Instant,
}

impl Run {
    async fn all(self) -> Result<Vec<ConnectionBytes>, DriveError> {
        // The setup of the connection is not measured: it is open before the first object.
        let mut connections = Connections::default();
        let first = self.object().await?;
        let first = first.first().map(|segment| connections.number(segment.connection));
        let run = std::sync::Arc::new(Self { began: Instant::now(), ..self });
        let (loaded, watch_load) = watch::channel(BackgroundLoad::Unloaded);
        let (done, watch_done) = watch::channel(false);
        let small = tokio::spawn(std::sync::Arc::clone(&run).small_objects(watch_load, watch_done));
        let pause = run.plan.object_interval * run.plan.unloaded_objects;
        // A quarter of an interval after a small request, since a user's click has no relation to them.
        tokio::time::sleep(pause + run.plan.object_interval / 4).await;
        loaded.send_replace(BackgroundLoad::BigFile);
        let big_file = run.big_file(&mut connections, first).await;
        done.send_replace(true);
        let segments = small.await.map_err(|_| DriveError::Panicked("client"))??;
        big_file?;
        connections.count(&segments);
        Ok(connections.into_totals())
    }

    fn tell(&self, event: DemoEvent) {
        // The receiver is closed while the demonstration is being cancelled.
        let _ = self.events.send(event);
    }

    /// Requests a small object at each interval, whether or not the last one has arrived.
    async fn small_objects(
        self: std::sync::Arc<Self>,
        load: watch::Receiver<BackgroundLoad>,
        mut done: watch::Receiver<bool>,
    ) -> Result<Vec<Segment>, DriveError> {
        let interval = self.plan.object_interval;
        let mut clock = interval_at(tokio::time::Instant::now() + interval, interval);
        clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut open = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                _ = clock.tick() => {
                    let (run, load) = (std::sync::Arc::clone(&self), *load.borrow());
                    open.spawn(async move { run.timed_object(load).await });
                }
                _ = done.changed() => break,
            }
        }
        let mut segments = Vec::new();
        while let Some(joined) = open.join_next().await {
            segments.extend(joined.map_err(|_| DriveError::Panicked("client"))??);
        }
        Ok(segments)
    }

    async fn timed_object(&self, load: BackgroundLoad) -> Result<Vec<Segment>, DriveError> {
        let asked = Instant::now();
        match tokio::time::timeout(PATIENCE, self.object()).await {
            Ok(segments) => {
                let (at, took) = (asked.duration_since(self.began), asked.elapsed());
                self.tell(DemoEvent::Object(SmallObject { at, took, load }));
                segments
            }
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                let text = format!("A small object did not arrive within {seconds} seconds.");
                self.tell(DemoEvent::Problem(text));
                Ok(Vec::new())
            }
        }
    }

    async fn get(&self, name: &str) -> Result<Incoming, DriveError> {
        let uri = format!("https://{}/{name}", self.plan.server);
        let request = Request::get(uri).body(Empty::<bytes::Bytes>::new());
        let request = request.map_err(std::io::Error::other)?;
        let response = self.client.request(request).await?;
        if !response.status().is_success() {
            let text = format!("{name}: status {}", response.status());
            return Err(std::io::Error::other(text).into());
        }
        Ok(response.into_body())
    }

    async fn object(&self) -> Result<Vec<Segment>, DriveError> {
        let mut body = self.get(OBJECT).await?;
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
        }
        if bytes == self.plan.object_bytes { Ok(body.segments()) } else { Err(DriveError::Damaged) }
    }

    /// Downloads the big file. `first` is the connection on which it is requested.
    async fn big_file(
        &self,
        connections: &mut Connections,
        first: Option<ConnectionId>,
    ) -> Result<(), DriveError> {
        self.tell(DemoEvent::BulkStarted(self.began.elapsed()));
        let mut body = self.get(BIG_FILE).await?;
        let info = body.stream_info();
        let mut meter = Meter { told: BTreeMap::new(), at: first };
        let mut clock = tokio::time::interval(self.plan.object_interval);
        clock.tick().await;
        let mut digest = Sha256::new();
        loop {
            tokio::select! {
                frame = body.frame() => {
                    let Some(frame) = frame else { break };
                    if let Ok(data) = frame?.into_data() {
                        digest.update(&data);
                    }
                    if let Some(info) = &info {
                        meter.look_for_a_move(self, info, connections);
                    }
                }
                _ = clock.tick() => meter.sample(self, &body.segments(), connections),
            }
        }
        let finished = self.began.elapsed();
        meter.sample(self, &body.segments(), connections);
        self.tell(DemoEvent::BulkFinished(finished));
        connections.count(&body.segments());
        let intact = <[u8; 32]>::from(digest.finalize()) == self.plan.big_file_digest;
        if intact { Ok(()) } else { Err(DriveError::Damaged) }
    }
}

/// What has been reported of the big file so far.
#[derive(Debug)]
struct Meter {
    told: BTreeMap<ConnectionId, u64>,
    /// The connection of its stream, which may migrate before its first byte.
    at: Option<ConnectionId>,
}

impl Meter {
    fn look_for_a_move(&mut self, run: &Run, info: &StreamInfo, connections: &mut Connections) {
        let now = info.connection().map(|id| connections.number(id));
        if let (Some(from), Some(to)) = (self.at, now)
            && from != to
        {
            run.tell(DemoEvent::Moved(Move { at: run.began.elapsed(), from, to }));
        }
        self.at = now.or(self.at);
    }

    fn sample(&mut self, run: &Run, segments: &[Segment], connections: &mut Connections) {
        let at = run.began.elapsed();
        let mut totals: BTreeMap<ConnectionId, u64> = BTreeMap::new();
        for segment in segments {
            let number = connections.number(segment.connection);
            *totals.entry(number).or_default() += segment.end - segment.start;
        }
        for (connection, total) in totals {
            let told = self.told.insert(connection, total).unwrap_or(0);
            let bytes = total - told;
            if bytes > 0 {
                run.tell(DemoEvent::Bulk(BulkSample { at, connection, bytes }));
            }
        }
    }
}
