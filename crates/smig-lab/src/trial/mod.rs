//! One trial: a scenario, run once, with everything that is needed to judge its result.
//!
//! | type | what it is |
//! |---|---|
//! | [`Trial`](crate::scenario::Trial) | what to run: a scenario value with its seed, read from a file or built in code |
//! | [`Variant`](crate::scenario::Variant) | the arm that the trial belongs to: a name on each axis of its campaign |
//! | [`TrialSetup`] | what all trials of a campaign share: programs, certificate, files to serve |
//! | [`TrialRequest`] | a trial with its setup: the input of [`run`], also that of another process |
//! | [`WorkloadEvent`](crate::workload::WorkloadEvent) | what its clients report while it runs |
//! | [`TrialResult`] | the only format of a result |
//!
//! [`run`] owns the testbed: it exists from before the first server until after the last client, and
//! no state carries over to the next trial. A campaign runs each trial in a process of its own
//! (`campaign`), the demo in its own process, because it shows the clients' events as they occur.

mod folder;
mod length;
mod machine;
mod origin;
mod result;
mod run;
mod setup;

pub use length::estimated_duration;
pub use origin::{Build, Builds, Origin, Unvouched, doubt};
pub use result::{FORMAT, Machine, TrialResult};
pub use run::{TrialError, check, run};
pub use setup::{Programs, TrialRequest, TrialSetup};
