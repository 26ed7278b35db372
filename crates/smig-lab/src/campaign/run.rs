//! Executes a plan: one process per cell, several in parallel if configured; results are written as
//! they arrive.
//!
//! A single thread writes. If a cell's process is killed, only that cell is lost. If this process
//! is killed, the kernel kills the cells, and the written results remain valid.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use smig_testbed::hystart;
use tokio_util::sync::CancellationToken;

use super::plan::{CampaignError, Disturbed, Missing, Options, Plan};
use super::store::Store;
use crate::recording::TIMELINES;
use crate::scenario::{Trial, TrialId};
use crate::trial::{Programs, TrialResult, TrialSetup, estimated_duration};

/// Interval at which a cell's process is polled.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Progress of a campaign.
#[derive(Debug)]
pub enum Event<'a> {
    /// A cell was started.
    Started {
        /// Identifier of the cell.
        id: &'a TrialId,
        /// Number of the attempt, from 1.
        attempt: u32,
    },
    /// A run was disturbed and will be repeated.
    Rejected {
        /// Identifier of the cell.
        id: &'a TrialId,
        /// Number of the attempt.
        attempt: u32,
        /// The disturbance.
        why: &'a str,
    },
    /// A cell has no result: it was disturbed on every attempt, or failed.
    GivenUp {
        /// Identifier of the cell.
        id: &'a TrialId,
        /// The reason.
        why: &'a str,
    },
    /// A cell's result was written.
    Finished {
        /// The result.
        result: &'a TrialResult,
        /// Estimated time for the remaining cells.
        left: Duration,
    },
}

/// Outcome of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of cells that already had results.
    pub done_before: usize,
    /// Number of cells that finished.
    pub finished: usize,
    /// Number of disturbed runs.
    pub rejected: usize,
    /// Cells without a result, and the reasons.
    pub given_up: Vec<(TrialId, String)>,
    /// Servers that are not installed, whose cells were skipped.
    pub missing: Vec<Missing>,
    /// Number of cells that were not started because the campaign was stopped.
    pub left: usize,
}

/// Messages from the workers to the writer.
enum WorkerMessage {
    Started(TrialId, u32),
    Disturbed(Box<TrialResult>, Retry),
    Failed(TrialId, Duration, String),
    Finished(Box<TrialResult>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    Again,
    Last,
}

/// Runs all planned cells until `stop` is triggered.
///
/// # Errors
/// What the machine lacks, or files that cannot be written. A cell's failure is in the summary.
pub fn run(
    plan: Plan,
    options: &Options,
    stop: &CancellationToken,
    on_event: &mut dyn FnMut(&Event<'_>),
) -> Result<Summary, CampaignError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |cause| CampaignError::Io { path, cause }
    };
    let mut writer = Writer {
        store: Store::open(&options.out, options.share).map_err(fail(&options.out))?,
        options,
        expected: plan.cells.iter().map(|cell| estimated_duration(&cell.scenario)).sum(),
        done: (0.0, 0.0),
        summary: Summary {
            done_before: plan.done,
            finished: 0,
            rejected: 0,
            given_up: Vec::new(),
            missing: plan.missing.clone(),
            left: 0,
        },
    };
    if plan.cells.is_empty() {
        return Ok(writer.summary);
    }
    check_machine(&options.smig)?;
    // Restore the value that killed runs have changed, for runs that use the machine's value. An
    // error is ignored: a user without the permission to restore it cannot have changed it.
    let _ = hystart::repair();
    let programs = Programs {
        smig: options.smig.clone(),
        build: options.build.clone(),
        servers: plan.programs,
        versions: plan.versions,
    };
    let setup = TrialSetup::make(programs, &plan.cells, options.jobs)
        .map_err(fail(&std::env::temp_dir()))?;
    let runner = TrialRunner { setup, options };
    let queue = Mutex::new(plan.cells.iter().collect::<VecDeque<_>>());
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            let (tell, queue, runner) = (tell.clone(), &queue, &runner);
            scope.spawn(move || runner.work(queue, stop, &tell));
        }
        drop(tell);
        for told in &told {
            if let Err(cause) = writer.take(told, on_event) {
                stop.cancel();
                return Err(fail(&options.out)(cause));
            }
        }
        Ok(())
    })?;
    writer.summary.left = queue.lock().unwrap_or_else(PoisonError::into_inner).len();
    Ok(writer.summary)
}

