"""`smig serve` with third-party clients: each function is a case, named by its docstring's first line."""

import json
import os
import re
import socket
import ssl
import sys

from peers.material import sha256, sha256_of_file
from peers.process import run
from peers.report import check

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")


def text(output):
    return output.decode(errors="replace")[-1500:]


def curl(at, *args, seconds=60):
    """Runs curl and returns (its output, the write-out fields)."""
    done = run(["curl", "--silent", "--show-error", "--cacert", at.certificate.ca,
                "--write-out", "%{stderr}%{json}", *args], seconds)
    fields = json.loads(done.stderr[done.stderr.rfind(b"\n{") + 1:].decode())
    check(done.returncode == 0, f"curl ended with {done.returncode}: {fields['errormsg']}")
    return done.stdout, fields


def expect_status(fields, status, version="2"):
    check(fields["http_code"] == status, f"status {fields['http_code']} instead of {status}")
    check(fields["http_version"] == version, f"HTTP/{fields['http_version']} instead of HTTP/{version}")


def hashes_as_arguments(at):
    return [f"{name}={digest}" for name, digest in at.content.hashes.items()]


def curl_files(at):
    """curl: every file over HTTP/2, hashes compared"""
    for name, digest in at.content.hashes.items():
        body, fields = curl(at, at.server.url(name))
        expect_status(fields, 200)
        check(sha256(body) == digest, f"{name}: {len(body)} bytes with the wrong hash")


def curl_http1(at):
    """curl: HTTP/1.1 selected by ALPN"""
    body, fields = curl(at, "--http1.1", at.server.url("1m"))
    expect_status(fields, 200, "1.1")
    check(sha256(body) == at.content.hashes["1m"], "wrong hash")


def curl_parallel(at):
    """curl: all files and 50 small ones in parallel over one connection"""
    folder = at.scratch("curl-parallel")
    names = [*at.content.hashes, *[f"objects/{n}.bin" for n in range(50)]]
    args = []
    for name in names:
        args += ["--output", os.path.join(folder, name.replace("/", "-")), at.server.url(name)]
    done = run(["curl", "--silent", "--show-error", "--fail", "--cacert", at.certificate.ca, "--parallel",
                "--parallel-max", "100", "--write-out", "%{num_connects}\n", *args], 120)
    check(done.returncode == 0, f"curl ended with {done.returncode}: {text(done.stderr)}")
    for name in names:
        got = os.path.join(folder, name.replace("/", "-"))
        # curl creates no file for an empty body.
        digest = sha256_of_file(got) if os.path.exists(got) else sha256(b"")
        check(digest == sha256_of_file(os.path.join(at.content.folder, name)), f"{name}: wrong hash")
    connects = sum(int(line) for line in done.stdout.split())
    check(connects <= 4, f"{connects} connections for {len(names)} files")


def curl_head(at):
    """curl: HEAD has the length and no body"""
    body, fields = curl(at, "--head", at.server.url("1m"))
    expect_status(fields, 200)
    check(re.search(rb"(?im)^content-length: 1048576\r?$", body), f"no content-length in {text(body)}")


def curl_range(at):
    """curl: a byte range, a suffix, and one that cannot be satisfied"""
    with open(os.path.join(at.content.folder, "1m"), "rb") as f:
        whole = f.read()
    body, fields = curl(at, "--range", "1000-70999", at.server.url("1m"))
    expect_status(fields, 206)
    check(body == whole[1000:71000], f"{len(body)} bytes, not the range")
    body, fields = curl(at, "--range", "-10", at.server.url("1m"))
    expect_status(fields, 206)
    check(body == whole[-10:], f"{len(body)} bytes, not the last ten")
    _, fields = curl(at, "--range", "2000000-", at.server.url("1m"))
    expect_status(fields, 416)


