//! Origin of a result: the build that measured it, and the load of the machine.
//!
//! Owns the rule that a report covers one build. A reader must pass [`AcceptedBuilds::Any`] to bypass it,
//! and must state that in its own output.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Build of the measuring program.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Build {
    /// Commit that it was built from, if the build was given one.
    pub commit: Option<String>,
    /// SHA-256 of the program file.
    #[serde(rename = "program")]
    pub program_sha256: String,
}

impl Build {
    /// Describes the program in this file, built from that commit.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(program: &Path, commit: Option<&str>) -> io::Result<Self> {
        let digest = Sha256::digest(fs::read(program)?);
        let program_sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { commit: commit.map(str::to_owned), program_sha256 })
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.program_sha256.get(..12).unwrap_or(&self.program_sha256);
        match &self.commit {
            Some(commit) => {
                write!(f, "commit {}, program {program}", commit.get(..12).unwrap_or(commit))
            }
            None => write!(f, "commit unknown, program {program}"),
        }
    }
}

/// Origin of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Build of the measuring program.
    pub build: Build,
    /// Load average over one minute, at the start and at the end of the run.
    pub load: [f64; 2],
}

/// Returns the load average over the last minute; 0 if the kernel does not report it.
pub(super) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Builds whose results may be read together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AcceptedBuilds {
    /// One build, with a known commit.
    #[default]
    One,
    /// Any builds, known or unknown: output based on them must state that.
    Any,
}

/// Why results must not be read together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildsError {
    /// There are results without a record of their build.
    #[error(
        "{0} results do not record their build (they are of format 1); measure \
         again, or accept them with --any-build"
    )]
    NotRecorded(usize),
    /// The program was built without a commit.
    #[error(
        "the results are of a build without a known commit; build with `scripts/reproduce` \
         or `scripts/matrix`, or accept them with --any-build"
    )]
    NoCommit,
    /// The results are from several builds.
    #[error(
        "the results are of {} builds: {}; measure with one, or accept them with --any-build",
        .0.len(),
        .0.join("; ")
    )]
    Several(Vec<String>),
}

impl AcceptedBuilds {
    /// Checks whether results of these origins may be read together.
    ///
    /// # Errors
    /// [`BuildsError`], only under [`AcceptedBuilds::One`].
    pub fn check<'a>(
        self,
        origins: impl IntoIterator<Item = Option<&'a Origin>>,
    ) -> Result<(), BuildsError> {
        match self {
            Self::Any => Ok(()),
            Self::One => build_inconsistency(origins).map_or(Ok(()), Err),
        }
    }
}

/// Returns why results of these origins must not be read together, if so.
#[must_use]
pub fn build_inconsistency<'a>(
    origins: impl IntoIterator<Item = Option<&'a Origin>>,
) -> Option<BuildsError> {
    let mut builds = BTreeSet::new();
    let mut not_recorded = 0;
    for origin in origins {
        match origin {
            Some(origin) => drop(builds.insert(&origin.build)),
            None => not_recorded += 1,
        }
    }
    if not_recorded > 0 {
        Some(BuildsError::NotRecorded(not_recorded))
    } else if builds.len() > 1 {
        Some(BuildsError::Several(builds.iter().map(ToString::to_string).collect()))
    } else if builds.iter().any(|build| build.commit.is_none()) {
        Some(BuildsError::NoCommit)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(commit: Option<&str>, program: &str) -> Origin {
        let build = Build { commit: commit.map(str::to_owned), program_sha256: program.into() };
        Origin { build, load: [0.5, 0.7] }
    }

    #[test]
    fn results_of_one_known_build_are_read_together_and_others_are_not() {
        let (a, b) = (origin(Some("c1"), "p1"), origin(Some("c1"), "p2"));
        let without_commit = origin(None, "p1");
        let check =
            |origins: &[Option<&Origin>]| AcceptedBuilds::One.check(origins.iter().copied());
        assert_eq!(check(&[Some(&a), Some(&a)]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[Some(&a), None, None]), Err(BuildsError::NotRecorded(2)));
        assert_eq!(check(&[Some(&without_commit)]), Err(BuildsError::NoCommit));
        assert!(
            matches!(check(&[Some(&a), Some(&b)]), Err(BuildsError::Several(two)) if two.len() == 2)
        );
        assert_eq!(AcceptedBuilds::Any.check([Some(&a), Some(&b), None]), Ok(()));
    }

    #[test]
    fn a_build_is_its_files_digest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "abc").unwrap();
        let build = Build::of(file.path(), Some("0123456789abcdef")).unwrap();
        // FIPS 180-2, appendix B.1.
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(build.program_sha256, digest);
        assert_eq!(build.to_string(), "commit 0123456789ab, program ba7816bf8f01");
    }
}
