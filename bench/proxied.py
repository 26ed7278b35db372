#!/usr/bin/python3
"""`smig gateway` as a reverse proxy, compared with nginx, haproxy, nghttpx and envoy in front of the same nginx: TLS and
HTTP/2 to the client, one worker each.

All proxies run all the time; one is loaded at a time, in an order that rotates with every round. Results are medians of
the rounds:

    requests a second           with h2load at full speed; with two CPUs, load and upstream share one of them
    requests a CPU second       per second of the proxy's own CPU time: the capacity of a core
    added latency               median and 99th percentile at a fixed rate, minus those of direct requests to the upstream
    memory                      resident, per idle client connection

    bench/gateway                            everything, 5 rounds of 3 s
    bench/gateway --parts load,memory        these only: load, latency, memory
    bench/gateway --peers smig,nginx         these only
    bench/gateway --peers smig,smig-admin,smig-watched --parts load
                                             the cost of the live page: without it, with it, and with a reader
    bench/gateway --columns 1,2              these columns of the five only
    bench/gateway --parts memory --connections 100000      more idle connections
    bench/gateway --json result.json         also as JSON
    SMIG_BEFORE=PROGRAM bench/gateway --peers smig,smig-before    against an earlier build
"""

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile

import proxies
import setting
from peers import process, servers
from peers.material import Certificate, write_file
from resident import connections
from throughput import CONNECTIONS, load, medians_of, shown, spread_of

# name, file, size, streams per connection, whether bytes per second are reported; and the protocol to the upstream.
COLUMNS = [
    (("1 KB", "1k", 1_024, 32, False), "http1"),
    (("10 KB", "10k", 10_240, 32, False), "http1"),
    (("100 KB", "100k", 102_400, 8, False), "http1"),
    (("1 KB -m 1", "1k", 1_024, 1, False), "http1"),
    (("1 KB, h2c behind", "1k", 1_024, 32, False), "h2c"),
]
PARTS = ["load", "latency", "memory"]
# Requests per second on each connection: far below the capacity of any proxy.
RATE = 100


def names_of(text):
    names = text.split(",")
    for name in names:
        if name not in proxies.PROXIES and name not in proxies.VARIANTS:
            raise argparse.ArgumentTypeError(
                f"no proxy {name}; there are {', '.join([*proxies.PROXIES, *proxies.VARIANTS])}")
    return names


def parts_of(text):
    parts = text.split(",")
    for part in parts:
        if part not in PARTS:
            raise argparse.ArgumentTypeError(f"no part {part}; there are {', '.join(PARTS)}")
    return parts


def columns_of(text):
    return [COLUMNS[int(number) - 1] for number in text.split(",")]


def start(name, place, upstream, protocol):
    return {**proxies.PROXIES, **proxies.VARIANTS}[name](place, upstream, protocol)


def turned(items, turn):
    return [items[(i + turn) % len(items)] for i in range(len(items))]


