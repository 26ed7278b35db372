//! Campaigns and their trials. Each trial can be run alone, on any machine, in any order.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::fraction::{CELL_AXIS, Cell};
use super::spec::Scenario;

/// A scenario file: all its conditions, and the number of repetitions of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Campaign {
    /// Name of the campaign.
    pub name: String,
    /// Description by the author.
    pub description: String,
    /// Number of runs of each condition.
    pub repetitions: u32,
    /// Base seed from which the seeds of the repetitions are derived.
    pub seed: u64,
    /// Cells of the conditions, if the file lists the combinations to measure.
    pub cells: Vec<Cell>,
    /// Conditions to measure, in the order of the file.
    pub conditions: Vec<Condition>,
}

/// An experimental condition: one variant of each axis, and a cell if there are any.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// Its name.
    pub name: ConditionName,
    /// Scenario of this combination.
    pub scenario: Scenario,
    /// The scenario as written, and the files that it refers to: identical on every machine.
    pub(super) fingerprint: Fingerprint,
}

/// Input of a trial's hash, in addition to its seed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fingerprint {
    /// The scenario before relative paths were resolved.
    pub(super) scenario_json: String,
    /// Digests of the trace files, of the files that commands name, and of recorded pages.
    pub(super) file_digests: String,
}

impl Fingerprint {
    fn hash(&self, seed: u64) -> String {
        let text = format!("[{},{seed}]{}", self.scenario_json, self.file_digests);
        hex(&Sha256::digest(text)[..8])
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names a condition: pairs of axis and level, in the order of the file. A variant is a level on its axis, a cell one on
/// the axis `cell`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConditionName(pub Vec<(String, String)>);

impl ConditionName {
    /// Returns the condition's level on an axis.
    #[must_use]
    pub fn level(&self, axis: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == axis).map(|(_, name)| name.as_str())
    }

    pub(super) fn with_level(&self, axis: &str, name: &str) -> Self {
        let mut names = self.0.clone();
        names.push((axis.to_owned(), name.to_owned()));
        Self(names)
    }
}

impl fmt::Display for ConditionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("all");
        }
        for (index, (axis, name)) in self.0.iter().enumerate() {
            write!(f, "{}{axis}={name}", if index > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

/// Identifies a trial of a campaign.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrialId {
    /// Name of the campaign.
    pub campaign: String,
    /// Name of the condition.
    #[serde(rename = "variant")]
    pub condition: ConditionName,
    /// Number of the repetition, from 1.
    pub repetition: u32,
}

/// Length of a file name's readable part: with ten axes a condition's name has more than a file name may.
const MAX_READABLE_CHARS: usize = 160;
/// Bytes of a digest in a file name.
const DIGEST_BYTES: usize = 6;

impl TrialId {
    /// Returns a name for files of the trial: what it is, for people, and a digest of that, so that no other trial in the same directory has
    /// it.
    pub(crate) fn file_stem(&self) -> String {
        let text = format!("{} {self}", self.campaign);
        let is_kept = |c: char| c.is_ascii_alphanumeric() || c == '=';
        let readable: String = text
            .chars()
            .map(|c| if is_kept(c) { c } else { '-' })
            .take(MAX_READABLE_CHARS)
            .collect();
        let digest = Sha256::digest(text.as_bytes());
        format!("{readable}-{}", hex(&digest[..DIGEST_BYTES]))
    }
}

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.condition, self.repetition)
    }
}

/// Everything that is needed to run one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Identifier of the trial.
    pub id: TrialId,
    /// Seed of everything random in the trial. The same for all conditions of a repetition.
    pub seed: u64,
    /// Scenario to measure.
    pub scenario: Scenario,
    hash: String,
}

