"""Shared by the benchmarks: the peers, the machine's description, the result file."""

import json
import os
import platform
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "interop"))

from peers import servers  # noqa: E402

# Idle connections stay while many others are opened; the other servers' timeouts are in peers/servers.py.
IDLE_FOR_LONG = ["--idle-timeout", "1h"]
PEERS = {
    "smig": lambda place: servers.smig(place, *IDLE_FOR_LONG),
    "h2o": servers.h2o,
    "nghttpd": servers.nghttpd,
    "hyper": servers.hyper,
    "nginx": servers.nginx,
}
# With an earlier build, named by SMIG_BEFORE; only if named.
KNOWN = {**PEERS, "smig-before": servers.smig_before}


def peer_names(text):
    """Parses a comma-separated list of peers, for argparse."""
    names = text.split(",")
    unknown = [name for name in names if name not in KNOWN]
    if unknown:
        raise ValueError(f"no peer {unknown[0]}; there are {', '.join(KNOWN)}")
    return names


def start(name, place):
    return KNOWN[name](place)


def versions(names):
    found = {name: servers.version_of(name) for name in [*names, "h2load"] if name != "hyper"}
    if "hyper" in names:
        with open(os.path.join(ROOT, "bench", "hyper-peer", "Cargo.lock"), encoding="utf-8") as f:
            lock = f.read()
        of = lambda crate: re.search(rf'name = "{crate}"\nversion = "([^"]+)"', lock).group(1)
        found["hyper"] = f"{of('hyper')} + tokio-rustls {of('tokio-rustls')}, files in memory"
    return found


def commit():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def machine():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        model = re.search(r"(?m)^model name\s*: (.*)$", f.read())
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "load before": os.getloadavg()[0],
    }


def pinning():
    """Returns the command prefixes that pin server and load to different CPUs if there are two, and a description."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return [], [], "server and load share the one CPU"
    return (["taskset", "-c", str(cpus[0])], ["taskset", "-c", str(cpus[1])],
            f"server on CPU {cpus[0]}, load on CPU {cpus[1]}")


def beside():
    """Returns the command prefix that pins an upstream to a third CPU, or to the load's."""
    cpus = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cpus[2] if len(cpus) > 2 else cpus[-1])]


def write_result(path, result):
    result["date"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=2)
        f.write("\n")


def table(head, rows):
    """Formats a Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    line = lambda cells: "| " + " | ".join(
        cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(cells, widths))) + " |"
    ruler = "|" + "|".join("-" * (width + 1) + (":" if i else "-") for i, width in enumerate(widths)) + "|"
    return "\n".join([line(head), ruler, *[line(row) for row in rows]])
