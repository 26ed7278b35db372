//! A child process inside a host, or outside of both.
//!
//! The program is the first process of its own PID namespace: when it ends, the
//! kernel kills its descendants. Its parent-death signal is `SIGKILL`, and the
//! thread that started it lives until the program has ended. So no process
//! survives, even if this process is killed. Without the capability for a PID
//! namespace the program's descendants may.

use std::io;
use std::process::{self, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::mpsc;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::UnshareFlags;

use super::host::{Host, HostThread};
use super::sys;

/// A running program. It and its descendants are killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    id: u32,
    pidfd: OwnedFd,
    /// Standard input of the program, if the command piped it.
    pub stdin: Option<ChildStdin>,
    /// Standard output of the program, if the command piped it.
    pub stdout: Option<ChildStdout>,
    /// Standard error of the program, if the command piped it.
    pub stderr: Option<ChildStderr>,
    /// The thread that waits for the program.
    waiter: Option<HostThread<io::Result<ExitStatus>>>,
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts a program in the network namespace of the calling thread. Another thread calls
    /// `on_end` once the program has ended; in a PID namespace of its own, all its descendants have
    /// ended by then.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn_in_current_namespace(
        command: Command,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn_with(None, command, on_end)
    }

    /// Starts a program inside `host`, or in the network namespace of the calling thread.
    pub(super) fn spawn(host: Option<&Host>, command: Command) -> io::Result<Self> {
        Self::spawn_with(host, command, || ())
    }

    fn spawn_with(
        host: Option<&Host>,
        command: Command,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (started_tx, started_rx) = mpsc::sync_channel(1);
        let run = move || match spawn_child(command) {
            Ok(mut child) => {
                let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                // The receiver waits for this message.
                let _ = started_tx.send(open_pidfd(&child).map(|pidfd| (child.id(), pidfd, pipes)));
                let status = child.wait();
                on_end();
                status
            }
            Err(error) => {
                let _ = started_tx.send(Err(error));
                Err(io::ErrorKind::NotFound.into())
            }
        };
        let waiter = match host {
            Some(host) => host.run(run)?,
            None => HostThread::spawn_in_current_namespace(run)?,
        };
        let thread_ended = |_| io::Error::other("the thread that starts programs ended early");
        let (id, pidfd, (stdin, stdout, stderr)) = started_rx.recv().map_err(thread_ended)??;
        Ok(Self { id, pidfd, stdin, stdout, stderr, waiter: Some(waiter), status: None })
    }

    /// Returns the program's process ID in this process's PID namespace; in its
    /// own namespace the program is process 1.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Sends a signal to the program. As the init process of its namespace, it
    /// ignores signals for which it has no handler, except `KILL` and `STOP`.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.pidfd, signal)?)
    }

    /// Kills the program and its descendants, and waits for it.
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

    /// Waits for the program to end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(waiter) = self.waiter.take() {
            self.status = Some(waiter.join().expect("waiting for a process does not panic")?);
        }
        self.status.ok_or_else(|| io::Error::other("the program could not be waited for"))
    }

    /// Returns the exit status of the program, if it has ended.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match &self.waiter {
            Some(waiter) if !waiter.is_finished() => Ok(None),
            _ => self.wait().map(Some),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Starts a program that is killed when the calling thread ends.
fn spawn_child(mut command: Command) -> io::Result<process::Child> {
    // Without the capability for it, the kernel kills only the program when the thread ends,
    // not its descendants.
    let _ = sys::unshare(UnshareFlags::NEWPID);
    sys::die_with_parent(&mut command);
    command.spawn()
}

fn open_pidfd(child: &process::Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}
