//! The order of events: each variant has its own hosts, programs and browser; page loads alone, then page
//! loads beside a download.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use smig_lab::servers::is_executable_file;
use smig_lab::trial::Machine;
use smig_link::LinkSpec;
use smig_testbed::netns::{HostSpec, Testbed};
use tokio_util::sync::CancellationToken;

use super::chromium::{self, Browser, Launch};
use super::data::{BrowserEvent, BrowserResult, BrowserSetup, PageLoad, VariantRun};
use super::download::{self, Download};
use super::error::BrowserError;
use super::material::{ADDRESS, ADMIN, BIG_FILE, BrowserFiles, ORIGIN_PORT, PROXY};
use super::mosaic::Mosaic;
use super::programs::Programs;
use super::visit::Visit;
use crate::demo::{BackgroundLoad, Variant};

/// Minimum time from the download's request to the first page beside it: slow start is over, and streams
/// have migrated.
const HEAD_START: Duration = Duration::from_secs(4);
/// The same in bytes, for slow links.
const HEAD_START_BYTES: u64 = 2_000_000;
/// Timeout: a download with fewer bytes by then has stalled.
const HEAD_START_PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two pages.
const PAUSE: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// More bytes than any link carries during the page loads. The file is sparse.
const BIG_FILE_BYTES: u64 = 1 << 40;

/// Options of the measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct BrowserOptions {
    /// The emulated link.
    pub link: LinkSpec,
    /// The hosts' congestion control.
    pub congestion_control: String,
    /// The variants, in the order of the runs.
    pub variants: Vec<Variant>,
    /// Number of page loads alone, and of those beside the download.
    pub loads: u32,
    /// The `smig` program that runs as gateway, agent and web server.
    pub smig: PathBuf,
    /// The browser; searched in PATH if `None`.
    pub browser: Option<PathBuf>,
}

impl BrowserOptions {
    /// Returns options for plain HTTP/2 and SMig over the demonstration's link.
    #[must_use]
    pub fn new(smig: &Path) -> Self {
        Self {
            link: LinkSpec::paper_wired(),
            congestion_control: "cubic".into(),
            variants: vec![Variant::PlainHttp2, Variant::Smig],
            loads: 5,
            smig: smig.to_owned(),
            browser: None,
        }
    }

    fn browser(&self) -> Result<PathBuf, BrowserError> {
        match &self.browser {
            Some(program) if is_executable_file(program) => Ok(program.clone()),
            Some(program) => {
                let text = format!("{} is not an executable file", program.display());
                Err(BrowserError::Browser(text))
            }
            None => chromium::find().ok_or(BrowserError::NoBrowser),
        }
    }

    fn hosts(&self) -> Result<Testbed, BrowserError> {
        let host = || HostSpec::default().congestion_control(&self.congestion_control);
        Ok(Testbed::builder(self.link.clone()).server(host()).client(host()).start()?)
    }
}

/// Checks quickly whether this machine meets the requirements.
///
/// # Errors
/// What it lacks, and what to do about it.
pub fn check(options: &BrowserOptions) -> Result<(), BrowserError> {
    options.browser()?;
    program_version(&options.smig)?;
    options.hosts()?;
    Ok(())
}

/// Makes all runs and reports events as they occur.
///
/// Without root, [`smig_testbed::netns::enter_user_namespace`] must have been called before the process had a
/// second thread.
///
/// # Errors
/// The failure, and what to do about it; [`BrowserError::Stopped`] soon after `stop` is set. Nothing is left
/// behind either way.
pub fn drive(
    options: &BrowserOptions,
    stop: &CancellationToken,
    on_event: &mut dyn FnMut(&BrowserEvent) -> io::Result<()>,
) -> Result<BrowserResult, BrowserError> {
    let mosaic = Mosaic::draw()?;
    let material = BrowserFiles::make(&mosaic, BIG_FILE_BYTES)?;
    let measurement = Measurement { options, mosaic: &mosaic, material: &material, stop };
    let mut result: Option<BrowserResult> = None;
    for &variant in &options.variants {
        let run = measurement.run(variant, &mut |browser, event| {
            if result.is_none() {
                let setup = measurement.setup(browser)?;
                on_event(&BrowserEvent::Began(Box::new(setup.clone())))?;
                result = Some(BrowserResult { setup, runs: Vec::new() });
            }
            Ok(on_event(event)?)
        })?;
        if let Some(result) = &mut result {
            result.runs.push(run);
        }
    }
    result.ok_or_else(|| BrowserError::Io(io::Error::other("no variant was run")))
}

/// The state that all runs share.
struct Measurement<'a> {
    options: &'a BrowserOptions,
    mosaic: &'a Mosaic,
    material: &'a BrowserFiles,
    stop: &'a CancellationToken,
}

type Tell<'a> = dyn FnMut(&str, &BrowserEvent) -> Result<(), BrowserError> + 'a;

