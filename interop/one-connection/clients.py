"""The clients: each downloads small files at intervals, alone or beside a large file. A function here runs one and returns its
objects: dictionaries with `name` (small, big or event), `ms`, `bytes`, and `beside`, whether it was on its way during the large file.
Every client checks all bytes, or its function does; nghttp, which cannot store files, is the exception.
"""

import json
import os
import re

from peers import process
from peers.material import sha256_of_file
from peers.report import check
from serving import SMALL_BYTES, Host

PAUSES = 8090
LIMIT_S = 150
# Messages of 64 KiB in a large response: 10.5 MB.
CHUNKS = 160


class Job:
    """What to fetch: `count` small files, and, unless `alone`, a large one; or `size.bigs` large responses of gRPC."""

    def __init__(self, serving, content, count, size, alone):
        self.serving, self.content, self.count, self.size, self.alone = serving, content, count, size, alone
        self.host, self.ca = Host("SMIG_LAB_CLIENT"), serving.certificate.ca

    def path(self, name):
        return self.serving.path(name)

    def run(self, command, **how):
        done = process.run([*self.host.prefix, *command], LIMIT_S, **how)
        check(done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stderr.decode()[-1500:]}")
        return done.stdout.decode()


def found(name, ms, size, beside):
    return {"name": name, "ms": ms, "bytes": size, "beside": beside}


def curl(job):
    """curl --parallel: one transfer is the large file; the other is in turn a small file and a pause."""
    pauses = process.Process([*job.host.prefix, "/usr/bin/python3", os.path.join(os.path.dirname(__file__), "pauses.py"),
                              PAUSES], job.path("pauses.log"))
    pauses.wait_for_line(re.compile("listening"))
    names = ["small-0" if job.alone else "big", *[f"small-{number}" for number in range(1, job.count + 1)]]
    os.mkdir(job.path("got"))
    command = ["curl", "--silent", "--show-error", "--fail", "--cacert", job.ca, "--parallel",
               "--parallel-max", "1" if job.alone else "2", "--write-out", "%{json}\n"]
    for name in names:
        command += [job.serving.url + name, "--output", job.path(f"got/{name}")]
        command += [f"http://127.0.0.1:{PAUSES}/", "--output", "/dev/null"]
    # The order of these lines is that of the ends.
    lines = [json.loads(line) for line in job.run(command[:-3]).splitlines()]
    lines = [line for line in lines if line["scheme"] == "HTTPS"]
    check(len(lines) == len(names), f"{len(lines)} files of {len(names)}")
    check(all(line["http_version"] == "2" and line["http_code"] == 200 for line in lines), "not HTTP/2, or not 200")
    connects = sum(line["num_connects"] for line in lines)
    check(connects == 1, f"curl has opened {connects} connections")
    objects, running = [], not job.alone
    for line in lines:
        name = line["url_effective"].rpartition("/")[2]
        check(sha256_of_file(job.path(f"got/{name}")) == job.content.hashes[name], f"{name}: wrong hash")
        running = running and name != "big"
        if name != "small-0":
            kind = "big" if name == "big" else "small"
            objects.append(found(kind, line["time_total"] * 1e3, line["size_download"], running))
    return objects


# The columns of nghttp's table that it prints with --stat: id, response end, request start, process, code, size, path.
NGHTTP_LINE = re.compile(r"(?m)^ +\d+ +\+(\S+) +\*? *\+(\S+) +(\S+) +(\d{3}) +(\S+) +(/\S*)$")
UNITS = {"us": 1e-3, "ms": 1, "s": 1e3}


def nghttp_ms(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * UNITS[unit]


def nghttp(job, *options):
    """nghttp --get-assets: the large file is a page, whose images it requests as it reads the page. Its windows are 64 KB."""
    command = ["nghttp", "--null-out", "--stat", "--get-assets", *options]
    if not job.alone:
        return nghttp_objects(job, job.run([*command, job.serving.url + "page.html"]), job.content.images)
    # It cannot pause: alone, each file is the image of a short page, on a connection of its own.
    objects = []
    for number in range(1, job.count + 1):
        text = job.run([*command, job.serving.url + f"page-{number}.html"])
        objects += [o for o in nghttp_objects(job, text, 1) if o["name"] == "small"]
    return objects


def nghttp_wide(job):
    """nghttp with curl's windows of 32 MB."""
    return nghttp(job, "--window-bits=25", "--connection-window-bits=25")


def nghttp_objects(job, text, smalls):
    rows = [row.groups() for row in NGHTTP_LINE.finditer(text)]
    check(sum("small" in row[5] for row in rows) == smalls, f"not {smalls} small files: {text}")
    check(all(row[3] == "200" for row in rows), f"a status other than 200: {text}")
    page_end = max((nghttp_ms(row[0]) for row in rows if "page" in row[5]), default=0)
    objects = []
    for end, _, took, _, _, path in rows:
        if "page" in path:
            size = os.path.getsize(job.content.path("page.html"))
            objects.append(found("big", nghttp_ms(took), size, False))
        else:
            objects.append(found("small", nghttp_ms(took), SMALL_BYTES, nghttp_ms(end) < page_end))
    return objects


def go(job):
    """Go's net/http."""
    words = [] if job.alone else ["big"]
    text = job.run([os.environ["INTEROP_GO_BESIDE"], job.ca, job.serving.url, job.content.list, str(job.count), *words])
    return of_go(text)


def grpc_go(job):
    """grpc-go: small calls and a watch; large responses one after the other, each of many messages."""
    return of_grpc_go(job, job.size.bigs, [str(job.size.chunks)])


def grpc_go_unary(job):
    """The same with ten times as many responses of a tenth, each of one message."""
    return of_grpc_go(job, job.size.bigs * 10, [str(job.size.chunks // 10), "unary"])


def of_grpc_go(job, bigs, words):
    bigs = "0" if job.alone else str(bigs)
    text = job.run([os.environ["INTEROP_GRPC_GO"], "client", job.serving.url.rstrip("/"), "beside", str(job.count), bigs,
                    *words], env={**os.environ, "GRPCPEER_CA": job.ca})
    return of_go(text)


def of_go(text):
    answer = json.loads(text)
    check(not answer["failed"], f"failed: {answer['failed']}")
    spans = [(o["start_ms"], o["end_ms"]) for o in answer["objects"] if o["name"] == "big"]
    objects = []
    for o in answer["objects"]:
        beside = any(start <= o["start_ms"] <= end for start, end in spans)
        name = o["name"].partition("-")[0]
        objects.append(found(name, o["end_ms"] - o["start_ms"], o["bytes"], beside and name != "big"))
    return objects


# By name: the function, and the servers that it is measured with.
CLIENTS = {
    "curl": (curl, ["serve", "gateway"]),
    "nghttp": (nghttp, ["serve", "gateway"]),
    "nghttp-wide": (nghttp_wide, ["serve", "gateway"]),
    "go": (go, ["serve", "gateway"]),
    "grpc-go": (grpc_go, ["grpc"]),
    "grpc-go-unary": (grpc_go_unary, ["grpc"]),
}
