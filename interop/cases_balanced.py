"""Two gateways behind HAProxy in TCP mode: each function is a case, named by its docstring's first line.

The processes are those of chaos/world.py, which configures HAProxy; none is killed here.
"""

import os
import sys

from cases_server import check, text
from peers.material import sha256, sha256_of_file
from peers.process import run
from peers.servers import smig_program

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "chaos"))

from leaks import until  # noqa: E402
from world import World  # noqa: E402

# Connections that a gateway may count after the start: the test has looked whether its port and HAProxy's answer.
PROBES = 2
NAMES = ["8m", "1k", "200k", "1m", "10k"]


class Balanced:
    """Gateways 1 and 2 in front of nginx and `smig serve`; HAProxy assigns connections by `balance`."""

    def __init__(self, place, balance):
        self.name = f"two gateways, balance {balance}"
        self.world = World(place.scratch, place.certificate, balance)

    def __enter__(self):
        self.world.start("nginx-a", "serve-a", "gateway-1", "gateway-2", "haproxy")
        return self

    def __exit__(self, *_):
        for service in self.world.services.values():
            if service.process:
                service.process.stop()

    def each(self, metric):
        return [self.world.metrics(f"gateway-{number}")[f"smig_{metric}"] for number in (1, 2)]

    def growth(self, metric, before):
        return [now - then for now, then in zip(self.each(metric), before)]

    def total(self, metric):
        return sum(self.each(metric))

    def wait_until_idle(self):
        """Waits until no connection is open at either gateway."""
        left = until(20, lambda: self.total("connections"))
        check(not left, f"{left:.0f} connections are still open at the gateways, 20 s after their clients ended")

    def wait_for_more(self, metric, before):
        check(not until(20, lambda: self.total(metric) == before), f"smig_{metric} is still {before:.0f} after 20 s")


def smig_get(at):
    """Fetches all files five times, each time in a session of its own."""
    world, folder = at.server.world, at.scratch("smig-get")
    urls = [f"https://localhost:{world.port['front-1']}/f1/{name}" for name in NAMES]
    for _ in range(5):
        done = run([smig_program(), "get", "--quiet", "--overwrite", "--cacert", world.certificate.ca, "--output-dir", folder,
                    "--spares", "3", *urls], 120)
        check(done.returncode == 0, f"smig get ended with {done.returncode}: {text(done.stderr)}")
        for name in NAMES:
            check(sha256_of_file(os.path.join(folder, name)) == world.hashes[name], f"{name}: wrong hash")
    at.server.wait_until_idle()


def download_through_agent(world):
    for name in NAMES:
        done = run(["curl", "--silent", "--show-error", "--fail", "--proxy", f"http://127.0.0.1:{world.port['agent-1']}",
                    f"http://127.0.0.1:{world.port['nginx-a']}/{name}"], 60)
        check(done.returncode == 0, f"curl ended with {done.returncode}: {text(done.stderr)}")
        check(sha256(done.stdout) == world.hashes[name], f"{name}: wrong hash")


def one_source(at):
    """smig get: files complete, all connections at one gateway"""
    sessions, joined = at.server.each("sessions_established_total"), at.server.each("joins_total")
    smig_get(at)
    # More than five sessions if a spare arrives after the end of its session: smig get does not wait for its spares.
    established = at.server.growth("sessions_established_total", sessions)
    check(0 in established and sum(established) >= 5, f"one client's five sessions are distributed as {established}")
    joins = at.server.growth("joins_total", joined)
    check(joins[established.index(0)] == 0, f"its connections joined sessions at both gateways: {joins}")


def agent_joins(at):
    """smig agent: complete downloads through its proxy, in one session, which its spares join"""
    world, before = at.server.world, at.server.total("sessions_established_total")
    joined, refused = at.server.total("joins_total"), at.server.total("joins_refused_total")
    world.start("agent-1")
    download_through_agent(world)
    at.server.wait_for_more("joins_total", joined)
    check(at.server.total("joins_refused_total") == refused, "a JOIN was refused")
    check(at.server.total("sessions_established_total") == before + 1, "the agent established further sessions")


def elsewhere(at):
    """smig get: files complete although its connections are distributed"""
    before = at.server.each("connections_opened_total")
    smig_get(at)
    opened = at.server.growth("connections_opened_total", before)
    check(min(opened) > PROBES, f"its connections are distributed as {opened}")


def agent_elsewhere(at):
    """smig agent: complete downloads although JOINs reach the other gateway, which refuses them"""
    world, sessions = at.server.world, at.server.each("sessions_established_total")
    refused = at.server.total("joins_refused_total")
    world.start("agent-1")
    download_through_agent(world)
    at.server.wait_for_more("joins_refused_total", refused)
    # A connection founds a session at a gateway that does not know its own (SMIG-4.8/new-session).
    check(not until(20, lambda: 0 in at.server.growth("sessions_established_total", sessions)),
          "no session at the other gateway after 20 s")
    download_through_agent(world)


SOURCE_CASES = [one_source, agent_joins]
ROUND_ROBIN_CASES = [elsewhere, agent_elsewhere]
