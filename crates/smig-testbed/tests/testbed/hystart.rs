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

use crate::removal::{ended, watch};

/// Argument that makes this program call [`keep`]; `on` or `off` follows.
pub(crate) const KEEP: &str = "keep-hystart";
/// Argument that makes this program call [`hold`].
pub(crate) const HOLD: &str = "hold-hystart";

pub(crate) fn keep(at: usize) -> Result<()> {
    let word = std::env::args().nth(at + 1).context("on or off")?;
    Ok(hystart::keep(word == "on")?)
}

fn keeper() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(KEEP);
    Ok(command)
}

/// Holds the value that is not the machine's own, prints the keeper's process ID, and waits to be killed.
pub(crate) fn hold() -> Result<()> {
    let hold = HystartGuard::start(keeper()?, hystart::present() != Some(true))?;
    println!("{}", hold.keeper());
    loop {
        thread::park();
    }
}

/// Waits until no other copy of this test runs on the machine: HyStart has one value for all of them.
fn alone() -> Result<File> {
    const LIMIT: Duration = Duration::from_secs(60);
    let directory = if Path::new("/run").is_dir() { "/run" } else { "/tmp" };
    let lock = File::create(Path::new(directory).join("smig-lab-hystart.test"))?;
    let begin = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if begin.elapsed() < LIMIT => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                bail!("another test of HyStart on this machine has not ended within {LIMIT:?}")
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// A process that holds the setting, and its keeper. Killed on drop, so that a failed test leaves none behind; the
/// keeper has restored the value then.
struct Holder {
    process: Child,
    keeper: Option<OwnedFd>,
}

impl Holder {
    fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        if let Some(keeper) = self.keeper.take() {
            ended(&keeper)?;
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

pub(crate) fn it_is_given_back_whoever_is_killed() -> Result<()> {
    if let Err(error) = hystart::check() {
        println!("  skipped: {error}");
        return Ok(());
    }
    let _alone = alone()?;
    let own = hystart::present().context("it can be written, so it can be read")?;

    // The run's process is killed: its keeper detects that and restores the value.
    let process =
        Command::new(std::env::current_exe()?).arg(HOLD).stdout(Stdio::piped()).spawn()?;
    let mut holder = Holder { process, keeper: None };
    let mut line = String::new();
    BufReader::new(holder.process.stdout.take().context("piped")?).read_line(&mut line)?;
    holder.keeper = Some(watch(line.trim().parse()?)?);
    ensure!(hystart::present() == Some(!own), "it was not set");
    holder.kill()?;
    ensure!(hystart::present() == Some(own), "a killed run left it changed");

    // The keeper is killed: the run's process restores the value.
    let hold = HystartGuard::start(keeper()?, !own)?;
    let id = Pid::from_raw(hold.keeper().cast_signed()).context("a process id")?;
    kill_process(id, Signal::KILL)?;
    drop(hold);
    ensure!(hystart::present() == Some(own), "a killed keeper left it changed");

    // Two runs with the same value: it stays set for the second when the first ends.
    let (one, two) = (HystartGuard::start(keeper()?, !own)?, HystartGuard::start(keeper()?, !own)?);
    drop(one);
    ensure!(hystart::present() == Some(!own), "the first took it from the second");
    drop(two);
    ensure!(hystart::present() == Some(own), "the last did not give it back");
    Ok(())
}
