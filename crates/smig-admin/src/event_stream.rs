//! Server-sent events: snapshots several times a second, and log entries as they happen.
//!
//! At most a few records are buffered for a slow reader: it skips snapshots, receives the number of log
//! entries that it missed, and is disconnected when it reads nothing for [`WRITE_TIMEOUT`].

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use serde_json::json;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::observer::Subscription;
use super::snapshot_cache::{MIN_SNAPSHOT_INTERVAL, SnapshotCache};

/// Maximum number of records queued for one reader.
const MAX_QUEUED_RECORDS: usize = 4;
/// How long a reader may accept no record before it is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of the comments that keep an otherwise silent event stream alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// The `retry` field: how long a browser waits before it reconnects, milliseconds.
const RETRY_MS: u32 = 1000;

/// The body of an event stream, which does not end by itself.
#[derive(Debug)]
pub(crate) struct EventStreamBody(mpsc::Receiver<Bytes>);

impl http_body::Body for EventStreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|record| record.map(|record| Ok(Frame::data(record))))
    }
}

/// The task that feeds one reader.
struct ReaderTask {
    snapshots: Arc<SnapshotCache>,
    live_records: broadcast::Receiver<Bytes>,
    snapshot_ticks: Interval,
    heartbeat: Interval,
    last_snapshot_number: u64,
    _subscription: Subscription,
}

/// Starts an event stream; returns `None` at the limit of readers. Must run inside a tokio runtime.
pub(crate) fn open(snapshots: &Arc<SnapshotCache>) -> Option<EventStreamBody> {
    let (buffered_records, live_records, subscription) = snapshots.observer().subscribe()?;
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_RECORDS);
    let (mut snapshot_ticks, mut heartbeat) =
        (interval(MIN_SNAPSHOT_INTERVAL), interval(HEARTBEAT_INTERVAL));
    snapshot_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let snapshots = Arc::clone(snapshots);
    let reader = ReaderTask {
        snapshots,
        live_records,
        snapshot_ticks,
        heartbeat,
        last_snapshot_number: 0,
        _subscription: subscription,
    };
    tokio::spawn(reader.run(sender, buffered_records));
    Some(EventStreamBody(receiver))
}

impl ReaderTask {
    async fn run(mut self, sender: mpsc::Sender<Bytes>, buffered_records: Vec<Bytes>) {
        let mut record = self.first_record(&buffered_records);
        drop(buffered_records);
        while let Ok(Ok(())) = timeout(WRITE_TIMEOUT, sender.send(record)).await {
            let next = tokio::select! {
                () = sender.closed() => return,
                next = self.next() => next,
            };
            let Some(next) = next else { return };
            record = next;
        }
    }

    /// Returns the first record: title and version, then the buffered log entries.
    fn first_record(&self, buffered_records: &[Bytes]) -> Bytes {
        let about = json!({
            "title": self.snapshots.target().title,
            "version": env!("CARGO_PKG_VERSION"),
        });
        let hello = format!("retry: {RETRY_MS}\nevent: hello\ndata: {about}\n\n");
        let mut records = BytesMut::from(hello.as_bytes());
        for record in buffered_records {
            records.extend_from_slice(record);
        }
        records.freeze()
    }

    /// Returns the next record; `None` when the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                record = self.live_records.recv() => return match record {
                    Ok(record) => Some(record),
                    Err(RecvError::Lagged(missed)) => {
                        Some(format!("event: missed\ndata: {missed}\n\n").into())
                    }
                    Err(RecvError::Closed) => None,
                },
                _ = self.snapshot_ticks.tick() => {
                    let snapshot = self.snapshots.get().await.ok()?;
                    if snapshot.number != self.last_snapshot_number {
                        self.last_snapshot_number = snapshot.number;
                        return Some(snapshot.event);
                    }
                }
                _ = self.heartbeat.tick() => return Some(Bytes::from_static(b": keepalive\n\n")),
            }
        }
    }
}
