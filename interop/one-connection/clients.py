"""The clients: each downloads small files at intervals, alone or beside a large file. A function here runs one and returns its
objects: dictionaries with `name` (small, big or event), `ms`, `bytes`, and `beside`, whether it was requested (an event: sent) while
a large file was on its way, wherever it ended. Every client checks all bytes, or its function does.
"""

import json
import os
import re

from peers import process
from peers.material import sha256, sha256_of_file
from peers.report import check
from serving import SMALL_BYTES, Host, alphabet_of

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
        return self.serving.place.path(name)

    def run(self, command, **how):
        done = process.run([*self.host.prefix, *command], LIMIT_S, **how)
        check(done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stderr.decode()[-1500:]}")
        return done.stdout


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
    requested = requested_beside(lines)
    lines = [line for line in lines if line["scheme"] == "HTTPS"]
    check(len(lines) == len(names), f"{len(lines)} files of {len(names)}")
    check(all(line["http_version"] == "2" and line["http_code"] == 200 for line in lines), "not HTTP/2, or not 200")
    connects = sum(line["num_connects"] for line in lines)
    check(connects == 1, f"curl has opened {connects} connections")
    objects = []
    for line in lines:
        name = line["url_effective"].rpartition("/")[2]
        check(sha256_of_file(job.path(f"got/{name}")) == job.content.hashes[name], f"{name}: wrong hash")
        if name == "big":
            objects.append(found("big", line["time_total"] * 1e3, line["size_download"], False))
        elif name != "small-0":
            beside = int(name.rpartition("-")[2]) <= requested
            objects.append(found("small", line["time_total"] * 1e3, line["size_download"], beside))
    return objects


def requested_beside(lines):
    """Returns how many small files curl has requested during the large one. It requests small-N when the Nth pause ends."""
    names = [line["url_effective"].rpartition("/")[2] for line in lines]
    return names[:names.index("big")].count("") if "big" in names else 0


# The columns of nghttp's table that it prints with --stat: id, response end, request start, process, code, size, path.
NGHTTP_TABLE = b"***** Statistics *****"
NGHTTP_LINE = re.compile(r"(?m)^ +\d+ +\+(\S+) +\*? *\+(\S+) +(\S+) +(\d{3}) +(\S+) +/(\S*)$")
UNITS = {"us": 1e-3, "ms": 1, "s": 1e3}


def nghttp_ms(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * UNITS[unit]


def nghttp(job, *options):
    """nghttp --get-assets: the large file is a page, whose images it requests as it reads the page. Its windows are 64 KB."""
    command = ["nghttp", "--stat", "--get-assets", *options]
    if not job.alone:
        output = job.run([*command, job.serving.url + "page.html"])
        return nghttp_objects(job, output, "page.html", [f"small-{n}" for n in range(1, job.content.images + 1)])
    # It cannot pause: alone, each file is the image of a short page, on a connection of its own.
    objects = []
    for number in range(1, job.count + 1):
        output = job.run([*command, job.serving.url + f"page-{number}.html"])
        found_objects = nghttp_objects(job, output, f"page-{number}.html", [f"small-{number}"])
        objects += [o for o in found_objects if o["name"] == "small"]
    return objects


def nghttp_wide(job):
    """nghttp with curl's windows of 32 MB."""
    return nghttp(job, "--window-bits=25", "--connection-window-bits=25")


def nghttp_size(size):
    """Returns a size as nghttp prints it: rounded down, in units of 1024."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift:
            return f"{size >> shift}{unit}"
    return str(size)


def nghttp_bytes(job, output, page, images):
    """Compares what nghttp has received; returns its table. It prints all bytes in the order of their arrival: those of the images
    amid the page's and each other's. What is of a file's alphabet is the file."""
    text = output.translate(None, bytes(range(0x80, 0x100)))
    with open(job.content.path(page), "rb") as f:
        wanted = f.read()
    arrived = text.partition(NGHTTP_TABLE)[0]
    check(arrived == wanted, f"{page}: {len(arrived)} bytes, which are not the {len(wanted)} of the file")
    check(len(output) - len(text) == len(images) * SMALL_BYTES, f"{len(output) - len(text)} bytes of {len(images)} images")
    for image in images:
        alphabet = alphabet_of(int(image.rpartition("-")[2]))
        got = output.translate(None, bytes(set(range(0x100)) - set(alphabet)))
        check(sha256(got) == job.content.hashes[image], f"{image}: {len(got)} bytes with the wrong hash")
    return text[len(wanted):].decode()


def nghttp_objects(job, output, page, images):
    """Returns the objects of one page and its images."""
    text = nghttp_bytes(job, output, page, images)
    rows = [row.groups() for row in NGHTTP_LINE.finditer(text)]
    check(sorted(row[5] for row in rows) == sorted([page, *images]), f"not {page} and {len(images)} images once each: {text}")
    objects = []
    page_end = next(nghttp_ms(row[0]) for row in rows if row[5] == page)
    for _, start, took, status, size, name in rows:
        sent = os.path.getsize(job.content.path(name))
        check(status == "200", f"{name}: status {status}")
        check(size == nghttp_size(sent), f"{name}: {size} instead of {nghttp_size(sent)}")
        kind = "big" if name == page else "small"
        objects.append(found(kind, nghttp_ms(took), sent, kind == "small" and nghttp_ms(start) < page_end))
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
