//! `smig lab trial`, `smig lab exec-child`, `smig lab hystart`, `smig lab bpf`: the processes that `smig lab run` and
//! `smig lab identify` start.
//!
//! A trial's process reads a request from standard input and writes its result to standard output.
//! It and every server in it end with the parent process.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_parent_process_death_signal};
use smig_lab::trial::{TrialRequest, check_testbed, run as run_trial};
use smig_lab::workload::ScenarioClients;
use smig_testbed::bpf::{self, BpfControl};
use smig_testbed::hystart;
use smig_testbed::netns::enter_user_namespace;
use tokio_util::sync::CancellationToken;

use crate::{interrupt, stderr};

/// Run one trial of a campaign (started by `smig lab run`)
#[derive(Debug, Args)]
pub(crate) struct TrialArgs {
    /// Only check whether hosts and a link can be created here
    #[arg(long)]
    check: bool,
}

/// Run another program; all its processes end with it (started by `smig lab trial` and `smig lab identify`)
#[derive(Debug, Args)]
pub(crate) struct ExecChildArgs {
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Keep HyStart on or off until standard input is closed (started by `smig lab trial`)
#[derive(Debug, Args)]
pub(crate) struct HystartArgs {
    state: HystartState,
}

/// Keep a congestion control registered until standard input is closed (started by `smig lab trial`)
#[derive(Debug, Args)]
pub(crate) struct BpfArgs {
    control: BpfControl,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HystartState {
    On,
    Off,
}

pub(super) fn run(args: &TrialArgs) -> Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot set the parent-death signal")?;
    // User namespaces require a single-threaded process.
    let privilege = enter_user_namespace()?;
    if args.check {
        check_testbed()?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::logging::start(crate::logging::Level::Errors);
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).context("cannot read the trial's request")?;
    let request: TrialRequest =
        serde_json::from_str(&text).context("the trial's request is invalid")?;
    let result = run_trial(&request, privilege, ScenarioClients { events: None })?;
    let line = serde_json::to_vec(&result).context("cannot serialize the result")?;
    io::stdout().write_all(&line).context("cannot write the result")?;
    Ok(ExitCode::SUCCESS)
}

/// Keeps HyStart on or off. Does not end with its parent: it first restores the original setting.
pub(super) fn keep_hystart(args: &HystartArgs) -> Result<ExitCode> {
    // Nothing waits for this token: the first signal is ignored.
    interrupt::cancel_on_interrupt(CancellationToken::default())?;
    hystart::run_keeper(args.state == HystartState::On)?;
    Ok(ExitCode::SUCCESS)
}

/// Keeps a congestion control registered. Does not end with its parent: it first removes it.
pub(super) fn keep_bpf(args: &BpfArgs) -> Result<ExitCode> {
    // Nothing waits for this token: the first signal is ignored.
    interrupt::cancel_on_interrupt(CancellationToken::default())?;
    bpf::run_keeper(args.control)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a program from the init process of a PID namespace: when init ends, the kernel kills
/// everything that the program has started. The program itself is not init, which ignores the
/// signals that it does not handle.
pub(super) fn exec_child(args: &ExecChildArgs) -> Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot set the parent-death signal")?;
    let (program, arguments) = args.command.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let cannot_start = || format!("cannot start {}", program.display());
    if !getpid().is_init() {
        // Not in a PID namespace: then at least the program itself ends with the parent.
        return Err(command.exec()).with_context(cannot_start);
    }
    let child = Pid::from_child(&command.spawn().with_context(cannot_start)?);
    loop {
        // Also reaps the processes whose parents have ended.
        let wait_result = rustix::process::wait(WaitOptions::empty());
        let Some((pid, status)) = wait_result.context("cannot wait for the program")? else {
            continue;
        };
        if pid != child {
            continue;
        }
        if let Some(signal) = status.terminating_signal() {
            stderr::print_line(&format!("{} was ended by signal {signal}", program.display()));
            return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)));
        }
        let code = status.exit_status().unwrap_or(1);
        return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
    }
}
