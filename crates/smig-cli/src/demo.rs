//! `smig demo`: small objects beside a large download, over plain HTTP/2 and with stream migration.
//!
//! Owns the command line and the output files. smig-demo does the transfers and the drawing.

mod browser;
mod target;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use smig_chart::terminal::{OutputMode, Screen};
use smig_demo::browser::BrowserVariant;
use smig_demo::demo::{
    DemoError, DemoOptions, DemoResult, LiveView, Variant, check, drive, render_html, render_json,
    render_svg,
};
use smig_lab::trial::Programs;
use smig_link::{LinkSpec, Profile, QueueLimit, Rate};
use smig_settings::value::{parse_size, parse_time};
use smig_testbed::netns::{Privilege, enter_user_namespace};
use tokio_util::sync::CancellationToken;

use crate::exit::{CliError, Exit};
use crate::interrupt::{self, INTERRUPTED_STATUS};
use crate::lab::identify_build;
use crate::stderr;
use target::OutputTarget;

/// Show how a big download delays small ones, and what migrating it changes
#[derive(Debug, Args)]
#[command(
    long_about = "Show how a big download delays small ones, and what migrating it changes.\n\n\
        Creates two hosts on this machine (network namespaces) with an emulated slow link between \
        them. Over this link, a client requests a small object repeatedly, first alone, then during \
        the download of a big file: over plain HTTP/2; with TCP_NOTSENT_LOWAT, which limits unsent \
        data in the kernel; with smig serve and any HTTP/2 client, where the server sends the big file at \
        the rate of the path; and with SMig at both ends, where it also migrates to another connection. \
        Server, client, TCP and TLS are real; only the link is emulated.\n\n\
        All series are shown while they run; at the end there is a table, and a web page with \
        the chart. Nothing else is left on the machine. The demo needs Linux, and root or user \
        namespaces.\n\n\
        With --browser, the small objects are the 234 images of a page, which Chromium loads while it \
        downloads a big file from the same server, over its one HTTP/2 connection: from smig serve with \
        everything off, with TCP_NOTSENT_LOWAT, as it is by default, and from smig gateway. The \
        browser does not support SMig. With --browser --agent, page and download go through smig agent and \
        smig gateway instead. The web page then shows the browser's screen at the same moments of each \
        variant.",
    after_help = "\
Examples:
  smig demo                                  the chart of the README, in two minutes
  smig demo --big-file 5MB                   a quick look
  smig demo --rate 50mbit --rtt 20ms --big-file 150MB
  smig demo --variants plain,smig --bulk-congestion-control bbr
  smig demo --browser --link ftth            a page and a download in Chromium, from one server
  smig demo --browser --agent                through agent and gateway
  smig demo --json - --output /dev/null | jq '.summary[] | {variant, median_ms, big_file_s}'"
)]
pub(crate) struct DemoArgs {
    /// Write the web page to this file [default: ./smig-demo.html, with --browser ./smig-browser.html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write all measurements to this file, as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write the chart to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Variants to compare, in this order: plain, lowat (TCP_NOTSENT_LOWAT), serve (smig serve, any
    /// client), smig (both ends) [default: all]; with --browser plain, lowat, serve, gateway (smig
    /// gateway), nginx [default: plain,lowat,serve,gateway]; with --browser --agent plain, lowat, smig
    /// [default: plain,smig]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_variant)]
    variants: Option<Vec<BrowserVariant>>,

