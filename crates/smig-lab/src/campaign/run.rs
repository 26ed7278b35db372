//! Executes a plan: one process per trial, in parallel if configured; results are written as
//! they arrive.
//!
//! A single thread writes. If a trial's process is killed, only that trial is lost. If this process
//! is killed, the kernel kills the trials, and the written results remain valid.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use smig_testbed::bpf::BpfGuard;
use smig_testbed::hystart;
use tokio_util::sync::CancellationToken;

use super::jobs::Gate;
use super::plan::{CampaignError, CampaignOptions, MissingServer, OnDisturbed, Plan};
use super::store::ResultStore;
use crate::recording::TIMELINES_DIR;
use crate::scenario::{Trial, TrialId};
use crate::trial::{
    Programs, TrialResult, TrialSetup, bpf_controls, estimated_duration, hold_bpf_control,
};

/// Interval at which a trial's process is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Progress of a campaign.
#[derive(Debug)]
pub enum CampaignEvent<'a> {
    /// A trial was started.
    Started {
        /// Identifier of the trial.
        id: &'a TrialId,
        /// Number of the attempt, from 1.
        attempt: u32,
    },
    /// A run was disturbed and will be repeated.
    Rejected {
        /// Identifier of the trial.
        id: &'a TrialId,
        /// Number of the attempt.
        attempt: u32,
        /// The disturbance.
        reason: &'a str,
    },
    /// A trial has no result: it was disturbed on every attempt, or failed.
    GivenUp {
        /// Identifier of the trial.
        id: &'a TrialId,
        /// The reason.
        reason: &'a str,
    },
    /// A trial's result was written.
    Finished {
        /// The result.
        result: &'a TrialResult,
        /// Estimated time for the remaining trials.
        time_left: Duration,
    },
}

/// Summary of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignSummary {
    /// Number of trials that already had results.
    pub done_before_count: usize,
    /// Number of trials that finished.
    pub finished_count: usize,
    /// Number of disturbed runs that do not count.
    pub rejected_count: usize,
    /// Trials without a result, and the reasons.
    pub given_up_trials: Vec<(TrialId, String)>,
    /// Servers that are not installed or cannot be built, whose trials were skipped.
    pub missing_servers: Vec<MissingServer>,
    /// Number of trials that were not started or did not end because the campaign was stopped.
    pub left_count: usize,
}

impl CampaignSummary {
    /// Returns whether any trial has a result.
    #[must_use]
    pub const fn has_results(&self) -> bool {
        self.done_before_count + self.finished_count > 0
    }
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
    GiveUp,
}

/// Runs all planned trials until `stop` is cancelled.
///
/// # Errors
/// The machine lacks a prerequisite, or a file cannot be written. A failed trial is in the summary.
pub fn run(
    plan: Plan,
    options: &CampaignOptions,
    stop: &CancellationToken,
    on_event: &mut dyn FnMut(&CampaignEvent<'_>),
) -> Result<CampaignSummary, CampaignError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |cause| CampaignError::Io { path, cause }
    };
    let mut writer = Writer {
        store: ResultStore::open(&options.out, options.shard).map_err(io_error(&options.out))?,
        options,
        remaining_estimate: options.jobs.total_time(&plan.trials),
        finished_s: (0.0, 0.0),
        summary: CampaignSummary {
            done_before_count: plan.done_count,
            finished_count: 0,
            rejected_count: 0,
            given_up_trials: Vec::new(),
            missing_servers: plan.missing_servers.clone(),
            left_count: 0,
        },
    };
    if plan.trials.is_empty() {
        return Ok(writer.summary);
    }
    check_machine(&options.smig)?;
    // Restore the value that killed runs have changed, for runs that use the machine's value. An
    // error is ignored: a user without the permission to restore it cannot have changed it.
    let _ = hystart::repair();
    let _bpf_guards = hold_bpf_controls(&options.smig, &plan.trials);
    let programs = Programs {
        smig: options.smig.clone(),
        build: options.build.clone(),
        servers: plan.programs,
        versions: plan.versions,
    };
    let setup = TrialSetup::create(programs, &plan.trials, options.jobs.max())
        .map_err(io_error(&std::env::temp_dir()))?;
    let runner = TrialRunner { setup, options, gate: Gate::new(options.jobs) };
    let queue = Mutex::new(plan.trials.iter().collect::<VecDeque<_>>());
    let (sender, messages) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..options.jobs.max() {
            let (sender, queue, runner) = (sender.clone(), &queue, &runner);
            scope.spawn(move || runner.run_trials(queue, stop, &sender));
        }
        drop(sender);
        for message in &messages {
            if let Err(cause) = writer.handle(message, on_event) {
                stop.cancel();
                return Err(io_error(&options.out)(cause));
            }
        }
        Ok(())
    })?;
    let mut summary = writer.summary;
    summary.left_count = plan.trials.len() - summary.finished_count - summary.given_up_trials.len();
    Ok(summary)
}

