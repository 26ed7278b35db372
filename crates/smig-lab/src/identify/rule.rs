//! Igor's rule.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::trace::QueueTrace;

/// Which of Igor's two rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// As published: a loss within two seconds; objects below 50 KB are too small.
    Paper,
    /// As its program decides: a loss within two and a half seconds; without a loss, objects below 100 KB are too small.
    Program,
}

/// What a sender goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// It sends more until packets are lost.
    LossBased,
    /// It stops before, since delays grow.
    DelayBased,
    /// The object ends before it shows.
    TooSmall,
}

impl Rule {
    /// Judges a probe.
    #[must_use]
    pub fn judge(self, trace: &QueueTrace, object_bytes: u64) -> Family {
        let (limit_s, min_bytes) = match self {
            Self::Paper => (2.0, 50_000),
            Self::Program => (2.5, 100_000),
        };
        let first_drop = trace.first_drop_s();
        let is_too_small =
            object_bytes < min_bytes && (self == Self::Paper || first_drop.is_none());
        if is_too_small {
            Family::TooSmall
        } else if first_drop.is_some_and(|at_s| at_s < limit_s) {
            Family::LossBased
        } else {
            Family::DelayBased
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LossBased => "loss-based",
            Self::DelayBased => "delay-based",
            Self::TooSmall => "too small",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(rule: Rule, first_drop_s: Option<f64>, bytes: u64) -> Family {
        let drops_s = first_drop_s.into_iter().collect();
        let trace = QueueTrace { queue: vec![], drops_s, windows: vec![], received_bytes: bytes };
        rule.judge(&trace, bytes)
    }

    #[test]
    fn a_loss_counts_within_two_seconds_or_two_and_a_half() {
        for (drop, paper, program) in [
            (Some(1.9), Family::LossBased, Family::LossBased),
            (Some(2.0), Family::DelayBased, Family::LossBased),
            (Some(2.5), Family::DelayBased, Family::DelayBased),
            (None, Family::DelayBased, Family::DelayBased),
        ] {
            assert_eq!(judge(Rule::Paper, drop, 320_000), paper, "{drop:?}");
            assert_eq!(judge(Rule::Program, drop, 320_000), program, "{drop:?}");
        }
    }

    #[test]
    fn small_objects_are_too_small() {
        assert_eq!(judge(Rule::Paper, Some(1.0), 49_999), Family::TooSmall);
        assert_eq!(judge(Rule::Paper, None, 50_000), Family::DelayBased);
        assert_eq!(judge(Rule::Program, Some(1.0), 49_999), Family::LossBased);
        assert_eq!(judge(Rule::Program, None, 99_999), Family::TooSmall);
    }
}
