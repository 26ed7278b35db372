//! Effect size: how much two lists differ, independent of unit and distribution.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::sorted_finite;

/// Magnitude of an effect, by the common thresholds of Romano et al. (2006): |δ| below 0.147, 0.33,
/// 0.474.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Magnitude {
    /// |δ| < 0.147.
    Negligible,
    /// |δ| < 0.33.
    Small,
    /// |δ| < 0.474.
    Medium,
    /// |δ| ≥ 0.474.
    Large,
}

impl fmt::Display for Magnitude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Negligible => "negligible",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        })
    }
}

/// Cliff's delta and its magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The share of pairs in which the first list's value is larger, minus the share in which it is
    /// smaller: 1 when always larger, -1 when always smaller, 0 when balanced.
    pub delta: f64,
    /// Magnitude of `delta`.
    pub magnitude: Magnitude,
}

/// Computes Cliff's delta of the first list against the second; `None` if either has no finite values.
#[must_use]
pub fn cliffs_delta(first: &[f64], second: &[f64]) -> Option<Effect> {
    let (first, second) = (sorted_finite(first), sorted_finite(second));
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let net_wins: f64 = first
        .iter()
        .map(|value| {
            let smaller = second.partition_point(|other| other < value);
            let larger = second.len() - second.partition_point(|other| other <= value);
            smaller as f64 - larger as f64
        })
        .sum();
    let delta = net_wins / (first.len() as f64 * second.len() as f64);
    let magnitude = match delta.abs() {
        size if size < 0.147 => Magnitude::Negligible,
        size if size < 0.33 => Magnitude::Small,
        size if size < 0.474 => Magnitude::Medium,
        _ => Magnitude::Large,
    };
    Some(Effect { delta, magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_counts_wins() {
        let delta = |a: &[f64], b: &[f64]| cliffs_delta(a, b).unwrap().delta;
        assert_eq!(delta(&[3.0, 4.0], &[1.0, 2.0]), 1.0);
        assert_eq!(delta(&[1.0, 2.0], &[3.0, 4.0]), -1.0);
        assert_eq!(delta(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        // Pairs won: 19 beats 17, 12, 11; 22, 24 and 29 beat all four; 16 beats two: U = 17 of 20.
        let delta = delta(&[19.0, 22.0, 16.0, 29.0, 24.0], &[20.0, 11.0, 17.0, 12.0]);
        assert!((delta - (2.0 * 17.0 / 20.0 - 1.0)).abs() < 1e-12);
        assert_eq!(cliffs_delta(&[], &[1.0]), None);
    }

    #[test]
    fn magnitudes_begin_at_their_thresholds() {
        // One value against a thousand: delta follows from the share of values below it.
        let thousand_values: Vec<f64> = (0..1_000).map(f64::from).collect();
        let magnitude_of =
            |below: f64| cliffs_delta(&[below - 0.5], &thousand_values).unwrap().magnitude;
        assert_eq!(magnitude_of(573.0), Magnitude::Negligible); // 0.146
        assert_eq!(magnitude_of(574.0), Magnitude::Small); // 0.148
        assert_eq!(magnitude_of(666.0), Magnitude::Medium); // 0.332
        assert_eq!(magnitude_of(738.0), Magnitude::Large); // 0.476
        assert_eq!(magnitude_of(0.0), Magnitude::Large); // -1
    }
}
