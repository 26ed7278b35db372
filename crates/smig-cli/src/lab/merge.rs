//! `smig lab merge`: joins the results of several shares or machines.

use std::path::PathBuf;
use std::process::ExitCode;

use super::build::BuildArgs;
use crate::stdout::outln;
use anyhow::{Context as _, Result};
use clap::Args;
use smig_lab::campaign::merge;

/// Join the results of shares
#[derive(Debug, Args)]
#[command(
    long_about = "Join the results of shares, or of several machines, into one folder.\n\nTwo \
        different results of one cell are refused: a cell that was measured twice, or two scenarios of \
        one name. So are results of several builds of smig, or that do not say of which. Nothing is written \
        then.",
    after_help = "\
Examples:
  smig lab merge all share-1 share-2 share-3
  smig lab merge all results/*"
)]
pub(crate) struct MergeArgs {
    /// The folder to write results.jsonl to
    out: PathBuf,
    /// Folders with results, or files of them
    #[arg(required = true, value_name = "RESULTS")]
    from: Vec<PathBuf>,
    /// Say what was done as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    build: BuildArgs,
}

pub(super) fn run(args: &MergeArgs) -> Result<ExitCode> {
    let merged = merge(&args.out, &args.from, args.build.builds())
        .context("the results cannot be joined")?;
    if args.json {
        let summary = serde_json::json!({
            "file": merged.file, "results": merged.results, "repeated": merged.repeated,
        });
        outln!("{summary}");
    } else {
        outln!("{} results in {}", merged.results, merged.file.display());
        if merged.repeated > 0 {
            outln!("{} lines were there more than once, all the same", merged.repeated);
        }
    }
    Ok(ExitCode::SUCCESS)
}
