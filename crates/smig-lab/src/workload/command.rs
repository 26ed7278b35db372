//! Clients that are commands: one process for each request of a transfer's schedule.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, ExitStatus, Stdio};

use smig_testbed::netns::Child;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use super::command_output::{ObjectLines, StderrTail};
use super::result::{ObjectResult, Outcome};
use super::run::WorkloadRun;
use super::server_files::object_path;
use crate::scenario::{ClientCommand, ResultFormat, fill_placeholders};
use crate::servers::{exec_child, find_command};

/// Environment of clients that are commands.
#[derive(Debug, Clone)]
pub(crate) struct CommandEnv {
    /// The `smig` program, which starts each in a PID namespace: its descendants end with it.
    pub(crate) smig: PathBuf,
    /// Directory of the run.
    pub(crate) scratch: PathBuf,
    /// The certificate that they must trust, PEM.
    pub(crate) certificate: PathBuf,
    /// The servers' addresses, by name.
    pub(crate) servers: BTreeMap<String, SocketAddr>,
    /// The servers' programs, by name; that of HTTP/3 is a client, too.
    pub(crate) programs: BTreeMap<String, PathBuf>,
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

/// How a command ended.
#[derive(Debug)]
enum CommandEnd {
    Exited(ExitStatus),
    /// It was killed at the end of the run.
    TimedOut,
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
        let program = find_command(&command.argv, &env.smig)
            .ok_or_else(|| format!("{name:?} is not installed"))?;
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

    /// Runs the command once; returns its objects. `initial` is the result before the start.
    pub(super) async fn run(&self, run: &WorkloadRun, initial: ObjectResult) -> Vec<ObjectResult> {
        let mut lines = ObjectLines::new(initial.clone());
        let mut stderr_tail = StderrTail::default();
        let command = self.build_command(&initial);
        let end_result = run_to_end(run, command, &mut lines, &mut stderr_tail).await;
        let ended_ns =
            end_result.as_ref().map_or_else(|_| run.since_began(), |(ended_ns, _)| *ended_ns);
        let failure = match end_result {
            Ok((_, CommandEnd::Exited(status))) if status.success() => None,
            Ok((_, CommandEnd::Exited(status))) => {
                let last =
                    stderr_tail.last_line().map_or_else(String::new, |last| format!(": {last}"));
                Some(Outcome::Failed(format!("{status}{last}")))
            }
            Ok((_, CommandEnd::TimedOut)) => Some(Outcome::TimedOut),
            Err(why) => Some(Outcome::Failed(why)),
        };
        let object_with = |outcome| ObjectResult { ended_ns, outcome, ..initial.clone() };
        match (self.command.result, failure) {
            (ResultFormat::Exit, None) => {
                vec![ObjectResult { bytes: initial.size, ..object_with(Outcome::Complete) }]
            }
            (ResultFormat::Exit, Some(failure)) => vec![object_with(failure)],
            (ResultFormat::JsonLines, failure) => {
                let ObjectLines { mut objects, fault, .. } = lines;
                let no_object =
                    || objects.is_empty().then(|| "it has printed no object".to_owned());
                let fault = || fault.or_else(no_object).map(Outcome::Failed);
                objects.extend(failure.or_else(fault).map(object_with));
                objects
            }
        }
    }

    fn build_command(&self, object: &ObjectResult) -> Command {
        let value = |name: &str| self.placeholder_value(name, object);
        let mut command = exec_child(&self.env.smig);
        command.arg(&self.program);
        command.args(self.command.argv.iter().skip(1).map(|text| fill_placeholders(text, &value)));
        let environment = self.command.environment.iter();
        command.envs(environment.map(|(name, text)| (name, fill_placeholders(text, &value))));
        command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(match self.command.result {
            ResultFormat::Exit => Stdio::null(),
            ResultFormat::JsonLines => Stdio::piped(),
        });
        // Its own process group: it gets no signals from the terminal.
        command.process_group(0);
        command
    }

    fn placeholder_value(&self, name: &str, object: &ObjectResult) -> Option<String> {
        Some(match name {
            "url" => format!("{}{}", self.origin, object_path(object.size)),
            "origin" => self.origin.clone(),
            "addr" => self.server.ip().to_string(),
            "port" => self.server.port().to_string(),
            "size" => object.size.to_string(),
            "number" => object.number.to_string(),
            "seed" => self.seed.to_string(),
            "cert" => path_text(&self.env.certificate),
            "smig" => path_text(&self.env.smig),
            _ => return self.env.servers.get(name).map(ToString::to_string),
        })
    }
}

/// Runs a command and reads its output until it has ended, but not longer than the run. Returns when and how
/// it ended. Dropping the future kills all its processes.
///
/// # Errors
/// Why it could not run to its end.
async fn run_to_end(
    run: &WorkloadRun,
    command: Command,
    lines: &mut ObjectLines,
    stderr_tail: &mut StderrTail,
) -> Result<(u64, CommandEnd), String> {
    let to_text = |error: io::Error| error.to_string();
    let (exit_sender, mut ended) = oneshot::channel();
    // Fails if the run has ended before the command.
    let mut child = Child::spawn_in_current_namespace(command, || _ = exit_sender.send(()))
        .map_err(|error| format!("cannot start it: {error}"))?;
    let stdout = child.stdout.take().map(ChildStdout::from_std).transpose().map_err(to_text)?;
    let stderr = child.stderr.take().map(ChildStderr::from_std).transpose().map_err(to_text)?;
    let read_lines = async {
        let Some(out) = stdout else { return Ok(()) };
        lines.read(out, || run.since_began()).await
    };
    let read_stderr = async {
        let Some(err) = stderr else { return Ok(()) };
        stderr_tail.read(err).await.map_err(to_text)
    };
    let mut reading = pin!(async { tokio::try_join!(read_lines, read_stderr) });
    let (mut ended_ns, mut is_read) = (None, false);
    // `ended_ns` is the time of the exit; output that is still in the pipes is read after it.
    while ended_ns.is_none() || !is_read {
        tokio::select! {
            // Fails only if the waiting thread has panicked, which `wait` reports.
            _ = &mut ended, if ended_ns.is_none() => ended_ns = Some(run.since_began()),
            read = &mut reading, if !is_read => {
                read?;
                is_read = true;
            }
            () = sleep_until(run.deadline) => break,
        }
    }
    let Some(ended_ns) = ended_ns else { return Ok((run.since_began(), CommandEnd::TimedOut)) };
    Ok((ended_ns, CommandEnd::Exited(child.wait().map_err(to_text)?)))
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}
