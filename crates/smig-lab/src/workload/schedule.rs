//! Request times of a transfer. Pure: the same seed gives the same times.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::scenario::{ArrivalProcess, Transfer};

/// Infinite sequence of request times since the start of a run. Not for [`ArrivalProcess::ClosedLoop`].
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    next_time: Duration,
    mean_interval: Duration,
    arrival: ArrivalProcess,
    rng_state: u64,
}

impl Schedule {
    pub(super) fn new(name: &str, transfer: &Transfer, seed: u64) -> Self {
        let digest: [u8; 32] = Sha256::digest(format!("{seed}/{name}")).into();
        let state = digest.iter().take(8).fold(0, |state, &byte| state << 8 | u64::from(byte));
        Self {
            next_time: transfer.start.0,
            mean_interval: transfer.every.map_or(Duration::ZERO, |every| every.0),
            arrival: transfer.arrival,
            rng_state: state | 1,
        }
    }

    /// Returns a uniform random number in (0, 1].
    fn random(&mut self) -> f64 {
        self.rng_state ^= self.rng_state << 13;
        self.rng_state ^= self.rng_state >> 7;
        self.rng_state ^= self.rng_state << 17;
        ((self.rng_state >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let time = self.next_time;
        let interval = match self.arrival {
            ArrivalProcess::Poisson => self.mean_interval.mul_f64(-self.random().ln()),
            ArrivalProcess::Periodic | ArrivalProcess::ClosedLoop => self.mean_interval,
        };
        self.next_time += interval;
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Size, Sizes, TimeSpan};

    fn transfer(arrival: ArrivalProcess) -> Transfer {
        Transfer {
            client: None,
            size: Sizes(vec![Size(1)]),
            direction: crate::scenario::TransferDirection::Download,
            start: TimeSpan(Duration::from_secs(2)),
            count: None,
            every: Some(TimeSpan(Duration::from_millis(100))),
            arrival,
            until: None,
            size_class: None,
            priority: None,
            cancel: None,
        }
    }

    #[test]
    fn periodic_requests_are_evenly_spaced() {
        let times: Vec<_> =
            Schedule::new("small", &transfer(ArrivalProcess::Periodic), 1).take(3).collect();
        assert_eq!(times, [2_000, 2_100, 2_200].map(Duration::from_millis));
    }

    #[test]
    fn poisson_requests_have_the_mean_and_depend_on_the_seed() {
        let times = |name: &str, seed| -> Vec<Duration> {
            Schedule::new(name, &transfer(ArrivalProcess::Poisson), seed).take(20_001).collect()
        };
        let first = times("small", 1);
        assert_eq!(first, times("small", 1));
        assert_ne!(first, times("small", 2));
        assert_ne!(first, times("other", 1));
        let mean = (first[20_000] - first[0]).as_secs_f64() / 20_000.0;
        assert!((0.098..0.102).contains(&mean), "{mean}");
    }
}
