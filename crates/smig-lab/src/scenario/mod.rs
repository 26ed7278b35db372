//! Scenarios: descriptions of measurements, read from a TOML file.
//!
//! Owns the file's schema, its validation, and the expansion of conditions into trials. Starts
//! nothing: every error in a file is reported before anything runs.
//!
//! ```toml
//! link = "paper-wired"
//! repetitions = 10
//!
//! [servers.main]
//! kind = "smig"
//!
//! [clients.user]
//! kind = "smig"
//!
//! [workload.transfers.big]
//! size = "50MB"
//!
//! [workload.transfers.small]
//! size = "10kB"
//! every = "1s"
//! until = "big"
//!
//! [variants.scheme.NoMig]                 # a variant's keys override the others
//! servers.main.settings.smig.enabled = false
//!
//! [variants.scheme.MigSP]
//! servers.main.settings.migration.mode = "at:100KiB"
//! ```

mod address_plan;
mod check;
mod check_page;
mod client_link;
mod command;
mod device_event;
mod faults;
mod fraction;
mod hosts;
mod load;
mod page;
mod placeholder;
mod published_keys;
mod recorded;
mod spec;
#[cfg(test)]
mod tests;
mod tiles;
mod trials;
mod value;

pub use address_plan::{AddressPlan, FurtherAddress};
pub use client_link::ClientLink;
pub use command::{ClientCommand, Readiness, ResultFormat, ServerCommand, StopSignal};
pub use device_event::DeviceEvent;
pub use fraction::Cell;
pub use hosts::{HostRole, HostSettings, Hosts, Starvation};
pub use load::{SettingsCheck, load, parse};
pub(crate) use page::{DOCUMENT_HEAD_BYTES, TILE_ELEMENT_BYTES};
pub use page::{Discovery, Page, PageHost, Resource, ResourceKind, ResourceSpec};
pub(crate) use placeholder::fill_placeholders;
pub use recorded::{RecordedResource, Recording, RecordingSource};
pub use smig_settings::{Diagnostic, Diagnostics};
pub use spec::{
    ArrivalProcess, Assignment, Cancel, CancelScope, ClientKind, ClientMigration, ClientSpec,
    Priorities, RecordingOptions, Scenario, ServerKind, ServerSpec, SizeClass, Sizes, Transfer,
    TransferDirection, ValidityBounds, Workload,
};
pub use tiles::{TileSizes, Tiles};
pub use trials::{Campaign, Condition, ConditionName, Filter, Shard, Trial, TrialId};
pub use value::{Size, TimeSpan};
