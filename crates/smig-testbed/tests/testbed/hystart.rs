//! HyStart is restored after a run, however that ended.

use std::fs::{File, TryLockError};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal, kill_process};
use smig_testbed::hystart::{self, HystartGuard};

use crate::removal::{open_pidfd, wait_for_end};

/// Argument that makes this program call [`run_keeper`]; `on` or `off` follows.
pub(crate) const KEEPER_ARGUMENT: &str = "keep-hystart";
/// Argument that makes this program call [`run_holder`].
pub(crate) const HOLDER_ARGUMENT: &str = "hold-hystart";

pub(crate) fn run_keeper(position: usize) -> Result<()> {
    let word = std::env::args().nth(position + 1).context("on or off")?;
    Ok(hystart::run_keeper(word == "on")?)
}

fn keeper_command() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(KEEPER_ARGUMENT);
    Ok(command)
}

/// Holds the value that is not the machine's own, prints the keeper's process ID, and waits until
/// it is killed.
pub(crate) fn run_holder() -> Result<()> {
    let guard = HystartGuard::start(keeper_command()?, hystart::current_value() != Some(true))?;
    println!("{}", guard.keeper_pid());
    loop {
        thread::park();
    }
}

/// Waits until no other test of `what` runs on the machine: it is the same for all of them.
pub(crate) fn lock_out_other_tests(what: &str) -> Result<File> {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let directory = if Path::new("/run").is_dir() { "/run" } else { "/tmp" };
    let lock = File::create(Path::new(directory).join(format!("smig-lab-{what}.test")))?;
    let begin = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if begin.elapsed() < TIMEOUT => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                bail!("another test of {what} on this machine has not ended within {TIMEOUT:?}")
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// A process that holds the setting, and its keeper. Killed on drop, so that none survives a failed
/// test; by then the keeper has restored the value.
struct Holder {
    process: Child,
    keeper: Option<OwnedFd>,
}

impl Holder {
    fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        if let Some(keeper) = self.keeper.take() {
            wait_for_end(&keeper)?;
        }
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.kill();
    }
}

pub(crate) fn hystart_is_restored_whatever_is_killed() -> Result<()> {
    if let Err(error) = hystart::check() {
        println!("  skipped: {error}");
        return Ok(());
    }
    let _lock = lock_out_other_tests("hystart")?;
    let original = hystart::current_value().context("it can be written, so it can be read")?;

    // The run's process is killed: its keeper detects that and restores the value.
    let process = Command::new(std::env::current_exe()?)
        .arg(HOLDER_ARGUMENT)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut holder = Holder { process, keeper: None };
    let mut line = String::new();
    BufReader::new(holder.process.stdout.take().context("piped")?).read_line(&mut line)?;
    holder.keeper = Some(open_pidfd(line.trim().parse()?)?);
    ensure!(hystart::current_value() == Some(!original), "it was not set");
    holder.kill()?;
    ensure!(hystart::current_value() == Some(original), "a killed run left it changed");

    // The keeper is killed: the run's process restores the value.
    let guard = HystartGuard::start(keeper_command()?, !original)?;
    let pid = Pid::from_raw(guard.keeper_pid().cast_signed()).context("a process id")?;
    kill_process(pid, Signal::KILL)?;
    drop(guard);
    ensure!(hystart::current_value() == Some(original), "a killed keeper left it changed");

    // Two runs with the same value: it stays set for the second when the first ends.
    let (first_guard, second_guard) = (
        HystartGuard::start(keeper_command()?, !original)?,
        HystartGuard::start(keeper_command()?, !original)?,
    );
    drop(first_guard);
    ensure!(
        hystart::current_value() == Some(!original),
        "the end of the first changed it for the second"
    );
    drop(second_guard);
    ensure!(hystart::current_value() == Some(original), "the last did not restore it");
    Ok(())
}