impl Trial {
    /// Returns the digest of scenario and seed: results with the same hash are results of the same
    /// trial.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

impl Campaign {
    /// Returns all trials. A repetition of every condition comes before the next repetition: slow
    /// drift of the machine affects all conditions alike, and an interrupted campaign is balanced as
    /// far as it got.
    #[must_use]
    pub fn trials(&self) -> Vec<Trial> {
        let mut trials = Vec::new();
        for repetition in 1..=self.repetitions {
            for condition in &self.conditions {
                let name = condition.name.clone();
                let seed = self.repetition_seed(repetition);
                trials.push(Trial {
                    id: TrialId { campaign: self.name.clone(), condition: name, repetition },
                    seed,
                    scenario: condition.scenario.clone(),
                    hash: condition.fingerprint.hash(seed),
                });
            }
        }
        trials
    }

    fn repetition_seed(&self, repetition: u32) -> u64 {
        let text = format!("{}/{repetition}", self.seed);
        let digest: [u8; 32] = Sha256::digest(text).into();
        // Use 48 bits: JSON readers represent integers exactly only up to 53 bits.
        digest.iter().take(6).fold(0, |seed, &byte| seed << 8 | u64::from(byte))
    }
}

/// One shard of a campaign: number `index` of `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Number of the shard, from 1.
    pub index: u32,
    /// Number of shards.
    pub count: u32,
}

impl Shard {
    /// Parses `2/8`.
    ///
    /// # Errors
    /// A description of the error in the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').map(|(index, of)| (index.parse(), of.parse()));
        match numbers {
            Some((Ok(index), Ok(of))) if 1 <= index && index <= of => Ok(Self { index, count: of }),
            _ => Err("a shard is NUMBER/COUNT, such as 1/8 to 8/8".into()),
        }
    }

    /// Selects the shard's trials. Splits by repetition if there are at least as many as
    /// shards, otherwise by cell if there are any, so that runs to compare were measured on one machine.
    #[must_use]
    pub fn select(self, trials: Vec<Trial>, repetitions: u32) -> Vec<Trial> {
        let splits_by_repetition = repetitions >= self.count;
        let mut cells: Vec<String> = Vec::new();
        let mut number_of = |index: usize, trial: &Trial| {
            if splits_by_repetition {
                return trial.id.repetition as usize - 1;
            }
            let Some(cell) = trial.id.condition.level(CELL_AXIS) else { return index };
            cells.iter().position(|other| other == cell).unwrap_or_else(|| {
                cells.push(cell.to_owned());
                cells.len() - 1
            })
        };
        let numbered = trials.into_iter().enumerate();
        let selected = numbered.filter(|(index, trial)| {
            number_of(*index, trial) % self.count as usize == self.index as usize - 1
        });
        selected.map(|(_, trial)| trial).collect()
    }
}

/// Selects conditions by `axis=name`. Several names of an axis are alternatives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter(Vec<(String, String)>);

impl Filter {
    /// Parses `axis=name` texts against a campaign.
    ///
    /// # Errors
    /// An axis or a name that the campaign does not have.
    pub fn parse(texts: &[String], campaign: &Campaign) -> Result<Self, String> {
        let mut levels = Vec::new();
        for text in texts {
            let Some((axis, name)) = text.split_once('=') else {
                return Err(format!("{text:?} is not AXIS=NAME, such as scheme=NoMig"));
            };
            let mut names: Vec<_> = campaign
                .conditions
                .iter()
                .filter_map(|condition| condition.name.level(axis))
                .collect();
            names.dedup();
            if names.is_empty() {
                let axes = campaign.conditions.first().map(|condition| &condition.name.0);
                let axes: Vec<_> =
                    axes.into_iter().flatten().map(|(axis, _)| axis.as_str()).collect();
                return Err(format!("unknown axis {axis:?}; known: {}", axes.join(", ")));
            }
            if !names.contains(&name) {
                names.sort_unstable();
                names.dedup();
                return Err(format!("unknown {axis} {name:?}; known: {}", names.join(", ")));
            }
            levels.push((axis.to_owned(), name.to_owned()));
        }
        Ok(Self(levels))
    }

    /// Returns whether the filter selects a condition.
    #[must_use]
    pub fn matches(&self, condition: &ConditionName) -> bool {
        self.0.iter().all(|(axis, _)| {
            let mut names = self.0.iter().filter(|(other, _)| other == axis);
            names.any(|(_, name)| condition.level(axis) == Some(name))
        })
    }
}
