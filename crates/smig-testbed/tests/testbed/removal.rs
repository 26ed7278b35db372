//! Programs inside hosts, and complete removal afterwards.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use smig_link::LinkSpec;
use smig_testbed::netns::{Child, Host, Testbed};

/// Argument that makes this program call [`run_holder`].
pub(crate) const HOLDER_ARGUMENT: &str = "hold-a-testbed";

/// A shell script that prints its network namespace and starts a child.
const PARENT_AND_CHILD_SCRIPT: &str = "readlink /proc/self/ns/net; sleep 1000 & echo started; wait";

fn spawn_parent_and_child(host: &Host) -> Result<(Child, Vec<String>)> {
    let mut command = Command::new("sh");
    command.args(["-c", PARENT_AND_CHILD_SCRIPT]);
    command.stdout(Stdio::piped());
    let mut child = host.spawn(command)?;
    let output = BufReader::new(child.stdout.take().context("piped")?);
    let lines = output.lines().take(2).collect::<io::Result<_>>()?;
    Ok((child, lines))
}

/// Returns the child processes of a process.
fn children_of(parent: u32) -> Result<Vec<u32>> {
    let mut child_ids = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have ended since.
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let mut words = status.lines().filter_map(|line| line.strip_prefix("PPid:"));
        if words.next().is_some_and(|word| word.trim().parse() == Ok(parent)) {
            child_ids.push(id);
        }
    }
    Ok(child_ids)
}

pub(crate) fn open_pidfd(id: u32) -> Result<OwnedFd> {
    let pid = Pid::from_raw(id.cast_signed()).context("a process id")?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Waits for a process to end.
pub(crate) fn wait_for_end(process: &OwnedFd) -> Result<()> {
    poll(&mut [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)], None)?;
    Ok(())
}

fn namespace_of(host: &Host) -> Result<String> {
    let inode = fs::metadata(format!("/proc/self/fd/{}", namespace_fd(host)))?.ino();
    Ok(format!("net:[{inode}]"))
}

fn namespace_fd(host: &Host) -> i32 {
    use std::os::fd::AsRawFd as _;
    host.namespace().as_raw_fd()
}

pub(crate) fn a_program_is_inside_and_dies_with_its_handle() -> Result<()> {
    let testbed = Testbed::start(LinkSpec::paper_wired())?;
    let (child, lines) = spawn_parent_and_child(testbed.server())?;
    ensure!(lines == [namespace_of(testbed.server())?, "started".into()], "{lines:?}");
    let grandchildren = children_of(child.id())?;
    ensure!(grandchildren.len() == 1, "{grandchildren:?}");
    let (parent, grandchild) = (open_pidfd(child.id())?, open_pidfd(grandchildren[0])?);
    drop(child);
    wait_for_end(&parent)?;
    wait_for_end(&grandchild)
}

pub(crate) fn a_programs_end_is_reported() -> Result<()> {
    let testbed = Testbed::start(LinkSpec::paper_wired())?;
    let mut command = Command::new("sh");
    command.args(["-c", "exit 7"]);
    let mut child = testbed.client().spawn(command)?;
    ensure!(child.wait()?.code() == Some(7));
    ensure!(child.try_wait()?.and_then(|status| status.code()) == Some(7));

    let mut command = Command::new("sleep");
    command.arg("1000");
    let mut child = testbed.client().spawn(command)?;
    ensure!(child.try_wait()?.is_none());
    ensure!(child.kill()?.signal() == Some(9));

    let error = testbed.client().spawn(Command::new("/no/such/program")).unwrap_err();
    ensure!(error.kind() == io::ErrorKind::NotFound, "{error}");
    Ok(())
}

/// Holds a testbed with programs inside until it is killed. Prints its namespaces, then the process
/// IDs of its children and their children.
pub(crate) fn run_holder() -> Result<()> {
    let testbed = Testbed::start(LinkSpec::paper_wired())?;
    let (server, _) = spawn_parent_and_child(testbed.server())?;
    let (client, _) = spawn_parent_and_child(testbed.client())?;
    println!("{}", namespace_of(testbed.server())?);
    println!("{}", namespace_of(testbed.client())?);
    for child in [&server, &client] {
        println!("{}", child.id());
        children_of(child.id())?.iter().for_each(|id| println!("{id}"));
    }
    println!("ready");
    // Wait for the signal.
    loop {
        std::thread::park();
    }
}

pub(crate) fn nothing_survives_the_process() -> Result<()> {
    for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
        if is_ignored(signal)? {
            println!("    {signal:?} is ignored by the parent process: skipped");
            continue;
        }
        let mut holder = Command::new(std::env::current_exe()?)
            .arg(HOLDER_ARGUMENT)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(holder.stdout.take().context("piped")?);
        let lines: Vec<String> = output
            .lines()
            .take_while(|line| line.as_ref().is_ok_and(|line| line != "ready"))
            .collect::<io::Result<_>>()?;
        ensure!(lines.len() == 6, "the holder printed {lines:?}");
        let (namespaces, processes) = lines.split_at(2);
        ensure!(
            namespaces
                .iter()
                .all(|namespace| namespace_users(namespace).is_ok_and(|k| !k.is_empty()))
        );
        let pidfds =
            processes.iter().map(|id| open_pidfd(id.parse()?)).collect::<Result<Vec<_>>>()?;

        let pid = Pid::from_child(&holder);
        kill_process(pid, signal)?;
        holder.wait()?;
        pidfds.iter().try_for_each(wait_for_end)?;
        for namespace in namespaces {
            let users = namespace_users(namespace)?;
            ensure!(users.is_empty(), "after {signal:?} {namespace} is still used by {users:?}");
        }
    }
    Ok(())
}

/// Returns whether a signal is ignored: children inherit this, and shells set it for SIGINT in
/// background commands.
fn is_ignored(signal: Signal) -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).context("SigIgn")?;
    Ok(u64::from_str_radix(mask.trim(), 16)? >> (signal.as_raw() - 1) & 1 == 1)
}

/// Returns the references that keep a network namespace and its devices alive: threads, descriptors
/// and mounts.
fn namespace_users(namespace: &str) -> Result<Vec<String>> {
    let mut users = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    users.extend(mounts.lines().filter(|line| line.contains(namespace)).map(str::to_owned));
    let is_namespace = |path: &std::path::Path| {
        fs::read_link(path).is_ok_and(|target| target.to_str() == Some(namespace))
    };
    for process in fs::read_dir("/proc")?.flatten() {
        let name = process.file_name();
        if !name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            continue;
        }
        // Any of these processes may end while it is examined.
        let threads = fs::read_dir(process.path().join("task")).into_iter().flatten().flatten();
        let threads = threads.map(|thread| thread.path().join("ns/net"));
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let files = files.map(|file| file.path());
        let found = threads.chain(files).filter(|path| is_namespace(path));
        users.extend(found.map(|path| path.display().to_string()));
    }
    Ok(users)
}
