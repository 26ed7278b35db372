//! Identity of this program, recorded with its measurements.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Args;
use smig_lab::trial::{AcceptedBuilds, Build};

/// Set by `scripts/reproduce` and `scripts/matrix`, which build committed code only. Cargo does not provide the commit,
/// and the working directory's commit at run time may differ from the program's.
const COMMIT: Option<&str> = option_env!("SMIG_COMMIT");

/// Builds whose results are accepted.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct BuildArgs {
    /// Accept results without a recorded build, or of several builds
    #[arg(long)]
    any_build: bool,
}

impl BuildArgs {
    pub(super) const fn accepted_builds(self) -> AcceptedBuilds {
        if self.any_build { AcceptedBuilds::Any } else { AcceptedBuilds::One }
    }
}

/// Returns the build of the program file `smig`, which is the running program.
pub(crate) fn identify_build(smig: &Path) -> Result<Build> {
    let commit = COMMIT.filter(|commit| !commit.is_empty());
    Build::of(smig, commit).with_context(|| format!("cannot read {}", smig.display()))
}
