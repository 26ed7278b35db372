//! `smig lab link`: a user's command beside two hosts with an emulated link between them.
//!
//! The command is started by `smig lab link-exec`, which is the init process of a PID namespace:
//! signals act on the command as usual, and all its descendants end with it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use smig_chart::format_bytes;
use smig_link::{DirectionCounters, LinkReport, LinkSpec};
use smig_settings::value::parse_time;
use smig_testbed::netns::{
    CaptureSpec, Child, HostSpec, Privilege, Testbed, enter_user_namespace, raise_ambient_caps,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, interval, sleep_until};

use super::check;
use crate::exit::{CliError, Exit};
use crate::interrupt::INTERRUPTED_STATUS;
use crate::stderr;

/// Exit status of timeout(1) for a command that ran out of time.
const TIMED_OUT_STATUS: u8 = 124;
/// Exit status that shells report for a command that cannot be started.
const NOT_STARTED_STATUS: u8 = 127;
/// Time between the signal that ends the command and SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Run your own programs over an emulated link
#[derive(Debug, Args)]
#[command(
    long_about = "Run your own programs over an emulated link.\n\nCreates two hosts on this machine \
        with the link between them, runs COMMAND, and removes everything when it ends, including all \
        processes that it started. COMMAND itself runs on this machine as usual. To run a program on \
        one of the hosts, it prefixes the command line with $SMIG_LAB_SERVER or $SMIG_LAB_CLIENT.\n\n\
        Each host has its own loopback interface, the one address below, and no other network \
        access.\n\n\
        \x20 SMIG_LAB_SERVER           prefix to run a command line on the server's host\n\
        \x20 SMIG_LAB_CLIENT           prefix to run a command line on the client's host\n\
        \x20 SMIG_LAB_SERVER_ADDRESS   the server's address on the link\n\
        \x20 SMIG_LAB_CLIENT_ADDRESS   the client's address on the link",
    after_help = "\
Examples:
  smig lab link paper-wired -- ./my-test.sh
  smig lab link lte-like -- sh -c '
      $SMIG_LAB_SERVER python3 -m http.server 8000 & sleep 1
      $SMIG_LAB_CLIENT curl -o /dev/null http://$SMIG_LAB_SERVER_ADDRESS:8000/big'
  smig lab link my-link.toml --capture packets -- bash        an interactive shell
  smig lab profiles                                           list the named links

