#!/usr/bin/python3
"""`smig serve` compared with its peers: requests or bytes per second, with h2load, over TLS, one worker each.

All servers run all the time and serve the same files; one is loaded at a time, in an order that rotates with every
round, so that a slower machine affects all of them. Results are medians of the rounds, and smig's ratio to each peer:
above 1.00 smig is faster. Also the server's CPU time per request: on loopback h2load is often the bottleneck, and then
only CPU time distinguishes the servers. Ratios matter; absolute values depend on the machine.

    bench/serve                          all peers, 5 rounds of 3 s
    bench/serve --rounds 9 --seconds 5   longer
    bench/serve --peers smig,h2o         these only
    SMIG_BEFORE=PROGRAM bench/serve --peers smig,smig-before    against an earlier build
    bench/serve --columns 4,5            these columns of the five only
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

# name, file, size, streams per connection, and whether bytes rather than requests per second are reported.
COLUMNS = [
    ("1 KB", "1k", 1_024, 32, False),
    ("10 KB", "10k", 10_240, 32, False),
    ("128 KB", "128k", 131_072, 32, False),
    ("50 MB -m 1", "50m", 50_000_000, 1, True),
    ("1 KB -m 1", "1k", 1_024, 1, False),
]
CONNECTIONS = 8
# Seconds at the start of a timed run that h2load does not count.
WARM_UP = 0.5


def load(server, column, seconds, prefix):
    """Runs h2load; returns requests or bytes per second, and the server's CPU time per request in microseconds.
    Raises RuntimeError if a request failed."""
    _, file, size, streams, in_bytes = column
    url = server.url(file, "127.0.0.1")
    command = [*prefix, "h2load", "-t", "1", "-c", CONNECTIONS, "-m", streams]
    # A timed run does not count requests in progress at its end, which matters with large files.
    amount = ["-n", max(24, int(12 * seconds))] if in_bytes else ["-D", f"{seconds}s", "--warm-up-time", f"{1000 * WARM_UP:.0f}ms"]
    before = server.process.cpu()
    done = process.run([*command, *amount, url], 120 + 20 * seconds)
    spent = server.process.cpu() - before
    output = done.stdout.decode(errors="replace")
    finished = re.search(r"finished in ([\d.]+)(ms|s|us), ([\d.]+) req/s", output)
    failed = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", output)
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
    if not (finished and failed and codes) or any(int(n) for n in [*failed.groups(), *codes.groups()[1:]]):
        raise RuntimeError(f"{server.name}, {column[0]}: {output[-1500:]}{done.stderr.decode(errors='replace')[-500:]}")
    seconds = float(finished.group(1)) * {"us": 1e-6, "ms": 1e-3, "s": 1}[finished.group(2)]
    rate = float(finished.group(3))
    # The CPU time includes the warm-up.
    return rate * (size if in_bytes else 1), 1e6 * spent / (seconds + (0 if in_bytes else WARM_UP)) / rate


def columns(text):
    """Parses a comma-separated list of column numbers, for argparse."""
    return [COLUMNS[int(number) - 1] for number in text.split(",")]


def measure(peers, place, options):
    """Returns {column: {peer: [a value per round]}} of the rate, and of the CPU time per request."""
    _, load_prefix, _ = setting.pinning()
    runs, cpu = ({column[0]: {name: [] for name in peers} for column in options.columns} for _ in range(2))
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(setting.start(name, place)) for name in peers}
        for turn in range(options.rounds):
            for column in options.columns:
                for i in range(len(peers)):
                    name = peers[(i + turn) % len(peers)]
                    rate, spent = load(running[name], column, options.seconds, load_prefix)
                    runs[column[0]][name].append(rate)
                    cpu[column[0]][name].append(spent)
            print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return runs, cpu


def shown(value, in_bytes):
    if in_bytes:
        return f"{value / 1e9:.2f} GB/s" if value >= 1e9 else f"{value / 1e6:.0f} MB/s"
    return f"{value / 1e3:.1f} k" if value >= 1e4 else f"{value:.0f}"


def shown_time(micros, _in_bytes):
    return f"{micros / 1e3:.1f} ms" if micros >= 1e3 else f"{micros:.1f} us"


def medians_of(runs):
    return {column: {name: statistics.median(figures) for name, figures in of.items()} for column, of in runs.items()}


def ratios_of(peers, medians, better):
    """Returns the ratios of smig to each peer; above 1, smig is better."""
    if "smig" not in peers:
        return {}
    ratio = lambda of, name: of["smig"] / of[name] if better == "more" else of[name] / of["smig"]
    return {c: {name: round(ratio(of, name), 3) for name in peers if name != "smig"} for c, of in medians.items()}


def report(peers, what, medians, show, ratios, how):
    shown_columns = [column for column in COLUMNS if column[0] in medians]
    head = [column[0] for column in shown_columns]
    rows = [[name, *[show(medians[c[0]][name], c[4]) for c in shown_columns]] for name in peers]
    print(f"\n{setting.table([what, *head], rows)}")
    if ratios:
        rows = [[name, *[f"{ratios[c][name]:.2f}" for c in head]] for name in peers if name != "smig"]
        print(f"\n{setting.table([how, *head], rows)}")


def spread_of(runs):
    return max((max(f) - min(f)) / statistics.median(f) for of in runs.values() for f in of.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--peers", type=setting.peer_names, default=list(setting.PEERS))
    parser.add_argument("--columns", type=columns, default=COLUMNS)
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
        runs, cpu = measure(options.peers, place, options)
    finally:
        process.stop_all()
        shutil.rmtree(base, ignore_errors=True)
    medians, spent = medians_of(runs), medians_of(cpu)
    ratios, savings = ratios_of(options.peers, medians, "more"), ratios_of(options.peers, spent, "less")
    report(options.peers, "requests a second", medians, shown, ratios, "smig divided by")
    report(options.peers, "server's CPU time a request", spent, shown_time, savings, "divided by smig's")
    print(f"\nlargest spread between the rounds of one cell: {100 * spread_of(runs):.0f} % of its median; "
          f"of CPU time, {100 * spread_of(cpu):.0f} %")
    if options.json:
        setting.write_result(options.json, {
            "machine": before, "pinning": pinned, "versions": found, "commit": setting.commit(),
            "rounds": options.rounds, "seconds": options.seconds, "connections": CONNECTIONS,
            "unit": {column[0]: "bytes/s" if column[4] else "requests/s" for column in COLUMNS},
            "medians": medians, "ratio of smig": ratios, "runs": runs,
            "cpu microseconds a request": spent, "cpu of peer divided by smig's": savings, "cpu runs": cpu,
        })
    return 0


if __name__ == "__main__":
    sys.exit(main())
