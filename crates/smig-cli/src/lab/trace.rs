//! `smig lab trace`: generates, converts and describes Mahimahi's trace files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use smig_link::{LteSpec, OPPORTUNITY_BYTES, Rate, RateStep, RateSteps, Trace};

use crate::exit::{CliError, Exit};
use crate::stdout::{self, out};

/// Generate, convert and describe trace files of variable-rate links
#[derive(Debug, Args)]
#[command(
    long_about = "Generate, convert and describe trace files of variable-rate links.\n\nThe format is \
        Mahimahi's: one line for each 1,500 bytes that the link can carry, with the millisecond at which \
        it can; after the last line the trace repeats. A scenario uses a file as rate = { trace = \
        \"FILE\" }.",
    after_help = "\
Examples:
  smig lab trace lte --seed 7 --seconds 60 > lte-7.trace
  smig lab trace constant \"12 Mbit/s\" --seconds 10 -o steady.trace
  smig lab trace from-rates measured.csv -o measured.trace     (lines: seconds,Mbit/s)
  smig lab trace to-rates measured.trace --interval-ms 100
  smig lab trace show measured.trace"
)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Generate a rate that varies as on a mobile link; the same seed gives the same trace
    Lte {
        /// Seed of the random number generator
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// Length of the trace in seconds, after which it repeats
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: u32,
        /// Mean rate
        #[arg(long, value_name = "RATE", default_value = "12 Mbit/s")]
        mean: Rate,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Generate a constant rate
    Constant {
        /// The rate, such as "12 Mbit/s"
        rate: Rate,
        /// Length of the trace in seconds, after which it repeats
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: u32,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Convert from rates over time: lines of seconds and Mbit/s
    FromRates {
        /// File with lines such as "0.5,12.4"; each rate holds until the next line, the first is at 0, and
        /// the last holds as long as the one before it
        file: PathBuf,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Convert to rates over time: lines of seconds and Mbit/s
    ToRates {
        /// The trace
        file: PathBuf,
        /// Milliseconds that each line covers
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
        interval_ms: u32,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Describe a trace: its length, its mean rate, and how much it varies
    Show {
        /// The trace
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct OutputArgs {
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl OutputArgs {
    fn write(&self, text: &str) -> Result<()> {
        match &self.output {
            Some(path) => {
                fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
            }
            None => Ok(stdout::write(format_args!("{text}"))?),
        }
    }
}

pub(super) fn run(args: &TraceArgs) -> Result<ExitCode> {
    match &args.command {
        TraceCommand::Lte { seed, seconds, mean, output } => {
            let lte = LteSpec { seed: Some(*seed), period_s: *seconds, mean: *mean };
            output.write(&lte.generate(*seed).to_string())?;
        }
        TraceCommand::Constant { rate, seconds, output } => {
            let length = Duration::from_secs(u64::from(*seconds));
            output.write(&Trace::constant(*rate, length).to_string())?;
        }
        TraceCommand::FromRates { file, output } => {
            let (steps, length) = parse_rates(&read_text(file)?)
                .map_err(|fault| usage_error(&format!("{}: {fault}", file.display())))?;
            let trace = Trace::from_steps(&steps, length)
                .map_err(|error| usage_error(&format!("{}: {error}", file.display())))?;
            output.write(&trace.to_string())?;
        }
        TraceCommand::ToRates { file, interval_ms, output } => {
            let interval = Duration::from_millis(u64::from(*interval_ms));
            output.write(&format_rates(&read_trace(file)?, interval))?;
        }
        TraceCommand::Show { file } => out!("{}", describe(&read_trace(file)?)),
    }
    Ok(ExitCode::SUCCESS)
}

fn usage_error(text: &str) -> CliError {
    CliError::new(Exit::Usage, text)
}

fn read_text(file: &Path) -> Result<String, CliError> {
    fs::read_to_string(file).map_err(|error| usage_error(&format!("{}: {error}", file.display())))
}

fn read_trace(file: &Path) -> Result<Trace, CliError> {
    let trace = read_text(file)?.parse();
    trace
        .map_err(|error| usage_error(&format!("{}: not a Mahimahi trace: {error}", file.display())))
}

fn parse_rates(text: &str) -> Result<(RateSteps, Duration), String> {
    let mut steps: Vec<RateStep> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        // The first line may hold column names.
        let is_heading = steps.is_empty() && line.starts_with(|c: char| c.is_ascii_alphabetic());
        if line.is_empty() || is_heading {
            continue;
        }
        let invalid =
            || format!("line {number}: {line:?}: expected seconds,Mbit/s, such as 0.5,12.4");
        let mut fields = line.split([',', ';', ' ', '\t']).filter(|field| !field.is_empty());
        let mut field = || fields.next().and_then(|field| field.parse::<f64>().ok());
        let (at, mbit) = (field().ok_or_else(invalid)?, field().ok_or_else(invalid)?);
        let at = Duration::try_from_secs_f64(at).map_err(|_| invalid())?;
        if !(0.0..=1e6).contains(&mbit) {
            return Err(invalid());
        }
        steps.push(RateStep { at, rate: Rate::bits_per_second((mbit * 1e6) as u64) });
    }
    let last_at = steps.last().ok_or("the file has no rates")?.at;
    let before_last = steps.iter().rev().nth(1).map_or(Duration::ZERO, |step| step.at);
    let last_interval = last_at.checked_sub(before_last).filter(|held| !held.is_zero());
    let length = last_at + last_interval.unwrap_or(Duration::from_secs(1));
    Ok((RateSteps { steps, period: None }, length))
}

fn format_rates(trace: &Trace, interval: Duration) -> String {
    let line = |(round, rate): (u32, Rate)| {
        // Rates are at least 1 bit/s, which stands for 0 here.
        let mbit = if rate.as_bits_per_second() > 1 { rate.as_mbit() } else { 0.0 };
        format!("{},{mbit}\n", (interval * round).as_secs_f64())
    };
    (0..).zip(trace.rates(interval)).map(line).collect()
}

fn describe(trace: &Trace) -> String {
    let mut rates_mbit: Vec<_> =
        trace.rates(Duration::from_secs(1)).into_iter().map(Rate::as_mbit).collect();
    rates_mbit.sort_by(f64::total_cmp);
    let longest_gap_ms =
        trace.times_ms().windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let mut text = format!(
        "{} delivery opportunities of {OPPORTUNITY_BYTES} bytes in {} s\nmean rate {}\nlongest gap {longest_gap_ms} ms\n",
        trace.times_ms().len(),
        trace.length().as_secs_f64(),
        trace.mean(),
    );
    if let (Some(lowest), Some(most)) = (rates_mbit.first(), rates_mbit.last()) {
        let median = rates_mbit[rates_mbit.len() / 2];
        text += &format!("per second {lowest} to {most} Mbit/s, median {median}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_survive_the_conversion_to_a_trace() {
        let text = "seconds,Mbit/s\n0,12\n1, 3\n\n2\t24\n";
        let (steps, length) = parse_rates(text).unwrap();
        assert_eq!(length, Duration::from_secs(3));
        let trace = Trace::from_steps(&steps, length).unwrap();
        assert_eq!(format_rates(&trace, Duration::from_secs(1)), "0,12\n1,3\n2,24\n");
        let description = describe(&trace);
        assert!(
            description.contains("in 3 s") && description.contains("3 to 24 Mbit/s"),
            "{description}"
        );
    }

    #[test]
    fn an_invalid_line_is_reported() {
        for wrong in ["0,12\nx,3\n", "0,12\n1\n", "0,12\n1,-3\n"] {
            let fault = parse_rates(wrong).unwrap_err();
            assert!(fault.starts_with("line 2"), "{wrong:?}: {fault}");
        }
        assert!(parse_rates("").is_err());
    }
}
