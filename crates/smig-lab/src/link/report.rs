//! What a carried link tells about itself after a run.

use serde::{Deserialize, Serialize};

use super::LinkCounters;
use crate::lateness::LatenessSummary;

/// How the thread that carries packets is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// Before all ordinary threads of the machine.
    RealTime,
    /// As an ordinary thread: the right to more was not there. A busy machine
    /// makes the link late.
    Ordinary,
}

/// What the link did so far, and how punctually.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// From the server to the client.
    pub to_client: LinkCounters,
    /// From the client to the server.
    pub to_server: LinkCounters,
    /// Both directions together.
    pub lateness: LatenessSummary,
    /// How the carrying thread is scheduled.
    pub scheduling: Scheduling,
}
