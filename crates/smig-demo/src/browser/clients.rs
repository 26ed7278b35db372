//! The clients of a run, in the clients' host: page loads alone, then page loads beside a download,
//! all through the agent.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use smig_lab::workload::{Clients, Observation, RunPhase, WorkloadError, WorkloadSpec};
use tokio_util::sync::CancellationToken;

use super::chromium::{Browser, BrowserLaunch};
use super::data::{BrowserEvent, PageLoad, VariantRun};
use super::download::Download;
use super::error::BrowserError;
use super::mosaic::Mosaic;
use super::scenario::{AGENT_ADMIN_ADDR, BROWSER, DOWNLOAD};
use super::visit::Visit;
use crate::demo::{BackgroundLoad, Variant};

/// Minimum time from the download's request to the first page beside it: slow start is over, and
/// streams have migrated.
const MIN_HEAD_START: Duration = Duration::from_secs(4);
/// Minimum number of downloaded bytes by then, for slow links.
const MIN_HEAD_START_BYTES: u64 = 2_000_000;
/// Timeout of [`MIN_HEAD_START_BYTES`]; a slower download has stalled.
const HEAD_START_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two page loads.
const PAGE_PAUSE: Duration = Duration::from_millis(500);
/// Timeout of each step of reading the agent's metrics.
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The browser and the download. What they measure is sent over a channel, because a trial's result has
/// no fields for page loads.
#[derive(Debug)]
pub(super) struct BrowserClients {
    pub(super) variant: Variant,
    pub(super) launch: BrowserLaunch,
    pub(super) mosaic: Arc<Mosaic>,
    /// Number of page loads alone, and of those beside the download.
    pub(super) loads_per_background: u32,
    pub(super) event_sender: mpsc::Sender<BrowserEvent>,
    /// The run stops soon after this is cancelled.
    pub(super) stop: CancellationToken,
}

impl Clients for BrowserClients {
    fn run(
        self,
        spec: WorkloadSpec,
        pause: &mut dyn FnMut(RunPhase),
    ) -> Result<Observation, WorkloadError> {
        self.measure(&spec, pause).map_err(|error| WorkloadError::Other(error.into()))?;
        Ok(Observation::default())
    }
}

impl BrowserClients {
    fn measure(
        &self,
        spec: &WorkloadSpec,
        pause: &mut dyn FnMut(RunPhase),
    ) -> Result<(), BrowserError> {
        let (proxy, web_server) = (spec.server_by_client[BROWSER], spec.server_by_client[DOWNLOAD]);
        let proxy_url = format!("http://{proxy}");
        let mut browser = self.launch.start(&proxy_url)?;
        self.send(BrowserEvent::BrowserStarted(browser.name.clone()))?;
        let visit = Visit {
            url: &format!("https://{web_server}/"),
            proxy_url: &proxy_url,
            mosaic: &self.mosaic,
            background: BackgroundLoad::Unloaded,
            stop: &self.stop,
        };
        // A browser's first page takes longer on any link: it is a warm-up and is not counted.
        visit.run(&mut browser.devtools)?;
        pause(RunPhase::Ready);
        let mut run = VariantRun::new(self.variant);
        for _ in 0..self.loads_per_background {
            run.loads.push(self.visit(visit, &mut browser)?);
        }
        let mut download = Download::start(proxy, web_server, spec.certificate.clone())?;
        self.send(BrowserEvent::DownloadStarted)?;
        self.wait_for_head_start(&mut download)?;
        let (started_at, bytes_before) = (Instant::now(), download.received_bytes());
        for _ in 0..self.loads_per_background {
            let page =
                self.visit(Visit { background: BackgroundLoad::BigFile, ..visit }, &mut browser)?;
            download.check_running()?;
            run.loads.push(page);
        }
        let (elapsed_s, bytes) =
            (started_at.elapsed().as_secs_f64(), download.received_bytes() - bytes_before);
        run.download_mbit_per_s = (elapsed_s > 0.0).then(|| bytes as f64 * 8e-6 / elapsed_s);
        run.migrations = count_migrations(&read_metrics_response(AGENT_ADMIN_ADDR)?)?;
        drop(download);
        pause(RunPhase::Finished);
        self.send(BrowserEvent::RunFinished(Box::new(run)))
    }

    fn visit(&self, visit: Visit<'_>, browser: &mut Browser) -> Result<PageLoad, BrowserError> {
        self.sleep_unless_stopped(PAGE_PAUSE)?;
        let page = visit.run(&mut browser.devtools)?;
        self.send(BrowserEvent::PageLoaded(page.background, page.load_time_ms()))?;
        Ok(page)
    }

    fn wait_for_head_start(&self, download: &mut Download) -> Result<(), BrowserError> {
        self.sleep_unless_stopped(MIN_HEAD_START)?;
        let deadline = Instant::now() + HEAD_START_TIMEOUT;
        while download.received_bytes() < MIN_HEAD_START_BYTES {
            download.check_running()?;
            if Instant::now() > deadline {
                let text = format!("only {} bytes arrived in time", download.received_bytes());
                return Err(BrowserError::Download(text));
            }
            self.sleep_unless_stopped(POLL_INTERVAL)?;
        }
        Ok(())
    }

    fn send(&self, event: BrowserEvent) -> Result<(), BrowserError> {
        self.event_sender.send(event).map_err(|_| BrowserError::Stopped)
    }

    fn sleep_unless_stopped(&self, duration: Duration) -> Result<(), BrowserError> {
        let deadline = Instant::now() + duration;
        while Instant::now() < deadline {
            if self.stop.is_cancelled() {
                return Err(BrowserError::Stopped);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Returns the response with a program's metrics, its header section included.
fn read_metrics_response(admin: SocketAddr) -> io::Result<String> {
    let mut tcp = TcpStream::connect_timeout(&admin, METRICS_TIMEOUT)?;
    tcp.set_read_timeout(Some(METRICS_TIMEOUT))?;
    let mut response = String::new();
    // With HTTP/1.0, the response ends with the connection.
    write!(tcp, "GET /metrics HTTP/1.0\r\nHost: {admin}\r\n\r\n")?;
    tcp.read_to_string(&mut response)?;
    Ok(response)
}

/// Returns the number of stream migrations from an agent's metrics.
fn count_migrations(metrics: &str) -> Result<u64, BrowserError> {
    // One line for each initiator.
    let lines = metrics.lines().filter(|line| line.starts_with("smig_migrations_total{"));
    let counts = lines.map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    let counts: Option<Vec<_>> = counts.collect();
    counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum()).ok_or_else(|| {
        BrowserError::Io(io::Error::other("the agent's metrics do not count migrations"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_read_from_the_agents_metrics() {
        let metrics = "# TYPE smig_migrations counter\n\
                       smig_migrations_total{initiator=\"local\"} 2\n\
                       smig_migrations_total{initiator=\"peer\"} 1\n# EOF\n";
        assert_eq!(count_migrations(metrics).unwrap(), 3);
        assert!(count_migrations("# EOF\n").is_err());
    }
}
