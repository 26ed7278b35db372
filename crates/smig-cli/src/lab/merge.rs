//! `smig lab merge`: joins the results of several shards or machines.

use std::path::PathBuf;
use std::process::ExitCode;

use super::build::BuildArgs;
use crate::stdout::outln;
use anyhow::{Context as _, Result};
use clap::Args;
use smig_lab::campaign::merge;

/// Merge the results of shards
#[derive(Debug, Args)]
#[command(
    long_about = "Merge the results of shards, or of several machines, into one directory.\n\nTwo \
        different results of a run are refused: it was measured twice, or two scenarios have \
        the same name. So are results of several builds of smig, or without a recorded build. Nothing \
        is written then.",
    after_help = "\
Examples:
  smig lab merge all shard-1 shard-2 shard-3
  smig lab merge all results/*"
)]
pub(crate) struct MergeArgs {
    /// Directory to write results.jsonl to
    out: PathBuf,
    /// Directories with results, or results files
    #[arg(required = true, value_name = "RESULTS")]
    from: Vec<PathBuf>,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    build: BuildArgs,
}

pub(super) fn run(args: &MergeArgs) -> Result<ExitCode> {
    let merge_result = merge(&args.out, &args.from, args.build.accepted_builds())
        .context("cannot merge the results")?;
    if args.json {
        let summary = serde_json::json!({
            "file": merge_result.file, "results": merge_result.results, "repeated": merge_result.duplicates,
        });
        outln!("{summary}");
    } else {
        outln!("{} results in {}", merge_result.results, merge_result.file.display());
        if merge_result.duplicates > 0 {
            outln!("{} duplicate results skipped", merge_result.duplicates);
        }
    }
    Ok(ExitCode::SUCCESS)
}
