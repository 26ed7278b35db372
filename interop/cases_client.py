"""`smig get` with third-party servers: each case runs with one server (`at.server`)."""

import json
import os

from cases_server import text
from peers import servers
from peers.material import sha256, sha256_of_file
from peers.process import run
from peers.report import check


def get(at, *args, seconds=90):
    return run([servers.smig_program(), "get", "--cacert", at.certificate.ca, *args], seconds,
               env={**os.environ, "NO_COLOR": "1"})


def files(at):
    """every file over one session, hashes compared"""
    folder = at.scratch("get-files")
    done = get(at, "--output-dir", folder, *[at.server.url(name) for name in at.content.hashes])
    check(done.returncode == 0, f"exit {done.returncode}: {text(done.stderr)}")
    for name, digest in at.content.hashes.items():
        path = os.path.join(folder, name)
        check(os.path.exists(path), f"{name} was not written")
        check(sha256_of_file(path) == digest, f"{name}: {os.path.getsize(path)} bytes with the wrong hash")


def to_standard_output(at):
    """one file to standard output"""
    done = get(at, "-o", "-", at.server.url("1m"))
    check(done.returncode == 0, f"exit {done.returncode}: {text(done.stderr)}")
    check(sha256(done.stdout) == at.content.hashes["1m"], f"{len(done.stdout)} bytes with the wrong hash")


def many(at):
    """a hundred concurrent files, hashes compared"""
    folder = at.scratch("get-many")
    done = get(at, "--output-dir", folder, *[at.server.url(f"objects/{n}.bin") for n in range(100)])
    check(done.returncode == 0, f"exit {done.returncode}: {text(done.stderr)}")
    for n in range(100):
        want = sha256_of_file(os.path.join(at.content.folder, "objects", f"{n}.bin"))
        check(sha256_of_file(os.path.join(folder, f"{n}.bin")) == want, f"objects/{n}.bin: wrong hash")


def as_json(at):
    """--json prints JSON that names the file"""
    done = get(at, "--json", "--output-dir", at.scratch("get-json"), at.server.url("10k"))
    check(done.returncode == 0, f"exit {done.returncode}: {text(done.stderr)}")
    lines = [json.loads(line) for line in done.stdout.decode().splitlines() if line.strip().startswith("{")] \
        or [json.loads(done.stdout)]
    check("10k" in json.dumps(lines), text(done.stdout))


def missing_file(at):
    """a 404 is an error that names the URL, beside a file that exists"""
    folder = at.scratch("get-missing")
    done = get(at, "--output-dir", folder, at.server.url("no-such-file"), at.server.url("1k"))
    check(done.returncode != 0, "exit 0 in spite of a 404")
    check(b"no-such-file" in done.stderr, f"the error names no URL: {text(done.stderr)}")
    check(sha256_of_file(os.path.join(folder, "1k")) == at.content.hashes["1k"], "the other file is wrong")


def wrong_authority(at):
    """an unknown certificate authority is refused"""
    done = run([servers.smig_program(), "get", "-o", "-", at.server.url("1k")], 60)
    check(done.returncode != 0, "exit 0 without the authority")
    check(done.stdout == b"", "a body without the authority")


def upload(at):
    """--data sends files of every size, hashes compared"""
    for name, digest in at.content.hashes.items():
        path = os.path.join(at.content.folder, name)
        done = get(at, "-o", "-", "--data", "@" + path, at.server.url("upload"))
        check(done.returncode == 0, f"{name}: exit {done.returncode}: {text(done.stderr)}")
        want = f"{os.path.getsize(path)} {digest} <nil>"
        check(done.stdout.decode() == want, f"{name}: the server read {text(done.stdout)}")


def moved(at):
    """a large file beside small ones migrates to another connection, hash compared, ranges without a gap"""
    folder = at.scratch("get-moved")
    names = ["50m", "1k", "10k", "1m"]
    # The policy also depends on the link; ten attempts are far more than loopback needs.
    for _ in range(10):
        done = get(at, "--json", "--overwrite", "--output-dir", folder, *[at.server.url(name) for name in names])
        check(done.returncode == 0, f"exit {done.returncode}: {text(done.stderr)}")
        for name in names:
            check(sha256_of_file(os.path.join(folder, name)) == at.content.hashes[name], f"{name}: wrong hash")
        answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
        big = next(answer for answer in answers if answer["url"].endswith("/50m"))
        if big["migrations"] > 0 and len({part["connection"] for part in big["ranges"]}) > 1:
            break
    else:
        check(False, f"no stream migrated: {text(done.stdout)}")
    offset = 0
    for part in big["ranges"]:
        check(part["start"] == offset, f"a gap before {part}")
        offset = part["end"]
    check(offset == 50_000_000, f"the ranges end at {offset}")


CASES = [files, to_standard_output, many, as_json, missing_file, wrong_authority]

SERVERS = {
    "smig": servers.smig,
    "nginx": servers.nginx,
    "nginx, TLS 1.2": lambda place: servers.nginx(place, tls="TLSv1.2"),
    "nghttpd": servers.nghttpd,
    "h2o": servers.h2o,
    "Go": servers.go,
    "Python h2": servers.python_h2,
}

# Cases that only some servers support.
MORE_CASES = {"Go": [upload], "smig": [moved]}
