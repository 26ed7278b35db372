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
use crate::scenario::{Readiness, Starvation, StopSignal};

/// Timeout for a server to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between checks of whether it is ready or has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time for a server to end after its stop signal, before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of log lines in an error message.
const MAX_LOG_LINES: usize = 12;
/// Bytes of a log that are read at once.
const LOG_CHUNK_BYTES: usize = 64 << 10;

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An I/O error of its files or its process.
    #[error("{server}: {step}: {cause}")]
    Io {
        /// The server's name in the scenario.
        server: String,
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The server ended during its start.
    #[error(
        "{server} exited ({status}); its command:\n  {command}\nits last output:\n{last_output}"
    )]
    Exited {
        /// The server's name in the scenario.
        server: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its command line.
        command: String,
        /// The last lines of its log.
        last_output: String,
    },
    /// The server runs, but is not ready.
    #[error("{server} {unmet_condition} after {} s; its last output:\n{last_output}", READY_TIMEOUT.as_secs())]
    NotReady {
        /// The server's name in the scenario.
        server: String,
        /// What it has not done, as a predicate.
        unmet_condition: String,
        /// The last lines of its log.
        last_output: String,
    },
}

/// A running server and its backends. Dropping it stops them and waits for them.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: String,
    /// Its output, and the log that it writes itself.
    logs: [Option<PathBuf>; 2],
    /// Dropping it stops the server.
    stop_sender: Option<mpsc::Sender<()>>,
    thread: Option<HostThread<Option<ExitStatus>>>,
    /// Backends, stopped after the server itself.
    _backends: Vec<Self>,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.stop_sender.take());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

impl Launch {
    /// Starts the server in a host and waits until it is ready. `smig` starts the program
    /// (`smig lab exec-child`) in a PID namespace: its descendants are killed with it, and it with this process.
    ///
    /// # Errors
    /// The server does not start; the error has the last lines of its log.
    pub(crate) fn start(&self, host: &Host, smig: &Path) -> Result<ServerProcess, ServerError> {
        let backends = self
            .backends
            .iter()
            .map(|launch| launch.start(host, smig))
            .collect::<Result<Vec<_>, _>>()?;
        let io_error =
            |step| move |cause| ServerError::Io { server: self.name.clone(), step, cause };
        let paths = self.process.own_log.iter().chain(self.files.iter().map(|(path, _)| path));
        for dir in paths.filter_map(|path| path.parent()) {
            fs::create_dir_all(dir).map_err(io_error("creating its directory"))?;
        }
        for (path, content) in &self.files {
            fs::write(path, content).map_err(io_error("writing its configuration"))?;
        }
        let command = self.build_command(smig).map_err(io_error("opening its log"))?;
        let (stop_sender, stop_receiver) = mpsc::channel();
        let (ready_sender, ready_receiver) = mpsc::channel();
        let params = StartParams {
            address: self.address,
            log: self.log.clone(),
            process: self.process.clone(),
        };
        let run = move || supervise(command, &params, &ready_sender, &stop_receiver);
        let thread = host.run(run).map_err(io_error("entering its host"))?;
        let server = ServerProcess {
            name: self.name.clone(),
            logs: [Some(self.log.clone()), self.process.own_log.clone()],
            stop_sender: Some(stop_sender),
            thread: Some(thread),
            _backends: backends,
        };
        match ready_receiver.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err(StartError::Io(cause))) => Err(io_error("starting it")(cause)),
            Ok(Err(StartError::Exited(status))) => {
                let last_output = last_lines(&server.logs);
                let command = self.command.join(" ");
                Err(ServerError::Exited { server: self.name.clone(), status, command, last_output })
            }
            Ok(Err(StartError::NotReady)) | Err(_) => {
                let unmet_condition = match &self.process.readiness {
                    Readiness::Port => format!("does not listen on {}", self.address),
                    Readiness::Line(text) => format!("has not written a line with {text:?}"),
                };
                let last_output = last_lines(&server.logs);
                Err(ServerError::NotReady {
                    server: self.name.clone(),
                    unmet_condition,
                    last_output,
                })
            }
        }
    }

    fn build_command(&self, smig: &Path) -> io::Result<Command> {
        let log = File::create(&self.log)?;
        let mut command = exec_child(smig);
        command.args(&self.command);
        command.envs(self.process.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        // Its own process group: it gets no signals from the terminal, and its stop signal reaches its child
        // processes.
        command.process_group(0);
        Ok(command)
    }
}

