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

from world import World  # noqa: E402

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
        return [self.world.metrics(f"gateway-{number}")[f"smig_{metric}_total"] for number in (1, 2)]

    def total(self, metric):
        return sum(self.each(metric))


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


def one_source(at):
    """smig get: files complete, JOINs reach their session"""
    smig_get(at)
    check(at.server.total("joins") >= 1, "no connection joined a session")
    check(at.server.total("joins_refused") == 0, f"{at.server.total('joins_refused'):.0f} joins were refused")
    sessions = at.server.each("sessions_established")
    check(sorted(sessions) == [0, 5], f"one client's five sessions are distributed as {sessions}")


def through_agent(at):
    """smig agent: complete downloads through its proxy, in one session"""
    world = at.server.world
    world.start("agent-1")
    before = at.server.total("sessions_established")
    for name in NAMES:
        done = run(["curl", "--silent", "--show-error", "--fail", "--proxy", f"http://127.0.0.1:{world.port['agent-1']}",
                    f"http://127.0.0.1:{world.port['nginx-a']}/{name}"], 60)
        check(done.returncode == 0, f"curl ended with {done.returncode}: {text(done.stderr)}")
        check(sha256(done.stdout) == world.hashes[name], f"{name}: wrong hash")
    check(at.server.total("sessions_established") == before, "the agent established further sessions")


def elsewhere(at):
    """smig get: files complete although JOINs reach the other gateway, where each founds a session"""
    smig_get(at)
    check(0 not in at.server.each("sessions_established"), "no JOIN reached the other gateway")
    # A JOIN for a session that a gateway does not know founds one there (SMIG-4.8/new-session).
    check(at.server.total("sessions_established") > 5, f"{at.server.total('sessions_established'):.0f} sessions: no JOIN reached the other gateway")


SOURCE_CASES = [one_source, through_agent]
ROUND_ROBIN_CASES = [elsewhere]
