#!/usr/bin/python3
"""Memory of servers: bytes per idle HTTP/2 connection over TLS, per download with a slow reader, and the peak during one
download of 1 GB.

Measures resident memory of the server and its child processes. An idle connection has completed its TLS handshake and
exchanged SETTINGS; it has made no request. A slow reader requests 1 GB and reads 1 KB of it each second, once with 64 KB
of flow-control credit, and once with 2 GB, so that nothing but TCP limits what the server sends; then the socket buffers
of the server count as well. More than 9,000 connections are spread over several processes of the server, since one
process may have no more than 20,000 open files on many machines. The one download of 1 GB is read at full speed, and from
another process of the server by a reader that is slower than the server, which shows the size of the server's buffers.

    bench/memory                        10,000 connections, 9,000 slow readers, all peers
    bench/memory --connections 100000 --slow 10000     more
    bench/memory --peers smig,nginx     these only
    SMIG_BEFORE=PROGRAM bench/memory --peers smig,smig-before    against an earlier build
    bench/memory --json result.json     also as JSON
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import setting
from peers import process, servers
from peers.material import Certificate

GIGABYTE = 1_000_000_000
HOLDING = re.compile(r"holding (\d+) after ([\d.]+) s")
# Of one process of a server: two files each, and some more, are within a usual limit of 20,000.
AT_MOST = 9_000
CREDITS = {"64 KB of credit": 65_535, "2 GB of credit": 0x7fff_ffff}
SETTLE_SECONDS = 10


def fetch(place, server, *args, seconds=120):
    done = process.run(["curl", "--silent", "--show-error", "--cacert", place.certificate.ca, "--http2", *args,
                        "--output", "/dev/null", "--write-out", "%{http_code} %{size_download}"], seconds)
    if done.returncode != 0:
        raise RuntimeError(f"{server.name}: curl ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


def socket_buffers(port):
    """Returns the bytes in the socket buffers of the connections that were accepted at a port, and their number."""
    done = process.run(["ss", "--no-header", "--numeric", "--tcp", "--memory", "state", "established",
                        f"sport = :{port}"], 60)
    memory = re.findall(r"skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f(\d+),w(\d+),", done.stdout.decode())
    return sum(int(value) for values in memory for value in values), len(memory)


class Held:
    """Connections that a client holds open to one server."""

    def __init__(self, server, place, count, download):
        self.server, self.count = server, count
        self.client = subprocess.Popen(
            [os.environ["HOLD"], str(server.port), place.certificate.ca, str(count), *map(str, download)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        held = HOLDING.search(self.client.stdout.readline())
        if not held:
            self.client.kill()
            self.fail()
        self.seconds = float(held.group(2))

    def fail(self):
        raise RuntimeError(f"{self.server.name} with {self.count} connections: {self.client.stderr.read()[-500:]}")

    def check(self):
        """Raises RuntimeError if a connection has ended."""
        if self.client.poll() is not None:
            self.fail()

    def close(self):
        self.client.stdin.close()
        self.client.wait(60)


def shares(count):
    """Returns the numbers of connections of as many processes as are needed."""
    processes = -(-count // AT_MOST)
    return [count // processes + (i < count % processes) for i in range(processes)]


def connections(start, place, count, file, download=()):
    """Holds connections to as many processes of a server as are needed, each started by `start(place)`, idle or with a
    download of (path, credit). Returns resident bytes before and after, bytes per connection, and the seconds that
    opening the connections took; of downloads also their socket buffers, and the server's CPU use."""
    with contextlib.ExitStack() as stack:
        servers_of = []
        for i, share in enumerate(shares(count)):
            own = servers.Place(place.folder, place.certificate, place.path(str(i)), place.prefix)
            servers_of.append((stack.enter_context(start(own)), share))
        for server, _ in servers_of:
            fetch(place, server, server.url(file))  # allocations of the first request do not count
        resident = lambda: sum(server.process.memory()[0] for server, _ in servers_of)
        cpu = lambda: sum(server.process.cpu() for server, _ in servers_of)
        before = resident()
        held = []
        for server, share in servers_of:
            held.append(Held(server, place, share, download))
            stack.callback(held[-1].close)
        found = {"processes": len(servers_of), "before": before, "seconds": round(sum(of.seconds for of in held), 1)}
        if download:
            spent, since = cpu(), time.monotonic()
            time.sleep(SETTLE_SECONDS)
            found["cpu"] = round((cpu() - spent) / (time.monotonic() - since), 3)
            buffers, sockets = (sum(of) for of in zip(*(socket_buffers(server.port) for server, _ in servers_of)))
            if sockets != count:
                raise RuntimeError(f"{servers_of[0][0].name}: the server has {sockets} connections instead of {count}")
            found["socket buffers"] = round(buffers / count)
        found["after"] = resident()
        found["per connection"] = round((found["after"] - before) / count)
        for of in held:
            of.check()
            fetch(place, of.server, of.server.url(file))  # it still responds
    return found


