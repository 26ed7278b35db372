//! Changes of the client's devices during a run, as when a laptop leaves its Wi-Fi.

use serde::{Deserialize, Serialize};

use super::client_link::check_link_number;
use super::faults::Faults;
use super::spec::Scenario;
use super::value::TimeSpan;

/// A change of the state of the client's device on a link. In contrast to an outage of the link, programs on the client are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEvent {
    /// Time since the start of the run.
    pub at: TimeSpan,
    /// The link: 0 is `link`, the others are those of `more_links`.
    #[serde(default)]
    pub link: usize,
    /// What happens to the device.
    #[serde(rename = "do")]
    pub change: DeviceChange,
}

/// The state that a device comes to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceChange {
    /// It loses its carrier and its routes.
    Down,
    /// It has them again.
    Up,
}

/// Reports events of links that there are not, and those that are not in order of time.
pub(super) fn check_events(scenario: &Scenario, faults: &mut Faults) {
    for (number, event) in scenario.events.iter().enumerate() {
        check_link_number(&format!("events.{number}.link"), event.link, scenario, faults);
    }
    let pairs = scenario.events.windows(2);
    if let Some(number) = pairs.into_iter().position(|pair| pair[0].at > pair[1].at) {
        faults.add(&format!("events.{}.at", number + 1), "events are in order of time");
    }
}
