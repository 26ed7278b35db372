//! Measurements of each object.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use smig_filmstrip::VisualTimes;

use crate::scenario::{SizeClass, TransferDirection};

/// Observation of a run by its clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Start of the run in nanoseconds of `CLOCK_MONOTONIC`. All other times are relative to it.
    #[serde(rename = "began_ns")]
    pub start_monotonic_ns: u64,
    /// End of the last transfer.
    pub ended_ns: u64,
    /// Objects in the order of their requests.
    pub objects: Vec<ObjectResult>,
    /// Loads of pages in the order of their starts; their resources are among the objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<PageLoad>,
    /// Connections that were used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionRecord>,
    /// What the screens of browsers showed, in the order of the loads; not in published results.
    #[serde(skip)]
    pub frames: Vec<ScreenFrame>,
}

/// One load of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageLoad {
    /// Name of the page in the scenario.
    pub name: String,
    /// Number of the load, from 0.
    pub number: u32,
    /// Time of the navigation: no connection is open yet, unless the page is warm.
    pub started_ns: u64,
    /// First time at which something could be rendered: the document, its style sheets and its blocking scripts have arrived
    /// and run; `None` if the load has failed.
    pub rendered_ns: Option<u64>,
    /// Mean of the times at which the pictures could be seen, each as large as any other, by when they had arrived: as much of SpeedIndex as a
    /// player knows.
    /// `None` if the load has failed.
    pub visible_ns: Option<u64>,
    /// What the screen showed, if a browser took frames of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visual: Option<VisualTimes>,
    /// Number of frames of its screen that were not kept, because there were too many: without them nothing is known of what it showed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_frames: usize,
    /// How far a browser's times may be off on this clock, in nanoseconds; `None` for those of a player, whose clock it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
    /// Time at which the last resource has arrived and run, or the load failed.
    pub ended_ns: u64,
    /// [`Outcome::Complete`] if every resource is.
    pub outcome: Outcome,
    /// Of a recorded page in a browser: how the load differs from the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayNotes>,
}

const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// How a load of a recorded page differs from the recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayNotes {
    /// What the page asked for and had no recorded answer, since none was recorded or its host cannot be served: URLs, some if there are many.
    pub unknown: Vec<String>,
    /// Number of recorded responses that the page did not ask for.
    pub not_requested: usize,
    /// Number of recorded responses without a body in the recording.
    pub without_body: usize,
}

/// What the screen showed from an instant of a load on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenFrame {
    /// Name of the page in the scenario.
    pub page: String,
    /// Number of the load.
    pub load: u32,
    /// Time at which it was painted.
    pub at_ns: u64,
    /// Visual progress in per cent; 0 until the load's frames are evaluated.
    pub progress: u8,
    /// The picture.
    pub jpeg: Vec<u8>,
}

impl PageLoad {
    /// Returns a load that has not begun, or of which nothing is known but its end.
    #[must_use]
    pub fn without_times(
        name: &str,
        number: u32,
        (started_ns, ended_ns): (u64, u64),
        outcome: Outcome,
    ) -> Self {
        Self {
            name: name.to_owned(),
            number,
            started_ns,
            rendered_ns: None,
            visible_ns: None,
            visual: None,
            omitted_frames: 0,
            clock_error_ns: None,
            ended_ns,
            outcome,
            replay: None,
        }
    }

    /// Returns the time from the navigation to the end in seconds.
    #[must_use]
    pub fn duration_s(&self) -> f64 {
        self.ended_ns.saturating_sub(self.started_ns) as f64 / 1e9
    }

    /// Returns the mean time from the navigation until a picture had arrived and could be seen, in seconds.
    #[must_use]
    pub fn speed_index_s(&self) -> Option<f64> {
        Some(self.visible_ns?.saturating_sub(self.started_ns) as f64 / 1e9)
    }

