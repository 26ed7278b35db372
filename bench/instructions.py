#!/usr/bin/python3
"""Instructions and system calls a request, of servers of files or of reverse proxies, counted by valgrind.

A rate needs a quiet machine; a count does not: repeated runs differ by about 1 %, whatever else runs (how many requests
a server finds at once varies; more requests or rounds help). Counted are the instructions of the server's own processes
outside the kernel; the kernel's part shows only as the number of system calls (without reads of the clock, which do not
enter it). valgrind has no AVX-512, so that ciphers are slower for all alike, and one thread runs at a time.

Each server is started under callgrind, and loaded by h2load three times over the same number of connections: to warm
up, with a few requests, and with many. The difference between the last two, divided by the additional requests, is
free of start-up, handshakes and closes.

    bench/instructions                            `smig serve` and h2o, all columns
    bench/instructions --what gateway             `smig gateway`, nginx, haproxy and nghttpx
    bench/instructions --columns 1,5              these columns of bench/serve or bench/gateway only; with --what gateway
                                                  there is a sixth, 10 KB -m 1
    bench/instructions --what gateway --peers smig --crates    also the instructions of each crate
    bench/instructions --peers smig,nghttpd       these only
    SMIG_BEFORE=PROGRAM bench/instructions --peers smig,smig-before    against an earlier build
    bench/instructions --requests 20000           more additional requests (one in 250 of them if they are large)
    bench/instructions --rounds 3                 also the largest difference between rounds
    bench/instructions --peers smig --atomics     also how often smig executes each atomic instruction that writes: what is
                                                  shared by the workers is among them
    bench/instructions --profile DIRECTORY        keeps callgrind's files, for callgrind_annotate: smig-1-KB-many...
    bench/instructions --json result.json         also as JSON

For a profile with names of inlined functions, build with CARGO_PROFILE_RELEASE_DEBUG=line-tables-only.
"""

import argparse
import collections
import contextlib
import glob
import os
import re
import shutil
import statistics
import sys
import tempfile

import callgrind
import proxied
import proxies
import setting
import throughput
from peers import process, servers
from peers.material import Certificate, write_file

FEW = 640
# Of requests for files larger than this many bytes, one in LARGE_SHARE of the requested number is enough.
LARGE_BYTES, LARGE_SHARE = 1_000_000, 250


class Count:
    """Instructions and system calls of a server since its last dump, and instructions by crate."""

    def __init__(self):
        self.instructions, self.calls, self.parts, self.atomics = 0, 0, collections.Counter(), collections.Counter()

    def add(self, text, atomic_addresses):
        """Adds the content of one of callgrind's files."""
        totals = dict(zip(callgrind.events_of(text), map(int, re.search(r"(?m)^totals: (.*)$", text).group(1).split())))
        self.instructions += totals["Ir"]
        self.calls += totals.get("sysCount", 0) - callgrind.clock_reads(text)
        self.parts.update(callgrind.by_part(text))
        if atomic_addresses:
            self.atomics.update(callgrind.atomics(text, os.path.realpath(servers.smig_program()), atomic_addresses))


class Counted:
    """A server under callgrind. `files` is the prefix of callgrind's output files."""

    def __init__(self, server, files, atomic_addresses):
        self.server, self.files, self.atomic_addresses = server, files, atomic_addresses

    def take(self, keep=None):
        """Returns the count since the last call, and starts a new one; keeps the dumps as `keep` if given."""
        done = [path for path in glob.glob(f"{glob.escape(self.files)}*")]
        for pid in [self.server.process.pid, *process.children_of(self.server.process.pid)]:
            dumped = process.run(["callgrind_control", "-d", pid], 60)
            if dumped.returncode:
                raise RuntimeError(f"{self.server.name}: {dumped.stdout.decode(errors='replace')}")
        count = Count()
        for path in set(glob.glob(f"{glob.escape(self.files)}*")) - set(done):
            with open(path, encoding="utf-8", errors="replace") as f:
                text = f.read()
            if text:  # else it is of a process that has not dumped anything
                count.add(text, self.atomic_addresses)
            if keep:
                shutil.copy(path, f"{keep}.{os.path.basename(path).rpartition('.')[2]}")
        return count