/// Registers the trials' congestion controls once for all of them: a trial that has to compile one disturbs those beside it. A trial
/// that needs one says what fails here.
fn hold_bpf_controls(smig: &Path, trials: &[Trial]) -> Vec<BpfGuard> {
    let controls: BTreeSet<_> =
        trials.iter().flat_map(|trial| bpf_controls(&trial.scenario)).collect();
    controls.into_iter().filter_map(|control| hold_bpf_control(smig, control).ok()).collect()
}

/// Checks whether hosts and links can be created on this machine.
fn check_machine(smig: &Path) -> Result<(), CampaignError> {
    let output = Command::new(smig).args(["lab", "trial", "--check"]).stdin(Stdio::null()).output();
    let output = output.map_err(|cause| CampaignError::Io { path: smig.to_owned(), cause })?;
    if output.status.success() {
        return Ok(());
    }
    Err(CampaignError::Machine(error_message(&output.stderr)))
}

/// Returns a program's error message without the leading "error: ".
fn error_message(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

/// Receives the workers' messages: writes results, counts, and emits events.
struct Writer<'a> {
    store: ResultStore,
    options: &'a CampaignOptions,
    /// Estimated time until the remaining trials have run.
    remaining_estimate: Duration,
    /// Measured and estimated total seconds of the finished trials.
    finished_s: (f64, f64),
    summary: CampaignSummary,
}

impl Writer<'_> {
    fn handle(
        &mut self,
        message: WorkerMessage,
        on_event: &mut dyn FnMut(&CampaignEvent<'_>),
    ) -> io::Result<()> {
        match message {
            WorkerMessage::Started(id, attempt) => {
                on_event(&CampaignEvent::Started { id: &id, attempt })
            }
            WorkerMessage::Disturbed(result, retry) => {
                let reason = result.disturbed.join("; ");
                self.summary.rejected_count += 1;
                let line = serde_json::json!({
                    "id": result.id, "attempt": result.attempt, "why": reason,
                    "link": result.link, "device_drops": result.device_drops,
                });
                self.store.append_rejected(&line)?;
                let (id, attempt) = (&result.id, result.attempt);
                if retry == Retry::Again {
                    on_event(&CampaignEvent::Rejected { id, attempt, reason: &reason });
                } else {
                    self.subtract_estimate(self.options.jobs.estimated_time(&result.scenario));
                    let reason = format!("disturbed in each of {attempt} attempts: {reason}");
                    on_event(&CampaignEvent::GivenUp { id, reason: &reason });
                    self.summary.given_up_trials.push((id.clone(), reason));
                }
            }
            WorkerMessage::Failed(id, estimate, reason) => {
                self.subtract_estimate(estimate);
                self.store.append_rejected(&serde_json::json!({"id": id, "why": reason}))?;
                on_event(&CampaignEvent::GivenUp { id: &id, reason: &reason });
                self.summary.given_up_trials.push((id, reason));
            }
            WorkerMessage::Finished(result) => {
                self.store.append(&result)?;
                self.subtract_estimate(self.options.jobs.estimated_time(&result.scenario));
                self.finished_s.0 += result.seconds;
                self.finished_s.1 += estimated_duration(&result.scenario).as_secs_f64();
                self.summary.finished_count += 1;
                on_event(&CampaignEvent::Finished { result: &result, time_left: self.time_left() });
            }
        }
        Ok(())
    }

    fn subtract_estimate(&mut self, estimate: Duration) {
        self.remaining_estimate = self.remaining_estimate.saturating_sub(estimate);
    }

    fn time_left(&self) -> Duration {
        let slowdown =
            if self.finished_s.1 > 0.0 { self.finished_s.0 / self.finished_s.1 } else { 1.0 };
        self.remaining_estimate.mul_f64(slowdown)
    }
}