def measure_load(names, place, upstream, options):
    """Returns {column: {proxy: [a value per round]}} of the rate, and of the CPU time per request in microseconds."""
    _, prefix, _ = setting.pinning()
    runs, cpu = ({column[0]: {} for column, _ in options.columns} for _ in range(2))
    with contextlib.ExitStack() as stack:
        running = {}
        for protocol in sorted({protocol for _, protocol in options.columns}):
            for name in names:
                server = start(name, place, upstream, protocol)
                if server:
                    running[protocol, name] = stack.enter_context(server)
        for turn in range(options.rounds):
            for column, protocol in options.columns:
                able = [name for name in names if (protocol, name) in running]
                for name in turned(able, turn):
                    rate, spent = load(running[protocol, name], column, options.seconds, prefix)
                    runs[column[0]].setdefault(name, []).append(rate)
                    cpu[column[0]].setdefault(name, []).append(spent)
            print(f"load: round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return runs, cpu


def latencies(server, seconds, prefix, log):
    """Returns the latencies of all requests at the fixed rate in microseconds, sorted."""
    if os.path.exists(log):
        os.remove(log)
    version = ["--h1"] if server.scheme == "http" else []
    done = process.run([*prefix, "h2load", "-t", "1", "-c", CONNECTIONS, "-m", "4", *version, "-D", f"{seconds}s",
                        "--rps", RATE, "--log-file", log, server.url("1k", "127.0.0.1")], 60 + seconds)
    with open(log, encoding="ascii") as f:
        rows = [line.split("\t") for line in f]
    if len(rows) < CONNECTIONS * RATE * seconds // 2 or any(row[1] != "200" for row in rows):
        raise RuntimeError(f"{server.name}: {len(rows)} responses; {done.stdout.decode(errors='replace')[-1500:]}")
    return sorted(int(row[2]) for row in rows)


def measure_latency(names, place, upstream, options):
    """Returns {proxy: {"p50": [a value per round], "p99": [...]}} in microseconds, including "direct"."""
    _, prefix, _ = setting.pinning()
    with contextlib.ExitStack() as stack:
        running = {"direct": upstream.server()}
        running.update({name: stack.enter_context(start(name, place, upstream, "http1")) for name in names})
        found = {name: {"p50": [], "p99": []} for name in running}
        for turn in range(options.rounds):
            for name in turned(list(running), turn):
                times = latencies(running[name], options.seconds, prefix, place.path("latencies"))
                found[name]["p50"].append(times[len(times) // 2])
                found[name]["p99"].append(times[len(times) * 99 // 100])
            print(f"latency: round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return found


def added(found):
    """Returns the latencies beyond direct ones in microseconds, as medians of the rounds: {proxy: {"p50", "p99"}}."""
    direct = found["direct"]
    more = lambda of, p: statistics.median(a - b for a, b in zip(of[p], direct[p]))
    return {name: {p: more(of, p) for p in of} for name, of in found.items() if name != "direct"}


def measure_memory(names, place, upstream, count):
    """Returns resident bytes with and without idle connections."""
    return {name: connections(lambda own: start(name, own, upstream, "http1"), place, count, "1k") for name in names}


def report_load(names, medians, rates):
    def cell(of, name):
        return shown(of[name], False) if name in of else "-"
    for what, figures in [("requests a second", medians), ("requests a CPU second", rates)]:
        rows = [[name, *[cell(of, name) for of in figures.values()]] for name in names]
        print(f"\n{setting.table([what, *figures], rows)}")
    if "smig" in names:
        better = ratios(rates)
        rows = [[name, *[f"{of[name]:.2f}" if name in of else "-" for of in better.values()]]
                for name in names if name != "smig"]
        print(f"\n{setting.table(['smig a CPU second, divided by', *rates], rows)}")


def report_latency(found):
    micros = lambda value: f"{value:.0f} us"
    extra = added(found)
    rows = [["the upstream itself", *[micros(statistics.median(of)) for of in found["direct"].values()]]]
    rows += [[name, *[f"+{micros(value)}" for value in of.values()]] for name, of in extra.items()]
    print(f"\n{setting.table([f'latency at {CONNECTIONS * RATE} requests a second', 'p50', 'p99'], rows)}")


def report_memory(found, count):
    megabytes = lambda value: f"{value / 1e6:.1f} MB"
    rows = [[name, megabytes(of["before"]), megabytes(of["after"]), f"{of['per connection'] / 1e3:.1f} KB"]
            for name, of in found.items()]
    print(f"\n{setting.table([f'{count} idle connections', 'before', 'with them', 'each'], rows)}")


def ratios(rates):
    """Returns the ratios of smig to each other proxy; above 1, smig is better."""
    return {column: {name: round(of["smig"] / of[name], 3) for name in of if name != "smig"}
            for column, of in rates.items() if "smig" in of}


def measure(options, place, result):
    beside = servers.Place(place.folder, place.certificate, place.path("upstream"), setting.beside())
    with proxies.Upstream(beside) as upstream:
        if "load" in options.parts:
            runs, cpu = measure_load(options.peers, place, upstream, options)
            medians, spent = medians_of(runs), medians_of(cpu)
            rates = {column: {name: 1e6 / micros for name, micros in of.items()} for column, of in spent.items()}
            report_load(options.peers, medians, rates)
            print(f"\nlargest spread between the rounds of one cell: {100 * spread_of(runs):.0f} % of its median; "
                  f"of CPU time, {100 * spread_of(cpu):.0f} %")
            result["load"] = {
                "requests/s": medians, "requests a CPU second": rates, "runs": runs, "cpu microseconds a request": cpu,
                "smig's CPU second divided by": ratios(rates),
            }
        if "latency" in options.parts:
            found = measure_latency(options.peers, place, upstream, options)
            report_latency(found)
            result["latency"] = {"rate": CONNECTIONS * RATE, "microseconds": found, "added": added(found)}
        if "memory" in options.parts:
            found = measure_memory(options.peers, place, upstream, options.connections)
            report_memory(found, options.connections)
            result["memory"] = found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--peers", type=names_of, default=list(proxies.PROXIES))
    parser.add_argument("--parts", type=parts_of, default=PARTS)
    parser.add_argument("--columns", type=columns_of, default=COLUMNS)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--json", metavar="FILE", default=None)
    options = parser.parse_args()
    options.peers = proxies.installed(options.peers)
    process.stop_on_signals()
    process.raise_file_limit()
    before, found = setting.machine(), proxies.versions(options.peers)
    prefix, _, pinned = setting.pinning()
    print(f"{before['cpu']}, {before['cpus']} CPUs, Linux {before['kernel']}; {pinned}; smig at {setting.commit()}")
    print("; ".join(f"{name} {version}" for name, version in found.items()))
    print(f"h2load -t 1 -c {CONNECTIONS}, -m 32 unless a column says otherwise (100 KB: -m 8), {options.rounds} rounds of {options.seconds} s, medians", flush=True)
    result = {"machine": before, "pinning": pinned, "versions": found, "commit": setting.commit(),
              "rounds": options.rounds, "seconds": options.seconds, "connections": CONNECTIONS}
    base = tempfile.mkdtemp(prefix="smig-bench-")
    try:
        folder = os.path.join(base, "www")
        os.makedirs(folder)
        for (_, file, size, _, _), _ in COLUMNS:
            write_file(os.path.join(folder, file), size, seed=file)
        certificate = Certificate(os.path.join(base, "cert"))
        measure(options, servers.Place(folder, certificate, os.path.join(base, "servers"), prefix), result)
    finally:
        process.stop_all()
        shutil.rmtree(base, ignore_errors=True)
    if options.json:
        setting.write_result(options.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
