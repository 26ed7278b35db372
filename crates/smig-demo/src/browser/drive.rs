//! Drives the measurement: for each variant, new hosts, programs and a browser; page loads alone,
//! then page loads beside a download.

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

use super::chromium::{self, Browser, BrowserLaunch};
use super::data::{BrowserEvent, BrowserResult, BrowserSetup, PageLoad, VariantRun};
use super::download::{self, Download};
use super::error::BrowserError;
use super::files::{ADMIN_ADDR, BIG_FILE, BrowserFiles, ORIGIN_PORT, PROXY_ADDR, SERVER_IP};
use super::mosaic::Mosaic;
use super::programs::Programs;
use super::visit::Visit;
use crate::demo::{BackgroundLoad, Variant};

/// Minimum time from the download's request to the first page beside it: slow start is over, and
/// streams have migrated.
const HEAD_START: Duration = Duration::from_secs(4);
/// Minimum number of downloaded bytes by then, for slow links.
const HEAD_START_BYTES: u64 = 2_000_000;
/// Timeout of [`HEAD_START_BYTES`]; a slower download has stalled.
const HEAD_START_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two page loads.
const PAGE_PAUSE: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// More than any link carries during the page loads. The file is sparse.
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

    fn find_browser(&self) -> Result<PathBuf, BrowserError> {
        match &self.browser {
            Some(program) if is_executable_file(program) => Ok(program.clone()),
            Some(program) => {
                let text = format!("{} is not an executable file", program.display());
                Err(BrowserError::Browser(text))
            }
            None => chromium::find().ok_or(BrowserError::NoBrowser),
        }
    }

    fn start_testbed(&self) -> Result<Testbed, BrowserError> {
        let host = || HostSpec::default().congestion_control(&self.congestion_control);
        Ok(Testbed::builder(self.link.clone()).server(host()).client(host()).start()?)
    }
}

/// Checks quickly whether this machine meets the requirements.
///
/// # Errors
/// A missing requirement; the message includes a remedy.
pub fn check(options: &BrowserOptions) -> Result<(), BrowserError> {
    options.find_browser()?;
    program_version(&options.smig)?;
    options.start_testbed()?;
    Ok(())
}

