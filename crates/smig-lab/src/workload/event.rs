//! Events of a run, sent while it takes place. Without a listener none is created.

use tokio::sync::mpsc;

use super::result::{ConnectionBytes, MigrationRecord, ObjectResult};

/// Sends a run's events to its listener. The run stops when the receiver is closed.
pub type EventSender = mpsc::UnboundedSender<WorkloadEvent>;

/// An event of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadEvent {
    /// Name of the transfer in the scenario.
    pub name: String,
    /// Number of the object in the transfer, from 0. The objects of a client that is a command all have that of the
    /// command's request here; only the results number them.
    pub number: u32,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to an object. All times are nanoseconds since the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// It was requested.
    Requested {
        /// Time of the request.
        at_ns: u64,
    },
    /// For large downloads: the bytes that arrived so far, at the scenario's `record.progress` interval from
    /// the response's header section on.
    Progress {
        /// Time of the observation.
        at_ns: u64,
        /// Bytes by connection.
        connections: Vec<ConnectionBytes>,
    },
    /// Its stream has migrated.
    Migrated(MigrationRecord),
    /// It has ended; the result has its outcome.
    Ended(Box<ObjectResult>),
}

/// Sender of a run's events, if there is a listener.
#[derive(Debug, Clone)]
pub(super) struct EventSink(Option<EventSender>);

impl EventSink {
    pub(super) const fn new(sender: Option<EventSender>) -> Self {
        Self(sender)
    }

    pub(super) const fn has_listener(&self) -> bool {
        self.0.is_some()
    }

    /// Sends an event of an object to the listener; without one, does not call `kind`.
    pub(super) fn send(&self, object: &ObjectResult, kind: impl FnOnce() -> EventKind) {
        if let Some(sender) = &self.0 {
            let event =
                WorkloadEvent { name: object.name.clone(), number: object.number, kind: kind() };
            // Fails only if the receiver is closed, which stops the run.
            let _ = sender.send(event);
        }
    }

    /// Waits until the listener has closed its receiver; without a listener, forever.
    pub(super) async fn closed(&self) {
        match &self.0 {
            Some(sender) => sender.closed().await,
            None => std::future::pending().await,
        }
    }
}