def curl_conditional(at):
    """curl: an ETag yields 304"""
    tag = os.path.join(at.scratch("curl-etag"), "tag")
    _, fields = curl(at, "--etag-save", tag, at.server.url("10k"))
    expect_status(fields, 200)
    with open(tag, encoding="ascii") as f:
        check(f.read().strip(), "no ETag")
    body, fields = curl(at, "--etag-compare", tag, at.server.url("10k"))
    expect_status(fields, 304)
    check(body == b"", "a 304 with a body")


def curl_errors(at):
    """curl: 404, 405 for an upload, and no path out of the directory"""
    _, fields = curl(at, at.server.url("no-such-file"))
    expect_status(fields, 404)
    _, fields = curl(at, "--data-binary", "@" + os.path.join(at.content.folder, "1m"), at.server.url("1k"))
    expect_status(fields, 405)
    for path in ("../cert/key.pem", "%2e%2e/cert/key.pem", "objects/..%2f..%2fcert/key.pem"):
        body, fields = curl(at, "--path-as-is", at.server.url(path))
        check(400 <= fields["http_code"] < 500, f"{path}: status {fields['http_code']}")
        check(b"PRIVATE KEY" not in body, f"{path}: the key was served")


def curl_slow_reader(at):
    """curl: a slow reader of a big file does not hold up its neighbour"""
    slow = run(["curl", "--silent", "--cacert", at.certificate.ca, "--limit-rate", "300k", "--max-time", "2",
                "--output", "/dev/null", "--write-out", "%{http_code}", at.server.url("50m"),
                "--next", "--silent", "--cacert", at.certificate.ca, "--output", "/dev/null",
                "--write-out", " %{http_code}", at.server.url("1k")], 60)
    check(slow.stdout == b"200 200", f"statuses {text(slow.stdout)}, exit {slow.returncode}")


def nghttp_files(at):
    """nghttp: every file, hashes compared"""
    for name, digest in at.content.hashes.items():
        done = run(["nghttp", at.server.url(name, "127.0.0.1")], 60)
        check(done.returncode == 0, f"{name}: nghttp ended with {done.returncode}: {text(done.stderr)}")
        check(sha256(done.stdout) == digest, f"{name}: {len(done.stdout)} bytes with the wrong hash")


def nghttp_many(at):
    """nghttp: many concurrent streams with tiny windows, padding, priorities and a small header table"""
    names = ["1k", "10k", "64k+1", "1m"] * 5
    done = run(["nghttp", "--null-out", "--stat", "--window-bits=14", "--connection-window-bits=15",
                "--padding=64", "--header-table-size=0", "--encoder-header-table-size=0",
                *[at.server.url(name, "127.0.0.1") + f"?{n}" for n, name in enumerate(names)]], 60)
    check(done.returncode == 0, f"nghttp ended with {done.returncode}: {text(done.stderr)}")
    # A line of the table: id, times, status, size, path; sizes are rounded from 1 K up.
    lines = re.findall(r"(?m)^ +\d+ .* (\d{3}) +(\S+) +/", done.stdout.decode())
    check(len(lines) == len(names), f"{len(lines)} responses of {len(names)}: {text(done.stdout)}")
    check(all(status == "200" for status, _ in lines), f"a status other than 200: {text(done.stdout)}")


def nghttp_continuation(at):
    """nghttp: request headers in CONTINUATION frames"""
    done = run(["nghttp", "--null-out", "--stat", "--continuation", at.server.url("1k", "127.0.0.1")], 60)
    check(done.returncode == 0 and b" 200 " in done.stdout, f"{text(done.stdout)} {text(done.stderr)}")


def h2load_small(at):
    """h2load: 20,000 requests over 8 connections with 32 streams each, none fails"""
    done = run(["h2load", "-t", "1", "-c", "8", "-m", "32", "-n", "20000", at.server.url("1k", "127.0.0.1")], 120)
    output = done.stdout.decode()
    check("20000 succeeded, 0 failed, 0 errored, 0 timeout" in output, text(done.stdout))
    check("20000 2xx" in output, text(done.stdout))


