//! What a report needs besides results of trials: the survey of test sites, the probes of senders, recorded windows.

use std::io;
use std::path::Path;

use smig_survey::Table;

use super::delay::{Probes, WindowRatio, read_probes, window_ratios};
use super::smig::{TestWebError, read_survey};
use super::study::Study;
use crate::campaign::TrialResult;

/// Everything in a directory of results that is not a result of a trial.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Table 1 of the SMig paper, measured with test sites.
    pub survey: Option<Table>,
    pub(super) probes: Probes,
    pub(super) windows: Vec<WindowRatio>,
}

/// Why a directory's files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The survey of test sites.
    #[error(transparent)]
    Survey(#[from] TestWebError),
    /// Another file; the error names it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Evidence {
    /// Reads what exists in a directory.
    ///
    /// # Errors
    /// A file exists and cannot be read.
    pub fn read(dir: &Path, results: &[TrialResult]) -> Result<Self, EvidenceError> {
        Ok(Self {
            survey: read_survey(dir)?,
            probes: read_probes(dir)?,
            windows: window_ratios(dir, results)?,
        })
    }

    /// Returns the study that this is of, if it is of one.
    #[must_use]
    pub fn study(&self) -> Option<&'static Study> {
        let name = if self.survey.is_some() {
            "smig"
        } else if !self.probes.probes.is_empty() {
            "delay"
        } else {
            return None;
        };
        Study::by_name(name)
    }

    /// Returns whether there is something to report besides results of trials.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.survey.is_none() && self.probes.probes.is_empty() && self.windows.is_empty()
    }
}