/// Checks whether hosts and links can be created on this machine.
fn check_machine(smig: &Path) -> Result<(), CampaignError> {
    let output = Command::new(smig).args(["lab", "trial", "--check"]).stdin(Stdio::null()).output();
    let output = output.map_err(|cause| CampaignError::Io { path: smig.to_owned(), cause })?;
    if output.status.success() {
        return Ok(());
    }
    Err(CampaignError::Machine(words(&output.stderr)))
}

/// Returns a program's error message without the leading "error: ".
fn words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

/// Receives the workers' messages: writes results, counts, and emits events.
struct Writer<'a> {
    store: Store,
    options: &'a Options,
    /// Estimated total duration of the remaining cells.
    expected: Duration,
    /// Measured and estimated total seconds of the finished cells.
    done: (f64, f64),
    summary: Summary,
}

impl Writer<'_> {
    fn take(
        &mut self,
        told: WorkerMessage,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) -> io::Result<()> {
        match told {
            WorkerMessage::Started(id, attempt) => on_event(&Event::Started { id: &id, attempt }),
            WorkerMessage::Disturbed(result, verdict) => {
                let why = result.disturbed.join("; ");
                self.summary.rejected += 1;
                let line = serde_json::json!({
                    "id": result.id, "attempt": result.attempt, "why": why,
                    "link": result.link, "device_drops": result.device_drops,
                });
                self.store.reject(&line)?;
                let (id, attempt) = (&result.id, result.attempt);
                if verdict == Retry::Again {
                    on_event(&Event::Rejected { id, attempt, why: &why });
                } else {
                    self.forget(estimated_duration(&result.scenario));
                    let why = format!("disturbed in each of {attempt} attempts: {why}");
                    on_event(&Event::GivenUp { id, why: &why });
                    self.summary.given_up.push((id.clone(), why));
                }
            }
            WorkerMessage::Failed(id, expected, why) => {
                self.forget(expected);
                self.store.reject(&serde_json::json!({"id": id, "why": why}))?;
                on_event(&Event::GivenUp { id: &id, why: &why });
                self.summary.given_up.push((id, why));
            }
            WorkerMessage::Finished(result) => {
                self.store.add(&result)?;
                let expected = estimated_duration(&result.scenario);
                self.forget(expected);
                self.done.0 += result.seconds;
                self.done.1 += expected.as_secs_f64();
                self.summary.finished += 1;
                on_event(&Event::Finished { result: &result, left: self.left() });
            }
        }
        Ok(())
    }

    fn forget(&mut self, expected: Duration) {
        self.expected = self.expected.saturating_sub(expected);
    }

    fn left(&self) -> Duration {
        let slower = if self.done.1 > 0.0 { self.done.0 / self.done.1 } else { 1.0 };
        self.expected.mul_f64(slower / self.options.jobs.max(1) as f64)
    }
}

/// State that all workers share.
struct TrialRunner<'a> {
    setup: TrialSetup,
    options: &'a Options,
}

