//! Which program this is, for the record of what it measures.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Args;
use smig_lab::campaign::{Build, Builds};

/// Told by `scripts/reproduce`, which builds what is committed and nothing else. Cargo knows no commit, and
/// one that was asked for now need not be that of a program that was built before.
const COMMIT: Option<&str> = option_env!("SMIG_COMMIT");

/// Whose results are taken.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct BuildArgs {
    /// Take also results that do not say which build made them, or of several builds
    #[arg(long)]
    any_build: bool,
}

impl BuildArgs {
    pub(super) const fn builds(self) -> Builds {
        if self.any_build { Builds::Any } else { Builds::One }
    }
}

/// The program in this file, which is this one.
pub(super) fn build(smig: &Path) -> Result<Build> {
    let commit = COMMIT.filter(|commit| !commit.is_empty());
    Build::of(smig, commit).with_context(|| format!("cannot read {}", smig.display()))
}
