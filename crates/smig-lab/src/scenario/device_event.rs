//! Changes of the client's devices during a run, as when a laptop leaves its Wi-Fi.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use smig_testbed::netns::DeviceState;

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
    /// The state that the device comes to have.
    #[serde(rename = "do")]
    pub state: DeviceState,
}

/// A later event has a unit that is not meant.
const MAX_AT: Duration = Duration::from_secs(24 * 3_600);

/// Reports events of links that there are not, those that are not in order of time, and those that no run lasts long enough for.
pub(super) fn check_events(scenario: &Scenario, faults: &mut Faults) {
    for (number, event) in scenario.events.iter().enumerate() {
        check_link_number(&format!("events.{number}.link"), event.link, scenario, faults);
        if event.at.0 > MAX_AT {
            let what = "an event is at most 24h after the start of the run: choose an earlier time";
            faults.add(&format!("events.{number}.at"), what);
        }
    }
    let pairs = scenario.events.windows(2);
    if let Some(number) = pairs.into_iter().position(|pair| pair[0].at > pair[1].at) {
        faults.add(&format!("events.{}.at", number + 1), "events are in order of time");
    }
}