    /// Returns the time from the navigation to the first rendering in seconds.
    #[must_use]
    pub fn render_s(&self) -> Option<f64> {
        Some(self.rendered_ns?.saturating_sub(self.started_ns) as f64 / 1e9)
    }
}

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// Number in the run, in the order of first use.
    pub number: u32,
    /// Address of the client's end.
    pub client: SocketAddr,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectResult {
    /// Name of the transfer or page in the scenario.
    pub name: String,
    /// Number of the object in the transfer, from 0. In a page each load has as many numbers as the page has resources, in the
    /// order of its graph.
    pub number: u32,
    /// Name of the client in the scenario.
    pub client: String,
    /// Size class of the object; `role` in published results.
    #[serde(rename = "role")]
    pub size_class: SizeClass,
    /// Direction of the transfer.
    pub direction: TransferDirection,
    /// Expected size of the body in bytes.
    pub size: u64,
    /// Time of the application's request, whether or not a connection was available.
    pub started_ns: u64,
    /// What happened between the request and its response.
    #[serde(default, skip_serializing_if = "RequestPhases::is_unknown")]
    pub phases: RequestPhases,
    /// Arrival of the response's header section.
    pub head_ns: Option<u64>,
    /// Arrival of the first bytes of the response's body.
    pub first_byte_ns: Option<u64>,
    /// Time at which the object completed, was cancelled, failed, or reached the time limit.
    pub ended_ns: u64,
    /// Transferred bytes of the body.
    pub bytes: u64,
    /// Bytes by connection (downloads); connections are numbered in the order of first use.
    pub connections: Vec<ConnectionBytes>,
    /// Observed migrations of its stream; `moves` in published results.
    #[serde(rename = "moves")]
    pub migrations: Vec<MigrationRecord>,
    /// How the transfer ended.
    pub outcome: Outcome,
    /// Traffic after the cancel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRecord>,
    /// For big downloads of the lab's own clients: bytes so far, at intervals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<ProgressPoint>,
}

/// When a request went from one phase to the next, as far as the client knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestPhases {
    /// Time at which a connection began to be opened for it; `None` if it waited for one that was open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ns: Option<u64>,
    /// Time at which it had a connection, and a stream on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ns: Option<u64>,
    /// Time at which a page's resource had also run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_ns: Option<u64>,
}

impl RequestPhases {
    /// Returns whether nothing is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

impl ObjectResult {
    /// Returns the time from the request to the end in seconds.
    #[must_use]
    pub fn duration_s(&self) -> f64 {
        self.ended_ns.saturating_sub(self.started_ns) as f64 / 1e9
    }
}

/// Bytes that arrived on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionBytes {
    /// Number of the connection in the run.
    pub connection: u32,
    /// Bytes of the body.
    pub bytes: u64,
}

/// An observed migration: the stream is on another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationRecord {
    /// Time of the observation.
    pub at_ns: u64,
    /// Bytes of the body that had arrived.
    pub bytes: u64,
    /// Number of the previous connection in the run.
    pub from: u32,
    /// Number of the new connection in the run.
    pub to: u32,
}

/// Transferred bytes at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressPoint(
    /// Nanoseconds since the start of the run.
    pub u64,
    /// Bytes so far.
    pub u64,
);

/// How an object ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All bytes were transferred; those of a download by the lab's own clients match the content.
    Complete,
    /// Cancelled as the scenario specifies.
    Cancelled,
    /// Not finished within the run's time limit.
    TimedOut,
    /// The body does not match the content, or has the wrong length.
    Damaged,
    /// An error, with its message.
    Failed(String),
}

/// Traffic to the client's host after a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRecord {
    /// Time of the cancel.
    pub at_ns: u64,
    /// IP bytes that the client's devices received from then until there was no traffic for half a
    /// second, for at most ten seconds: includes headers and other transfers.
    pub wire_bytes: u64,
    /// Bytes of the bodies of other downloads that were read meanwhile, also of the same transfer; not those of clients that
    /// are commands.
    pub other_bytes: u64,
    /// Arrival of the last of these bytes.
    pub last_ns: u64,
}
