//! `smig demo --browser`: a page in Chromium beside a download, over its own connection or through an agent.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use smig_chart::terminal::Screen;
use smig_demo::browser::{
    BrowserError, BrowserEvent, BrowserOptions, BrowserResult, Route, check, describe_setup, drive,
    render_html, render_json, render_svg, render_text,
};
use smig_demo::demo::BackgroundLoad;
use smig_testbed::netns::{Privilege, enter_user_namespace};
use tokio_util::sync::CancellationToken;

use super::target::OutputTarget;
use super::{DemoArgs, screen};
use crate::exit::CliError;
use crate::interrupt::{self, INTERRUPTED_STATUS};
use crate::lab::identify_build;
use crate::stderr;

#[derive(Debug, Args)]
#[command(next_help_heading = "Browser")]
pub(super) struct BrowserArgs {
    /// Load a page of 234 images in Chromium while it downloads from the same server, over its one
    /// HTTP/2 connection
    #[arg(long)]
    pub(super) browser: bool,
    /// Load it through smig agent and smig gateway instead, while another program downloads through the
    /// same agent
    #[arg(long, requires = "browser")]
    agent: bool,
    /// Number of page loads alone, and again during the download
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), default_value = "5", requires = "browser")]
    loads: u32,
    /// Path of the browser, if it is not in PATH
    #[arg(long, value_name = "FILE", requires = "browser")]
    chromium: Option<PathBuf>,
    /// Path of the smig to run as web server, gateway and agent [default: this one]
    #[arg(long, value_name = "FILE", requires = "browser")]
    program: Option<PathBuf>,
}

pub(super) fn options(args: &DemoArgs) -> Result<BrowserOptions> {
    let smig = match &args.browser.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("cannot find the path of this program")?,
    };
    let route = if args.browser.agent { Route::Agent } else { Route::Direct };
    let defaults = BrowserOptions::new(&smig, route);
    Ok(BrowserOptions {
        link: args.link(),
        congestion_control: args.congestion_control.clone(),
        variants: args
            .variants(&defaults.variants, |variant| route.has(variant).then_some(variant))?,
        loads_per_background: args.browser.loads,
        browser: args.browser.chromium.clone(),
        ..defaults
    })
}

pub(super) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let options = options(args)?;
    // User namespaces require a single-threaded process.
    let privilege = enter_user_namespace()?;
    crate::logging::start(crate::logging::Level::Errors);
    check(&options)?;
    let output = args.output.as_deref().unwrap_or_else(|| Path::new("./smig-browser.html"));
    let page = OutputTarget::file(output)?;
    let json = args.json.as_deref().map(OutputTarget::file_or_stdout).transpose()?;
    let svg = args.svg.as_deref().map(OutputTarget::file).transpose()?;
    let stop = CancellationToken::default();
    interrupt::cancel_on_interrupt(stop.clone())?;
    let mut screen = screen(json.as_ref());
    let result = match show(&options, privilege, &stop, &mut screen) {
        Err(error) if matches!(error.downcast_ref(), Some(BrowserError::Stopped)) => {
            stderr::print_line("\nStopped; nothing was written.");
            return Ok(ExitCode::from(INTERRUPTED_STATUS));
        }
        other => other?,
    };
    screen.print(&format!("\n{}", render_text(&result)))?;
    write(&result, page, json, svg)?;
    stderr::print_line(&format!("\nThe report: {} (open it in a browser)", output.display()));
    Ok(ExitCode::SUCCESS)
}

fn write(
    result: &BrowserResult,
    page: OutputTarget,
    json: Option<OutputTarget>,
    svg: Option<OutputTarget>,
) -> Result<(), CliError> {
    if let Some(json) = json {
        json.write(&render_json(result))?;
    }
    if let Some(svg) = svg {
        svg.write(&render_svg(result))?;
    }
    page.write(&render_html(result))
}

/// Runs the demonstration and prints a line for each event.
fn show<W: Write>(
    options: &BrowserOptions,
    privilege: Privilege,
    stop: &CancellationToken,
    screen: &mut Screen<W>,
) -> Result<BrowserResult> {
    let build =
        identify_build(&std::env::current_exe().context("cannot find the path of this program")?)?;
    let mut run_number = 0;
    let result = drive(options, build, privilege, stop, &mut |event| {
        let line = match event {
            BrowserEvent::Started(setup) => format!(
                "{}\nEach of {} variants loads it {} times alone and {} times beside the download. \
                 Ctrl-C stops.",
                describe_setup(setup),
                setup.variants.len(),
                setup.loads,
                setup.loads
            ),
            BrowserEvent::RunStarted(variant) => {
                run_number += 1;
                format!("\n{run_number} of {}: {variant}", options.variants.len())
            }
            BrowserEvent::BrowserStarted(_) => return Ok(()),
            BrowserEvent::PageLoaded(BackgroundLoad::Unloaded, ms) => {
                format!("  alone                {:.2} s", ms / 1e3)
            }
            BrowserEvent::PageLoaded(BackgroundLoad::BigFile, ms) => {
                format!("  beside the download  {:.2} s", ms / 1e3)
            }
            BrowserEvent::DownloadStarted => "  the download begins".to_owned(),
            BrowserEvent::RunFinished(run) => {
                let rate = run.download_mbit_per_s.unwrap_or_default();
                let migrations = match run.migrations.unwrap_or_default() {
                    0 => String::new(),
                    1 => "; 1 migration".to_owned(),
                    migrations => format!("; {migrations} migrations"),
                };
                format!("  the download got     {rate:.1} Mbit/s{migrations}")
            }
        };
        screen.print(&line)
    })?;
    Ok(result)
}