    /// Use a named link profile instead, such as 3g, wifi, ftth (smig lab profiles lists them)
    #[arg(long, value_name = "PROFILE", value_parser = parse_profile, conflicts_with_all = ["rate", "rtt", "queue"], help_heading = "Link")]
    link: Option<LinkSpec>,
    /// Rate of the link in bits per second, or with a unit: kbit, mbit, gbit
    #[arg(long, value_parser = parse_rate, default_value = "10mbit", help_heading = "Link")]
    rate: Rate,
    /// Round-trip time of the idle link
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "50ms", help_heading = "Link")]
    rtt: Duration,
    /// Queue length of the link in packets, for each direction; further packets are dropped
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=100_000), default_value = "75", help_heading = "Link")]
    queue: u32,

    /// Size of the big file
    #[arg(long, value_name = "SIZE", value_parser = parse_file_size, default_value = "30MB", conflicts_with = "browser", help_heading = "Transfers")]
    big_file: u64,
    /// Size of a small object
    #[arg(long, value_name = "SIZE", value_parser = parse_file_size, default_value = "10kB", conflicts_with = "browser", help_heading = "Transfers")]
    object: u64,
    /// Time from one small object's request to the next, whether or not it is complete
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "500ms", conflicts_with = "browser", help_heading = "Transfers")]
    interval: Duration,

    /// TCP congestion control algorithm at both ends
    #[arg(long, value_name = "NAME", default_value = "cubic", help_heading = "Servers")]
    congestion_control: String,
    /// The algorithm for connections with migrated streams; "same" is --congestion-control's
    #[arg(
        long,
        value_name = "NAME",
        default_value = "same",
        conflicts_with = "browser",
        help_heading = "Servers"
    )]
    bulk_congestion_control: String,
    /// How long the server may hold back the big file for one small object, in the variants serve and smig; 0: not at all
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "25ms", conflicts_with = "browser", help_heading = "Servers")]
    max_bulk_deferral: Duration,

    #[command(flatten)]
    browser: browser::BrowserArgs,
}

impl DemoArgs {
    fn link(&self) -> LinkSpec {
        let queue = QueueLimit::packets(self.queue as usize);
        self.link.clone().unwrap_or_else(|| LinkSpec::symmetric(self.rate, self.rtt, queue))
    }

    /// Returns the variants to compare: `--variants` or the default. `in_mode` returns a variant of the
    /// mode, or `None` if the mode does not have it. Fails if a variant is named twice.
    fn variants<V: Copy + PartialEq>(
        &self,
        default: &[V],
        in_mode: impl Fn(BrowserVariant) -> Option<V>,
    ) -> Result<Vec<V>, CliError> {
        let Some(names) = &self.variants else { return Ok(default.to_vec()) };
        let usage_error = |text: String| CliError::new(Exit::Usage, format!("--variants: {text}"));
        let mut variants = Vec::new();
        for &name in names {
            let variant = in_mode(name).ok_or_else(|| {
                let here = VARIANTS.iter().filter(|(_, variant)| in_mode(*variant).is_some());
                let words: Vec<_> = here.map(|(word, _)| *word).collect();
                usage_error(format!("{name} is not compared here; expected {}", words.join(", ")))
            })?;
            if variants.contains(&variant) {
                return Err(usage_error(format!("{name} is given twice; name each once")));
            }
            variants.push(variant);
        }
        Ok(variants)
    }

    fn options(&self) -> Result<DemoOptions, CliError> {
        let bulk_congestion_control = match self.bulk_congestion_control.as_str() {
            "same" => None,
            name => Some(name.to_owned()),
        };
        Ok(DemoOptions {
            link: self.link(),
            congestion_control: self.congestion_control.clone(),
            bulk_congestion_control,
            max_bulk_deferral: self.max_bulk_deferral,
            object_bytes: self.object,
            object_interval: self.interval,
            big_file_bytes: self.big_file,
            variants: self.variants(&Variant::ALL, without_browser)?,
            ..DemoOptions::default()
        })
    }
}

pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    if args.browser.browser {
        return browser::run(args);
    }
    let options = args.options()?;
    // User namespaces require a single-threaded process.
    let privilege = enter_user_namespace()?;
    crate::logging::start(crate::logging::Level::Errors);
    check(&options)?;
    let output = args.output.as_deref().unwrap_or_else(|| Path::new("./smig-demo.html"));
    let page = OutputTarget::file(output)?;
    let json = args.json.as_deref().map(OutputTarget::file_or_stdout).transpose()?;
    let svg = args.svg.as_deref().map(OutputTarget::file).transpose()?;
    let stop = CancellationToken::default();
    interrupt::cancel_on_interrupt(stop.clone())?;
    let result = match show(&options, privilege, &stop, json.as_ref()) {
        Err(error) if matches!(error.downcast_ref(), Some(DemoError::Stopped)) => {
            stderr::print_line("\nStopped; nothing was written.");
            return Ok(ExitCode::from(INTERRUPTED_STATUS));
        }
        other => other?,
    };
    if let Some(json) = json {
        json.write(&render_json(&result))?;
    }
    if let Some(svg) = svg {
        svg.write(&render_svg(&result))?;
    }
    page.write(&render_html(&result))?;
    stderr::print_line(&format!("\nThe chart: {} (open it in a browser)", output.display()));
    Ok(ExitCode::SUCCESS)
}

