//! The `smig` programs around the browser: web server and gateway in one host, agent in the other.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use smig_testbed::netns::{Child, Host, Testbed};
use tokio_util::sync::CancellationToken;

use super::error::BrowserError;
use super::material::{ADDRESS, BrowserFiles, GATEWAY_PORT, ORIGIN_PORT, PROXY};
use crate::demo::Variant;

/// Timeout until a program listens.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval between connection attempts.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Number of lines of its last output to show.
const LAST_LINES: usize = 12;

/// A running program; killed on drop.
struct Program {
    name: &'static str,
    process: Child,
    log: PathBuf,
}

impl Program {
    fn start(
        name: &'static str,
        host: &Host,
        mut command: Command,
        log: PathBuf,
    ) -> Result<Self, BrowserError> {
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self { name, process: host.spawn(command)?, log })
    }

    fn failed(&self, what: impl Into<String>) -> BrowserError {
        BrowserError::Program {
            name: self.name,
            what: what.into(),
            words: last_lines(&fs::read(&self.log).unwrap_or_default()),
        }
    }

    /// Returns an error if the program has ended.
    fn check(&mut self) -> Result<(), BrowserError> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.failed(format!("exited ({status})"))),
        }
    }

    /// Waits until the program accepts connections, as seen from inside its host.
    fn listens(
        &mut self,
        host: &Host,
        at: SocketAddr,
        stop: &CancellationToken,
    ) -> Result<(), BrowserError> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if stop.is_cancelled() {
                return Err(BrowserError::Stopped);
            }
            self.check()?;
            let tried =
                host.run(move || TcpStream::connect_timeout(&at, TRY_EVERY * 10).is_ok())?;
            if tried.join().map_err(|_| BrowserError::Panicked("host"))? {
                return Ok(());
            }
            thread::sleep(TRY_EVERY);
        }
        Err(self.failed(format!("does not listen on {at}")))
    }
}

/// All programs between the page and the browser.
pub(super) struct Programs {
    origin: Program,
    gateway: Program,
    agent: Program,
}

impl Programs {
    /// Starts the programs and waits until they accept connections.
    pub(super) fn start(
        testbed: &Testbed,
        smig: &Path,
        material: &BrowserFiles,
        variant: Variant,
        stop: &CancellationToken,
    ) -> Result<Self, BrowserError> {
        let (server, client) = (testbed.server(), testbed.client());
        let run = |subcommand: &str| {
            let mut command = Command::new(smig);
            // The caller's settings must not affect the measurement.
            command.arg(subcommand).env_remove("SMIG_AGENT_TOKEN").env_remove("RUST_LOG");
            command
        };
        let at = |address: Ipv4Addr, port: u16| SocketAddr::from((address, port));

        let mut origin = run("serve");
        origin.arg(material.site()).args(["--quiet", "--listen"]);
        origin.arg(at(ADDRESS, ORIGIN_PORT).to_string());
        origin.arg("--cert").arg(material.certificate_file());
        origin.arg("--key").arg(material.key_file());
        let log = material.log_of("serve");
        let mut origin = Program::start("smig serve", server, origin, log)?;

        let mut gateway = run("gateway");
        gateway.arg("--config").arg(material.gateway_settings(variant)?);
        let log = material.log_of("gateway");
        let mut gateway = Program::start("smig gateway", server, gateway, log)?;
        origin.listens(server, at(ADDRESS, ORIGIN_PORT), stop)?;
        gateway.listens(server, at(ADDRESS, GATEWAY_PORT), stop)?;

        let mut agent = run("agent");
        agent.arg("--via").arg(format!("https://{ADDRESS}:{GATEWAY_PORT}"));
        agent.arg("--cacert").arg(material.certificate_file());
        agent.arg("--token-file").arg(material.token_file());
        agent.arg("--listen").arg(at(PROXY.0, PROXY.1).to_string());
        if variant != Variant::Smig {
            agent.arg("--no-migrate");
        }
        let mut agent = Program::start("smig agent", client, agent, material.log_of("agent"))?;
        agent.listens(client, at(PROXY.0, PROXY.1), stop)?;
        Ok(Self { origin, gateway, agent })
    }

    /// Returns an error if one of the programs has ended.
    pub(super) fn check(&mut self) -> Result<(), BrowserError> {
        [&mut self.origin, &mut self.gateway, &mut self.agent]
            .into_iter()
            .try_for_each(Program::check)
    }
}

fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    lines.iter().skip(from).map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_the_last_lines() {
        let log: String = (0..20).map(|n| format!("line {n}\n")).collect();
        let words = last_lines(log.as_bytes());
        assert_eq!(words.lines().count(), LAST_LINES);
        assert!(words.ends_with("  line 19\n"));
    }
}
