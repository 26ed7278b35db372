"""Finds leaks after the clients have stopped: connections, sessions, streams, descriptors, memory."""

import signal
import threading
import time

from world import DRAIN, end

MEBI = 1 << 20
# Maximum growth of a process from the first to the last third of its lifetime: resident memory, open files, sockets (as
# many as clients open concurrently), threads.
GROWTH = {"memory": 24 * MEBI, "files": 8, "sockets": 100, "threads": 4}
# Minimum number of samples in a third, one per second, to distinguish growth from warming up, which takes longer for memory.
THIRD, MEMORY_THIRD = 20, 60
# Maximum growth of idle memory after the warm-up; allocators and tables grow for a while.
REST = 48 * MEBI
# Timeout for connections to close: idle ones to origins, and spares, remain open for half a minute.
KEPT = 70
SMIG = ("gateway-1", "gateway-2", "agent-1", "agent-2", "serve-a", "serve-b")


def until(seconds, done):
    """Polls `done` until its result is empty or the time is over; returns the last result."""
    deadline = time.monotonic() + seconds
    while (result := done()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return result


class Watcher:
    """Samples the resources of every smig process each second, and records them when idle. A restarted process has a
    lifetime of its own."""

    def __init__(self, world):
        self.world, self.lives = world, {}
        self.at_rest, self.memory_at_rest, self.memory_at_end = {}, {}, {}
        self.ended = threading.Event()

    def rest(self):
        """Records the idle resources; to be called after the warm-up."""
        for name in SMIG:
            service = self.world.services[name]
            self.at_rest[name], self.memory_at_rest[name] = service.descriptors(), service.memory()

    def start(self):
        threading.Thread(target=self.look, daemon=True).start()

    def look(self):
        while not self.ended.wait(1):
            for name in SMIG:
                service = self.world.services[name]
                number = service.number
                try:
                    self.lives.setdefault((name, number), []).append(service.holds())
                except OSError:
                    pass  # it is not running

    def thirds(self):
        """Yields (name, number of the lifetime, what, maximum in its first third, in its last) if there are enough samples."""
        for (name, number), samples in self.lives.items():
            third = len(samples) // 3
            if third >= THIRD:
                for what in GROWTH:
                    yield (name, number, what, max(sample[what] for sample in samples[:third]),
                           max(sample[what] for sample in samples[-third:]))

    def growth(self):
        self.ended.set()
        for name, number, what, first, last in self.thirds():
            warms_up = what == "memory" and len(self.lives[name, number]) < 3 * MEMORY_THIRD
            if last - first > GROWTH[what] and not warms_up:
                yield f"{name}, process {number}, grew: {what} {first} in its first third, {last} in its last"

    def told(self):
        told = []
        for name, number, what, first, last in self.thirds():
            if what == "memory":
                first, last = round(first / MEBI, 1), round(last / MEBI, 1)
            told.append({"process": name, "number": number, "samples": len(self.lives[name, number]), "what": what,
                         "most_in_first_third": first, "most_in_last_third": last})
        return told

    def rests(self):
        mebi = lambda size: round(size / MEBI, 1)
        return {name: {"after_warm_up_mib": mebi(self.memory_at_rest[name]), "at_the_end_mib": mebi(after)}
                for name, after in self.memory_at_end.items()}


def left_over(world, watcher):
    """Yields sentences about leaks, after the clients have stopped."""
    services = world.services
    names = {port: name for name, port in world.port.items()}

    def with_agents():
        for n in (1, 2):
            for service in (services[f"gateway-{n}"], services[f"agent-{n}"]):
                name = service.name
                for session in world.sessions(name):
                    if session["open_streams"]:
                        yield f"{name} has {session['open_streams']} streams of {session['peer']}: {session['streams']}"
                for label, value in world.metrics(name).items():
                    if label.startswith(("smig_upstream_active_requests", "smig_tunnels{")) and value:
                        yield f"{name}: {label} is {value}"
                if (descriptors := service.descriptors()) > watcher.at_rest[name]:
                    yield (f"{name} has {descriptors} descriptors beside TCP connections, "
                           f"{watcher.at_rest[name]} after the warm-up")
                if name.startswith("gateway"):
                    yield from (f"{name} has a connection from port {here} to {names.get(there, there)}, state {state}"
                                for here, there, state in service.sockets() if here not in names)
                    continue
                # Connections to the admin page close by themselves.
                asked = world.port[f"agent-admin-{n}"]
                held = [socket for socket in service.sockets() if socket[0] != asked]
                yield from (f"{name} has a local connection on port {here}, state {state}"
                            for here, _, state in held if here in names)
                # One connection, and a spare.
                if sum(here not in names for here, _, _ in held) > 2:
                    yield f"{name} has more connections to its gateway than two: {held}; {world.sessions(name)}"
    yield from until(KEPT, lambda: list(with_agents()))

    for name in SMIG:
        after = watcher.memory_at_end[name] = services[name].memory()
        if after > watcher.memory_at_rest[name] + REST:
            yield (f"{name} has {after / MEBI:.1f} MiB when idle, "
                   f"after the warm-up {watcher.memory_at_rest[name] / MEBI:.1f} MiB")
    for n in (1, 2):
        yield from end_at_rest(services[f"agent-{n}"])

    def without_agents():
        for n in (1, 2):
            if sessions := world.sessions(f"gateway-{n}"):
                yield f"gateway-{n} has sessions without clients: {sessions}"
            if number := world.metrics(f"gateway-{n}")["smig_connections"]:
                yield f"gateway-{n} has {number:.0f} connections without clients"
            for socket in services[f"gateway-{n}"].sockets():
                yield f"gateway-{n} has a socket (local port, remote port, state) {socket}"
    yield from until(KEPT, lambda: list(without_agents()))
    for n in (1, 2):
        yield from end_at_rest(services[f"gateway-{n}"])


def end_at_rest(service):
    """Sends SIGTERM to an idle service."""
    code = end(service, signal.SIGTERM, DRAIN + 10)
    if code != 0:
        yield f"{service.name} exited with {code} after SIGTERM when idle"