/// Runs the demonstration and draws it on standard output, or on standard error if the JSON goes to stdout.
fn show(
    options: &DemoOptions,
    privilege: Privilege,
    stop: &CancellationToken,
    json: Option<&OutputTarget>,
) -> Result<DemoResult> {
    const VERSION: &str = concat!("smig ", env!("CARGO_PKG_VERSION"));
    let smig = std::env::current_exe().context("cannot find the path of this program")?;
    let programs = Programs::only_smig(smig.clone(), identify_build(&smig)?, VERSION);
    let mut view = LiveView::new(options.setup(VERSION), screen(json))?;
    drive(options, programs, privilege, stop, &mut |event| view.apply(event))?;
    Ok(view.finish()?)
}

/// Returns the screen: standard output, or standard error if the JSON goes to standard output.
fn screen(json: Option<&OutputTarget>) -> Screen<Box<dyn Write>> {
    match json {
        Some(OutputTarget::Stdout) => {
            Screen::new(Box::new(io::stderr()), OutputMode::detect(&io::stderr()))
        }
        _ => Screen::new(Box::new(io::stdout()), OutputMode::detect(&io::stdout())),
    }
}

fn parse_profile(name: &str) -> Result<LinkSpec, String> {
    let profile = Profile::by_name(name);
    let unknown = || "unknown profile; smig lab profiles lists them".to_owned();
    profile.map(|profile| profile.spec).ok_or_else(unknown)
}

/// The variants of all modes, with their names on the command line.
const VARIANTS: [(&str, BrowserVariant); 6] = [
    ("plain", BrowserVariant::PlainHttp2),
    ("lowat", BrowserVariant::NotsentLowat),
    ("smig", BrowserVariant::Smig),
    ("serve", BrowserVariant::Serve),
    ("gateway", BrowserVariant::Gateway),
    ("nginx", BrowserVariant::Nginx),
];

fn parse_variant(text: &str) -> Result<BrowserVariant, String> {
    let found = VARIANTS.iter().find(|(word, _)| *word == text.trim());
    found.map(|(_, variant)| *variant).ok_or_else(|| {
        let words: Vec<_> = VARIANTS.iter().map(|(word, _)| *word).collect();
        format!("expected some of {}", words.join(", "))
    })
}

/// Returns the variant without a browser.
const fn without_browser(variant: BrowserVariant) -> Option<Variant> {
    match variant {
        BrowserVariant::PlainHttp2 => Some(Variant::PlainHttp2),
        BrowserVariant::NotsentLowat => Some(Variant::NotsentLowat),
        BrowserVariant::Smig => Some(Variant::Smig),
        BrowserVariant::Serve => Some(Variant::Serve),
        BrowserVariant::Gateway | BrowserVariant::Nginx => None,
    }
}

/// Parses a rate in bits per second: `10000000`, `10mbit`, `2.5 Mbit/s`.
fn parse_rate(text: &str) -> Result<Rate, String> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = match unit.strip_suffix("/s").unwrap_or(&unit) {
        "" | "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err("expected a rate in bits per second, such as 800kbit or 10mbit".into()),
    };
    let number: f64 =
        number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    let bits = number * factor;
    if (1_000.0..=1e10).contains(&bits) {
        Ok(Rate::bits_per_second(bits as u64))
    } else {
        Err("expected 1kbit to 10gbit".into())
    }
}

