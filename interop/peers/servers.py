"""Servers of files over TLS, one worker each. Each function starts one and returns a Server."""

import os
import re
import shutil
import sys

from .nginx import start_nginx
from .ports import reserve
from .process import Process, run

READY = re.compile(r"listening on (https?)://[^\s:]+:(\d+)")
HERE = os.path.dirname(os.path.abspath(__file__))


class Server:
    def __init__(self, name, process, port, scheme="https"):
        self.name, self.process, self.port, self.scheme = name, process, port, scheme

    def url(self, path="", host="localhost"):
        return f"{self.scheme}://{host}:{self.port}/{path}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stop()


class Place:
    """The directory to serve, a directory for the servers' files, and a prefix of every command (to pin it to a CPU)."""

    def __init__(self, folder, certificate, scratch, prefix=()):
        self.folder, self.certificate, self.scratch, self.prefix = folder, certificate, scratch, list(prefix)
        os.makedirs(scratch, exist_ok=True)

    def start(self, name, command, env=None):
        return Process([*self.prefix, *command], self.path(f"{name}.log"), env=env)

    def path(self, name):
        return os.path.join(self.scratch, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)
        return self.path(name)


def smig_program():
    program = os.environ.get("SMIG")
    if not program or not os.access(program, os.X_OK):
        raise SystemExit("error: SMIG must name the smig program (scripts/build.sh builds it and sets it)")
    return program


def smig_before_program():
    """An earlier build of smig, to compare with in the same run."""
    program = os.environ.get("SMIG_BEFORE")
    if not program or not os.access(program, os.X_OK):
        raise SystemExit("error: SMIG_BEFORE must name the earlier smig program")
    return program


def smig(place, *extra, cleartext=False, name="smig", program=None):
    how = ["--cleartext"] if cleartext else ["--cert", place.certificate.cert, "--key", place.certificate.key]
    program = program or smig_program()
    process = place.start(
        name, [program, "serve", place.folder, "--listen", "127.0.0.1:0", "--workers", "1", *how, *extra],
        env={"XDG_DATA_HOME": place.path(f"{name}-data"), "NO_COLOR": "1"},
    )
    found = process.wait_for_line(READY)
    return Server(name, process, int(found.group(2)), found.group(1))


def smig_before(place):
    return smig(place, name="smig-before", program=smig_before_program())


def nginx(place, tls="TLSv1.2 TLSv1.3"):
    port = reserve()
    process = start_nginx(place, "nginx", f"""
    types {{ text/html html; }}
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid 60s;
    client_header_timeout 3600s;
    keepalive_timeout 3600s;
    send_timeout 3600s;
    server {{
        listen 127.0.0.1:{port} ssl http2 backlog=4096;
        ssl_certificate {place.certificate.cert};
        ssl_certificate_key {place.certificate.key};
        ssl_protocols {tls};
        root {place.folder};
    }}""", port)
    return Server("nginx", process, port)


def h2o(place):
    port = reserve()
    user = "user: root" if os.geteuid() == 0 else ""
    config = place.write("h2o.conf", f"""
{user}
num-threads: 1
max-connections: 20000
http2-idle-timeout: 3600
listen:
  host: 127.0.0.1
  port: {port}
  ssl:
    certificate-file: {place.certificate.cert}
    key-file: {place.certificate.key}
    ocsp-update-interval: 0
hosts:
  default:
    paths:
      /:
        file.dir: {place.folder}
""")
    process = place.start("h2o", ["h2o", "-m", "worker", "-c", config])
    process.wait_for_port(port)
    return Server("h2o", process, port)


def nghttpd(place):
    port = reserve()
    process = place.start(
        "nghttpd", ["nghttpd", "-a", "127.0.0.1", "-n", "1", "-d", place.folder, "-m", "128",
                    port, place.certificate.key, place.certificate.cert])
    process.wait_for_port(port)
    return Server("nghttpd", process, port)


def program_with_ready_line(name, command, place):
    process = place.start(name, command)
    found = process.wait_for_line(READY)
    return Server(name, process, int(found.group(2)), found.group(1))


def go(place):
    program = os.environ["INTEROP_GO_SERVER"]
    return program_with_ready_line(
        "go", [program, place.folder, place.certificate.cert, place.certificate.key], place)


def python_h2(place):
    script = os.path.join(HERE, "h2_server.py")
    return program_with_ready_line(
        "python-h2", [sys.executable, script, place.folder, place.certificate.cert, place.certificate.key], place)


def hyper(place):
    program = os.environ["HYPER_PEER"]
    return program_with_ready_line(
        "hyper", [program, place.folder, place.certificate.cert, place.certificate.key], place)


def hello(place):
    """The library's example: cleartext, responds to every method."""
    return program_with_ready_line("hello", [os.environ["HELLO"], "127.0.0.1:0"], place)


def version_of(name):
    """The peer's version in one line, for the record of a run."""
    command, pattern = {
        "nginx": (["nginx", "-v"], r"nginx/(\S+)"),
        "h2o": (["h2o", "-v"], r"h2o version (\S+)"),
        "nghttpd": (["nghttpd", "--version"], r"nghttp2/(\S+)"),
        "h2load": (["h2load", "--version"], r"nghttp2/(\S+)"),
        "curl": (["curl", "--version"], r"curl (\S+)"),
        "go": (["go", "version"], r"go version go(\S+)"),
        "chromium": (["chromium", "--version"], r"Chromium (\S+)"),
        "smig": ([os.environ.get("SMIG", "smig"), "--version"], r"smig\S* (\S+)"),
        "smig-before": ([os.environ.get("SMIG_BEFORE", "smig"), "--version"], r"smig\S* (\S+)"),
    }[name]
    if not shutil.which(command[0]):
        return "not installed"
    done = run(command, 30)
    found = re.search(pattern, (done.stdout + done.stderr).decode(errors="replace"))
    return found.group(1).strip() if found else "unknown"