/// State that all workers share.
struct TrialRunner<'a> {
    setup: TrialSetup,
    options: &'a CampaignOptions,
    gate: Gate,
}

impl TrialRunner<'_> {
    fn run_trials(
        &self,
        queue: &Mutex<VecDeque<&Trial>>,
        stop: &CancellationToken,
        sender: &mpsc::Sender<WorkerMessage>,
    ) {
        while !stop.is_cancelled() {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(trial) = next else { return };
            let Some(_pass) = self.gate.enter(&trial.scenario, stop) else { return };
            self.run_trial(trial, stop, sender);
        }
    }

    fn run_trial(
        &self,
        trial: &Trial,
        stop: &CancellationToken,
        sender: &mpsc::Sender<WorkerMessage>,
    ) {
        // Cannot fail: the receiver outlives the workers.
        let send = |message| drop(sender.send(message));
        let attempts = trial.scenario.accept.attempts;
        for attempt in 1..=attempts {
            send(WorkerMessage::Started(trial.id.clone(), attempt));
            let result = match self.run_once(trial, attempt, stop) {
                Ok(Some(result)) => result,
                Ok(None) => return,
                Err(why) => {
                    let estimate = self.options.jobs.estimated_time(&trial.scenario);
                    return send(WorkerMessage::Failed(trial.id.clone(), estimate, why));
                }
            };
            let is_last = attempt == attempts;
            let is_valid = result.disturbed.is_empty();
            if is_valid || is_last && self.options.on_disturbed == OnDisturbed::Keep {
                return send(WorkerMessage::Finished(Box::new(result)));
            }
            let retry = if is_last { Retry::GiveUp } else { Retry::Again };
            send(WorkerMessage::Disturbed(Box::new(result), retry));
        }
    }

    /// Runs a trial once, in its own process; `None` if it was stopped.
    fn run_once(
        &self,
        trial: &Trial,
        attempt: u32,
        stop: &CancellationToken,
    ) -> Result<Option<TrialResult>, String> {
        let to_text = |error: io::Error| error.to_string();
        let (_scratch, mut request) = self.setup.create_request(trial, attempt).map_err(to_text)?;
        request.timeline = self.timeline_path(trial);
        let request_json = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        let mut child = Command::new(&self.options.smig)
            .args(["lab", "trial"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C must reach only this process, which then kills the others.
            .process_group(0)
            .spawn()
            .map_err(to_text)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (stdout_output, stderr_output) = thread::scope(|scope| {
            let stdout_reader = scope.spawn(|| read_all(stdout));
            let stderr_reader = scope.spawn(|| read_all(stderr));
            if let Some(mut stdin) = stdin {
                // A failed write is ignored: a process that exited early reports why itself.
                let _ = stdin.write_all(&request_json);
            }
            wait_or_kill(&mut child, stop);
            (stdout_reader.join().unwrap_or_default(), stderr_reader.join().unwrap_or_default())
        });
        let status = child.wait().map_err(to_text)?;
        if status.success() {
            let result = serde_json::from_slice(&stdout_output);
            return result.map(Some).map_err(|error| format!("unreadable result: {error}"));
        }
        if stop.is_cancelled() {
            return Ok(None);
        }
        let message = error_message(&stderr_output);
        Err(if message.is_empty() { format!("its process exited: {status}") } else { message })
    }

    /// Returns the path for a trial's timeline, if one is to be recorded.
    fn timeline_path(&self, trial: &Trial) -> Option<PathBuf> {
        let name = format!("{}.timeline.jsonl", trial.id.file_stem());
        trial.scenario.record.timeline.then(|| self.options.out.join(TIMELINES_DIR).join(name))
    }
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
fn wait_or_kill(child: &mut Child, stop: &CancellationToken) {
    loop {
        match child.try_wait() {
            Ok(None) if stop.is_cancelled() => {
                // An error is ignored: the process may have just exited.
                let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
                return;
            }
            Ok(None) => thread::sleep(POLL_INTERVAL),
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

/// Copies the scenario next to its results.
///
/// # Errors
/// The directory cannot be written.
pub fn copy_scenario(options: &CampaignOptions, scenario: &Path) -> io::Result<()> {
    fs::create_dir_all(&options.out)?;
    fs::copy(scenario, options.out.join("scenario.toml")).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::campaign::jobs::Jobs;
    use crate::campaign::plan::plan;
    use crate::scenario::{Filter, parse};
    use crate::trial::{AcceptedBuilds, Build};

    #[test]
    fn timelines_of_other_campaigns_and_conditions_have_other_names() {
        let stem = |campaign: &str, level: &str| {
            let axis = |number: u32| format!("[variants.an-axis-{number}.\"level {level}\"]\n");
            let axes: String = (0..30).map(axis).collect();
            let text = format!(
                "link = 'paper-wired'\n[servers.s]\nkind = 'smig'\n[clients.c]\nkind = 'smig'\n\
                 [workload.transfers.t]\nsize = 1\n{axes}"
            );
            let campaign = parse(&text, campaign, Path::new("/"), &|_| Ok(())).unwrap();
            let trial = campaign.trials().swap_remove(0);
            trial.id.file_stem()
        };
        let names = [stem("full", "1.5"), stem("quick", "1.5"), stem("full", "1-5")];
        assert!(names[0] != names[1] && names[0] != names[2], "{names:?}");
        assert!(names.iter().all(|name| name.len() < 200), "{names:?}");
        assert!(names[0].starts_with("full-an-axis-0=level-1-5"), "{names:?}");
    }

    #[test]
    fn a_trial_that_is_stopped_while_it_runs_is_left() {
        let dir = tempfile::tempdir().unwrap();
        // Ready, but its trials do not end.
        let smig = dir.path().join("smig");
        let script = "#!/bin/sh\n[ \"$3\" = --check ] || sleep 86400\n";
        fs::write(&smig, script).unwrap();
        fs::set_permissions(&smig, fs::Permissions::from_mode(0o755)).unwrap();
        let options = CampaignOptions {
            out: dir.path().join("out"),
            shard: None,
            filter: Filter::default(),
            jobs: Jobs::Number(1),
            smig,
            version: "smig".into(),
            build: Build { commit: None, program_sha256: "p".into() },
            builds: AcceptedBuilds::One,
            on_disturbed: OnDisturbed::Reject,
        };
        let text = "link = 'paper-wired'\n[servers.s]\nkind = 'smig'\n[clients.c]\nkind = 'smig'\n\
                    [workload.transfers.t]\nsize = 1\n";
        let campaign = parse(text, "test", Path::new("/"), &|_| Ok(())).unwrap();
        let plan = plan(&campaign, &options).unwrap();
        assert_eq!(plan.trials.len(), 1);
        let stop = CancellationToken::new();
        let summary = run(plan, &options, &stop, &mut |event| {
            assert!(matches!(event, CampaignEvent::Started { .. }), "{event:?}");
            stop.cancel();
        });
        let summary = summary.unwrap();
        assert_eq!((summary.finished_count, summary.left_count), (0, 1));
        assert_eq!(summary.given_up_trials, []);
    }
}