fn parse_file_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("expected at least 1 byte".into()),
        size => Ok(size),
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_time(text)?;
    if interval < Duration::from_millis(10) {
        return Err("expected at least 10ms".into());
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use smig_demo::browser::{BrowserOptions, Route};

    use super::*;

    #[derive(Debug, Parser)]
    struct TestCli {
        #[command(flatten)]
        args: DemoArgs,
    }

    fn options(flags: &[&str]) -> Result<DemoOptions, String> {
        let args = ["demo"].iter().chain(flags);
        let cli = TestCli::try_parse_from(args).map_err(|error| error.to_string())?;
        cli.args.options().map_err(|failure| failure.to_string())
    }

    #[test]
    fn without_flags_the_options_are_the_defaults() {
        assert_eq!(options(&[]).unwrap(), DemoOptions::default());
    }

    #[test]
    fn every_flag_sets_its_option() {
        let changed_options = options(&[
            "--rate=2.5mbit",
            "--rtt=20ms",
            "--queue=10",
            "--congestion-control=reno",
            "--bulk-congestion-control=bbr",
            "--big-file=1MB",
            "--object=1kB",
            "--interval=1s",
            "--variants=smig,plain",
            "--max-bulk-deferral=0",
        ])
        .unwrap();
        assert_eq!(changed_options.link.to_client.rate, Rate::kbit(2_500));
        assert_eq!(changed_options.link.round_trip(), Duration::from_millis(20));
        assert_eq!(changed_options.link.to_server.queue, QueueLimit::packets(10));
        assert_eq!(
            (changed_options.congestion_control.as_str(), changed_options.bulk_congestion_control),
            ("reno", Some("bbr".to_owned()))
        );
        assert_eq!(
            (changed_options.big_file_bytes, changed_options.object_bytes),
            (1_000_000, 1_000)
        );
        assert_eq!(changed_options.object_interval, Duration::from_secs(1));
        assert_eq!(changed_options.variants, [Variant::Smig, Variant::PlainHttp2]);
        assert_eq!(changed_options.max_bulk_deferral, Duration::ZERO);
    }

    #[test]
    fn a_link_can_be_a_named_profile() {
        let wifi = options(&["--link=wifi"]).unwrap().link;
        assert_eq!(wifi.to_client.rate, Rate::mbit(8));
        assert!(options(&["--link=wifi", "--rate=1mbit"]).is_err());
    }

    fn browser_options(flags: &[&str]) -> Result<BrowserOptions, String> {
        let args = ["demo", "--browser"].iter().chain(flags);
        let cli = TestCli::try_parse_from(args).map_err(|error| error.to_string())?;
        browser::options(&cli.args).map_err(|error| error.to_string())
    }

    #[test]
    fn browser_mode_has_its_own_flags() {
        let options = browser_options(&["--loads=2", "--link=ftth"]).unwrap();
        assert_eq!(options.loads_per_background, 2);
        assert_eq!(options.link.to_client.rate, Rate::mbit(30));
        assert_eq!(
            (options.route, &options.variants[..]),
            (Route::Direct, Route::Direct.default_variants())
        );
        let agent = browser_options(&["--agent", "--variants=smig,lowat"]).unwrap();
        assert_eq!(agent.route, Route::Agent);
        assert_eq!(agent.variants, [BrowserVariant::Smig, BrowserVariant::NotsentLowat]);
        for (invalid, expected) in [
            (&["--variants=smig"][..], "expected plain, lowat, serve, gateway, nginx"),
            (&["--agent", "--variants=nginx"], "expected plain, lowat, smig"),
            (&["--variants=serve,serve"], "twice"),
            (&["--object=1kB"], "--object"),
        ] {
            let error = browser_options(invalid).unwrap_err();
            assert!(error.contains(expected), "{invalid:?}: {error}");
        }
        for invalid in [["--loads=2", "--rtt=1s"], ["--agent", "--rtt=1s"]] {
            let command_line = ["demo"].iter().chain(&invalid);
            assert!(TestCli::try_parse_from(command_line).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn invalid_values_are_rejected_with_a_reason() {
        for (flag, expected) in [
            ("--rate=fast", "--rate"),
            ("--rate=0", "1kbit"),
            ("--rate=10MB", "bits per second"),
            ("--rtt=50", "unit"),
            ("--queue=0", "--queue"),
            ("--big-file=0", "1 byte"),
            ("--interval=1ms", "10ms"),
            ("--variants=plain,quic", "quic"),
            ("--variants=smig,smig", "twice"),
            ("--variants=nginx", "expected plain, lowat, smig"),
            ("--link=5g", "smig lab profiles"),
        ] {
            let error = options(&[flag]).unwrap_err();
            assert!(error.contains(expected), "{flag}: {error}");
        }
    }
}
