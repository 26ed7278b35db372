//! A server process in a host: start, readiness, and stop with all its child processes.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use smig_testbed::netns::{Child, Host, HostThread};

use super::config::{Launch, ProcessOptions};
use crate::scenario::{Readiness, StopSignal};

/// Timeout for a server to start listening.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between checks of whether it is ready or has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time for a server to end after its stop signal, before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of log lines in an error message.
const MAX_LOG_LINES: usize = 12;
/// Bytes of a log that are read at once.
const LOG_CHUNK: usize = 64 << 10;

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
    /// The server runs, but is not ready.
    #[error("{server} {missing} after {} s; its last output:\n{words}", READY_TIMEOUT.as_secs())]
    Silent {
        /// The server's name in the scenario.
        server: String,
        /// The sign of readiness that it has not given.
        missing: String,
        /// The last lines of its log.
        words: String,
    },
}

/// A running server and its backends. Dropping it stops them and waits for them.
#[derive(Debug)]
pub struct ServerProcess {
    name: String,
    /// Its output, and the log that it writes itself.
    logs: [Option<PathBuf>; 2],
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
    /// (`smig lab exec-child`) in a PID namespace: everything that it starts ends with it, and it with this process.
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
        let own = self.process.own_log.iter().chain(self.files.iter().map(|(path, _)| path));
        for folder in own.filter_map(|path| path.parent()) {
            fs::create_dir_all(folder).map_err(fail("creating its directory"))?;
        }
        for (path, content) in &self.files {
            fs::write(path, content).map_err(fail("writing its configuration"))?;
        }
        let command = self.command(smig).map_err(fail("opening its log"))?;
        let (stop, stopped) = mpsc::channel();
        let (ready, wait) = mpsc::channel();
        let start =
            Start { address: self.address, log: self.log.clone(), process: self.process.clone() };
        let run = move || supervise(command, &start, &ready, &stopped);
        let thread = host.run(run).map_err(fail("entering its host"))?;
        let peer = ServerProcess {
            name: self.name.clone(),
            logs: [Some(self.log.clone()), self.process.own_log.clone()],
            stop: Some(stop),
            thread: Some(thread),
            _behind: behind,
        };
        match wait.recv() {
            Ok(Ok(())) => Ok(peer),
            Ok(Err(StartError::Io(cause))) => Err(fail("starting it")(cause)),
            Ok(Err(StartError::Ended(status))) => {
                let words = last_lines(&peer.logs);
                let command = self.command.join(" ");
                Err(PeerError::Ended { server: self.name.clone(), status, command, words })
            }
            Ok(Err(StartError::Silent)) | Err(_) => {
                let missing = match &self.process.ready {
                    Readiness::Port => format!("does not listen on {}", self.address),
                    Readiness::Line(text) => format!("has not written a line with {text:?}"),
                };
                let words = last_lines(&peer.logs);
                Err(PeerError::Silent { server: self.name.clone(), missing, words })
            }
        }
    }

    fn command(&self, smig: &Path) -> io::Result<Command> {
        let log = File::create(&self.log)?;
        let mut command = Command::new(smig);
        command.args(["lab", "exec-child", "--"]).args(&self.command);
        command.envs(self.process.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        // Its own process group: it gets no signals from the terminal, and its stop signal reaches its child
        // processes.
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
        let words = last_lines(&self.logs);
        Err(format!("{} exited during the run; its last output:\n{words}", self.name))
    }
}

enum StartError {
    Io(io::Error),
    Ended(ExitStatus),
    Silent,
}

/// What the thread of a process needs.
struct Start {
    address: SocketAddr,
    /// Standard output and standard error of the process.
    log: PathBuf,
    process: ProcessOptions,
}

