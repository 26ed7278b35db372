"""Clients that know the expected responses. Each kind is a generator that makes one request (or a conversation) and returns
on success, or raises Broken for a clear error, Wrong for a violation."""

import base64
import json
import os
import random
import socket
import subprocess
import threading
import time

from origin import stream_bytes
from peers.material import sha256, sha256_of_file
from peers.process import run
from peers.servers import smig_program
from talk import (PATIENCE, Broken, Ended, Wrong, closing_on_error, connect, incoming, message, receive, status, tls_context,
                  try_send)

CURL = {6: "no name", 7: "refused", 16: "HTTP/2 framing", 18: "cut short", 28: "time limit", 35: "TLS handshake",
        52: "empty answer", 55: "send error", 56: "receive error", 92: "stream reset", 97: "SOCKS refusal"}
FILES = ("nginx-a", "serve-a", "nginx-b", "serve-b")
ECHO = ("echo-a", "echo-b")
SOURCE = "127.0.0."


class Plan:
    """A conversation: the processes that it depends on, HAProxy's ports that it uses, the servers of which one suffices,
    whether it may be repeated, and its number of requests."""

    def __init__(self, way, ports, *, redundant=(), idempotent=True, number=1):
        self.way, self.ports, self.redundant = set(way), set(ports), set(redundant)
        self.idempotent, self.number = idempotent, number
        self.by_agent = any(name.startswith("agent") for name in self.way)


