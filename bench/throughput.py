#!/usr/bin/python3
"""`smig serve` against its peers: requests a second and bytes a second, by h2load, over TLS, one worker each.

All servers stand through the whole run and serve the same files; one is loaded at a time, in an order that turns with
every round, so that a machine that slows down slows all of them. Medians of the rounds, and smig's ratio to each peer:
above 1.00 smig is faster. Ratios count; absolute figures move with the machine.

    bench/serve                          all peers, 5 rounds of 3 s
    bench/serve --rounds 9 --seconds 5   longer
    bench/serve --peers smig,h2o         these only
    bench/serve --json result.json       also as JSON
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import sys
import tempfile

import setting
from peers import process, servers
from peers.material import Certificate, write_file

# name, file, size, streams a connection, and whether bytes are the measure rather than requests.
COLUMNS = [
    ("1 KB", "1k", 1_024, 32, False),
    ("10 KB", "10k", 10_240, 32, False),
    ("128 KB", "128k", 131_072, 32, False),
    ("50 MB -m 1", "50m", 50_000_000, 1, True),
    ("1 KB -m 1", "1k", 1_024, 1, False),
]
CONNECTIONS = 8


def load(server, column, seconds, prefix):
    """One run of h2load; returns requests or bytes a second. Raises RuntimeError when a request failed."""
    _, file, size, streams, in_bytes = column
    url = server.url(file, "127.0.0.1")
    command = [*prefix, "h2load", "-t", "1", "-c", CONNECTIONS, "-m", streams]
    # In a timed run h2load does not count what is under way at its end: too much of it with big files.
    amount = ["-n", max(24, int(12 * seconds))] if in_bytes else ["-D", f"{seconds}s", "--warm-up-time", "500ms"]
    done = process.run([*command, *amount, url], 120 + 20 * seconds)
    output = done.stdout.decode(errors="replace")
    finished = re.search(r"finished in ([\d.]+)(ms|s|us), ([\d.]+) req/s", output)
    failed = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", output)
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
    if not (finished and failed and codes) or any(int(n) for n in [*failed.groups(), *codes.groups()[1:]]):
        raise RuntimeError(f"{server.name}, {column[0]}: {output[-1500:]}{done.stderr.decode(errors='replace')[-500:]}")
    return float(finished.group(3)) * (size if in_bytes else 1)


def measure(peers, place, options):
    """{column: {peer: [a figure a round]}}"""
    _, load_prefix, _ = setting.pinning()
    runs = {column[0]: {name: [] for name in peers} for column in COLUMNS}
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(setting.PEERS[name](place)) for name in peers}
        for turn in range(options.rounds):
            for column in COLUMNS:
                for i in range(len(peers)):
                    name = peers[(i + turn) % len(peers)]
                    runs[column[0]][name].append(load(running[name], column, options.seconds, load_prefix))
            print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return runs


def shown(value, in_bytes):
    if in_bytes:
        return f"{value / 1e9:.2f} GB/s" if value >= 1e9 else f"{value / 1e6:.0f} MB/s"
    return f"{value / 1e3:.1f} k" if value >= 1e4 else f"{value:.0f}"


def report(peers, runs):
    medians = {column: {name: statistics.median(figures) for name, figures in of.items()} for column, of in runs.items()}
    head = ["req/s, one worker, TLS", *[column[0] for column in COLUMNS]]
    rows = [[name, *[shown(medians[c[0]][name], c[4]) for c in COLUMNS]] for name in peers]
    print(setting.table(head, rows))
    ratios = {}
    if "smig" in peers:
        others = [name for name in peers if name != "smig"]
        ratios = {c: {name: round(of["smig"] / of[name], 3) for name in others} for c, of in medians.items()}
        print("\nsmig divided by\n")
        head = ["ratio of medians", *[column[0] for column in COLUMNS]]
        print(setting.table(head, [[name, *[f"{ratios[c[0]][name]:.2f}" for c in COLUMNS]] for name in others]))
    spread = max((max(f) - min(f)) / statistics.median(f) for of in runs.values() for f in of.values())
    print(f"\nlargest spread between the rounds of one cell: {100 * spread:.0f} % of its median")
    return medians, ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--peers", type=setting.peer_names, default=list(setting.PEERS))
    parser.add_argument("--json", metavar="FILE", default=None)
    options = parser.parse_args()
    process.stop_on_signals()
    process.raise_file_limit()
    before, found = setting.machine(), setting.versions(options.peers)
    server_prefix, _, pinned = setting.pinning()
    print(f"{before['cpu']}, {before['cpus']} CPUs, Linux {before['kernel']}; {pinned}; smig at {setting.commit()}")
    print("; ".join(f"{name} {version}" for name, version in found.items()))
    print(f"h2load -t 1 -c {CONNECTIONS} -m 32, {options.rounds} rounds of {options.seconds} s, medians\n", flush=True)
    base = tempfile.mkdtemp(prefix="smig-bench-")
    try:
        folder = os.path.join(base, "www")
        os.makedirs(folder)
        for _, file, size, _, _ in COLUMNS:
            write_file(os.path.join(folder, file), size, seed=file)
        certificate = Certificate(os.path.join(base, "cert"))
        place = servers.Place(folder, certificate, os.path.join(base, "servers"), server_prefix)
        runs = measure(options.peers, place, options)
    finally:
        process.stop_all()
        shutil.rmtree(base, ignore_errors=True)
    medians, ratios = report(options.peers, runs)
    if options.json:
        setting.write_result(options.json, {
            "machine": before, "pinning": pinned, "versions": found, "commit": setting.commit(),
            "rounds": options.rounds, "seconds": options.seconds, "connections": CONNECTIONS,
            "unit": {column[0]: "bytes/s" if column[4] else "requests/s" for column in COLUMNS},
            "medians": medians, "ratio of smig": ratios, "runs": runs,
        })
    return 0


if __name__ == "__main__":
    sys.exit(main())