/// Returns a command that starts the program of its further arguments in a PID namespace, without the variables by
/// which the caller configures `smig` for itself: they must not affect a measurement.
pub(crate) fn exec_child(smig: &Path) -> Command {
    let mut command = Command::new(smig);
    command.args(["lab", "exec-child", "--"]);
    for variable in ["SMIG_LOG", "SMIG_AGENT_TOKEN", "OTEL_EXPORTER_OTLP_ENDPOINT"] {
        command.env_remove(variable);
    }
    command
}

impl ServerProcess {
    /// Checks that the server is still running.
    ///
    /// # Errors
    /// The last lines of its log if it has ended.
    pub(crate) fn check_running(&self) -> Result<(), String> {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        let last_output = last_lines(&self.logs);
        Err(format!("{} exited during the run; its last output:\n{last_output}", self.name))
    }
}

enum StartError {
    Io(io::Error),
    Exited(ExitStatus),
    NotReady,
}

/// Parameters of the thread that supervises a process.
struct StartParams {
    address: SocketAddr,
    /// Standard output and standard error of the process.
    log: PathBuf,
    process: ProcessOptions,
}

/// Runs the server until it ends or the sender of `stop_receiver` is dropped, on a thread inside the host.
fn supervise(
    command: Command,
    params: &StartParams,
    ready_sender: &mpsc::Sender<Result<(), StartError>>,
    stop_receiver: &mpsc::Receiver<()>,
) -> Option<ExitStatus> {
    let mut child = match Child::spawn_in_current_namespace(command, || ()) {
        Ok(child) => child,
        Err(error) => {
            // The thread that called `start` waits for it.
            let _ = ready_sender.send(Err(StartError::Io(error)));
            return None;
        }
    };
    let result = wait_until_ready(&mut child, params);
    let is_ready = result.is_ok();
    let _ = ready_sender.send(result);
    if is_ready {
        let ended = match params.process.starved {
            None => wait_for_end(&mut child, stop_receiver),
            Some(starved) => starve_until_end(&mut child, starved, stop_receiver),
        };
        if ended.is_some() {
            return ended;
        }
        stop_and_wait(&mut child, params.process.stop_signal);
    }
    // Dropping the child kills its remaining processes.
    None
}

/// Waits until the server ends; `None` if it is to be stopped.
fn wait_for_end(child: &mut Child, stop_receiver: &mpsc::Receiver<()>) -> Option<ExitStatus> {
    let interval = Duration::from_millis(50);
    while let Err(mpsc::RecvTimeoutError::Timeout) = stop_receiver.recv_timeout(interval) {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
    }
    None
}

/// As [`wait_for_end`], but the server's processes are stopped (`SIGSTOP`) for a part of each period. They run when this
/// returns. If this process is killed meanwhile, the kernel kills them, stopped or not.
fn starve_until_end(
    child: &mut Child,
    starved: Starvation,
    stop_receiver: &mpsc::Receiver<()>,
) -> Option<ExitStatus> {
    let group = process_group(child)?;
    let started_at = Instant::now();
    let mut ended = None;
    for period in 0.. {
        let runs_until = started_at + starved.every.0 * period + starved.runs.0;
        let stopped_until = started_at + starved.every.0 * (period + 1);
        for (signal, until) in [(Signal::CONT, runs_until), (Signal::STOP, stopped_until)] {
            // Fails if they have ended.
            let _ = kill_process_group(group, signal);
            let time = until.saturating_duration_since(Instant::now());
            if stop_receiver.recv_timeout(time) != Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = kill_process_group(group, Signal::CONT);
                return None;
            }
        }
        if let Ok(Some(status)) = child.try_wait() {
            ended = Some(status);
            break;
        }
    }
    ended
}