def h2load_big(at):
    """h2load: 24 times 50 MB over 3 connections, every byte counted"""
    done = run(["h2load", "-t", "1", "-c", "3", "-m", "4", "-n", "24", at.server.url("50m", "127.0.0.1")], 120)
    output = done.stdout.decode()
    check("24 succeeded, 0 failed, 0 errored, 0 timeout" in output, text(done.stdout))
    data = re.search(r"\((\d+)\) data", output)
    check(data and int(data.group(1)) == 24 * 50_000_000, text(done.stdout))


def go_client(at):
    """Go net/http: every file three times in parallel, bodies dropped half read, uploads refused"""
    done = run([os.environ["INTEROP_GO_CLIENT"], at.certificate.ca, at.server.url(), *hashes_as_arguments(at)], 120)
    check(done.returncode == 0, text(done.stdout + done.stderr))


def python_client(at):
    """Python h2: small windows that change meanwhile, PING, a reset in the middle, an upload refused"""
    done = run([sys.executable, os.path.join(PEERS, "h2_client.py"), at.certificate.ca, at.server.port,
                *hashes_as_arguments(at)], 120)
    check(done.returncode == 0, text(done.stdout + done.stderr))


def chromium_page(at):
    """Chromium: a page of 200 objects, each hash checked by the page, all over HTTP/2"""
    done = run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", f"--user-data-dir={at.scratch('chromium')}",
                f"--ignore-certificate-errors-spki-list={at.certificate.key_hash()}",
                "--virtual-time-budget=60000", "--dump-dom", at.server.url("index.html")], 150)
    found = re.search(r'id="result">loaded=(\d+) h2=(\d+) failed=(\d+) ([^<]*)<', done.stdout.decode())
    check(found, f"no result in the page; {text(done.stderr)}")
    loaded, by_h2, failed = (int(found.group(n)) for n in (1, 2, 3))
    check((loaded, failed) == (200, 0) and by_h2 >= 200, found.group(0))


def no_alpn(at):
    """a TLS client without ALPN is served HTTP/1.1"""
    context = ssl.create_default_context(cafile=at.certificate.ca)
    with socket.create_connection(("127.0.0.1", at.server.port), timeout=20) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as sock:
            sock.sendall(b"GET /1k HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            answer = b""
            while piece := sock.recv(65_536):
                answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    check(head.startswith(b"HTTP/1.1 200"), text(head))
    check(sha256(body) == at.content.hashes["1k"], f"{len(body)} bytes with the wrong hash")


def cleartext_prior_knowledge(at):
    """curl: HTTP/2 with prior knowledge, hashes compared"""
    for name, digest in at.content.hashes.items():
        body, fields = curl(at, "--http2-prior-knowledge", at.server.url(name))
        expect_status(fields, 200)
        check(sha256(body) == digest, f"{name}: {len(body)} bytes with the wrong hash")


def cleartext_no_upgrade(at):
    """curl: an offer to upgrade to h2c is answered in HTTP/1.1"""
    body, fields = curl(at, "--http2", at.server.url("1m"))
    expect_status(fields, 200, "1.1")
    check(sha256(body) == at.content.hashes["1m"], "wrong hash")


def still_healthy(at):
    """afterwards: the server runs, responds, and uses less than 200 MB"""
    check(at.server.process.alive(), f"the server ended: {at.server.process.output()[-1500:]}")
    curl_head(at)
    resident, peak = at.server.process.memory()
    check(resident < 200_000_000, f"{resident} bytes resident, {peak} at most")
    output = at.server.process.output()
    check("panicked" not in output, output[-1500:])


CASES = [
    curl_files, curl_http1, curl_parallel, curl_head, curl_range, curl_conditional, curl_errors, curl_slow_reader,
    nghttp_files, nghttp_many, nghttp_continuation, h2load_small, h2load_big, go_client, python_client, no_alpn,
    chromium_page, still_healthy,
]

CLEARTEXT_CASES = [cleartext_prior_knowledge, cleartext_no_upgrade]
