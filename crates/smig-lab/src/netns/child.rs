//! A foreign program inside a host, or beside both.
//!
//! It lives in a PID namespace of its own, as its first process: when it ends,
//! the kernel kills all that it started. It is told to die with the thread that
//! started it, and that thread lives until the program has ended: so nothing is
//! left behind, not even when this process is killed.

use std::io;
use std::process::{self, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::mpsc;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::UnshareFlags;

use super::host::{Host, Running};
use super::sys;

/// A program of the lab's. Killed, with all that it started, when dropped.
#[derive(Debug)]
pub struct Child {
    id: u32,
    pidfd: OwnedFd,
    /// What the program reads, if the command piped it.
    pub stdin: Option<ChildStdin>,
    /// What the program writes, if the command piped it.
    pub stdout: Option<ChildStdout>,
    /// What the program complains of, if the command piped it.
    pub stderr: Option<ChildStderr>,
    /// Waits for the program.
    waiting: Option<Running<io::Result<ExitStatus>>>,
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts it inside `host`, or on the machine itself.
    pub(super) fn spawn(host: Option<&Host>, command: Command) -> io::Result<Self> {
        let (started, wait) = mpsc::sync_channel(1);
        let start = move || match start(command) {
            Ok(mut child) => {
                let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                // The receiver waits for exactly this.
                let _ = started.send(open(&child).map(|pidfd| (child.id(), pidfd, pipes)));
                child.wait()
            }
            Err(error) => {
                let _ = started.send(Err(error));
                Err(io::ErrorKind::NotFound.into())
            }
        };
        let waiting = match host {
            Some(host) => host.run(start)?,
            None => Running::outside(start)?,
        };
        let ended = |_| io::Error::other("the thread that starts programs ended early");
        let (id, pidfd, (stdin, stdout, stderr)) = wait.recv().map_err(ended)??;
        Ok(Self { id, pidfd, stdin, stdout, stderr, waiting: Some(waiting), status: None })
    }

    /// The program's process id as this process sees it; the program itself
    /// believes to be process 1.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Sends a signal to the program. One that it has no handler for does
    /// nothing, `KILL` excepted: it is the first process of its namespace.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.pidfd, signal)?)
    }

    /// Kills the program and all that it started, and waits for their end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        if self.status.is_none() {
            // Fails if the program has just ended.
            let _ = self.signal(Signal::KILL);
        }
        self.wait()
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(waiting) = self.waiting.take() {
            self.status = Some(waiting.join().expect("waiting for a process does not panic")?);
        }
        self.status.ok_or_else(|| io::Error::other("the program could not be waited for"))
    }

    /// How the program ended, if it has.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match &self.waiting {
            Some(waiting) if !waiting.is_finished() => Ok(None),
            _ => self.wait().map(Some),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Starts a program from the calling thread, and to die with it.
fn start(mut command: Command) -> io::Result<process::Child> {
    // Without the right to it the program's own processes are not contained; the rest holds.
    let _ = sys::unshare(UnshareFlags::NEWPID);
    sys::die_with_parent(&mut command);
    command.spawn()
}

fn open(child: &process::Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}