fn wait_until_ready(child: &mut Child, params: &StartParams) -> Result<(), StartError> {
    let started_at = Instant::now();
    let mut log = LogSearch::default();
    loop {
        let is_ready = match &params.process.readiness {
            Readiness::Port => {
                TcpStream::connect_timeout(&params.address, Duration::from_secs(1)).is_ok()
            }
            Readiness::Line(text) => log.search_for(text.as_bytes(), &params.log),
        };
        if is_ready {
            return Ok(());
        }
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return Err(StartError::Exited(status)),
            Err(error) => return Err(StartError::Io(error)),
        }
        if started_at.elapsed() > READY_TIMEOUT {
            return Err(StartError::NotReady);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Searches a growing log for a text; each search continues where the last one stopped.
#[derive(Debug, Default)]
struct LogSearch {
    /// Number of bytes that have been read.
    offset: u64,
    /// The last of them, in which the text may begin.
    tail: Vec<u8>,
}

impl LogSearch {
    fn search_for(&mut self, text: &[u8], log: &Path) -> bool {
        let mut chunk = vec![0; LOG_CHUNK_BYTES];
        // An unreadable log counts as empty.
        let Ok(mut log) = File::open(log) else { return false };
        if log.seek(SeekFrom::Start(self.offset)).is_err() {
            return false;
        }
        let started_at = Instant::now();
        // Limits the loop for a server that writes faster than the log is read.
        while started_at.elapsed() < Duration::from_secs(1)
            && let Ok(read @ 1..) = log.read(&mut chunk)
        {
            self.offset += read as u64;
            self.tail.extend_from_slice(&chunk[..read]);
            if self.tail.windows(text.len()).any(|part| part == text) {
                return true;
            }
            self.tail.drain(..self.tail.len().saturating_sub(text.len() - 1));
        }
        false
    }
}

/// Sends the server and its child processes the signal that stops them, and waits until the server has ended.
fn stop_and_wait(child: &mut Child, signal: StopSignal) {
    let signal = match signal {
        StopSignal::Term => Signal::TERM,
        StopSignal::Int => Signal::INT,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Hup => Signal::HUP,
        StopSignal::Kill => return,
    };
    if let Some(group) = process_group(child) {
        // Fails if they have already ended.
        let _ = kill_process_group(group, signal);
    }
    let started_at = Instant::now();
    while started_at.elapsed() < STOP_TIMEOUT && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the process group of a command that was started in its own.
fn process_group(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// Returns the last bytes of a log.
fn read_tail(log: &Path) -> io::Result<Vec<u8>> {
    let mut log = File::open(log)?;
    let from = log.metadata()?.len().saturating_sub(LOG_CHUNK_BYTES as u64);
    log.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    log.take(LOG_CHUNK_BYTES as u64).read_to_end(&mut text)?;
    Ok(text)
}

fn last_lines(logs: &[Option<PathBuf>]) -> String {
    let tail_text = |log: &PathBuf| {
        let text = read_tail(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let from = lines.len().saturating_sub(MAX_LOG_LINES);
        lines.iter().skip(from).map(|line| format!("  {line}\n")).collect::<String>()
    };
    logs.iter().flatten().map(tail_text).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::scenario::TimeSpan;

    #[test]
    fn the_callers_settings_do_not_reach_measured_programs() {
        let command = exec_child(Path::new("smig"));
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
        for variable in ["SMIG_LOG", "SMIG_AGENT_TOKEN", "OTEL_EXPORTER_OTLP_ENDPOINT"] {
            assert!(removed.iter().any(|(name, _)| *name == variable), "{variable}");
        }
    }

    #[test]
    fn a_starved_process_is_stopped_at_times_and_runs_at_the_end() {
        let mut command = Command::new("sleep");
        command.arg("86400").process_group(0);
        let mut child = Child::spawn_in_current_namespace(command, || ()).unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        let state = move || {
            let stat = fs::read_to_string(&stat).unwrap();
            stat.rsplit(") ").next().unwrap().chars().next().unwrap()
        };
        let wait_for = |expected: char| {
            let started_at = Instant::now();
            while state() != expected {
                assert!(started_at.elapsed() < READY_TIMEOUT, "never {expected}");
                thread::sleep(Duration::from_millis(1));
            }
        };
        let (stop_sender, stop_receiver) = mpsc::channel();
        let span = |millis| TimeSpan(Duration::from_millis(millis));
        let starved = Starvation { runs: span(20), every: span(60) };
        thread::scope(|scope| {
            let child = &mut child;
            let starve = scope.spawn(move || starve_until_end(child, starved, &stop_receiver));
            for expected in ['T', 'S', 'T', 'S'] {
                wait_for(expected);
            }
            drop(stop_sender);
            assert_eq!(starve.join().unwrap(), None);
        });
        wait_for('S');
        assert!(!child.kill().unwrap().success());
    }

    #[test]
    fn a_log_search_continues_where_it_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut search = LogSearch::default();
        assert!(!search.search_for(b"serving", &path), "there is none yet");
        let mut log = File::create(&path).unwrap();
        log.write_all(&b"x".repeat(LOG_CHUNK_BYTES)).unwrap();
        log.write_all(b"\nser").unwrap();
        assert!(!search.search_for(b"serving", &path));
        assert_eq!(search.tail, b"xx\nser");
        log.write_all(b"ving\n").unwrap();
        assert!(search.search_for(b"serving", &path));
        assert_eq!(read_tail(&path).unwrap().len(), LOG_CHUNK_BYTES);
    }
}
