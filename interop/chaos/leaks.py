"""What is left when the clients have gone: connections, sessions, streams, descriptors, memory."""

import signal
import threading
import time

from world import DRAIN, end

MEBI = 1 << 20
# Resident memory of a process that nobody ended: from the first third of the run to its last.
GROWTH = 24 * MEBI
# After the warm-up; allocators and tables grow a while.
REST = 48 * MEBI
# Unused connections to origins are kept for half a minute, and so are spares.
KEPT = 70
SMIG = ("gateway-1", "gateway-2", "agent-1", "agent-2", "serve-a", "serve-b")


def until(seconds, done):
    """The last result of `done`, as soon as it is empty."""
    deadline = time.monotonic() + seconds
    while (result := done()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return result


class Watcher:
    """Looks at memory every second, and remembers how many descriptors were open when nothing happened."""

    def __init__(self, world):
        self.world, self.samples, self.survivors = world, {}, set()
        self.at_rest, self.memory_at_rest, self.memory_at_end = {}, {}, {}
        self.ended = threading.Event()

    def rest(self):
        """To be called after the warm-up."""
        for name in SMIG:
            service = self.world.services[name]
            self.at_rest[name], self.memory_at_rest[name] = service.descriptors(), service.memory()

    def start(self, survivors):
        self.survivors = survivors
        self.samples = {name: [] for name in survivors}
        threading.Thread(target=self.look, daemon=True).start()

    def look(self):
        while not self.ended.wait(1):
            for name, samples in self.samples.items():
                try:
                    samples.append(self.world.services[name].memory())
                except OSError:
                    return  # all of it ends

    def growth(self):
        self.ended.set()
        for name, samples in self.samples.items():
            third = len(samples) // 3
            if third < 20:
                continue  # too short to tell growth from warming up
            first, last = max(samples[:third]), max(samples[-third:])
            if last - first > GROWTH:
                yield f"{name} grew from {first / MEBI:.1f} to {last / MEBI:.1f} MiB"

    def told(self):
        told = {}
        for name, samples in self.samples.items():
            third = max(len(samples) // 3, 1)
            mebi = lambda octets: round(octets / MEBI, 1)
            told[name] = {"at_rest_before_mib": mebi(self.memory_at_rest[name]), "most_in_first_third_mib": mebi(max(
                samples[:third], default=0)), "most_in_last_third_mib": mebi(max(samples[-third:], default=0)),
                "at_rest_after_mib": mebi(self.memory_at_end.get(name, 0))}
        return told


def left_over(world, watcher):
    """Sentences about what should not be there, after the clients have gone."""
    services = world.services
    names = {port: name for name, port in world.port.items()}

    def with_agents():
        for n in (1, 2):
            gateway, agent = services[f"gateway-{n}"], services[f"agent-{n}"]
            for session in world.sessions(n):
                if session["open_streams"]:
                    yield f"gateway-{n} has {session['open_streams']} streams of {session['peer']}: {session['streams']}"
            for name, value in world.metrics(n).items():
                if name.startswith(("smig_upstream_running", "smig_tunnels{")) and value:
                    yield f"gateway-{n}: {name} is {value}"
            for here, there, state in gateway.sockets():
                if here not in names:
                    yield f"gateway-{n} has a connection from port {here} to {names.get(there, there)}, state {state}"
            to_gateways = 0
            for here, there, state in agent.sockets():
                if here in names:
                    yield f"agent-{n} has a local connection on port {here}, state {state}"
                to_gateways += here not in names
            # One, and a spare.
            if to_gateways > 2:
                yield f"agent-{n} has {to_gateways} connections to its gateway: {agent.sockets()}"
            for service in (gateway, agent):
                if service.descriptors() > watcher.at_rest[service.name]:
                    yield (f"{service.name} has {service.descriptors()} descriptors beside TCP, "
                           f"{watcher.at_rest[service.name]} after the warm-up")
    yield from until(KEPT, lambda: list(with_agents()))

    for name in watcher.survivors:
        watcher.memory_at_end[name] = services[name].memory()
        if watcher.memory_at_end[name] > watcher.memory_at_rest[name] + REST:
            yield (f"{name} rests with {watcher.memory_at_end[name] / MEBI:.1f} MiB, "
                   f"after the warm-up {watcher.memory_at_rest[name] / MEBI:.1f} MiB")
    for n in (1, 2):
        yield from end_at_rest(services[f"agent-{n}"])

    def without_agents():
        for n in (1, 2):
            if sessions := world.sessions(n):
                yield f"gateway-{n} has sessions without clients: {sessions}"
            if number := world.metrics(n)["smig_connections"]:
                yield f"gateway-{n} has {number:.0f} connections without clients"
            for socket in services[f"gateway-{n}"].sockets():
                yield f"gateway-{n} has a socket (local port, remote port, state) {socket}"
    yield from until(KEPT, lambda: list(without_agents()))
    for n in (1, 2):
        yield from end_at_rest(services[f"gateway-{n}"])


def end_at_rest(service):
    """SIGTERM, when there is nothing to wait for."""
    code = end(service, signal.SIGTERM, DRAIN + 10)
    if code != 0:
        yield f"{service.name} ended with {code} after SIGTERM at rest"