def load(server, column, requests):
    """Runs h2load with this number of requests. Raises RuntimeError if one failed."""
    _, file, _, streams, _ = column
    _, prefix, _ = setting.pinning()
    done = process.run([*prefix, "h2load", "-t", "1", "-c", throughput.CONNECTIONS, "-m", streams, "-n", requests,
                        server.url(file, "127.0.0.1")], 600)
    output = done.stdout.decode(errors="replace")
    succeeded = re.search(r"(\d+) succeeded", output)
    codes = re.search(r"status codes: (\d+) 2xx", output)
    if not (succeeded and codes) or not int(succeeded.group(1)) == int(codes.group(1)) == requests:
        raise RuntimeError(f"{server.name}, {column[0]}: {output[-1500:]}{done.stderr.decode(errors='replace')[-500:]}")


def measure(counted, column, options):
    """Returns instructions and system calls a request, {crate: instructions} and {atomic instruction: executions}."""
    few, more = FEW, options.requests
    if column[2] > LARGE_BYTES:
        few, more = throughput.CONNECTIONS, max(throughput.CONNECTIONS, more // LARGE_SHARE)
    name = f"{counted.server.name}-{column[0].replace(' ', '-').replace(',', '')}"
    keep = os.path.join(options.profile, name) if options.profile else None
    load(counted.server, column, few)
    counted.take()
    load(counted.server, column, few)
    start = counted.take(keep and f"{keep}-few")
    load(counted.server, column, few + more)
    end = counted.take(keep and f"{keep}-many")
    parts = {part: (end.parts[part] - start.parts[part]) / more for part in end.parts}
    atomics = {where: (end.atomics[where] - start.atomics[where]) / more for where in end.atomics}
    return (end.instructions - start.instructions) / more, (end.calls - start.calls) / more, parts, atomics


def valgrind(files, by_instruction):
    return ["valgrind", *(["--dump-instr=yes", "--compress-pos=no"] if by_instruction else []), "--tool=callgrind", "--trace-children=yes", "--collect-systime=yes", f"--log-file={files}.log",
            f"--callgrind-out-file={files}.%p"]


class Serve:
    """Servers of files."""

    columns = [(column, None) for column in throughput.COLUMNS]
    default_peers = ["smig", "h2o"]
    known = setting.KNOWN
    upstream = None

    @staticmethod
    def able(names):
        return names

    @staticmethod
    def start(name, place, _upstream, _protocol):
        return setting.start(name, place)


class Gateway:
    """Reverse proxies in front of one nginx, which is not counted."""

    columns = [*proxied.COLUMNS, (("10 KB -m 1", "10k", 10_240, 1, False), "http1")]
    default_peers = ["smig", "nginx", "haproxy", "nghttpx"]
    known = {**proxies.PROXIES, **proxies.VARIANTS}
    upstream = proxies.Upstream

    @staticmethod
    def able(names):
        return proxies.installed(names)

    @staticmethod
    def start(name, place, upstream, protocol):
        return proxied.start(name, place, upstream, protocol)


KINDS = {"serve": Serve, "gateway": Gateway}


def measure_all(kind, options, base, folder, certificate):
    """Returns {column: {peer: [what measure() returns of a round]}}."""
    addresses = callgrind.atomic_addresses(servers.smig_program()) if options.atomics else None
    found = {column[0]: {} for column, _ in options.columns}
    beside = servers.Place(folder, certificate, os.path.join(base, "upstream"))
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(kind.upstream(beside)) if kind.upstream else None
        for name in options.peers:
            for protocol in sorted({protocol for _, protocol in options.columns}, key=str):
                scratch = os.path.join(base, f"{name}-{protocol}")
                place = servers.Place(folder, certificate, scratch, valgrind(os.path.join(scratch, "count"), options.atomics))
                server = kind.start(name, place, upstream, protocol)
                if server is None:
                    continue
                with server:
                    counted = Counted(server, os.path.join(scratch, "count."), addresses)
                    for column in [column for column, other in options.columns if other == protocol]:
                        runs = [measure(counted, column, options) for _ in range(options.rounds)]
                        found[column[0]][name] = runs
            print(f"{name} is counted", file=sys.stderr, flush=True)
    return found


def report_parts(name, found):
    """Prints the instructions of one peer by crate, those with at least one in a hundred."""
    of = {column: [run[2] for run in runs[name]] for column, runs in found.items() if name in runs}
    median = lambda runs, part: statistics.median(run.get(part, 0) for run in runs)
    parts = {part for runs in of.values() for run in runs for part in run}
    share = lambda part: max(median(runs, part) / sum(runs[0].values()) for runs in of.values())
    shown = sorted((part for part in parts if share(part) >= 0.01), key=share, reverse=True)
    rows = [[part, *[f"{median(runs, part):,.0f}" for runs in of.values()]] for part in shown]
    print(f"\n{setting.table([f'instructions a request, {name}', *of], rows)}")


def report_atomics(found):
    """Prints how often smig executes each atomic instruction that writes, those with at least one in five requests."""
    of = {column: runs["smig"][0][3] for column, runs in found.items() if "smig" in runs}
    places = {where for counts in of.values() for where, count in counts.items() if count >= 0.2}
    rows = [[f"{function[-70:]} {address}", *[f"{counts.get((function, address), 0):.2f}" for counts in of.values()]]
            for function, address in sorted(places, key=lambda where: -max(counts.get(where, 0) for counts in of.values()))]
    rows.append(["together", *[f"{sum(counts.values()):.2f}" for counts in of.values()]])
    print(f"\n{setting.table(['atomic writes a request, smig', *of], rows)}")


def report(options, found):
    head = list(found)
    medians = [{c: {n: statistics.median(run[i] for run in runs) for n, runs in of.items()} for c, of in found.items()}
               for i in range(2)]
    cell = lambda of, name, show: show(of[name]) if name in of else "-"
    for what, figures, show in [("instructions a request", medians[0], lambda value: f"{value:,.0f}"),
                                ("system calls a request", medians[1], lambda value: f"{value:.2f}")]:
        rows = [[name, *[cell(figures[c], name, show) for c in head]] for name in options.peers]
        print(f"\n{setting.table([what, *head], rows)}")
    if "smig" in options.peers and len(options.peers) > 1:
        rows = [[name, *[cell({n: value / of["smig"] for n, value in of.items()}, name, lambda value: f"{value:.2f}")
                         for of in medians[0].values()]] for name in options.peers if name != "smig"]
        print(f"\n{setting.table(['instructions, divided by those of smig', *head], rows)}")
    if options.crates:
        for name in options.peers:
            report_parts(name, found)
    if options.atomics:
        report_atomics(found)
    if options.rounds > 1:
        spreads = [(max(counts) - min(counts)) / statistics.median(counts)
                   for of in found.values() for runs in of.values() for counts in [[run[0] for run in runs]]]
        print(f"\nlargest difference between rounds of one cell: {100 * max(spreads):.2f} % of its median")
    return {"instructions a request": medians[0], "system calls a request": medians[1]}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=KINDS, default="serve")
    parser.add_argument("--peers", default=None)
    parser.add_argument("--columns", default=None)
    parser.add_argument("--requests", type=int, default=6_400)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--crates", action="store_true")
    parser.add_argument("--atomics", action="store_true")
    parser.add_argument("--profile", metavar="DIRECTORY", default=None)
    parser.add_argument("--json", metavar="FILE", default=None)
    options = parser.parse_args()
    kind = KINDS[options.what]
    options.peers = options.peers.split(",") if options.peers else kind.default_peers
    for name in options.peers:
        if name not in kind.known:
            parser.error(f"no peer {name}; there are {', '.join(kind.known)}")
    numbers = [int(number) for number in options.columns.split(",")] if options.columns else range(1, len(kind.columns) + 1)
    if not all(1 <= number <= len(kind.columns) for number in numbers):
        parser.error(f"columns are 1 to {len(kind.columns)}")
    options.columns = [kind.columns[number - 1] for number in numbers]
    options.peers = kind.able(options.peers)
    return kind, options


def main():
    kind, options = parsed()
    process.stop_on_signals()
    process.raise_file_limit()
    if options.profile:
        os.makedirs(options.profile, exist_ok=True)
    print(f"smig at {setting.commit()}; h2load -t 1 -c {throughput.CONNECTIONS}, {options.requests} requests, "
          f"{options.rounds} rounds", flush=True)
    base = tempfile.mkdtemp(prefix="smig-bench-")
    try:
        folder = os.path.join(base, "www")
        os.makedirs(folder)
        for (_, file, size, _, _), _ in kind.columns:
            write_file(os.path.join(folder, file), size, seed=file)
        found = measure_all(kind, options, base, folder, Certificate(os.path.join(base, "cert")))
    finally:
        process.stop_all()
        shutil.rmtree(base, ignore_errors=True)
    result = report(options, found)
    if options.json:
        setting.write_result(options.json, {
            "machine": setting.machine(), "commit": setting.commit(), "requests": options.requests,
            "runs": {c: {n: [run[:3] for run in runs] for n, runs in of.items()} for c, of in found.items()}, **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
