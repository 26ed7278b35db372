//! Accuracy of the emulated links, measured with real packets through the kernel.
//!
//! Each profile gets its own hosts, and three measurements in each direction:
//! delay through an empty link, rate of a full one, and loss if configured. The
//! results are compared with the profile's configuration. For properties that
//! vary over time, the model computes the expected values in virtual time. A
//! measurement disturbed by other load on the machine is reported as disturbed,
//! not as an error of the link.

mod delay;
mod flow;
mod loss;
mod rate;
mod result;
mod table;
mod tbf;

use std::io;
use std::time::Duration;

use smig_link::LinkSpec;

use crate::netns::{Testbed, TestbedError};

pub use result::{
    CheckResult, DelayCheck, DirectionCheck, HostTiming, LossCheck, ProfileCheck, RateCheck,
    TbfCheck,
};
pub use table::{table_header, table_rows};

/// Parameters of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    /// Length of each measurement.
    pub duration: Duration,
    /// Seed of the links.
    pub seed: u64,
    /// Maximum number of repetitions for a disturbed profile.
    pub max_repeats: u32,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { duration: Duration::from_secs(2), seed: 1, max_repeats: 1 }
    }
}

/// Why a profile could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The hosts could not be created.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// A socket or a host failed.
    #[error("the measurement failed: {0}")]
    Io(#[from] io::Error),
    /// The link did not become empty.
    #[error("the link still holds packets {0} s after the last was sent; limit its queue or delay")]
    NotEmpty(u64),
}

/// Measures one link, and repeats the measurement if the machine disturbed it.
///
/// # Errors
/// When the link cannot be measured.
pub fn check(
    name: &str,
    link: &LinkSpec,
    options: &CheckOptions,
) -> Result<ProfileCheck, CheckError> {
    let mut profile_check = measure(name, link, options)?;
    for _ in 0..options.max_repeats {
        if profile_check.result() != CheckResult::Disturbed {
            break;
        }
        profile_check = measure(name, link, options)?;
    }
    Ok(profile_check)
}

fn measure(
    name: &str,
    link: &LinkSpec,
    options: &CheckOptions,
) -> Result<ProfileCheck, CheckError> {
    let mut timing = HostTiming::default();
    let delays = delay::measure(link, options, &mut timing)?;
    let rates = rate::measure(link, options, &mut timing)?;
    let losses = loss::measure(link, options, &mut timing)?;
    let tbf = tbf::measure(link, options)?;
    let [to_client, to_server] = [0, 1].map(|direction: usize| DirectionCheck {
        delay: delays[direction],
        rate: rates[direction],
        loss: losses[direction],
    });
    let name = name.to_owned();
    Ok(ProfileCheck { name, link: link.clone(), to_client, to_server, tbf, timing })
}

/// Starts the hosts for a measurement; the link's schedule starts now.
fn start_testbed(link: LinkSpec, options: &CheckOptions) -> Result<Testbed, TestbedError> {
    Testbed::builder(link).seed(options.seed).start()
}

/// Waits until every packet has been delivered or dropped.
fn wait_until_empty(testbed: &Testbed) -> Result<(), CheckError> {
    const DRAIN_TIMEOUT_S: u64 = 60;
    const POLL_INTERVAL: Duration = Duration::from_millis(5);
    for _ in 0..DRAIN_TIMEOUT_S * 1_000 / 5 {
        let report = testbed.report();
        let is_empty = [report.to_client, report.to_server].iter().all(|direction| {
            direction.offered_packets == direction.delivered_packets + direction.dropped_packets
        });
        if is_empty {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Err(CheckError::NotEmpty(DRAIN_TIMEOUT_S))
}