impl Measurement<'_> {
    fn setup(&self, browser: &str) -> Result<BrowserSetup, BrowserError> {
        Ok(BrowserSetup {
            link: self.options.link.clone(),
            variants: self.options.variants.clone(),
            congestion_control: self.options.congestion_control.clone(),
            loads: self.options.loads,
            tiles: self.mosaic.tiles.len(),
            tiles_bytes: self.mosaic.tiles_bytes(),
            browser: browser.to_owned(),
            program: program_version(&self.options.smig)?,
            kernel: Machine::current(1).kernel,
        })
    }

    /// Runs one variant, from the setup of its hosts to their removal.
    fn run(&self, variant: Variant, tell: &mut Tell<'_>) -> Result<VariantRun, BrowserError> {
        let testbed = self.options.hosts()?;
        let programs = Programs::start(&testbed, &self.options.smig, self.material, variant)?;
        let launch = Launch {
            program: &self.options.browser()?,
            trusted_key: &self.material.key_digest,
            home: &self.material.home(variant)?,
            proxy: &proxy(),
        };
        let mut browser = launch.start(testbed.client())?;
        tell(&browser.name, &BrowserEvent::RunStarted(variant))?;
        let mut run = VariantRun::new(variant);
        // A browser's first page takes longer on any link: it is a warm-up and is not counted.
        self.visit(&mut browser, &programs, BackgroundLoad::Unloaded)?;
        for _ in 0..self.options.loads {
            let page = self.visit(&mut browser, &programs, BackgroundLoad::Unloaded)?;
            tell(&browser.name, &BrowserEvent::Loaded(page.load, page.took_ms()))?;
            run.loads.push(page);
        }
        let certificate = &self.material.certificate;
        let mut download = Download::start(testbed.client(), PROXY.into(), certificate)?;
        tell(&browser.name, &BrowserEvent::DownloadStarted)?;
        self.sleep_unless_stopped(HEAD_START)?;
        let until = Instant::now() + HEAD_START_PATIENCE;
        while download.bytes() < HEAD_START_BYTES {
            download.check()?;
            if Instant::now() > until {
                let text = format!("only {} bytes arrived in time", download.bytes());
                return Err(BrowserError::Download(text));
            }
            self.sleep_unless_stopped(LOOK_EVERY)?;
        }
        let (began, before) = (Instant::now(), download.bytes());
        for _ in 0..self.options.loads {
            let page = self.visit(&mut browser, &programs, BackgroundLoad::BigFile)?;
            download.check()?;
            tell(&browser.name, &BrowserEvent::Loaded(page.load, page.took_ms()))?;
            run.loads.push(page);
        }
        let (took, bytes) = (began.elapsed().as_secs_f64(), download.bytes() - before);
        run.download_mbit_per_s = (took > 0.0).then(|| bytes as f64 * 8e-6 / took);
        run.moves = moves(&download::get(testbed.server(), ADMIN.into(), "/metrics")?)?;
        let drops = testbed.device_drops()?;
        if drops > 0 {
            run.problems.push(format!(
                "The hosts' network devices dropped {drops} packets: the machine was overloaded."
            ));
        }
        run.link = Some(testbed.report());
        let (moves, download_mbit_per_s) = (run.moves, run.download_mbit_per_s);
        tell(&browser.name, &BrowserEvent::RunFinished { moves, download_mbit_per_s })?;
        Ok(run)
    }

    fn visit(
        &self,
        browser: &mut Browser,
        programs: &Programs,
        load: BackgroundLoad,
    ) -> Result<PageLoad, BrowserError> {
        programs.check()?;
        let visit = Visit {
            url: &format!("https://{ADDRESS}:{ORIGIN_PORT}/"),
            proxy: &proxy(),
            mosaic: self.mosaic,
            load,
            stop: self.stop,
        };
        let page = visit.make(&mut browser.devtools)?;
        self.sleep_unless_stopped(PAUSE)?;
        Ok(page)
    }

    fn sleep_unless_stopped(&self, time: Duration) -> Result<(), BrowserError> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if self.stop.is_cancelled() {
                return Err(BrowserError::Stopped);
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

fn proxy() -> String {
    format!("http://{}:{}", PROXY.0, PROXY.1)
}

/// Returns the version that the program reports.
fn program_version(smig: &Path) -> Result<String, BrowserError> {
    let output = Command::new(smig).arg("--version").stdin(Stdio::null()).output();
    let said = output.ok().filter(|output| output.status.success());
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    said.filter(|version| version.starts_with("smig")).ok_or_else(|| {
        BrowserError::Io(io::Error::other(format!("{} is not a smig program", smig.display())))
    })
}

/// Returns the number of migrated streams from a gateway's metrics.
fn moves(metrics: &str) -> Result<u64, BrowserError> {
    // One line for each initiator.
    let lines = metrics.lines().filter(|line| line.starts_with("smig_migrations_total{"));
    let counts = lines.map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    let counts: Option<Vec<_>> = counts.collect();
    counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum()).ok_or_else(|| {
        BrowserError::Io(io::Error::other(format!(
            "the gateway's metrics do not count migrations of {BIG_FILE}"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_read_from_the_gateways_metrics() {
        let metrics = "# TYPE smig_migrations counter\n\
                       smig_migrations_total{initiator=\"local\"} 2\n\
                       smig_migrations_total{initiator=\"peer\"} 1\n# EOF\n";
        assert_eq!(moves(metrics).unwrap(), 3);
        assert!(moves("# EOF\n").is_err());
    }

    #[test]
    fn a_program_that_is_none_of_ours_is_refused() {
        let error = program_version(Path::new("/bin/true")).unwrap_err().to_string();
        assert!(error.contains("/bin/true"), "{error}");
    }
}
