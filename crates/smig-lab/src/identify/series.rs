//! A probe as a series of numbers that does not depend on the link: the queue, in steps of a part of the round trip.

use serde::{Deserialize, Serialize};

use super::spec::{ProbeSpec, QUEUE_PACKETS};
use super::trace::QueueTrace;

/// Steps per round trip. The link's rate and its round trip belong together, so in these units all links are the same.
const STEPS_PER_RTT: f64 = 4.0;
/// A longer series says no more, and costs time to compare.
const MAX_STEPS: usize = 400;
/// How far a point of one series may be from its counterpart in the other, in steps.
const BAND: usize = 8;

/// The queue's length over time, in parts of a full queue, as long as the sender has certainly had more to send: until as many packets have come
/// as the object has. After that the queue shows the object's end, and not the sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Series(Vec<f32>);

impl Series {
    /// Samples a probe's queue.
    #[must_use]
    pub fn new(spec: &ProbeSpec, trace: &QueueTrace) -> Self {
        let step_s = spec.rtt_ms as f64 / 1e3 / STEPS_PER_RTT;
        let last_arrival_s = end_s(spec, trace);
        let (mut values, mut points) = (Vec::new(), trace.queue.iter().peekable());
        let mut packets = 0;
        while !trace.queue.is_empty()
            && values.len() < MAX_STEPS
            && values.len() as f64 * step_s <= last_arrival_s
        {
            let until_s = values.len() as f64 * step_s;
            while let Some(point) = points.next_if(|point| point.at_s <= until_s) {
                packets = point.packets;
            }
            values.push(packets as f32 / f32::from(QUEUE_PACKETS));
        }
        Self(values)
    }

    /// Returns the number of steps.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the distance to another series over the length of the shorter one: dynamic time warping within a band (Sakoe and
    /// Chiba), the mean difference per step. Infinite if one of them is empty.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f64 {
        let length = self.len().min(other.len());
        if length == 0 {
            return f64::INFINITY;
        }
        let mut before = vec![f64::INFINITY; length + 1];
        before[0] = 0.0;
        for row in 1..=length {
            let mut costs = vec![f64::INFINITY; length + 1];
            let band = row.saturating_sub(BAND).max(1)..=(row + BAND).min(length);
            for column in band {
                let difference = f64::from((self.0[row - 1] - other.0[column - 1]).abs());
                let least = before[column - 1].min(before[column]).min(costs[column - 1]);
                costs[column] = difference + least;
            }
            before = costs;
        }
        before[length] / length as f64
    }
}

/// Returns when the packet came with which the sender may have sent everything once; the last one, if fewer came.
fn end_s(spec: &ProbeSpec, trace: &QueueTrace) -> f64 {
    let grown = trace.queue.windows(2).filter(|pair| pair[1].packets > pair[0].packets);
    let mut arrivals_s: Vec<f64> =
        grown.map(|pair| pair[1].at_s).chain(trace.drops_s.iter().copied()).collect();
    arrivals_s.sort_by(f64::total_cmp);
    let count = usize::try_from(spec.packets()).unwrap_or(usize::MAX);
    arrivals_s.get(count).or_else(|| arrivals_s.last()).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identify::QueuePoint;

    const SPEC: ProbeSpec = ProbeSpec { object_bytes: 100_000, mtu: 500, rtt_ms: 200, sack: false };

    fn series(points: &[(f64, u32)]) -> Series {
        let queue = points.iter().map(|&(at_s, packets)| QueuePoint { at_s, packets }).collect();
        let trace = QueueTrace { queue, drops_s: vec![], windows: vec![], received_bytes: 1 };
        Series::new(&SPEC, &trace)
    }

    #[test]
    fn a_step_is_a_quarter_of_the_round_trip_and_the_end_is_not_drained() {
        let sampled = series(&[(0.0, 1), (0.06, 20), (0.12, 50), (0.16, 51), (0.2, 40), (0.9, 0)]);
        assert_eq!(sampled.0, [0.01, 0.01, 0.2, 0.5]);
        assert!(series(&[]).is_empty());
    }

    #[test]
    fn the_end_of_the_object_says_nothing_of_the_sender() {
        // Eight packets, two of which are dropped and sent again; one comes each 50 ms, and the queue never empties.
        let spec = ProbeSpec { object_bytes: 8 * 448, ..SPEC };
        let point = |step: u32| QueuePoint { at_s: f64::from(step) * 0.05, packets: step };
        let trace = QueueTrace {
            queue: (0..10).map(point).collect(),
            drops_s: vec![0.22, 0.27],
            windows: vec![],
            received_bytes: 1,
        };
        // The ninth of nine arrivals and two drops, at 0.35 s: at 0, 50, and so on to 350 ms.
        assert_eq!(Series::new(&spec, &trace).len(), 8);
    }

    #[test]
    fn what_comes_a_little_later_is_near_and_another_level_is_not() {
        let ramp = |delay: f64, level: f64| {
            let points: Vec<_> = (0..100)
                .map(|step| {
                    let at = f64::from(step) * 0.05;
                    (at + 0.001, ((at - delay).max(0.0) * 50.0).min(level) as u32 + step % 2)
                })
                .collect();
            series(&points)
        };
        let (one, later, lower) = (ramp(0.0, 90.0), ramp(0.15, 90.0), ramp(0.0, 40.0));
        assert!(one.distance(&later) < 0.03, "{}", one.distance(&later));
        assert!(one.distance(&lower) > 0.2, "{}", one.distance(&lower));
        assert_eq!(one.distance(&series(&[])), f64::INFINITY);
        assert!((one.distance(&lower) - lower.distance(&one)).abs() < 1e-9, "symmetric");
    }
}
