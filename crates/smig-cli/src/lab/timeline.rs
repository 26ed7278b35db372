//! `smig lab timeline`: draws a sampled run.
//!
//! Owns the command line and the output files. smig-lab draws.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use smig_lab::timeline::chart::{View, render_html, render_side_by_side, render_svg};
use smig_lab::timeline::{ReadError, Timeline};
use smig_settings::value::parse_time;

use crate::exit::{CliError, Exit};
use crate::stderr;
use crate::stdout::out;

/// Plot the samples of a run on one time axis: requests, link queue, congestion windows, migrations
#[derive(Debug, Args)]
#[command(
    long_about = "Plot the samples of a run.\n\nOne chart on one time axis: each request as a bar in \
        the colour of the connection that carries it, what arrives over each connection, the queue \
        of the link with every drop, the unacknowledged and unsent data of each connection, its \
        congestion window and round-trip times, and lines where SMig migrated a stream. `smig lab run` writes a \
        timeline for each run if the scenario enables it.",
    after_help = "\
Examples:
  smig lab timeline run.timeline.jsonl                      run.timeline.html, with close-ups
  smig lab timeline run.timeline.jsonl --svg picture.svg    only the chart
  smig lab timeline run.timeline.jsonl --svg - --from 1.2s --to 1.6s > moment.svg
  smig lab timeline NoMig.timeline.jsonl SMig.timeline.jsonl --svg both.svg"
)]
pub(crate) struct TimelineArgs {
    /// The timeline, JSON lines; several are plotted side by side, with --svg
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write the chart as a standalone SVG file; - is standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a page with the chart, a close-up of each migration, and a table; - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Start of the SVG file's time axis
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<Duration>,
    /// End of the SVG file's time axis
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<Duration>,
    /// Width of the SVG file in pixels
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u16).range(300..=4000), default_value = "1000")]
    width: u16,
}

pub(crate) fn run(args: &TimelineArgs) -> Result<ExitCode> {
    let timelines = args.files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    match (timelines.as_slice(), args.files.as_slice()) {
        ([timeline], [file]) => draw_one(args, timeline, file)?,
        _ => draw_side_by_side(args, &timelines)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn draw_one(args: &TimelineArgs, timeline: &Timeline, file: &Path) -> Result<(), CliError> {
    let view = select_view(args, timeline)?;
    let mut html = args.html.clone();
    if html.is_none() && args.svg.is_none() {
        html = Some(file.with_extension("html"));
    }
    if let Some(path) = &args.svg {
        write(path, &render_svg(timeline, &view))?;
    }
    if let Some(path) = &html {
        write(path, &render_html(timeline))?;
    }
    Ok(())
}

fn draw_side_by_side(args: &TimelineArgs, timelines: &[Timeline]) -> Result<(), CliError> {
    let Some(path) = args.svg.as_deref().filter(|_| args.html.is_none()) else {
        let text = "several timelines make one chart; write it with --svg FILE, without --html";
        return Err(CliError::new(Exit::Usage, text));
    };
    if args.from.or(args.to).is_some() {
        let text = "--from and --to take one timeline only; several are plotted in full";
        return Err(CliError::new(Exit::Usage, text));
    }
    let all: Vec<&Timeline> = timelines.iter().collect();
    write(path, &render_side_by_side(&all, args.width.into()))
}

fn read(path: &Path) -> Result<Timeline, CliError> {
    let display_path = path.display();
    let file = File::open(path).map_err(|error| {
        CliError::new(Exit::Read, format!("cannot read {display_path}: {error}"))
    })?;
    Timeline::read_from(&mut BufReader::new(file)).map_err(|error| {
        let text = match error {
            ReadError::Io(cause) => format!("cannot read {display_path}: {cause}"),
            other => format!("{display_path}: {other}"),
        };
        CliError::new(Exit::Read, text)
    })
}

fn select_view(args: &TimelineArgs, timeline: &Timeline) -> Result<View, CliError> {
    let full_view = View::of_timeline(timeline, args.width.into());
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let from_us = args.from.map_or(full_view.from_us, micros);
    let to_us = args.to.map_or(full_view.to_us, micros);
    if from_us >= to_us || from_us >= full_view.to_us {
        let end = timeline.end_us() as f64 / 1e6;
        let text = format!("--from and --to select nothing; the timeline is 0s to {end:.3}s");
        return Err(CliError::new(Exit::Usage, text));
    }
    Ok(View { from_us, to_us, ..full_view })
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    if path == Path::new("-") {
        out!("{text}");
        return Ok(());
    }
    fs::write(path, text).map_err(|error| {
        let text = format!("cannot write {}: {error}; does its directory exist?", path.display());
        CliError::new(Exit::Write, text)
    })?;
    stderr::print_line(&path.display().to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestCli {
        #[command(flatten)]
        args: TimelineArgs,
    }

    const HEAD: &str = r#"{"head":{"version":1,"title":"t","origin_ns":0}}"#;
    const MARK: &str = r#"{"mark":{"at_us":2000000,"kind":"join","host":"server"}}"#;

    fn run_on(content: &str, flags: &[&str]) -> (tempfile::TempDir, Result<ExitCode>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.timeline.jsonl");
        fs::write(&file, content).unwrap();
        let file_name = file.to_str().unwrap();
        let cli = TestCli::try_parse_from(["timeline", file_name].iter().chain(flags)).unwrap();
        let result = run(&cli.args);
        (dir, result)
    }

    #[test]
    fn without_flags_there_is_a_page_beside_the_file() {
        let (dir, result) = run_on(&format!("{HEAD}\n{MARK}\n"), &[]);
        result.unwrap();
        let page = fs::read_to_string(dir.path().join("a.timeline.html")).unwrap();
        assert!(page.contains("JOIN"), "{page}");
    }

    #[test]
    fn invalid_input_is_reported() {
        for (content, flags, expected) in [
            ("{}", &[][..], "a.timeline.jsonl: line 1"),
            ("", &[], "empty"),
            (&format!("{HEAD}\n{MARK}\n"), &["--from", "3s"], "0s to 2.000s"),
            (&format!("{HEAD}\n{MARK}\n"), &["--from", "2s", "--to", "1s"], "--from and --to"),
            (&format!("{HEAD}\n"), &["--svg", "no/such/folder/x.svg"], "directory exist"),
        ] {
            let (_dir, result) = run_on(content, flags);
            let error = format!("{:#}", result.unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn several_timelines_make_one_chart() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (first_file, second_file, svg_file) =
            (path("one.jsonl"), path("other.jsonl"), path("both.svg"));
        for file in [&first_file, &second_file] {
            fs::write(file, format!("{HEAD}\n{MARK}\n")).unwrap();
        }
        let run_with = |flags: &[&str]| {
            let all =
                ["timeline", &first_file, &second_file].into_iter().chain(flags.iter().copied());
            run(&TestCli::try_parse_from(all).unwrap().args)
        };
        run_with(&["--svg", &svg_file]).unwrap();
        assert_eq!(fs::read_to_string(&svg_file).unwrap().matches(">JOIN</text>").count(), 2);
        assert!(run_with(&[]).unwrap_err().to_string().contains("--svg"));
        let error = run_with(&["--svg", &svg_file, "--from", "1s"]).unwrap_err().to_string();
        assert!(error.contains("one timeline"), "{error}");
    }
}
