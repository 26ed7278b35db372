//! Which program measured, and how busy the machine was: without it a number cannot be judged.
//!
//! Owns the rule that one report is of one build. A reader must name [`Builds::Any`] to get around it, and
//! says so to its own readers.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The program that measures.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Build {
    /// The commit that it was built from, where its build was told.
    pub commit: Option<String>,
    /// SHA-256 of its file.
    pub program: String,
}

impl Build {
    /// The program in this file, built from that commit.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(program: &Path, commit: Option<&str>) -> io::Result<Self> {
        let digest = Sha256::digest(fs::read(program)?);
        let program = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { commit: commit.map(str::to_owned), program })
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.program.get(..12).unwrap_or(&self.program);
        match &self.commit {
            Some(commit) => {
                write!(f, "commit {}, program {program}", commit.get(..12).unwrap_or(commit))
            }
            None => write!(f, "no commit told, program {program}"),
        }
    }
}

/// Where a result comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The program that measured.
    pub build: Build,
    /// The machine's load average over a minute when the run began and when it ended.
    pub load: [f64; 2],
}

/// The load average over the last minute; 0 where the kernel does not tell.
pub(super) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Of which builds results may be that are read together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Builds {
    /// All of one that names its commit.
    #[default]
    One,
    /// Of any, and of none that is known: what is made of them must say so.
    Any,
}

/// Why results cannot be read together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unvouched {
    /// There are results that do not say which program made them.
    #[error(
        "{0} results do not say which build made them (they are older than that record); measure again, \
         or take them as they are with --any-build"
    )]
    Silent(usize),
    /// The program was built without being told its commit.
    #[error(
        "the results are of a program that does not know its commit; `scripts/reproduce` builds one that \
         does, or take them as they are with --any-build"
    )]
    NoCommit,
    /// Several builds.
    #[error(
        "the results are of {} builds: {}; measure with one, or take them as they are with --any-build",
        .0.len(),
        .0.join("; ")
    )]
    Mixed(Vec<String>),
}

impl Builds {
    /// Whether results of these origins may be read together.
    ///
    /// # Errors
    /// [`Unvouched`], under [`Builds::One`] only.
    pub fn check<'a>(
        self,
        origins: impl IntoIterator<Item = Option<&'a Origin>>,
    ) -> Result<(), Unvouched> {
        match self {
            Self::Any => Ok(()),
            Self::One => doubt(origins).map_or(Ok(()), Err),
        }
    }
}

/// What speaks against reading results of these origins together.
#[must_use]
pub fn doubt<'a>(origins: impl IntoIterator<Item = Option<&'a Origin>>) -> Option<Unvouched> {
    let mut builds = BTreeSet::new();
    let mut silent = 0;
    for origin in origins {
        match origin {
            Some(origin) => drop(builds.insert(&origin.build)),
            None => silent += 1,
        }
    }
    if silent > 0 {
        Some(Unvouched::Silent(silent))
    } else if builds.len() > 1 {
        Some(Unvouched::Mixed(builds.iter().map(ToString::to_string).collect()))
    } else if builds.iter().any(|build| build.commit.is_none()) {
        Some(Unvouched::NoCommit)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(commit: Option<&str>, program: &str) -> Origin {
        let build = Build { commit: commit.map(str::to_owned), program: program.into() };
        Origin { build, load: [0.5, 0.7] }
    }

    #[test]
    fn results_of_one_known_build_are_read_together_and_others_are_not() {
        let (a, b) = (origin(Some("c1"), "p1"), origin(Some("c1"), "p2"));
        let nameless = origin(None, "p1");
        let check = |origins: &[Option<&Origin>]| Builds::One.check(origins.iter().copied());
        assert_eq!(check(&[Some(&a), Some(&a)]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[Some(&a), None, None]), Err(Unvouched::Silent(2)));
        assert_eq!(check(&[Some(&nameless)]), Err(Unvouched::NoCommit));
        assert!(
            matches!(check(&[Some(&a), Some(&b)]), Err(Unvouched::Mixed(two)) if two.len() == 2)
        );
        assert_eq!(Builds::Any.check([Some(&a), Some(&b), None]), Ok(()));
    }

    #[test]
    fn a_build_is_its_files_digest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "abc").unwrap();
        let build = Build::of(file.path(), Some("0123456789abcdef")).unwrap();
        // FIPS 180-2, appendix B.1.
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(build.program, digest);
        assert_eq!(build.to_string(), "commit 0123456789ab, program ba7816bf8f01");
    }
}