class Client:
    def __init__(self, world, number, seed):
        self.world, self.random = world, random.Random(f"client {seed} {number}")
        self.scratch = world.scratch(f"client-{number}")
        self.source, self.port = f"{SOURCE}{2 + number}", f"client-{number}"

    # -- paths ----------------------------------------------------------------------------------------------------

    def direct(self, **how):
        return Plan(("haproxy",), (self.port,), **how)

    def by_agent(self, number, *origins, again=False, **how):
        """`again`: the tunnel leads to a gateway, too."""
        ports = (f"front-{number}", *([self.port] if again else []))
        return Plan((f"agent-{number}", "haproxy", *origins), ports, **how)

    def agent(self):
        return self.random.choice((1, 2))

    def url(self, path):
        return f"https://localhost:{self.world.port[self.port]}{path}"

    def curl(self, *args, stdin=subprocess.DEVNULL):
        done = run(["curl", "--silent", "--no-progress-meter", "--cacert", self.world.certificate.ca, "--max-time", PATIENCE,
                    "--write-out", "%{stderr}%{json}\n", *args], PATIENCE + 10, stdin=stdin)
        # A parallel curl may print its progress before the first line.
        lines = [line[line.find("{"):] for line in done.stderr.decode(errors="replace").splitlines() if line.endswith("}")]
        told = [json.loads(line) for line in lines]
        if not told:
            raise Broken(f"curl {done.returncode}: {done.stderr[-200:]!r}")
        return done, told

    def fetch(self, expected, *args, stdin=subprocess.DEVNULL):
        """Fetches a response and checks its hash."""
        done, (told,) = self.curl(*args, stdin=stdin)
        self.judge(done.returncode, told, lambda: sha256(done.stdout), expected, len(done.stdout))

    def judge(self, code, told, digest, expected, size):
        status = told["http_code"]
        if code == 28 and told["time_total"] > PATIENCE - 1:
            raise Wrong(f"nothing within {PATIENCE} s; status {status}, {told['size_download']} bytes")
        if code:
            what = f"curl {code} ({CURL.get(code, '?')}), status {status}: {told['errormsg']}"
            raise Broken(what, head=status == 200, refused=code == 7)
        if status != 200:
            if status < 500:
                raise Wrong(f"status {status}")
            raise Broken(f"status {status}")
        if digest() != expected:
            raise Wrong(f"{size} bytes looked complete, but their hash is wrong")

    # -- kinds ----------------------------------------------------------------------------------------------------

    def file(self):
        """Picks (path at the gateway, name, servers)."""
        prefix, servers = self.random.choice((("/f1", ("nginx-a", "serve-a")), ("/f2", ("nginx-b", "serve-b"))))
        name = self.random.choices(list(self.world.hashes), weights=(4, 4, 3, 2, 1))[0]
        return f"{prefix}/{name}", name, servers

    def get(self):
        path, name, servers = self.file()
        yield self.direct(redundant=servers)
        version = self.random.choice(("--http2", "--http2", "--http1.1"))
        self.fetch(self.world.hashes[name], version, "--interface", self.source, self.url(path))

    def several(self, number, *how):
        """Fetches files with one curl and checks each hash."""
        folder = os.path.join(self.scratch, "several")
        os.makedirs(folder, exist_ok=True)
        names, args = [], []
        for n in range(number):
            path, name, _ = self.file()
            names.append("10k" if name == "8m" else name)
            args += ["--output", os.path.join(folder, str(n)), self.url(f"{path.rpartition('/')[0]}/{names[-1]}")]
        yield self.direct(redundant=FILES, number=number)
        done, told = self.curl("--interface", self.source, *how, *args)
        broken = None
        for one in told:
            n = one["urlnum"]
            got = os.path.join(folder, str(n))
            size = os.path.getsize(got) if os.path.exists(got) else 0
            try:
                self.judge(one["exitcode"], one, lambda got=got: sha256_of_file(got), self.world.hashes[names[n]], size)
            except Broken as error:
                broken = error
        if broken:
            raise broken
        if len(told) != number:
            raise Wrong(f"curl reported {len(told)} requests of {number}, exit {done.returncode}")

    def many(self):
        """Makes many requests on one connection, one after the other, slowly."""
        yield from self.several(12, "--rate", "240/m")

    def page(self):
        """Makes many concurrent requests on one connection."""
        yield from self.several(20, "--http2", "--parallel", "--parallel-max", "20")

    def smig_get(self):
        path, _, servers = self.file()
        folder = os.path.join(self.scratch, "get")
        prefix, names = path.rpartition("/")[0], ["8m", "1k", "200k"]
        yield self.direct(redundant=servers, number=len(names))
        command = [smig_program(), "get", "--quiet", "--cacert", self.world.certificate.ca, "--overwrite", "--max-time",
                   PATIENCE, "--output-dir", folder, *[self.url(f"{prefix}/{name}") for name in names]]
        done = run(command, PATIENCE + 10)
        if done.returncode == 28:
            raise Wrong(f"smig get ran into its time limit: {done.stderr[-300:]!r}")
        if done.returncode:
            raise Broken(f"smig get {done.returncode}: {done.stderr.decode(errors='replace').strip()[-300:]}", head=True)
        for name in names:
            if sha256_of_file(os.path.join(folder, name)) != self.world.hashes[name]:
                raise Wrong(f"smig get reported {name} as complete, but its hash is wrong")

    def upload(self):
        size = self.random.choice((1000, 100_000, 1_000_000, 4_000_000))
        path = os.path.join(self.scratch, "upload")
        data = self.random.randbytes(size)
        with open(path, "wb") as f:
            f.write(data)
        expected = sha256(data)
        yield self.direct(redundant=ECHO, idempotent=False)
        how = self.random.choice((["-T", path], ["-X", "POST", "-T", "-"], ["-X", "POST", "--http1.1", "-T", "-"]))
        slow = ["--limit-rate", "1M"] if self.random.random() < 0.3 else []
        with open(path, "rb") as f:
            self.fetch(sha256(expected.encode()), *how, *slow, "-H", "Expect:", "--interface", self.source,
                       self.url(f"/digest/{expected}"), stdin=f)

    def stream(self):
        seed, size = self.random.randrange(1 << 30), self.random.choice((50_000, 400_000, 2_000_000))
        seconds = self.random.uniform(1, 6)
        version = self.random.choice(("--http2", "--http2", "--http1.1"))
        yield self.direct(redundant=ECHO)
        self.fetch(sha256(stream_bytes(seed, size)), version, "--interface", self.source, "--no-buffer",
                   self.url(f"/stream/{seed}/{size}/{seconds}"))

    def old(self):
        """Reads a stream over HTTP/1.0, which ends with its connection unless it has a length. curl would accept any end."""
        seed, size = self.random.randrange(1 << 30), self.random.choice((50_000, 400_000, 2_000_000))
        path = f"/stream/{seed}/{size}/{self.random.uniform(0.5, 3)}"
        yield self.direct(redundant=ECHO)
        s = connect(("127.0.0.1", self.world.port[self.port]), source_address=(self.source, 0))
        with (closing := closing_on_error(s)):
            s = closing.socket = tls_context(self.world.certificate.ca).wrap_socket(
                s, server_hostname="localhost", suppress_ragged_eofs=False)
            s.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            status(s, 200)
            got = bytearray()
            while piece := s.recv(1 << 16):
                got += piece
        if bytes(got) != stream_bytes(seed, size):
            raise Wrong(f"the response was closed in order after {len(got)} of {size} bytes")

    def watch(self):
        count, pause = self.random.randrange(5, 25), self.random.randrange(50, 300)
        yield self.direct(redundant=ECHO)
        expected = "".join(f"event {n}{' last' if n == count - 1 else ''}\n" for n in range(count))
        self.fetch(sha256(expected.encode()), "--interface", self.source, "--no-buffer", self.url(f"/watch/{count}/{pause}"))

    def call(self):
        """Makes a call as in gRPC: its status is in the trailers."""
        seed, size = self.random.randrange(1 << 30), self.random.choice((10, 2_000, 300_000))
        seconds, heads = self.random.choice((0, 0, 0.5)), os.path.join(self.scratch, "heads")
        yield self.direct(redundant=ECHO)
        data = stream_bytes(seed, size)
        self.fetch(sha256(data), "--http2", "-H", "TE: trailers", "--dump-header", heads, "--interface", self.source,
                   self.url(f"/call/{seed}/{size}/{seconds}"))
        with open(heads, encoding="latin-1") as f:
            if f"call-status: {sha256(data)}" not in f.read().lower():
                raise Wrong("a response whose trailers are missing looked complete")

    def agent_plain(self):
        number, origin = self.agent(), self.random.choice(("nginx-a", "nginx-b"))
        name = self.random.choice(("1k", "10k", "200k", "1m", "8m"))
        yield self.by_agent(number, origin)
        self.fetch(self.world.hashes[name], "--proxy", f"http://127.0.0.1:{self.world.port[f'agent-{number}']}",
                   f"http://127.0.0.1:{self.world.port[origin]}/{name}")

    def agent_tunnel(self):
        number = self.agent()
        name = self.random.choice(("1k", "10k", "200k", "1m", "8m"))
        if self.random.random() < 0.5:
            origin = self.random.choice(("nginx-a", "nginx-b"))
            yield self.by_agent(number, origin)
            url = f"https://127.0.0.1:{self.world.port[origin + '-tls']}/{name}"
        else:
            yield self.by_agent(number, again=True, redundant=("nginx-a", "serve-a"))
            url = self.url(f"/f1/{name}")
        proxy = self.random.choice((f"http://127.0.0.1:{self.world.port[f'agent-{number}']}",
                                    f"socks5h://127.0.0.1:{self.world.port[f'socks-{number}']}"))
        self.fetch(self.world.hashes[name], "--proxy", proxy, url)

    def agent_port(self):
        number = self.agent()
        name = self.random.choice(("1k", "10k", "200k", "1m"))
        yield self.by_agent(number, "serve-b")
        version = self.random.choice(("--http2-prior-knowledge", "--http1.1"))
        self.fetch(self.world.hashes[name], version, f"http://127.0.0.1:{self.world.port[f'forward-{number}']}/{name}")

    def agent_upload(self):
        number, origin = self.agent(), self.random.choice(ECHO)
        data = self.random.randbytes(self.random.choice((1000, 300_000, 3_000_000)))
        path = os.path.join(self.scratch, "agent-upload")
        with open(path, "wb") as f:
            f.write(data)
        expected = sha256(data)
        yield self.by_agent(number, origin, idempotent=False)
        self.fetch(sha256(expected.encode()), "-T", path, "-H", "Expect:", "--proxy",
                   f"http://127.0.0.1:{self.world.port[f'agent-{number}']}",
                   f"http://127.0.0.1:{self.world.port[origin]}/digest/{expected}")

    def tunnel(self):
        """Sends bytes through SOCKS5 to a server that echoes them."""
        number, origin = self.agent(), self.random.choice(ECHO)
        yield self.by_agent(number, origin)
        proxy = ("127.0.0.1", self.world.port[f"socks-{number}"])
        with closing_on_error(connect(proxy)) as s:
            s.sendall(b"\x05\x01\x00")
            receive(s, 2)
            s.sendall(b"\x05\x01\x00\x01\x7f\x00\x00\x01" + self.world.port[origin + "-raw"].to_bytes(2, "big"))
            answer = receive(s, 10)
            if answer[1] != 0:
                raise Broken(f"SOCKS5 reply {answer[1]}")
            for _ in range(self.random.randrange(3, 20)):
                data = self.random.randbytes(self.random.choice((10, 1000, 200_000)))
                errors = []
                sender = threading.Thread(target=try_send, args=(s, data, errors))
                sender.start()
                try:
                    back = receive(s, len(data))
                except Ended as ended:
                    # The system reports a reset only once, possibly to the sender.
                    sender.join(PATIENCE)
                    raise errors[0] if errors else ended
                sender.join(PATIENCE)
                if back != data:
                    raise Wrong("other bytes came back")
                time.sleep(self.random.uniform(0, 0.4))
            s.shutdown(socket.SHUT_WR)
            if s.recv(1):
                raise Wrong("more bytes came back than were sent")

    def websocket(self):
        number = self.agent() if self.random.random() < 0.5 else None
        how = {"redundant": ECHO, "idempotent": False}
        yield self.by_agent(number, again=True, **how) if number else self.direct(**how)
        front = ("127.0.0.1", self.world.port[self.port])
        if number:
            s = connect(("127.0.0.1", self.world.port[f"agent-{number}"]))
        else:
            s = connect(front, source_address=(self.source, 0))
        with (closing := closing_on_error(s)):
            if number:
                s.sendall(f"CONNECT localhost:{front[1]} HTTP/1.1\r\nHost: localhost:{front[1]}\r\n\r\n".encode())
                status(s, 200)
            s = closing.socket = tls_context(self.world.certificate.ca).wrap_socket(
                s, server_hostname="localhost", suppress_ragged_eofs=False)
            key = base64.b64encode(self.random.randbytes(16)).decode()
            s.sendall(f"GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                      f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
            status(s, 101)
            for _ in range(self.random.randrange(5, 25)):
                data = self.random.randbytes(self.random.choice((5, 120, 3000)))
                s.sendall(message(2, data))
                opcode, back = incoming(s)
                if (opcode, back) != (2, data):
                    raise Wrong(f"another message came back, opcode {opcode}")
                time.sleep(self.random.uniform(0, 0.4))
            s.sendall(message(8, b"\x03\xe8"))
            incoming(s)

    # Weights of the kinds.
    KINDS = {get: 6, many: 2, page: 3, smig_get: 2, upload: 3, stream: 2, old: 2, watch: 3, call: 4, agent_plain: 4,
             agent_tunnel: 4, agent_port: 4, agent_upload: 3, tunnel: 3, websocket: 4}
