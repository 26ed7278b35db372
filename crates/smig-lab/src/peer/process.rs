//! A server process in a host: start, readiness, and stop with all its child processes.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use smig_testbed::netns::{Host, HostThread};

use super::config::Launch;

/// Timeout for a server to start listening.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between connection attempts.
const TRY_EVERY: Duration = Duration::from_millis(5);
/// Number of log lines in an error message.
const LAST_LINES: usize = 12;

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// An I/O error of its files or its process.
    #[error("{server}: {doing}: {cause}")]
    Io {
        /// The server's name in the scenario.
        server: String,
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The server ended during its start.
    #[error("{server} exited ({status}); its command:\n  {command}\nits last output:\n{words}")]
    Ended {
        /// The server's name in the scenario.
        server: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its command line.
        command: String,
        /// The last lines of its log.
        words: String,
    },
    /// The server runs, but does not listen.
    #[error(
        "{server} does not listen on {address} after {} s; its last output:\n{words}",
        PATIENCE.as_secs()
    )]
    Silent {
        /// The server's name in the scenario.
        server: String,
        /// The address it should listen on.
        address: SocketAddr,
        /// The last lines of its log.
        words: String,
    },
}

/// A running server and its backends. Dropping it stops them and waits for them.
#[derive(Debug)]
pub struct ServerProcess {
    name: String,
    log: PathBuf,
    /// Dropping it stops the server.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<HostThread<Option<ExitStatus>>>,
    /// Backends, stopped after the server itself.
    _behind: Vec<Self>,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

impl Launch {
    /// Starts the server in a host and waits until it accepts connections. `smig` starts the program
    /// (`smig lab peer`), so that it ends with the calling process.
    ///
    /// # Errors
    /// When the server does not start, with the last lines of its log.
    pub fn start(&self, host: &Host, smig: &Path) -> Result<ServerProcess, PeerError> {
        let behind = self
            .backends
            .iter()
            .map(|launch| launch.start(host, smig))
            .collect::<Result<Vec<_>, _>>()?;
        let fail = |doing| move |cause| PeerError::Io { server: self.name.clone(), doing, cause };
        for (path, content) in &self.files {
            fs::write(path, content).map_err(fail("writing its configuration"))?;
        }
        let command = self.command(smig).map_err(fail("opening its log"))?;
        let address = self.address;
        let (stop, stopped) = mpsc::channel();
        let (ready, wait) = mpsc::channel();
        let run = move || carry(command, address, &ready, &stopped);
        let thread = host.run(run).map_err(fail("entering its host"))?;
        let peer = ServerProcess {
            name: self.name.clone(),
            log: self.log.clone(),
            stop: Some(stop),
            thread: Some(thread),
            _behind: behind,
        };
        match wait.recv() {
            Ok(Ok(())) => Ok(peer),
            Ok(Err(Trouble::Io(cause))) => Err(fail("starting it")(cause)),
            Ok(Err(Trouble::Ended(status))) => {
                let words = last_lines(&self.log);
                let command = self.command.join(" ");
                Err(PeerError::Ended { server: self.name.clone(), status, command, words })
            }
            Ok(Err(Trouble::Silent)) | Err(_) => {
                let words = last_lines(&self.log);
                Err(PeerError::Silent { server: self.name.clone(), address, words })
            }
        }
    }

    fn command(&self, smig: &Path) -> io::Result<Command> {
        let log = File::create(&self.log)?;
        let mut command = Command::new(smig);
        command.args(["lab", "peer", "--"]).args(&self.command);
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        // Its own process group: it gets no signals from the terminal, and its child processes are killed
        // with it.
        command.process_group(0);
        Ok(command)
    }
}

impl ServerProcess {
    /// Checks that the server is still running.
    ///
    /// # Errors
    /// The last lines of its log if it has ended.
    pub fn check(&self) -> Result<(), String> {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        let words = last_lines(&self.log);
        Err(format!("{} exited during the run; its last output:\n{words}", self.name))
    }
}

enum Trouble {
    Io(io::Error),
    Ended(ExitStatus),
    Silent,
}

/// Runs the server until it ends or the sender of `stopped` is dropped, on a thread inside the host. The
/// thread must live as long as the process: the kernel kills the process when the thread ends.
fn carry(
    mut command: Command,
    address: SocketAddr,
    ready: &mpsc::Sender<Result<(), Trouble>>,
    stopped: &mpsc::Receiver<()>,
) -> Option<ExitStatus> {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            // The thread that called `start` waits for it.
            let _ = ready.send(Err(Trouble::Io(error)));
            return None;
        }
    };
    let came_up = come_up(&mut child, address);
    let is_up = came_up.is_ok();
    let _ = ready.send(came_up);
    if is_up {
        let pause = Duration::from_millis(50);
        while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
            if let Ok(Some(status)) = child.try_wait() {
                end(&mut child);
                return Some(status);
            }
        }
    }
    end(&mut child);
    None
}

fn come_up(child: &mut Child, address: SocketAddr) -> Result<(), Trouble> {
    let began = Instant::now();
    loop {
        if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
            return Ok(());
        }
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return Err(Trouble::Ended(status)),
            Err(error) => return Err(Trouble::Io(error)),
        }
        if began.elapsed() > PATIENCE {
            return Err(Trouble::Silent);
        }
        thread::sleep(TRY_EVERY);
    }
}

/// Kills the process group of the server, and waits for the server.
fn end(child: &mut Child) {
    // Fails if they have already ended.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    lines.iter().skip(from).map(|line| format!("  {line}\n")).collect()
}
