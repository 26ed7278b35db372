//! Runs what is planned: a process a cell, several at once if wanted; results as they come.
//!
//! One thread alone writes. Whatever ends a cell's process, only that cell is lost; whatever ends this
//! one, the kernel ends the cells, and what was written stays true.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{self, Read, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::cell::CellOrder;
use super::folder::Folder;
use super::length::likely_length;
use super::plan::{CampaignError, Disturbed, Missing, Options, Plan};
use super::recording::TIMELINES;
use super::result::CellResult;
use super::store::Store;
use crate::hystart;
use crate::peer::build_go_server;
use crate::scenario::{Cell, CellId, ServerKind};
use crate::stop::Stop;
use crate::workload::Material;

/// The servers' address on each link of every testbed.
const fn address_on(link: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, link, 1)
}

/// How often a cell's process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What happens, as it happens.
#[derive(Debug)]
pub enum Event<'a> {
    /// A cell was begun.
    Started {
        /// Which.
        id: &'a CellId,
        /// Which try, from 1.
        attempt: u32,
    },
    /// A run was disturbed and is tried again.
    Rejected {
        /// Which.
        id: &'a CellId,
        /// Which try it was.
        attempt: u32,
        /// What disturbed it.
        why: &'a str,
    },
    /// A cell has no result: disturbed too often, or failed.
    GivenUp {
        /// Which.
        id: &'a CellId,
        /// Why.
        why: &'a str,
    },
    /// A cell has its result, which is written.
    Finished {
        /// The result.
        result: &'a CellResult,
        /// How long the rest is likely to take.
        left: Duration,
    },
}

/// What became of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Cells that had results before.
    pub done_before: usize,
    /// Cells that have results now.
    pub finished: usize,
    /// Disturbed runs.
    pub rejected: usize,
    /// Cells without a result, and why.
    pub given_up: Vec<(CellId, String)>,
    /// Cells left out because a server is not there.
    pub missing: Vec<Missing>,
    /// Cells that were not begun, because somebody said stop.
    pub left: usize,
}

/// From the workers to the thread that writes.
enum Told {
    Started(CellId, u32),
    Disturbed(Box<CellResult>, Verdict),
    Failed(CellId, Duration, String),
    Finished(Box<CellResult>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Again,
    Last,
}

/// Runs all planned cells, until `stop` says otherwise.
///
/// # Errors
/// What the machine lacks; files that cannot be written. A cell's failure is in the summary.
pub fn run(
    plan: Plan,
    options: &Options,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event<'_>),
) -> Result<Summary, CampaignError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |cause| CampaignError::Io { path, cause }
    };
    let mut writer = Writer {
        store: Store::open(&options.out, options.share).map_err(fail(&options.out))?,
        options,
        expected: plan.cells.iter().map(|cell| likely_length(&cell.scenario)).sum(),
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
    // For runs that say nothing of it: they take what they find. Who may not, has not set it either.
    let _ = hystart::repair();
    let folder = Folder::make().map_err(fail(&std::env::temp_dir()))?;
    let workshop = Workshop::make(plan, options, folder.path()).map_err(fail(folder.path()))?;
    let queue = Mutex::new(workshop.cells.iter().collect::<VecDeque<_>>());
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            let (tell, queue, workshop) = (tell.clone(), &queue, &workshop);
            scope.spawn(move || workshop.work(queue, stop, &tell));
        }
        drop(tell);
        for told in &told {
            if let Err(cause) = writer.take(told, on_event) {
                stop.stop();
                return Err(fail(&options.out)(cause));
            }
        }
        Ok(())
    })?;
    writer.summary.left = queue.lock().unwrap_or_else(PoisonError::into_inner).len();
    Ok(writer.summary)
}