def big_download(name, place):
    """Returns resident bytes before a download, and the peaks of two servers that each serve one: while 1 GB is read at
    full speed, and while a slow reader reads 100 MB."""
    with setting.start(name, place) as server:
        fetch(place, server, server.url("small"))
        before, _ = server.process.memory()
        got = fetch(place, server, server.url("big"))
        if got != f"200 {GIGABYTE}":
            raise RuntimeError(f"{name}: the download ended with {got}")
        _, fast = server.process.memory()
    # Another process: the peak of this one is never below the first, and it may keep the memory of the first download.
    with setting.start(name, place) as server:
        fetch(place, server, server.url("small"))
        fetch(place, server, "--limit-rate", "20M", "--range", "0-99999999", server.url("big"))
        _, slow = server.process.memory()
    return {"before": before, "peak": fast, "peak with a slow reader": slow}


def smig_get(place):
    """Returns the peak of `smig get` while it downloads 1 GB to /dev/null."""
    with servers.nginx(place) as server:
        child = subprocess.Popen(
            [servers.smig_program(), "get", "--cacert", place.certificate.ca, "-o", "/dev/null", server.url("big")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"smig get ended with {child.returncode}: {said.decode(errors='replace')[-500:]}")
    return usage.ru_maxrss * 1024


def megabytes(value):
    return f"{value / 1e6:.1f} MB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--slow", type=int, default=9_000)
    parser.add_argument("--peers", type=setting.peer_names, default=list(setting.PEERS))
    parser.add_argument("--json", metavar="FILE", default=None)
    options = parser.parse_args()
    process.stop_on_signals()
    limit, needed = process.raise_file_limit(), 2 * min(AT_MOST, max(options.connections, options.slow)) + 200
    if limit < needed:
        print(f"error: a process needs {needed} open files and the limit is {limit}: raise it (ulimit -Hn, as root), "
              f"or use fewer --connections and --slow readers", file=sys.stderr)
        return 2
    found = setting.versions(options.peers)
    print("; ".join(f"{name} {version}" for name, version in found.items()), "\n", flush=True)
    base = tempfile.mkdtemp(prefix="smig-bench-")
    idle, slow, download, get_peak = {}, {credit: {} for credit in CREDITS}, {}, None
    try:
        certificate = Certificate(os.path.join(base, "cert"))
        places = {}
        for what, sizes in (("idle", {"small": 1024}), ("download", {"small": 1024, "big": GIGABYTE})):
            folder = os.path.join(base, what)
            os.makedirs(folder)
            for file, size in sizes.items():
                with open(os.path.join(folder, file), "wb") as f:
                    f.truncate(size)  # sparse: it takes no disk space
            places[what] = servers.Place(folder, certificate, os.path.join(base, "servers", what))
        for name in options.peers:
            start = lambda place: setting.start(name, place)
            idle[name] = connections(start, places["idle"], options.connections, "small")
            print(f"{name}: {idle[name]['per connection']} bytes for each idle connection", file=sys.stderr, flush=True)
            if name == "hyper":
                continue  # it serves files from memory: that would include the file
            for credit, size in CREDITS.items():
                slow[credit][name] = connections(start, places["download"], options.slow, "small", ("/big", size))
                print(f"{name}, slow readers, {credit}: {slow[credit][name]}", file=sys.stderr, flush=True)
            download[name] = big_download(name, places["download"])
        if "smig" in options.peers:
            get_peak = smig_get(places["download"])
    finally:
        process.stop_all()
        shutil.rmtree(base, ignore_errors=True)
    print(setting.table(
        [f"{options.connections} idle connections", "before", "with them", "each", "opened in"],
        [[n, megabytes(i["before"]), megabytes(i["after"]), f"{i['per connection'] / 1e3:.1f} KB", f"{i['seconds']:.1f} s"]
         for n, i in idle.items()]), "\n")
    for credit, of in slow.items():
        print(setting.table(
            [f"{options.slow} slow readers with {credit}", "resident, each", "socket buffers, each", "CPU"],
            [[n, f"{i['per connection'] / 1e3:.1f} KB", f"{i['socket buffers'] / 1e3:.1f} KB", f"{100 * i['cpu']:.0f} %"]
             for n, i in of.items()]), "\n")
    print(setting.table(
        ["download of 1 GB", "before", "peak", "peak with a slow reader"],
        [[n, megabytes(d["before"]), megabytes(d["peak"]), megabytes(d["peak with a slow reader"])]
         for n, d in download.items()]))
    if get_peak:
        print(f"\nsmig get of 1 GB: peak {megabytes(get_peak)}")
    if options.json:
        setting.write_result(options.json, {
            "machine": setting.machine(), "versions": found, "commit": setting.commit(),
            "connections": options.connections, "idle": idle, "slow readers": options.slow, "slow": slow, "download": download, "smig get peak": get_peak,
        })
    return 0


if __name__ == "__main__":
    sys.exit(main())
