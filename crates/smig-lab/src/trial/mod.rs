//! One trial: a scenario, run once, with everything that is needed to judge its result.
//!
//! | type | what it is |
//! |---|---|
//! | [`Trial`](crate::scenario::Trial) | what to run: a scenario value with its seed, read from a file or built in code |
//! | [`ConditionName`](crate::scenario::ConditionName) | names the condition of the trial: a level on each axis of its campaign |
//! | [`TrialSetup`] | shared by all trials of a campaign: programs, certificate, files to serve |
//! | [`TrialRequest`] | a trial with its setup: the input of [`run`], also in another process |
//! | [`Clients`](crate::workload::Clients) | the clients: the scenario's, or a browser |
//! | [`WorkloadEvent`](crate::workload::WorkloadEvent) | what the scenario's clients report while it runs |
//! | [`TrialResult`] | the only format of a result |
//!
//! [`run`] owns the testbed: it exists from before the first server until after the last client, and
//! no state carries over to the next trial. A campaign runs each trial in a process of its own
//! (`campaign`), a demonstration in its own process, because it shows the clients' events as they occur.

mod device_events;
mod duration;
mod machine;
mod origin;
mod result;
mod run;
mod scratch_dir;
mod setup;

pub use duration::{estimated_duration, estimated_load};
pub use origin::{AcceptedBuilds, Build, BuildsError, Origin, build_inconsistency};
pub use result::{FORMAT_VERSION, Machine, TrialResult};
pub use run::{TrialError, check_testbed, run};
pub(crate) use run::{bpf_controls, congestion_controls, hold_bpf_control};
pub use setup::{Programs, TrialRequest, TrialSetup};