impl TrialRunner<'_> {
    fn work(
        &self,
        queue: &Mutex<VecDeque<&Trial>>,
        stop: &CancellationToken,
        tell: &mpsc::Sender<WorkerMessage>,
    ) {
        while !stop.is_cancelled() {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(cell) = next else { return };
            self.cell(cell, stop, tell);
        }
    }

    fn cell(&self, cell: &Trial, stop: &CancellationToken, tell: &mpsc::Sender<WorkerMessage>) {
        // Cannot fail: the receiver outlives the workers.
        let tell = |told| drop(tell.send(told));
        let attempts = cell.scenario.accept.attempts;
        for attempt in 1..=attempts {
            tell(WorkerMessage::Started(cell.id.clone(), attempt));
            let result = match self.attempt(cell, attempt, stop) {
                Ok(Some(result)) => result,
                Ok(None) => return,
                Err(why) => {
                    let expected = estimated_duration(&cell.scenario);
                    return tell(WorkerMessage::Failed(cell.id.clone(), expected, why));
                }
            };
            let is_last = attempt == attempts;
            let counts = result.disturbed.is_empty();
            if counts || is_last && self.options.disturbed == Disturbed::Keep {
                return tell(WorkerMessage::Finished(Box::new(result)));
            }
            let verdict = if is_last { Retry::Last } else { Retry::Again };
            tell(WorkerMessage::Disturbed(Box::new(result), verdict));
        }
    }

    /// Runs a cell once, in its own process; `None` if it was stopped.
    fn attempt(
        &self,
        cell: &Trial,
        attempt: u32,
        stop: &CancellationToken,
    ) -> Result<Option<TrialResult>, String> {
        let shown = |error: io::Error| error.to_string();
        let (_scratch, mut order) = self.setup.request(cell, attempt).map_err(shown)?;
        order.timeline = self.timeline(cell);
        let order = serde_json::to_vec(&order).map_err(|error| error.to_string())?;
        let mut child = Command::new(&self.options.smig)
            .args(["lab", "trial"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C must reach only this process, which then kills the others.
            .process_group(0)
            .spawn()
            .map_err(shown)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (result, complaint) = thread::scope(|scope| {
            let result = scope.spawn(|| read_all(stdout));
            let complaint = scope.spawn(|| read_all(stderr));
            if let Some(mut stdin) = stdin {
                // A failed write is ignored: a process that exited early reports why itself.
                let _ = stdin.write_all(&order);
            }
            wait(&mut child, stop);
            (result.join().unwrap_or_default(), complaint.join().unwrap_or_default())
        });
        let status = child.wait().map_err(shown)?;
        if status.success() {
            let result = serde_json::from_slice(&result);
            return result.map(Some).map_err(|error| format!("unreadable result: {error}"));
        }
        if stop.is_cancelled() {
            return Ok(None);
        }
        let complaint = words(&complaint);
        Err(if complaint.is_empty() { format!("its process exited: {status}") } else { complaint })
    }

    /// Returns the path for a cell's timeline, if one is to be recorded.
    fn timeline(&self, cell: &Trial) -> Option<PathBuf> {
        let name = format!("{}.timeline.jsonl", file_stem(&cell.id));
        cell.scenario.record.timeline.then(|| self.options.out.join(TIMELINES).join(name))
    }
}

/// Returns a file name for a cell.
fn file_stem(id: &TrialId) -> String {
    let text = id.to_string();
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '=' { c } else { '-' }).collect()
}

fn read_all(source: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut source) = source {
        // On an error, return what was read before it.
        let _ = source.read_to_end(&mut bytes);
    }
    bytes
}

/// Waits for a process; kills it if the campaign is stopped.
fn wait(child: &mut Child, stop: &CancellationToken) {
    loop {
        match child.try_wait() {
            Ok(None) if stop.is_cancelled() => {
                // An error is ignored: the process may have just exited.
                let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
                return;
            }
            Ok(None) => thread::sleep(LOOK_EVERY),
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

/// Copies the scenario next to its results.
///
/// # Errors
/// The directory cannot be written.
pub fn keep_scenario(options: &Options, scenario: &Path) -> io::Result<()> {
    fs::create_dir_all(&options.out)?;
    fs::copy(scenario, options.out.join("scenario.toml")).map(drop)
}
