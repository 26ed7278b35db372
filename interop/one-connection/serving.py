"""What is served, and the servers: `smig serve`, and `smig gateway` in front of another server.

Owns the files, the configurations, and the count of the client's connections at the server.
"""

import os
import random
import re
import shlex

from peers import process
from peers.material import Certificate, sha256, sha256_of_file, write_file
from peers.report import check
from peers.servers import Place

# The gRPC server names no URL.
LISTENING = re.compile("listening on")
PORT, ADMIN, ORIGIN = 8443, 9901, 8080
SMALL_BYTES = 10_000
# nghttp requests an image when it has received this much of the page: half a second at 10 Mbit/s.
BYTES_BETWEEN_IMAGES = 590_000

# What is switched off. `default` is how the programs are but for `server.workers`, which is 1 in every run.
SCHEMES = {
    "off": "[smig]\nenabled = false\n[migration]\npace_bulk = false\n[interactive]\nnotsent_lowat = 0\n",
    "lowat": "[smig]\nenabled = false\n[migration]\npace_bulk = false\n",
    "default": "",
}


def alphabet_of(number):
    """Returns the bytes that small-`number` alone consists of: three, none of them ASCII."""
    first = 0x80 + 3 * number
    check(first + 3 <= 0x100, f"no bytes are left for small-{number}")
    return bytes(range(first, first + 3))


class Content:
    """The files in `folder`: big, page.html, small-0 to small-`count`, and for each of these a page that has it as image. Pages are
    ASCII, and each small file consists of bytes that no other has: a client that prints them amid each other can be checked."""

    def __init__(self, folder, big_bytes, count):
        self.folder = folder
        os.mkdir(folder)
        self.hashes = {"big": write_file(self.path("big"), big_bytes, seed="big")}
        for number in range(count + 1):
            name = f"small-{number}"
            self.hashes[name] = self.write_small(number)
            with open(self.path(f"page-{number}.html"), "w", encoding="ascii") as f:
                f.write(f'<!doctype html><title>a page</title><img src="{name}">\n')
        self.images = self.write_page(big_bytes)
        self.hashes["page.html"] = sha256_of_file(self.path("page.html"))
        self.list = folder + ".sha256"
        with open(self.list, "w", encoding="ascii") as f:
            f.writelines(f"{digest} {name}\n" for name, digest in self.hashes.items())

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_small(self, number):
        """Writes a small file; returns its SHA-256."""
        alphabet = alphabet_of(number)
        data = random.Random(number).randbytes(SMALL_BYTES).translate(bytes(alphabet[byte % 3] for byte in range(256)))
        with open(self.path(f"small-{number}"), "wb") as f:
            f.write(data)
        return sha256(data)

    def write_page(self, size):
        """Writes a page with an image after each `BYTES_BETWEEN_IMAGES`; returns the number of images."""
        images = max(size // BYTES_BETWEEN_IMAGES, 1)
        with open(self.path("page.html"), "w", encoding="ascii") as f:
            f.write("<!doctype html><title>a page</title>")
            for number in range(1, images + 1):
                words = f"{number:07} " * (BYTES_BETWEEN_IMAGES // 8)
                f.write(f'<p>{words}</p><img src="small-{number}">\n')
        return images


class Host:
    """A host of the link: a prefix for command lines."""

    def __init__(self, variable):
        self.prefix = shlex.split(os.environ[variable])
        self.address = os.environ[f"{variable}_ADDRESS"]

    def counter(self, name):
        """Returns a counter of TCP of the host's kernel."""
        done = process.run([*self.prefix, "cat", "/proc/net/snmp"], 10)
        names, values = [line.split() for line in done.stdout.decode().splitlines() if line.startswith("Tcp:")]
        return int(dict(zip(names, values))[name])


class Serving:
    """A running server. `kind` is serve, gateway, or grpc: a gateway in front of a gRPC server."""

    def __init__(self, kind, scheme, content, scratch):
        self.kind, self.host = kind, Host("SMIG_LAB_SERVER")
        address = self.host.address
        self.url = f"https://{address}:{PORT}/"
        self.certificate = Certificate(os.path.join(scratch, "cert"), f"DNS:localhost,IP:127.0.0.1,IP:{address}")
        self.place = Place(content.folder, self.certificate, scratch, self.host.prefix)
        smig, settings = os.environ["SMIG"], SCHEMES[scheme]
        tls = ["--cert", self.certificate.cert, "--key", self.certificate.key]
        if kind == "serve":
            config = self.place.write("serve.toml", "[server]\nworkers = 1\n" + settings)
            self.start("serve", [smig, "serve", content.folder, "--listen", f"{address}:{PORT}", *tls,
                                 "--config", config])
        else:
            if kind == "grpc":
                self.start("origin", [os.environ["INTEROP_GRPC_GO"], "server", f"127.0.0.1:{ORIGIN}"])
            else:
                config = self.place.write("origin.toml", "[server]\nworkers = 1\n")
                self.start("origin", [smig, "serve", content.folder, "--listen", f"127.0.0.1:{ORIGIN}", "--cleartext",
                                      "--config", config])
            self.start("gateway", [smig, "gateway", "--config", self.place.write("gateway.toml", self.gateway(settings))])

    def gateway(self, settings):
        scheme = "h2c" if self.kind == "grpc" else "http"
        return f"""
[[listen]]
address = "{self.host.address}:{PORT}"
[[certificate]]
chain = "{self.certificate.cert}"
key = "{self.certificate.key}"
[upstreams.origin]
servers = ["{scheme}://127.0.0.1:{ORIGIN}"]
[[route]]
upstream = "origin"
[admin]
listen = "127.0.0.1:{ADMIN}"
[server]
workers = 1
{settings}"""

    def start(self, name, command):
        env = {"XDG_DATA_HOME": self.place.path(f"{name}-data"), "NO_COLOR": "1"}
        self.place.start(name, command, env).wait_for_line(LISTENING)

    def connections(self):
        """Returns how many connections the measured port has accepted: what the kernel counts, or, since a gateway's
        origin accepts connections too, what the gateway counts."""
        if self.kind == "serve":
            return self.host.counter("PassiveOpens")
        done = process.run([*self.host.prefix, "curl", "--silent", "--show-error", "--fail",
                            f"http://127.0.0.1:{ADMIN}/metrics"], 30)
        found = re.search(rb"^smig_connections_opened_total (\d+)$", done.stdout, re.MULTILINE)
        check(found, f"no count of connections: {done.stderr.decode()}{done.stdout.decode()[-500:]}")
        return int(found.group(1))
