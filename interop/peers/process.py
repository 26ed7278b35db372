"""Child processes: started, waited for, and ended with their parent.

Owns every process that the interop cases and the benchmarks start, and touches no other.
"""

import atexit
import ctypes
import os
import resource
import signal
import socket
import subprocess
import time

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_running = []


class StartError(Exception):
    """The program did not start; the message has its output."""


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def raise_file_limit(wanted=65_536):
    """Raises the limit on open files as far as permitted, up to `wanted`; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(hard, wanted), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, max(hard, limit)))
            return limit
        except (ValueError, OSError):
            continue  # not permitted to raise the hard limit: use it as it is
    return soft


class Process:
    """A server in the background. `log` is a file with its output."""

    def __init__(self, command, log, env=None, cwd=None):
        self.command = [str(part) for part in command]
        self.log = log
        with open(log, "wb") as out:
            self.popen = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})}, cwd=cwd, preexec_fn=_die_with_parent,
            )
        _running.append(self)

    @property
    def pid(self):
        return self.popen.pid

    def output(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def _fail(self, what):
        self.stop()
        raise StartError(f"{self.command[0]} {what}; it printed:\n{self.output()[-2000:]}")

    def _poll(self, done, what, seconds):
        deadline = time.monotonic() + seconds
        while True:
            result = done()
            if result:
                return result
            if self.popen.poll() is not None:
                self._fail(f"ended with {self.popen.returncode}")
            if time.monotonic() > deadline:
                self._fail(f"{what} within {seconds} s")
            time.sleep(0.02)

    def wait_for_port(self, port, seconds=30):
        """Returns once 127.0.0.1:port accepts connections."""
        def accepts():
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return True
            except OSError:
                return False
        self._poll(accepts, f"did not listen on port {port}", seconds)

    def wait_for_line(self, pattern, seconds=60):
        """Returns the match of a compiled pattern in the program's output."""
        return self._poll(lambda: pattern.search(self.output()), f"printed no {pattern.pattern!r}", seconds)

    def alive(self):
        return self.popen.poll() is None

    def stop(self, seconds=5):
        """Sends SIGTERM, then SIGKILL. Returns the exit status (negative: the signal that ended it)."""
        if self in _running:
            _running.remove(self)
        if self.alive():
            self.popen.terminate()
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        return self.popen.returncode

    def cpu(self):
        """Returns the CPU seconds so far of this process and its descendants."""
        nanos = 0
        for pid in [self.pid, *children_of(self.pid)]:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                    nanos += int(f.read().split()[0])
        return nanos / 1e9

    def memory(self):
        """Returns (resident, peak resident) bytes of this process and its descendants."""
        values = {"VmRSS": 0, "VmHWM": 0}
        for pid in [self.pid, *children_of(self.pid)]:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
                for line in f:
                    name, _, rest = line.partition(":")
                    if name in values:
                        values[name] += int(rest.split()[0]) * 1024
        return values["VmRSS"], values["VmHWM"]


def children_of(pid):
    """Returns the running descendants of `pid`: nginx and h2o do their work in child processes."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
        if parent == pid:
            found += [int(name), *children_of(int(name))]
    return found


def waited():
    """Returns the seconds so far that the running descendants of this process could have run, and waited for a CPU."""
    nanos = 0
    # The number of this process in /proc, which may be that of another PID namespace.
    for pid in children_of(int(os.readlink("/proc/self"))):
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                    nanos += int(f.read().split()[1])
        except OSError:
            continue  # it has ended meanwhile
    return nanos / 1e9


def run(command, seconds, **kwargs):
    """Runs a client to its end. Raises subprocess.TimeoutExpired; never raises for its exit code."""
    return subprocess.run(
        [str(part) for part in command], timeout=seconds, capture_output=True,
        stdin=kwargs.pop("stdin", subprocess.DEVNULL), preexec_fn=_die_with_parent, **kwargs,
    )


@atexit.register
def stop_all():
    for process in list(_running):
        process.stop(2)


def stop_on_signals():
    """Ends the children too on Ctrl-C, on a closed terminal, or at CI's time limit."""
    def leave(number, _frame):
        raise SystemExit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
