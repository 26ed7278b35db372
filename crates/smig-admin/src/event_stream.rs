//! Server-sent events: snapshots several times a second, and log entries as they happen.
//!
//! At most a few records are buffered for a slow reader: it skips snapshots, receives the number of log
//! entries that it missed, and is disconnected when it reads nothing for [`PATIENCE`].

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
use super::snapshot_cache::{PERIOD, SnapshotCache};

/// Maximum number of records queued for one reader.
const ON_THEIR_WAY: usize = 4;
/// How long a reader may accept no record before it is disconnected.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of the comments that keep an otherwise silent event stream alive.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The `retry` field: how long a browser waits before it reconnects, milliseconds.
const RETRY_MS: u32 = 1000;

/// The body of an event stream, which does not end by itself.
#[derive(Debug)]
pub(crate) struct Events(mpsc::Receiver<Bytes>);

impl http_body::Body for Events {
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
struct Reader {
    snapshots: Arc<SnapshotCache>,
    live: broadcast::Receiver<Bytes>,
    pictures: Interval,
    heartbeat: Interval,
    seen: u64,
    _subscription: Subscription,
}

/// Starts an event stream; returns `None` at the limit of readers. Must run inside a tokio runtime.
pub(crate) fn begin(snapshots: &Arc<SnapshotCache>) -> Option<Events> {
    let (kept, live, subscription) = snapshots.observer().subscribe()?;
    let (sender, receiver) = mpsc::channel(ON_THEIR_WAY);
    let (mut pictures, mut heartbeat) = (interval(PERIOD), interval(HEARTBEAT));
    pictures.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let snapshots = Arc::clone(snapshots);
    let reader =
        Reader { snapshots, live, pictures, heartbeat, seen: 0, _subscription: subscription };
    tokio::spawn(reader.run(sender, kept));
    Some(Events(receiver))
}

impl Reader {
    async fn run(mut self, sender: mpsc::Sender<Bytes>, kept: Vec<Bytes>) {
        let mut record = self.hello(&kept);
        drop(kept);
        while let Ok(Ok(())) = timeout(PATIENCE, sender.send(record)).await {
            let next = tokio::select! {
                () = sender.closed() => return,
                next = self.next() => next,
            };
            let Some(next) = next else { return };
            record = next;
        }
    }

    /// Returns the first record: title and version, then the buffered log entries.
    fn hello(&self, kept: &[Bytes]) -> Bytes {
        let about = json!({
            "title": self.snapshots.subject().title,
            "version": env!("CARGO_PKG_VERSION"),
        });
        let hello = format!("retry: {RETRY_MS}\nevent: hello\ndata: {about}\n\n");
        let mut records = BytesMut::from(hello.as_bytes());
        for record in kept {
            records.extend_from_slice(record);
        }
        records.freeze()
    }

    /// Returns the next record; `None` when the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                record = self.live.recv() => return match record {
                    Ok(record) => Some(record),
                    Err(RecvError::Lagged(missed)) => {
                        Some(format!("event: missed\ndata: {missed}\n\n").into())
                    }
                    Err(RecvError::Closed) => None,
                },
                _ = self.pictures.tick() => {
                    let sample = self.snapshots.get().await.ok()?;
                    if sample.number != self.seen {
                        self.seen = sample.number;
                        return Some(sample.event);
                    }
                }
                _ = self.heartbeat.tick() => return Some(Bytes::from_static(b": keepalive\n\n")),
            }
        }
    }
}
