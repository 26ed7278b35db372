//! `smig lab profiles`: lists the named links.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use smig_link::Profile;

use super::check;
use crate::paint;
use crate::stdout::{out, outln};

/// List the named link profiles
#[derive(Debug, Args)]
#[command(
    long_about = "List the named link profiles, or print one as TOML to start a link of your own.\n\n\
        A scenario has either `link = \"paper-wired\"` or a [link] table in the format printed here.",
    after_help = "\
Examples:
  smig lab profiles
  smig lab profiles lte-like > my-link.toml"
)]
pub(crate) struct ProfilesArgs {
    /// Print this profile as TOML
    #[arg(value_name = "PROFILE")]
    profile: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ProfilesArgs) -> Result<ExitCode> {
    match &args.profile {
        Some(name) => {
            let spec = check::resolve_link(name)?;
            let text = if args.json {
                serde_json::to_string_pretty(&spec)? + "\n"
            } else {
                toml::to_string(&spec).context("a link is a table")?
            };
            out!("{text}");
        }
        None if args.json => {
            let profiles: Vec<_> = Profile::all()
                .iter()
                .map(|Profile { name, about, spec }| {
                    serde_json::json!({ "name": name, "about": about, "link": spec })
                })
                .collect();
            outln!("{}", serde_json::to_string_pretty(&profiles)?);
        }
        None => {
            for Profile { name, about, spec } in Profile::all() {
                outln!("{}  {spec}", paint::STDOUT.bold(&format!("{name:<22}")));
                outln!("{:<22}  {}", "", paint::STDOUT.dim(about));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
