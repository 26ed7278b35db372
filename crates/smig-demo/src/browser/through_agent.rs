//! Page and download through `smig agent`: the browser's proxy, and another program's.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use smig_browser::{Browser, BrowserContext};
use smig_lab::workload::WorkloadSpec;

use super::clients::RouteClients;
use super::data::{PageLoad, VariantRun};
use super::download::Download;
use super::error::BrowserError;
use super::scenario::{AGENT_ADMIN_ADDR, BROWSER, DOWNLOAD};
use super::visit::Visit;

/// Timeout of each step of reading the agent's metrics.
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);

/// Page loads without any state of an earlier load, and a download by this program.
#[derive(Debug)]
pub(super) struct ThroughAgent {
    proxy: SocketAddr,
    web_server: SocketAddr,
    certificate: String,
    download: Option<Download>,
}

impl ThroughAgent {
    pub(super) fn new(spec: &WorkloadSpec) -> Self {
        Self {
            proxy: spec.server_by_client[BROWSER],
            web_server: spec.server_by_client[DOWNLOAD],
            certificate: spec.certificate.clone(),
            download: None,
        }
    }

    pub(super) fn proxy_url(&self) -> String {
        format!("http://{}", self.proxy)
    }
}

impl RouteClients for ThroughAgent {
    fn page_url(&self) -> String {
        format!("https://{}/", self.web_server)
    }

    fn load_page(
        &mut self,
        browser: &mut Browser,
        visit: Visit<'_>,
    ) -> Result<PageLoad, BrowserError> {
        let devtools = &mut browser.devtools;
        let context = BrowserContext::create(devtools, Some(&self.proxy_url()))?;
        let download = &mut self.download;
        let page_load =
            visit.run(devtools, &context, &mut |_| received_bytes(download.as_mut()))?;
        context.dispose(devtools)?;
        Ok(page_load)
    }

    fn start_download(&mut self, _browser: &mut Browser) -> Result<(), BrowserError> {
        let download = Download::start(self.proxy, self.web_server, self.certificate.clone())?;
        self.download = Some(download);
        Ok(())
    }

    fn downloaded_bytes(&mut self, _browser: &mut Browser) -> Result<u64, BrowserError> {
        received_bytes(self.download.as_mut())
    }

    fn finish(
        self: Box<Self>,
        _browser: &mut Browser,
        run: &mut VariantRun,
    ) -> Result<(), BrowserError> {
        run.migrations = Some(count_migrations(&read_metrics_response(AGENT_ADMIN_ADDR)?)?);
        Ok(())
    }
}

/// Returns the number of bytes received so far; an error if the download has ended.
fn received_bytes(download: Option<&mut Download>) -> Result<u64, BrowserError> {
    let Some(download) = download else { return Ok(0) };
    download.check_running()?;
    Ok(download.received_bytes())
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
