//! Bytes, time, and bytes per second.

use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Returns the time in which `rate` bytes per second send `bytes`, rounded up.
pub(crate) fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanos = (u128::from(bytes) * NANOS_PER_SECOND).div_ceil(u128::from(rate.max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns the bytes that `rate` bytes per second send in `time`.
pub(crate) fn bytes_in(rate: u64, time: Duration) -> u64 {
    earned(rate, time, &mut 0)
}

/// Returns the bytes that `rate` bytes per second send in `time`, and in the part of a byte that `fraction` holds: in
/// bytes divided by a billion. It takes what is left.
pub(crate) fn earned(rate: u64, time: Duration, fraction: &mut u128) -> u64 {
    let total = u128::from(rate) * time.as_nanos() + *fraction;
    *fraction = total % NANOS_PER_SECOND;
    u64::try_from(total / NANOS_PER_SECOND).unwrap_or(u64::MAX)
}

/// Returns the rate, in bytes per second, that sends `bytes` in `time`, to the microsecond.
pub(crate) fn rate_of(bytes: u64, time: Duration) -> u64 {
    let micros = time.as_micros().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_time_and_rate_agree() {
        let rate = 1_250_000;
        assert_eq!(time_of(1_250, rate), Duration::from_millis(1));
        assert_eq!(time_of(1, 3), Duration::from_nanos(333_333_334), "rounded up");
        assert_eq!(time_of(1, 0), Duration::from_secs(1), "a rate of zero is one of one");
        assert_eq!(bytes_in(rate, Duration::from_millis(1)), 1_250);
        assert_eq!(rate_of(1_250, Duration::from_millis(1)), rate);
        assert_eq!(rate_of(1, Duration::ZERO), 1_000_000, "a microsecond at least");
    }

    #[test]
    fn what_is_earned_in_parts_is_earned_in_whole() {
        let mut fraction = 0;
        let sum: u64 =
            (0..1000).map(|_| earned(1500, Duration::from_millis(1), &mut fraction)).sum();
        assert_eq!((sum, fraction), (1500, 0));
        assert_eq!(bytes_in(u64::MAX, Duration::from_secs(2)), u64::MAX);
    }
}
