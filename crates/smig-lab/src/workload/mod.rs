//! The clients of a run: which requests they send, when, and what they observe.
//!
//! Runs on one thread inside the clients' host. Owns the measured times: all are nanoseconds of
//! `CLOCK_MONOTONIC` since the start of the run. Events are sent to a receiver during the run.

mod body;
mod browser;
mod browser_page;
mod browser_replay;
mod client;
mod closing;
mod command;
mod command_output;
mod connections;
mod content;
mod event;
mod http1;
mod http3;
mod open;
mod page;
mod page_clients;
mod page_metric;
#[cfg(test)]
mod page_tests;
mod received_bytes;
mod result;
mod run;
mod schedule;
mod screen;
mod server_files;
#[cfg(test)]
mod tests;
mod tile_page;
mod transfer;

pub(crate) use command::CommandEnv;
pub(crate) use content::Content;
pub use event::{EventKind, EventSender, WorkloadEvent};
pub use http1::build_connector;
pub use page_metric::PageMetric;
pub use result::{
    CancelRecord, ConnectionBytes, ConnectionRecord, MigrationRecord, ObjectResult, Observation,
    Outcome, PageLoad, ProgressPoint, ReplayNotes, RequestPhases, ScreenFrame,
};
pub(crate) use run::Replays;
pub use run::{Clients, RunPhase, ScenarioClients, WorkloadError, WorkloadSpec};
pub use server_files::ServerFiles;