/// Whether hosts and links can be made here: said before anything else is done.
fn check_machine(smig: &Path) -> Result<(), CampaignError> {
    let output = Command::new(smig).args(["lab", "cell", "--check"]).stdin(Stdio::null()).output();
    let output = output.map_err(|cause| CampaignError::Io { path: smig.to_owned(), cause })?;
    if output.status.success() {
        return Ok(());
    }
    Err(CampaignError::Machine(words(&output.stderr)))
}

/// A program's complaint without the word that begins it.
fn words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

/// Takes what the workers tell: writes, counts, and tells on.
struct Writer<'a> {
    store: Store,
    options: &'a Options,
    /// What is left was expected to take so long.
    expected: Duration,
    /// Seconds that the finished ones took, and were expected to take.
    done: (f64, f64),
    summary: Summary,
}

impl Writer<'_> {
    fn take(&mut self, told: Told, on_event: &mut dyn FnMut(&Event<'_>)) -> io::Result<()> {
        match told {
            Told::Started(id, attempt) => on_event(&Event::Started { id: &id, attempt }),
            Told::Disturbed(result, verdict) => {
                let why = result.disturbed.join("; ");
                self.summary.rejected += 1;
                let line = serde_json::json!({
                    "id": result.id, "attempt": result.attempt, "why": why,
                    "link": result.link, "device_drops": result.device_drops,
                });
                self.store.reject(&line)?;
                let (id, attempt) = (&result.id, result.attempt);
                if verdict == Verdict::Again {
                    on_event(&Event::Rejected { id, attempt, why: &why });
                } else {
                    self.forget(likely_length(&result.scenario));
                    let why = format!("disturbed each of {attempt} times: {why}");
                    on_event(&Event::GivenUp { id, why: &why });
                    self.summary.given_up.push((id.clone(), why));
                }
            }
            Told::Failed(id, expected, why) => {
                self.forget(expected);
                self.store.reject(&serde_json::json!({"id": id, "why": why}))?;
                on_event(&Event::GivenUp { id: &id, why: &why });
                self.summary.given_up.push((id, why));
            }
            Told::Finished(result) => {
                self.store.add(&result)?;
                let expected = likely_length(&result.scenario);
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

/// What every worker needs.
struct Workshop<'a> {
    cells: Vec<Cell>,
    programs: BTreeMap<ServerKind, PathBuf>,
    versions: BTreeMap<String, String>,
    folder: &'a Path,
    options: &'a Options,
}

impl<'a> Workshop<'a> {
    fn make(plan: Plan, options: &'a Options, folder: &'a Path) -> io::Result<Self> {
        let Plan { cells, mut programs, versions, .. } = plan;
        let links = cells.iter().map(|cell| cell.scenario.more_links.len()).max().unwrap_or(0);
        let addresses: Vec<_> = (0..=u8::MAX).take(links + 1).map(address_on).collect();
        let material = Material::make(folder, &addresses)?;
        for cell in &cells {
            material.provide(&cell.scenario)?;
        }
        if let Some(go) = programs.get_mut(&ServerKind::Go) {
            *go = build_go_server(go, folder)?;
        }
        Ok(Self { cells, programs, versions, folder, options })
    }

    fn work(&self, queue: &Mutex<VecDeque<&Cell>>, stop: &Stop, tell: &mpsc::Sender<Told>) {
        while !stop.is_stopped() {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(cell) = next else { return };
            self.cell(cell, stop, tell);
        }
    }

    fn cell(&self, cell: &Cell, stop: &Stop, tell: &mpsc::Sender<Told>) {
        // The one who listens ends only after this.
        let tell = |told| drop(tell.send(told));
        let attempts = cell.scenario.accept.attempts;
        for attempt in 1..=attempts {
            tell(Told::Started(cell.id.clone(), attempt));
            let result = match self.attempt(cell, attempt, stop) {
                Ok(Some(result)) => result,
                Ok(None) => return,
                Err(why) => {
                    let expected = likely_length(&cell.scenario);
                    return tell(Told::Failed(cell.id.clone(), expected, why));
                }
            };
            let is_last = attempt == attempts;
            let counts = result.disturbed.is_empty();
            if counts || is_last && self.options.disturbed == Disturbed::Keep {
                return tell(Told::Finished(Box::new(result)));
            }
            let verdict = if is_last { Verdict::Last } else { Verdict::Again };
            tell(Told::Disturbed(Box::new(result), verdict));
        }
    }

    /// Runs a cell once, in a process of its own; nothing if it was stopped.
    fn attempt(
        &self,
        cell: &Cell,
        attempt: u32,
        stop: &Stop,
    ) -> Result<Option<CellResult>, String> {
        let shown = |error: io::Error| error.to_string();
        let scratch = TempDir::with_prefix_in("cell-", self.folder).map_err(shown)?;
        let order = self.order(cell, attempt, scratch.path());
        let order = serde_json::to_vec(&order).map_err(|error| error.to_string())?;
        let mut child = Command::new(&self.options.smig)
            .args(["lab", "cell"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for this process, which then ends the others.
            .process_group(0)
            .spawn()
            .map_err(shown)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (result, complaint) = thread::scope(|scope| {
            let result = scope.spawn(|| read_all(stdout));
            let complaint = scope.spawn(|| read_all(stderr));
            if let Some(mut stdin) = stdin {
                // A process that ended early says why by itself.
                let _ = stdin.write_all(&order);
            }
            wait(&mut child, stop);
            (result.join().unwrap_or_default(), complaint.join().unwrap_or_default())
        });
        let status = child.wait().map_err(shown)?;
        if status.success() {
            let result = serde_json::from_slice(&result);
            return result.map(Some).map_err(|error| format!("no result: {error}"));
        }
        if stop.is_stopped() {
            return Ok(None);
        }
        let complaint = words(&complaint);
        Err(if complaint.is_empty() { format!("its process ended: {status}") } else { complaint })
    }

    fn order(&self, cell: &Cell, attempt: u32, scratch: &Path) -> CellOrder {
        let program = |server: &crate::scenario::ServerSpec| {
            server.program.clone().or_else(|| self.programs.get(&server.kind).cloned())
        };
        let servers = cell.scenario.servers.iter();
        CellOrder {
            cell: cell.clone(),
            material: self.folder.to_owned(),
            scratch: scratch.to_owned(),
            smig: self.options.smig.clone(),
            programs: servers
                .filter_map(|(name, server)| Some((name.clone(), program(server)?)))
                .collect(),
            versions: self.versions.clone(),
            build: self.options.build.clone(),
            attempt,
            jobs: self.options.jobs,
            timeline: cell.scenario.record.timeline.then(|| {
                self.options
                    .out
                    .join(TIMELINES)
                    .join(format!("{}.timeline.jsonl", file_stem(&cell.id)))
            }),
        }
    }
}

/// A cell as a file's name.
fn file_stem(id: &CellId) -> String {
    let text = id.to_string();
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '=' { c } else { '-' }).collect()
}

fn read_all(source: Option<impl Read>) -> Vec<u8> {
    let mut octets = Vec::new();
    if let Some(mut source) = source {
        // What came before an error is what there is.
        let _ = source.read_to_end(&mut octets);
    }
    octets
}

/// Waits for a process; ends it if somebody says stop.
fn wait(child: &mut Child, stop: &Stop) {
    loop {
        match child.try_wait() {
            Ok(None) if stop.is_stopped() => {
                // It may have ended just now.
                let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
                return;
            }
            Ok(None) => thread::sleep(LOOK_EVERY),
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

/// Keeps the scenario beside its results.
///
/// # Errors
/// The folder cannot be written.
pub fn keep_scenario(options: &Options, scenario: &Path) -> io::Result<()> {
    fs::create_dir_all(&options.out)?;
    fs::copy(scenario, options.out.join("scenario.toml")).map(drop)
}