Exit codes: COMMAND's, or 128 plus the number of the signal that ended it; 124 --time-limit expired;
127 COMMAND cannot be started; 2 usage error, or an invalid link; 1 the link cannot be created; 130
stopped by Ctrl-C."
)]
pub(crate) struct LinkArgs {
    /// Name of a profile (smig lab profiles lists them), or TOML file of a link
    #[arg(value_name = "LINK")]
    link: String,
    /// Time limit of COMMAND; then it gets SIGTERM, and SIGKILL five seconds later
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1h")]
    time_limit: Duration,
    /// Congestion control algorithm of both hosts [default: cubic]
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Write the packets at both ends of the link to pcap files in this directory
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
    /// Seed of the link's random number generators
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do not print the link's statistics at the end
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Run a command beside the hosts of a link (started by `smig lab link`)
#[derive(Debug, Args)]
pub(crate) struct LinkExecArgs {
    /// Descriptor of the server's network namespace, and its address
    #[arg(long, num_args = 2, required = true)]
    server: Vec<String>,
    /// The same for the client
    #[arg(long, num_args = 2, required = true)]
    client: Vec<String>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(super) fn run(args: &LinkArgs) -> Result<ExitCode> {
    let link = check::resolve_link(&args.link)?;
    // User namespaces require a single-threaded process.
    if enter_user_namespace()? == Privilege::UserNamespace {
        raise_ambient_caps().context("cannot pass on the capability to enter the hosts")?;
    }
    let testbed = start_testbed(args, link)?;
    // Copies for the command: the testbed's own descriptors are close-on-exec.
    let server = duplicate_inheritable(testbed.server().namespace())?;
    let client = duplicate_inheritable(testbed.client().namespace())?;
    let fd_and_address =
        |fd: &OwnedFd, address: Ipv4Addr| [fd.as_raw_fd().to_string(), address.to_string()];
    let mut command =
        Command::new(std::env::current_exe().context("cannot find the path of this program")?);
    command
        .args(["lab", "link-exec", "--server"])
        .args(fd_and_address(&server, testbed.server().address()));
    command.arg("--client").args(fd_and_address(&client, testbed.client().address()));
    command.arg("--").args(&args.command);
    let mut child = testbed.spawn_outside(command).context("cannot start a process")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(wait_for_child(&mut child, args.time_limit))?;
    drop(child);
    let reports = testbed.finish().context("cannot write the captured packets")?;
    if !args.quiet
        && let Some(report) = reports.first()
    {
        // A closed terminal is not an error.
        stderr::print_line(&format!("{}: {}", args.link, summarize(report)));
    }
    Ok(code)
}

fn start_testbed(args: &LinkArgs, link: LinkSpec) -> Result<Testbed> {
    let host = || match &args.congestion_control {
        Some(name) => HostSpec::default().congestion_control(name),
        None => HostSpec::default(),
    };
    let mut builder = Testbed::builder(link).server(host()).client(host()).seed(args.seed);
    if let Some(dir) = &args.capture {
        let unwritable = |error: io::Error| {
            let text = format!("--capture: cannot create {}: {error}", dir.display());
            CliError::new(Exit::Write, text)
        };
        fs::create_dir_all(dir).map_err(unwritable)?;
        builder = builder.capture(CaptureSpec::new(dir));
    }
    Ok(builder.start()?)
}

/// Duplicates a descriptor without close-on-exec.
fn duplicate_inheritable(namespace: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::io::dup(namespace).context("cannot duplicate the descriptor of a host's namespace")
}

/// Waits for the child, and ends it on a signal or at the time limit.
async fn wait_for_child(child: &mut Child, limit: Duration) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut tick = interval(Duration::from_millis(10));
    let deadline = Instant::now().checked_add(limit);
    let far_future = || Instant::now() + Duration::from_secs(1 << 30);
    let mut kill_deadline = None;
    // Exit status that replaces the command's own after a timeout or an interrupt.
    let mut status_override = None;
    loop {
        tokio::select! {
            _ = tick.tick() => {
                if let Some(status) = child.try_wait()? {
                    return Ok(status_override.map_or_else(|| exit_code(status), ExitCode::from));
                }
                continue;
            }
            () = sleep_until(kill_deadline.unwrap_or_else(far_future)) => {
                child.kill()?;
                continue;
            }
            () = sleep_until(deadline.unwrap_or_else(far_future)), if status_override.is_none() => {
                status_override = Some(TIMED_OUT_STATUS);
                // The child may just have ended.
                let _ = child.signal(Signal::TERM);
            }
            _ = interrupt.recv() => {
                // The terminal sends SIGINT to the command itself.
                status_override = Some(INTERRUPTED_STATUS);
                if kill_deadline.is_some() {
                    child.kill()?;
                }
            }
            _ = terminate.recv() => {
                let _ = child.signal(Signal::TERM);
            }
            _ = hangup.recv() => {
                let _ = child.signal(Signal::HUP);
            }
        }
        kill_deadline.get_or_insert_with(|| Instant::now() + KILL_TIMEOUT);
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .map_or_else(|| Exit::Failure.into(), ExitCode::from)
}

/// Summarizes the link's counters in one line.
fn summarize(report: &LinkReport) -> String {
    let describe = |name: &str, link: &DirectionCounters| {
        let (packets, dropped) = (link.delivered_packets, link.dropped_packets);
        let size = format_bytes(link.delivered_bytes);
        format!("{name} {size} in {packets} packets, {dropped} dropped")
    };
    format!(
        "{}; {}; 99 of 100 packets at most {:.1} ms late",
        describe("to the client", &report.to_client),
        describe("to the server", &report.to_server),
        report.lateness.p99.as_secs_f64() * 1e3
    )
}

pub(super) fn run_command(args: &LinkExecArgs) -> Result<ExitCode> {
    // The process ID in the /proc of the machine, which the command sees.
    let own_pid = fs::read_link("/proc/self").context("cannot read /proc")?;
    let enter_prefix = |fd: &str| format!("nsenter --net=/proc/{}/fd/{fd} --", own_pid.display());
    let (program, arguments) = args.command.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, host) in [("SERVER", &args.server), ("CLIENT", &args.client)] {
        let [fd, address] = host.as_slice() else { continue };
        command.env(format!("SMIG_LAB_{name}"), enter_prefix(fd));
        command.env(format!("SMIG_LAB_{name}_ADDRESS"), address);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Install the handlers before the command starts, so that no signal is lost.
    let (mut interrupt, mut terminate, mut hangup) = {
        let _runtime_guard = runtime.enter();
        let install = |kind| signal(kind).context("cannot install a signal handler");
        (
            install(SignalKind::interrupt())?,
            install(SignalKind::terminate())?,
            install(SignalKind::hangup())?,
        )
    };
    let child = match command.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            let program = program.display();
            stderr::print_line(&format!("smig lab link: cannot start {program}: {error}"));
            return Ok(ExitCode::from(NOT_STARTED_STATUS));
        }
    };
    let forward_signals = move || {
        runtime.block_on(async {
            loop {
                let forwarded = tokio::select! {
                    // The terminal sends SIGINT to the command as well.
                    _ = interrupt.recv() => continue,
                    _ = terminate.recv() => Signal::TERM,
                    _ = hangup.recv() => Signal::HUP,
                };
                let _ = kill_process(child, forwarded);
            }
        });
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(forward_signals)
        .context("cannot start a thread")?;
    Ok(await_end(child)?)
}

/// Waits for the command. Also reaps orphans, because this process is the init of its PID namespace.
fn await_end(child: Pid) -> io::Result<ExitCode> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => {
                return Ok(exit_code(to_exit_status(status)));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn to_exit_status(status: WaitStatus) -> ExitStatus {
    ExitStatus::from_raw(status.as_raw())
}
