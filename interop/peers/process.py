"""Child processes: started on loopback, waited for, and ended with their parent.

Owns every process that the interop cases and the benchmarks start. Must never touch another process.
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
    """The program did not come up; says what it printed."""


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def raise_file_limit(wanted=65_536):
    """As many descriptors as this user may have, up to `wanted`; returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(hard, wanted), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, max(hard, limit)))
            return limit
        except (ValueError, OSError):
            continue  # no right to raise the hard limit: take all that it allows
    return soft


class Process:
    """A server in the background. `log` is a file with all that it printed."""

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
        """Returns once something accepts on 127.0.0.1:port."""
        def accepts():
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return True
            except OSError:
                return False
        self._poll(accepts, f"did not listen on port {port}", seconds)

    def wait_for_line(self, pattern, seconds=60):
        """Returns the match of a compiled pattern in what the program printed."""
        return self._poll(lambda: pattern.search(self.output()), f"printed no {pattern.pattern!r}", seconds)

    def alive(self):
        return self.popen.poll() is None

    def stop(self, seconds=5):
        """SIGTERM, then SIGKILL. Returns the exit status (negative: the signal that ended it)."""
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
        """Seconds on a CPU so far, of this process and those that it started."""
        nanos = 0
        for pid in [self.pid, *children_of(self.pid)]:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                    nanos += int(f.read().split()[0])
        return nanos / 1e9

    def memory(self):
        """(resident now, resident at most) in bytes, of this process and those that it started."""
        values = {"VmRSS": 0, "VmHWM": 0}
        for pid in [self.pid, *children_of(self.pid)]:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
                for line in f:
                    name, _, rest = line.partition(":")
                    if name in values:
                        values[name] += int(rest.split()[0]) * 1024
        return values["VmRSS"], values["VmHWM"]


def children_of(pid):
    """The processes that `pid` started and that live, theirs included: nginx and h2o work in children."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended while we looked
        if parent == pid:
            found += [int(name), *children_of(int(name))]
    return found


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
    """A Ctrl-C, a closed terminal or CI's time limit end the children too."""
    def leave(number, _frame):
        raise SystemExit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
