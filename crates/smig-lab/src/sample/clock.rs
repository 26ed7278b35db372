//! The clock of all samples.

use rustix::time::{ClockId, clock_gettime};

use smig_link::Time;

/// Returns the current time of `CLOCK_MONOTONIC` in nanoseconds: the same clock in every process of
/// the machine.
#[must_use]
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