/// Executes all runs and reports events as they occur.
///
/// Without root, [`smig_testbed::netns::enter_user_namespace`] must have been called before the
/// process had a second thread.
///
/// # Errors
/// The failure, with a remedy; [`BrowserError::Stopped`] soon after `stop` is cancelled. Hosts,
/// processes and files are removed in any case.
pub fn drive(
    options: &BrowserOptions,
    stop: &CancellationToken,
    on_event: &mut dyn FnMut(&BrowserEvent) -> io::Result<()>,
) -> Result<BrowserResult, BrowserError> {
    let mosaic = Mosaic::draw()?;
    let browser_files = BrowserFiles::create(&mosaic, BIG_FILE_BYTES)?;
    let measurement = Measurement { options, mosaic: &mosaic, browser_files: &browser_files, stop };
    let mut result: Option<BrowserResult> = None;
    for &variant in &options.variants {
        let run = measurement.run(variant, &mut |browser, event| {
            if result.is_none() {
                let setup = measurement.setup(browser)?;
                on_event(&BrowserEvent::Started(Box::new(setup.clone())))?;
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
    browser_files: &'a BrowserFiles,
    stop: &'a CancellationToken,
}

type EventSink<'a> = dyn FnMut(&str, &BrowserEvent) -> Result<(), BrowserError> + 'a;

impl Measurement<'_> {
    fn setup(&self, browser: &str) -> Result<BrowserSetup, BrowserError> {
        Ok(BrowserSetup {
            link: self.options.link.clone(),
            variants: self.options.variants.clone(),
            congestion_control: self.options.congestion_control.clone(),
            loads: self.options.loads,
            images: self.mosaic.tiles.len(),
            tiles_bytes: self.mosaic.tiles_bytes(),
            browser: browser.to_owned(),
            program: program_version(&self.options.smig)?,
            kernel: Machine::current(1).kernel,
        })
    }

    /// Runs one variant, from the setup of its hosts to their removal.
    fn run(
        &self,
        variant: Variant,
        on_event: &mut EventSink<'_>,
    ) -> Result<VariantRun, BrowserError> {
        let testbed = self.options.start_testbed()?;
        let programs = Programs::start(&testbed, &self.options.smig, self.browser_files, variant)?;
        let launch = BrowserLaunch {
            program: &self.options.find_browser()?,
            trusted_key: &self.browser_files.key_digest,
            home: &self.browser_files.create_home(variant)?,
            proxy: &proxy(),
        };
        let mut browser = launch.start(testbed.client())?;
        on_event(&browser.name, &BrowserEvent::RunStarted(variant))?;
        let mut run = VariantRun::new(variant);
        // A browser's first page takes longer on any link: it is a warm-up and is not counted.
        self.visit(&mut browser, &programs, BackgroundLoad::Unloaded)?;
        for _ in 0..self.options.loads {
            let page = self.visit(&mut browser, &programs, BackgroundLoad::Unloaded)?;
            on_event(
                &browser.name,
                &BrowserEvent::PageLoaded(page.background, page.load_time_ms()),
            )?;
            run.loads.push(page);
        }
        let certificate = &self.browser_files.certificate;
        let mut download = Download::start(testbed.client(), PROXY_ADDR.into(), certificate)?;
        on_event(&browser.name, &BrowserEvent::DownloadStarted)?;
        self.sleep_unless_stopped(HEAD_START)?;
        let deadline = Instant::now() + HEAD_START_TIMEOUT;
        while download.bytes() < HEAD_START_BYTES {
            download.check()?;
            if Instant::now() > deadline {
                let text = format!("only {} bytes arrived in time", download.bytes());
                return Err(BrowserError::Download(text));
            }
            self.sleep_unless_stopped(POLL_INTERVAL)?;
        }
        let (started, bytes_before) = (Instant::now(), download.bytes());
        for _ in 0..self.options.loads {
            let page = self.visit(&mut browser, &programs, BackgroundLoad::BigFile)?;
            download.check()?;
            on_event(
                &browser.name,
                &BrowserEvent::PageLoaded(page.background, page.load_time_ms()),
            )?;
            run.loads.push(page);
        }
        let (took, bytes) = (started.elapsed().as_secs_f64(), download.bytes() - bytes_before);
        run.download_mbit_per_s = (took > 0.0).then(|| bytes as f64 * 8e-6 / took);
        run.migrations =
            count_migrations(&download::get(testbed.server(), ADMIN_ADDR.into(), "/metrics")?)?;
        let drops = testbed.device_drops()?;
        if drops > 0 {
            run.problems.push(format!(
                "The hosts' network devices dropped {drops} packets: the machine was overloaded."
            ));
        }
        run.link = Some(testbed.report());
        let (migrations, download_mbit_per_s) = (run.migrations, run.download_mbit_per_s);
        on_event(&browser.name, &BrowserEvent::RunFinished { migrations, download_mbit_per_s })?;
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
            url: &format!("https://{SERVER_IP}:{ORIGIN_PORT}/"),
            proxy: &proxy(),
            mosaic: self.mosaic,
            load,
            stop: self.stop,
        };
        let page = visit.run(&mut browser.devtools)?;
        self.sleep_unless_stopped(PAGE_PAUSE)?;
        Ok(page)
    }

    fn sleep_unless_stopped(&self, time: Duration) -> Result<(), BrowserError> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if self.stop.is_cancelled() {
                return Err(BrowserError::Stopped);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

fn proxy() -> String {
    format!("http://{}:{}", PROXY_ADDR.0, PROXY_ADDR.1)
}

/// Returns the version that the program reports.
fn program_version(smig: &Path) -> Result<String, BrowserError> {
    let output = Command::new(smig).arg("--version").stdin(Stdio::null()).output();
    let stdout = output.ok().filter(|output| output.status.success());
    let stdout = stdout.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    stdout.filter(|version| version.starts_with("smig")).ok_or_else(|| {
        BrowserError::Io(io::Error::other(format!("{} is not a smig program", smig.display())))
    })
}

/// Returns the number of stream migrations from a gateway's metrics.
fn count_migrations(metrics: &str) -> Result<u64, BrowserError> {
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
    fn migrations_are_read_from_the_gateways_metrics() {
        let metrics = "# TYPE smig_migrations counter\n\
                       smig_migrations_total{initiator=\"local\"} 2\n\
                       smig_migrations_total{initiator=\"peer\"} 1\n# EOF\n";
        assert_eq!(count_migrations(metrics).unwrap(), 3);
        assert!(count_migrations("# EOF\n").is_err());
    }

    #[test]
    fn a_program_that_is_not_smig_is_rejected() {
        let error = program_version(Path::new("/bin/true")).unwrap_err().to_string();
        assert!(error.contains("/bin/true"), "{error}");
    }
}
