//! What is written down of each object.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::scenario::{Direction, Role};

/// Everything that a run's clients saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The beginning of the run: nanoseconds of `CLOCK_MONOTONIC`. All other times count from it.
    pub began_ns: u64,
    /// The end of the last transfer.
    pub ended_ns: u64,
    /// Objects in the order of their requests.
    pub objects: Vec<ObjectResult>,
    /// The connections that they came by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionSeen>,
}

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionSeen {
    /// Its number in the run, by first use.
    pub number: u32,
    /// The client's end.
    pub client: SocketAddr,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectResult {
    /// Its transfer's name in the scenario.
    pub name: String,
    /// Its number in the transfer, from 0.
    pub number: u32,
    /// Its client's name in the scenario.
    pub client: String,
    /// Big or small.
    pub role: Role,
    /// Which way.
    pub direction: Direction,
    /// What its body should have, octets.
    pub size: u64,
    /// When the application wanted it, whether or not a connection was free.
    pub started_ns: u64,
    /// When the response's head was there.
    pub head_ns: Option<u64>,
    /// When the first octets of the response's body were there.
    pub first_byte_ns: Option<u64>,
    /// When it was complete, cancelled, or known to have failed.
    pub ended_ns: u64,
    /// Octets of the body that were transferred.
    pub bytes: u64,
    /// Which connections brought them (downloads), numbered in the run by first use.
    pub connections: Vec<ConnectionBytes>,
    /// When its stream was seen on another connection.
    pub moves: Vec<MoveSeen>,
    /// How it ended.
    pub outcome: Outcome,
    /// What followed on its cancelling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelSeen>,
    /// Big ones: octets so far, now and then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<ProgressPoint>,
}

impl ObjectResult {
    /// From the wish to the end, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.ended_ns.saturating_sub(self.started_ns) as f64 / 1e9
    }
}

/// Octets that came by one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionBytes {
    /// The connection's number in the run.
    pub connection: u32,
    /// Octets of body.
    pub bytes: u64,
}

/// A stream was seen on another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveSeen {
    /// When.
    pub at_ns: u64,
    /// Octets of body that had come.
    pub bytes: u64,
    /// The connection before; the number in the run.
    pub from: u32,
    /// The connection now.
    pub to: u32,
}

/// Octets at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressPoint(
    /// When, nanoseconds from the beginning of the run.
    pub u64,
    /// Octets so far.
    pub u64,
);

/// How an object ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All octets, all right.
    Complete,
    /// As the scenario wanted it.
    Cancelled,
    /// Not within the run's time limit.
    TimedOut,
    /// Other octets than were sent, or too few, or too many.
    Damaged,
    /// An error; its words.
    Failed(String),
}

/// What came to the client's host after a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelSeen {
    /// When the client cancelled.
    pub at_ns: u64,
    /// IP octets that the client's devices took in from then until nothing had come for
    /// half a second, but ten seconds at most: headers and other transfers included.
    pub wire_bytes: u64,
    /// Of these, octets of other transfers' bodies.
    pub other_bytes: u64,
    /// When the last of them came.
    pub last_ns: u64,
}
