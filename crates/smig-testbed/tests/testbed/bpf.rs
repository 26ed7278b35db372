//! Congestion controls as BPF programs: what they do, and that none is left behind.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use smig_link::{DropReason, LinkEventKind, Rate};
use smig_testbed::bpf::{self, BpfControl, BpfGuard};
use smig_testbed::netns::{HostSpec, Testbed};

use crate::hystart::lock_out_other_tests;
use crate::removal::{open_pidfd, wait_for_end};
use crate::tcp::{SharedLog, connect_and_read_congestion_control, download, link};

/// Argument that makes this program call [`run_keeper`]; the name follows.
pub(crate) const KEEPER_ARGUMENT: &str = "keep-bpf";
/// Argument that makes this program call [`run_holder`].
pub(crate) const HOLDER_ARGUMENT: &str = "hold-bpf";

/// What the test of removal registers. No other test of this file does.
const REMOVED: BpfControl = BpfControl::CubicWithoutHystart;

pub(crate) fn run_keeper(position: usize) -> Result<()> {
    let name = std::env::args().nth(position + 1).context("a name")?;
    Ok(bpf::run_keeper(name.parse().map_err(anyhow::Error::msg)?)?)
}

fn hold(control: BpfControl) -> Result<BpfGuard> {
    let mut keeper = Command::new(std::env::current_exe()?);
    keeper.arg(KEEPER_ARGUMENT);
    Ok(BpfGuard::start(keeper, control)?)
}

/// Holds one, prints the keeper's process ID, and waits until it is killed.
pub(crate) fn run_holder() -> Result<()> {
    let guard = hold(REMOVED)?;
    println!("{}", guard.keeper_pid());
    loop {
        thread::park();
    }
}

/// Returns whether it can be registered here; prints why not.
fn is_supported(control: BpfControl) -> bool {
    if BpfControl::needed_for(control.as_str()).is_none() {
        println!("  skipped: the kernel has a congestion control {control} of its own");
        return false;
    }
    match control.check() {
        Ok(()) => true,
        Err(error) => {
            println!("  skipped: {error}");
            false
        }
    }
}

/// Downloads over a path of 10 Mbit/s; returns the times of drops at the queue's end in seconds, and the longest queue in packets.
fn download_with(
    control: BpfControl,
    bytes: usize,
    (round_trip_ms, queue): (u64, usize),
) -> Result<(Vec<f64>, usize)> {
    let _guard = hold(control)?;
    let log = SharedLog::default();
    let testbed = Testbed::builder(link(Rate::mbit(10), round_trip_ms, queue))
        .server(HostSpec::default().congestion_control(control.as_str()))
        .log_to_client(Box::new(log.clone()))
        .start()?;
    let (server, _) = connect_and_read_congestion_control(&testbed)?;
    ensure!(server == control.as_str(), "the server uses {server}");
    let correct_bytes = download(&testbed, bytes)?.correct_bytes;
    ensure!(correct_bytes == bytes, "received {correct_bytes} of {bytes} bytes");
    let log = log.0.lock().expect("not poisoned");
    let is_drop = |kind| kind == LinkEventKind::Drop(DropReason::Full);
    let dropped = log.iter().filter(|event| is_drop(event.kind));
    let drops = dropped.map(|event| event.at.as_nanos() as f64 / 1e9).collect();
    Ok((drops, log.iter().map(|event| event.queue_packets).max().unwrap_or(0)))
}

/// Section 2 of the paper: a queue of more than 80 own packets ends slow start, and is drained.
pub(crate) fn yeah_drains_its_queue_before_it_overflows() -> Result<()> {
    if !is_supported(BpfControl::Yeah) {
        return Ok(());
    }
    let (drops, longest) = download_with(BpfControl::Yeah, 5_000_000, (20, 200))?;
    ensure!(drops.is_empty() && longest < 200, "{} dropped, {longest} in the queue", drops.len());
    Ok(())
}

/// Section 3 of the paper: losses are what shrinks the window.
pub(crate) fn illinois_fills_the_queue() -> Result<()> {
    if !is_supported(BpfControl::Illinois) {
        return Ok(());
    }
    let (drops, longest) = download_with(BpfControl::Illinois, 5_000_000, (20, 200))?;
    ensure!(!drops.is_empty() && longest == 200, "{} dropped, {longest} in the queue", drops.len());
    Ok(())
}

/// With a queue of a quarter of the bandwidth-delay product, a window that grows after a loss causes the next one.
pub(crate) fn windows_grow_after_a_loss() -> Result<()> {
    for control in [BpfControl::Yeah, BpfControl::Illinois] {
        if !is_supported(control) {
            return Ok(());
        }
        let (drops, _) = download_with(control, 10_000_000, (100, 20))?;
        let mut losses = 0;
        let mut last = f64::NEG_INFINITY;
        for at in drops {
            losses += u32::from(at > last + 0.5);
            last = at;
        }
        ensure!(losses >= 2, "{control}: {losses} losses that are half a second apart");
    }
    Ok(())
}

/// The name is that of CUBIC's slow start without an exit: it fills the queue. And nothing is left behind.
pub(crate) fn a_congestion_control_is_removed_whatever_is_killed() -> Result<()> {
    if !is_supported(REMOVED) {
        return Ok(());
    }
    let _lock = lock_out_other_tests("bpf")?;
    if REMOVED.is_registered() {
        println!("  skipped: a run of the lab on this machine uses {REMOVED}");
        return Ok(());
    }
    let (drops, _) = download_with(REMOVED, 5_000_000, (20, 200))?;
    ensure!(!drops.is_empty(), "HyStart has ended slow start");
    ensure!(!REMOVED.is_registered(), "it was left behind");

    // The run's process is killed: its keeper notices.
    let mut process = Command::new(std::env::current_exe()?)
        .arg(HOLDER_ARGUMENT)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().context("piped")?).read_line(&mut line)?;
    let keeper = open_pidfd(line.trim().parse()?)?;
    ensure!(REMOVED.is_registered(), "it was not registered");
    process.kill()?;
    process.wait()?;
    wait_for_end(&keeper)?;
    ensure!(!REMOVED.is_registered(), "a killed run left it behind");

    // The keeper is killed: the run's process removes it.
    let guard = hold(REMOVED)?;
    let pid = Pid::from_raw(guard.keeper_pid().cast_signed()).context("a process id")?;
    kill_process(pid, Signal::KILL)?;
    drop(guard);
    ensure!(!REMOVED.is_registered(), "a killed keeper left it behind");

    // Two runs: it stays for the second when the first ends.
    let (first, second) = (hold(REMOVED)?, hold(REMOVED)?);
    drop(first);
    ensure!(REMOVED.is_registered(), "the end of the first removed it for the second");
    drop(second);
    ensure!(!REMOVED.is_registered(), "the last did not remove it");
    Ok(())
}