/// Runs the server until it ends or the sender of `stopped` is dropped, on a thread inside the host.
fn supervise(
    command: Command,
    start: &Start,
    ready: &mpsc::Sender<Result<(), StartError>>,
    stopped: &mpsc::Receiver<()>,
) -> Option<ExitStatus> {
    let mut child = match Child::spawn_here(command, || ()) {
        Ok(child) => child,
        Err(error) => {
            // The thread that called `start` waits for it.
            let _ = ready.send(Err(StartError::Io(error)));
            return None;
        }
    };
    let result = wait_until_ready(&mut child, start);
    let is_up = result.is_ok();
    let _ = ready.send(result);
    if is_up {
        let pause = Duration::from_millis(50);
        while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(status);
            }
        }
        request_stop(&mut child, start.process.stop);
    }
    // Dropping the child kills what is left of its processes.
    None
}

fn wait_until_ready(child: &mut Child, start: &Start) -> Result<(), StartError> {
    let began = Instant::now();
    let mut log = LogSearch::default();
    loop {
        let is_ready = match &start.process.ready {
            Readiness::Port => {
                TcpStream::connect_timeout(&start.address, Duration::from_secs(1)).is_ok()
            }
            Readiness::Line(text) => log.finds(text.as_bytes(), &start.log),
        };
        if is_ready {
            return Ok(());
        }
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return Err(StartError::Ended(status)),
            Err(error) => return Err(StartError::Io(error)),
        }
        if began.elapsed() > READY_TIMEOUT {
            return Err(StartError::Silent);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Looks for a text in what a log has gained since the last time.
#[derive(Debug, Default)]
struct LogSearch {
    /// Bytes that have been read.
    read: u64,
    /// The last ones of them: the text may begin there.
    last: Vec<u8>,
}

impl LogSearch {
    fn finds(&mut self, text: &[u8], log: &Path) -> bool {
        let mut chunk = vec![0; LOG_CHUNK];
        // A log that cannot be read has no text.
        let Ok(mut log) = File::open(log) else { return false };
        if log.seek(SeekFrom::Start(self.read)).is_err() {
            return false;
        }
        let began = Instant::now();
        // A server that writes faster than it is read must not keep the lab here.
        while began.elapsed() < Duration::from_secs(1)
            && let Ok(read @ 1..) = log.read(&mut chunk)
        {
            self.read += read as u64;
            self.last.extend_from_slice(&chunk[..read]);
            if self.last.windows(text.len()).any(|part| part == text) {
                return true;
            }
            self.last.drain(..self.last.len().saturating_sub(text.len() - 1));
        }
        false
    }
}

/// Sends the server and its child processes the signal that stops them, and waits until the server has ended.
fn request_stop(child: &mut Child, signal: StopSignal) {
    let signal = match signal {
        StopSignal::Term => Signal::TERM,
        StopSignal::Int => Signal::INT,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Hup => Signal::HUP,
        StopSignal::Kill => return,
    };
    if let Some(group) = group_of(child) {
        // Fails if they have already ended.
        let _ = kill_process_group(group, signal);
    }
    let began = Instant::now();
    while began.elapsed() < STOP_TIMEOUT && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the process group of a command that was started in its own.
fn group_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// Returns the last bytes of a log.
fn end_of(log: &Path) -> io::Result<Vec<u8>> {
    let mut log = File::open(log)?;
    let from = log.metadata()?.len().saturating_sub(LOG_CHUNK as u64);
    log.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    log.take(LOG_CHUNK as u64).read_to_end(&mut text)?;
    Ok(text)
}

fn last_lines(logs: &[Option<PathBuf>]) -> String {
    let last = |log: &PathBuf| {
        let text = end_of(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let from = lines.len().saturating_sub(MAX_LOG_LINES);
        lines.iter().skip(from).map(|line| format!("  {line}\n")).collect::<String>()
    };
    logs.iter().flatten().map(last).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_log_is_searched_where_it_has_grown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut search = LogSearch::default();
        assert!(!search.finds(b"serving", &path), "there is none yet");
        let mut log = File::create(&path).unwrap();
        log.write_all(&b"x".repeat(LOG_CHUNK)).unwrap();
        log.write_all(b"\nser").unwrap();
        assert!(!search.finds(b"serving", &path));
        assert_eq!(search.last, b"xx\nser");
        log.write_all(b"ving\n").unwrap();
        assert!(search.finds(b"serving", &path));
        assert_eq!(end_of(&path).unwrap().len(), LOG_CHUNK);
    }
}
