//! Clients that are commands of the user: one process for each request of a transfer's schedule.

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;
use smig_testbed::netns::Child;
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::material::path_of;
use super::result::{ObjectResult, Outcome};
use super::run::Run;
use crate::peer::program_named;
use crate::scenario::{ClientCommand, ResultFormat, fill};

/// What clients that are commands need.
#[derive(Debug, Clone)]
pub(crate) struct CommandEnv {
    /// The `smig` program, which starts them so that everything that they start ends with them.
    pub(crate) smig: PathBuf,
    /// The certificate that they must trust, PEM.
    pub(crate) certificate: PathBuf,
}

/// A client that is a command.
#[derive(Debug)]
pub(super) struct CommandClient {
    command: ClientCommand,
    program: PathBuf,
    origin: String,
    server: SocketAddr,
    seed: u64,
    env: CommandEnv,
}

/// One object, as a command reports it. Times are milliseconds since the start of the command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectLine {
    /// Time of the request.
    #[serde(default)]
    start_ms: f64,
    /// Arrival of the response's header section.
    head_ms: Option<f64>,
    /// Arrival of the first bytes of the body.
    first_byte_ms: Option<f64>,
    /// The end of the transfer.
    end_ms: f64,
    /// Transferred bytes of the body.
    bytes: u64,
    /// Expected size of the body; the transfer's if absent.
    size: Option<u64>,
    /// Why the request failed.
    error: Option<String>,
}

impl CommandClient {
    pub(super) fn new(
        command: &ClientCommand,
        server: SocketAddr,
        has_tls: bool,
        seed: u64,
        env: &CommandEnv,
    ) -> Result<Self, String> {
        let name = command.argv.first().map_or("", String::as_str);
        let program = program_named(name).ok_or_else(|| format!("{name:?} is not installed"))?;
        let scheme = if has_tls { "https" } else { "http" };
        Ok(Self {
            command: command.clone(),
            program,
            origin: format!("{scheme}://{server}"),
            server,
            seed,
            env: env.clone(),
        })
    }

    /// Runs the command once; returns its objects. `empty` is the result of a request that starts now.
    pub(super) async fn run(&self, run: &Run, empty: ObjectResult) -> Vec<ObjectResult> {
        let (ended, output) = self.output(run, &empty).await;
        let end = |outcome| ObjectResult { ended_ns: ended, outcome, ..empty.clone() };
        let output = match output {
            Ok(Some(output)) => output,
            Ok(None) => return vec![end(Outcome::TimedOut)],
            Err(why) => return vec![end(Outcome::Failed(why))],
        };
        let failure = failure(&output);
        match (self.command.result, failure) {
            (ResultFormat::Exit, None) => {
                vec![ObjectResult { bytes: empty.size, ..end(Outcome::Complete) }]
            }
            (ResultFormat::Exit, Some(why)) => vec![end(Outcome::Failed(why))],
            (ResultFormat::JsonLines, failure) => {
                let (mut objects, fault) = objects(&output.stdout, &empty);
                let none = || objects.is_empty().then(|| "it has printed no object".to_owned());
                if let Some(why) = failure.or(fault).or_else(none) {
                    objects.push(end(Outcome::Failed(why)));
                }
                objects
            }
        }
    }

