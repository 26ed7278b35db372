#!/usr/bin/python3
"""Memory of servers: bytes per idle HTTP/2 connection over TLS, and the peak during a download of 1 GB.

Measures resident memory of the server and its child processes. An idle connection has completed its TLS handshake and
exchanged SETTINGS; it has made no request. The download is read at full speed, and from another process of the server by
a reader that is slower than the server, which shows the size of the server's buffers.

    bench/memory                        10,000 connections, all peers
    bench/memory --connections 2000     fewer
    bench/memory --peers smig,nginx     these only
    SMIG_BEFORE=PROGRAM bench/memory --peers smig,smig-before    against an earlier build
    bench/memory --json result.json     also as JSON
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

import setting
from peers import process, servers
from peers.material import Certificate

GIGABYTE = 1_000_000_000
HOLDING = re.compile(r"holding (\d+) after ([\d.]+) s")


def fetch(place, server, *args, seconds=120):
    done = process.run(["curl", "--silent", "--show-error", "--cacert", place.certificate.ca, "--http2", *args,
                        "--output", "/dev/null", "--write-out", "%{http_code} %{size_download}"], seconds)
    if done.returncode != 0:
        raise RuntimeError(f"{server.name}: curl ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


def idle_connections(server, place, count, file="small"):
    """Returns resident bytes before and after, bytes per connection, and the seconds that opening the connections took."""
    fetch(place, server, server.url(file))  # allocations of the first request do not count
    before, _ = server.process.memory()
    holder = subprocess.Popen(
        [os.environ["IDLE"], str(server.port), place.certificate.ca, str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        held = HOLDING.search(holder.stdout.readline())
        if not held:
            holder.kill()
            raise RuntimeError(f"{server.name} with {count} connections: {holder.stderr.read()[-500:]}")
        after, _ = server.process.memory()
        fetch(place, server, server.url(file))  # it still responds
    finally:
        holder.stdin.close()
        holder.wait(60)
    return {"before": before, "after": after, "per connection": round((after - before) / count),
            "seconds": float(held.group(2))}


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
    parser.add_argument("--peers", type=setting.peer_names, default=list(setting.PEERS))
    parser.add_argument("--json", metavar="FILE", default=None)
    options = parser.parse_args()
    process.stop_on_signals()
    limit = process.raise_file_limit()
    if limit < options.connections + 200:
        print(f"error: {options.connections} connections need {options.connections + 200} open files in a process and "
              f"the limit is {limit}: raise it (ulimit -Hn, as root), or use --connections {limit - 200}", file=sys.stderr)
        return 2
    found = setting.versions(options.peers)
    print("; ".join(f"{name} {version}" for name, version in found.items()), "\n", flush=True)
    base = tempfile.mkdtemp(prefix="smig-bench-")
    idle, download, get_peak = {}, {}, None
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
            with setting.start(name, places["idle"]) as server:
                idle[name] = idle_connections(server, places["idle"], options.connections)
            print(f"{name}: {idle[name]['per connection']} bytes for each idle connection", file=sys.stderr, flush=True)
            # hyper serves files from memory: the peak would include the file.
            if name != "hyper":
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
    print(setting.table(
        ["download of 1 GB", "before", "peak", "peak with a slow reader"],
        [[n, megabytes(d["before"]), megabytes(d["peak"]), megabytes(d["peak with a slow reader"])]
         for n, d in download.items()]))
    if get_peak:
        print(f"\nsmig get of 1 GB: peak {megabytes(get_peak)}")
    if options.json:
        setting.write_result(options.json, {
            "machine": setting.machine(), "versions": found, "commit": setting.commit(),
            "connections": options.connections, "idle": idle, "download": download, "smig get peak": get_peak,
        })
    return 0


if __name__ == "__main__":
    sys.exit(main())