    /// Returns when the command ended, and its output; `None` if it had to be killed at the run's end.
    async fn output(
        &self,
        run: &Run,
        object: &ObjectResult,
    ) -> (u64, Result<Option<Output>, String>) {
        let value = |name: &str| self.value(name, object);
        let mut command = Command::new(&self.env.smig);
        command.args(["lab", "exec-child", "--"]).arg(&self.program);
        command.args(self.command.argv.iter().skip(1).map(|text| fill(text, &value)));
        let environment = self.command.environment.iter();
        command.envs(environment.map(|(name, text)| (name, fill(text, &value))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own process group: it gets no signals from the terminal.
        command.process_group(0);
        let output = timeout_at(run.deadline, output_of(command)).await;
        let ended = run.since_began();
        (ended, output.ok().transpose().map_err(|error| error.to_string()))
    }

    fn value(&self, name: &str, object: &ObjectResult) -> Option<String> {
        Some(match name {
            "url" => format!("{}{}", self.origin, path_of(object.size)),
            "origin" => self.origin.clone(),
            "addr" => self.server.ip().to_string(),
            "port" => self.server.port().to_string(),
            "size" => object.size.to_string(),
            "number" => object.number.to_string(),
            "seed" => self.seed.to_string(),
            "cert" => shown(&self.env.certificate),
            _ => return None,
        })
    }
}

/// Runs a command until it has ended and its output is closed. Dropping the future kills all its processes.
async fn output_of(command: Command) -> io::Result<Output> {
    let (tell, ended) = oneshot::channel();
    let mut child = Child::spawn_here(command, || _ = tell.send(()))?;
    let pipes = (child.stdout.take(), child.stderr.take());
    let (Some(out), Some(err)) = pipes else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let (mut out, mut err) = (ChildStdout::from_std(out)?, ChildStderr::from_std(err)?);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    tokio::try_join!(out.read_to_end(&mut stdout), err.read_to_end(&mut stderr))?;
    // Fails only if the waiting thread has panicked, which `wait` reports.
    let _ = ended.await;
    Ok(Output { status: child.wait()?, stdout, stderr })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Returns why a command counts as failed: its status, and its last words.
fn failure(output: &Output) -> Option<String> {
    if output.status.success() {
        return None;
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().rfind(|line| !line.trim().is_empty()).map(str::trim);
    Some(
        last.map_or_else(|| output.status.to_string(), |last| format!("{}: {last}", output.status)),
    )
}

/// Reads the objects that a command has printed, up to the first line that is none.
fn objects(output: &[u8], empty: &ObjectResult) -> (Vec<ObjectResult>, Option<String>) {
    let text = String::from_utf8_lossy(output);
    let mut objects = Vec::new();
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    for (number, line) in lines {
        let read = serde_json::from_str::<ObjectLine>(line).map_err(|error| error.to_string());
        match read.and_then(|line| line.object(empty)) {
            Ok(object) => objects.push(object),
            Err(why) => return (objects, Some(format!("line {number} of its output: {why}"))),
        }
    }
    (objects, None)
}

impl ObjectLine {
    fn object(self, empty: &ObjectResult) -> Result<ObjectResult, String> {
        let times = [Some(self.start_ms), self.head_ms, self.first_byte_ms, Some(self.end_ms)];
        let times: Vec<f64> = times.into_iter().flatten().collect();
        if !times.iter().all(|time| time.is_finite() && *time >= 0.0) || !times.is_sorted() {
            return Err("start_ms, head_ms, first_byte_ms and end_ms must be numbers of \
                        milliseconds from 0 on that do not decrease"
                .into());
        }
        let at = |ms: f64| empty.started_ns + (ms * 1e6) as u64;
        let size = self.size.unwrap_or(empty.size);
        Ok(ObjectResult {
            size,
            started_ns: at(self.start_ms),
            head_ns: self.head_ms.map(at),
            first_byte_ns: self.first_byte_ms.map(at),
            ended_ns: at(self.end_ms),
            bytes: self.bytes,
            outcome: match self.error {
                Some(why) => Outcome::Failed(why),
                None if self.bytes == size => Outcome::Complete,
                None => Outcome::Damaged,
            },
            ..empty.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{SizeClass, TransferDirection};

    fn empty() -> ObjectResult {
        ObjectResult {
            name: "small".into(),
            number: 0,
            client: "load".into(),
            role: SizeClass::Small,
            direction: TransferDirection::Download,
            size: 1_000,
            started_ns: 5_000_000,
            head_ns: None,
            first_byte_ns: None,
            ended_ns: 0,
            bytes: 0,
            connections: Vec::new(),
            moves: Vec::new(),
            outcome: Outcome::TimedOut,
            cancel: None,
            progress: Vec::new(),
        }
    }

    #[test]
    fn lines_are_objects() {
        let output = b"{\"end_ms\": 61.5, \"bytes\": 1000}\n\n\
            {\"start_ms\": 1, \"first_byte_ms\": 2, \"end_ms\": 3, \"bytes\": 7, \"size\": 8}\n\
            {\"end_ms\": 4, \"bytes\": 0, \"error\": \"refused\"}\n";
        let (objects, fault) = objects(output, &empty());
        assert_eq!(fault, None);
        let [whole, short, failed] = &objects[..] else { panic!("{objects:?}") };
        assert_eq!((whole.started_ns, whole.ended_ns), (5_000_000, 66_500_000));
        assert_eq!((&whole.outcome, whole.bytes), (&Outcome::Complete, 1_000));
        assert_eq!((short.started_ns, short.first_byte_ns), (6_000_000, Some(7_000_000)));
        assert_eq!((&short.outcome, short.size), (&Outcome::Damaged, 8));
        assert_eq!(failed.outcome, Outcome::Failed("refused".into()));
    }

    #[test]
    fn a_wrong_line_is_named_and_the_lines_before_it_count() {
        let good = "{\"end_ms\": 1, \"bytes\": 1000}\n";
        for (line, what) in [
            ("hello", "line 2 of its output: expected value"),
            ("{\"bytes\": 1}", "missing field `end_ms`"),
            ("{\"end_ms\": 1, \"bytes\": 1, \"ms\": 1}", "unknown field `ms`"),
            ("{\"end_ms\": -1, \"bytes\": 1}", "must be numbers of milliseconds from 0 on"),
            ("{\"start_ms\": 2, \"end_ms\": 1, \"bytes\": 1}", "that do not decrease"),
        ] {
            let (objects, fault) = objects(format!("{good}{line}\n").as_bytes(), &empty());
            assert_eq!(objects.len(), 1, "{line}");
            assert!(fault.as_ref().is_some_and(|fault| fault.contains(what)), "{line}: {fault:?}");
        }
    }
}
