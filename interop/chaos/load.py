"""Clients that know what they must get. Each kind is a function that makes one request (or a conversation) and returns
when it has what it wanted, or raises: Broken for a clear error, Wrong for what must never happen."""

import base64
import json
import os
import random
import socket
import ssl
import subprocess
import threading
import time

from origin import stream_bytes
from peers.material import sha256, sha256_of_file
from peers.process import run
from peers.servers import smig_program

PATIENCE = 120


class Broken(Exception):
    """It failed, and the client was told. `head`: a good response had begun."""

    def __init__(self, why, head=False):
        super().__init__(why)
        self.head = head


class Wrong(Exception):
    """The client was told something that is not true, or nothing."""


class Ended(Exception):
    """A connection that was to go on was ended as if all was well."""


CURL = {6: "no name", 7: "refused", 16: "HTTP/2 framing", 18: "cut short", 28: "time limit", 35: "TLS handshake",
        52: "empty answer", 55: "send error", 56: "receive error", 92: "stream reset", 97: "SOCKS refusal"}
BOTH = ("haproxy", "gateway-1", "gateway-2")


class Plan:
    """What one request is: who stands on its way, and whether it may be sent again."""

    def __init__(self, way, *, redundant=(), idempotent=True):
        self.way, self.redundant, self.idempotent = set(way), set(redundant), idempotent


class Client:
    def __init__(self, world, number, seed):
        self.world, self.random = world, random.Random(f"client {seed} {number}")
        self.scratch = world.scratch(f"client-{number}")
        self.source = f"127.0.0.{2 + number}"

    # -- the way there --------------------------------------------------------------------------------------------

    def front(self):
        return self.random.choice((1, 2))

    def url(self, front, path):
        return f"https://localhost:{self.world.port[f'front-{front}']}{path}"

    def curl(self, *args, stdin=subprocess.DEVNULL):
        done = run(["curl", "--silent", "--show-error", "--cacert", self.world.certificate.ca, "--max-time", PATIENCE,
                    "--write-out", "%{stderr}%{json}\n", *args], PATIENCE + 10, stdin=stdin)
        told = [json.loads(line) for line in done.stderr.decode(errors="replace").splitlines() if line.startswith("{")]
        if not told:
            raise Broken(f"curl {done.returncode}: {done.stderr[-200:]!r}")
        return done, told

    def fetch(self, expected, *args, stdin=subprocess.DEVNULL):
        """One response, whose hash must be the expected one."""
        done, (told,) = self.curl(*args, stdin=stdin)
        self.judge(done.returncode, told, lambda: sha256(done.stdout), expected, len(done.stdout))

    def judge(self, code, told, digest, expected, size):
        status = told["http_code"]
        if code == 28 and told["time_total"] > PATIENCE - 1:
            raise Wrong(f"nothing within {PATIENCE} s; status {status}, {told['size_download']} octets")
        if code:
            what = f"curl {code} ({CURL.get(code, '?')}), status {status}: {told['errormsg']}"
            raise Broken(what, head=status == 200)
        if status != 200:
            if status < 500:
                raise Wrong(f"status {status}")
            raise Broken(f"status {status}")
        if digest() != expected:
            raise Wrong(f"{size} octets looked complete, and their hash is wrong")

    # -- kinds ----------------------------------------------------------------------------------------------------

    def file(self):
        """(path at the gateway, name, plan)"""
        prefix, servers = self.random.choice((("/f1", ("nginx-a", "serve-a")), ("/f2", ("nginx-b", "serve-b"))))
        name = self.random.choices(list(self.world.hashes), weights=(4, 4, 3, 2, 1))[0]
        return f"{prefix}/{name}", name, Plan(BOTH, redundant=servers)

    def get(self):
        path, name, plan = self.file()
        yield plan
        version = self.random.choice(("--http2", "--http2", "--http1.1"))
        self.fetch(self.world.hashes[name], version, "--interface", self.source, self.url(self.front(), path))

    def many(self):
        """Many requests by one connection, slowly."""
        folder = os.path.join(self.scratch, "many")
        os.makedirs(folder, exist_ok=True)
        front, names, args = self.front(), [], []
        for number in range(12):
            path, name, _ = self.file()
            name = name if name != "8m" else "10k"
            names.append(name)
            args += ["--output", os.path.join(folder, str(number)), self.url(front, f"{path.rpartition('/')[0]}/{name}")]
        yield Plan(BOTH, redundant=("nginx-a", "serve-a", "nginx-b", "serve-b"))
        done, told = self.curl("--interface", self.source, "--rate", "240/m", *args)
        for number, (name, one) in enumerate(zip(names, told)):
            got = os.path.join(folder, str(number))
            self.judge(one["exitcode"], one, lambda got=got: sha256_of_file(got), self.world.hashes[name], os.path.getsize(got)
                       if os.path.exists(got) else 0)
        if len(told) != len(names):
            raise Wrong(f"curl told of {len(told)} requests of {len(names)}, exit {done.returncode}")

    def smig_get(self):
        path, name, plan = self.file()
        front = self.front()
        folder = os.path.join(self.scratch, "get")
        yield plan
        prefix = path.rpartition("/")[0]
        names = ["8m", "1k", "200k"]
        command = [smig_program(), "get", "--quiet", "--cacert", self.world.certificate.ca, "--overwrite", "--max-time",
                   PATIENCE, "--output-dir", folder, *[self.url(front, f"{prefix}/{name}") for name in names]]
        done = run(command, PATIENCE + 10)
        if done.returncode == 28:
            raise Wrong(f"smig get ran into its time limit: {done.stderr[-300:]!r}")
        if done.returncode:
            raise Broken(f"smig get {done.returncode}: {done.stderr.decode(errors='replace').strip()[-300:]}", head=True)
        for name in names:
            if sha256_of_file(os.path.join(folder, name)) != self.world.hashes[name]:
                raise Wrong(f"smig get took {name} for complete, and its hash is wrong")

    def upload(self):
        size = self.random.choice((1000, 100_000, 1_000_000, 4_000_000))
        path = os.path.join(self.scratch, "upload")
        data = self.random.randbytes(size)
        with open(path, "wb") as f:
            f.write(data)
        expected, front = sha256(data), self.front()
        yield Plan(BOTH, redundant=("echo-a", "echo-b"), idempotent=False)
        how = self.random.choice((["-T", path], ["-X", "POST", "-T", "-"], ["-X", "POST", "--http1.1", "-T", "-"]))
        slow = ["--limit-rate", "1M"] if self.random.random() < 0.3 else []
        with open(path, "rb") as f:
            self.fetch(sha256(expected.encode()), *how, *slow, "-H", "Expect:", "--interface", self.source,
                       self.url(front, f"/digest/{expected}"), stdin=f)

    def stream(self):
        seed, size = self.random.randrange(1 << 30), self.random.choice((50_000, 400_000, 2_000_000))
        seconds, front = self.random.uniform(1, 6), self.front()
        yield Plan(BOTH, redundant=("echo-a", "echo-b"))
        self.fetch(sha256(stream_bytes(seed, size)), "--interface", self.source, "--no-buffer",
                   self.url(front, f"/stream/{seed}/{size}/{seconds}"))

    def watch(self):
        count, pause = self.random.randrange(5, 25), self.random.randrange(50, 300)
        front = self.front()
        yield Plan(BOTH, redundant=("echo-a", "echo-b"))
        expected = "".join(f"event {n}{' last' if n == count - 1 else ''}\n" for n in range(count))
        self.fetch(sha256(expected.encode()), "--interface", self.source, "--no-buffer",
                   self.url(front, f"/watch/{count}/{pause}"))

    def by_agent(self):
        number = self.random.choice((1, 2))
        return number, (f"agent-{number}", *BOTH)

    def agent_plain(self):
        number, way = self.by_agent()
        origin = self.random.choice(("nginx-a", "nginx-b"))
        name = self.random.choice(("1k", "10k", "200k", "1m", "8m"))
        yield Plan((*way, origin))
        self.fetch(self.world.hashes[name], "--proxy", f"http://127.0.0.1:{self.world.port[f'agent-{number}']}",
                   f"http://127.0.0.1:{self.world.port[origin]}/{name}")

    def agent_tunnel(self):
        number, way = self.by_agent()
        name = self.random.choice(("1k", "10k", "200k", "1m", "8m"))
        if self.random.random() < 0.5:
            origin = self.random.choice(("nginx-a", "nginx-b"))
            yield Plan((*way, origin))
            url = f"https://127.0.0.1:{self.world.port[origin + '-tls']}/{name}"
        else:
            yield Plan(way, redundant=("nginx-a", "serve-a"))
            url = self.url(3 - number, f"/f1/{name}")
        proxy = self.random.choice((f"http://127.0.0.1:{self.world.port[f'agent-{number}']}",
                                    f"socks5h://127.0.0.1:{self.world.port[f'socks-{number}']}"))
        self.fetch(self.world.hashes[name], "--proxy", proxy, url)

    def agent_port(self):
        number, way = self.by_agent()
        name = self.random.choice(("1k", "10k", "200k", "1m"))
        yield Plan((*way, "serve-b"))
        version = self.random.choice(("--http2-prior-knowledge", "--http1.1"))
        self.fetch(self.world.hashes[name], version, f"http://127.0.0.1:{self.world.port[f'forward-{number}']}/{name}")

    def agent_upload(self):
        number, way = self.by_agent()
        origin = self.random.choice(("echo-a", "echo-b"))
        data = self.random.randbytes(self.random.choice((1000, 300_000, 3_000_000)))
        path = os.path.join(self.scratch, "agent-upload")
        with open(path, "wb") as f:
            f.write(data)
        expected = sha256(data)
        yield Plan((*way, origin), idempotent=False)
        self.fetch(sha256(expected.encode()), "-T", path, "-H", "Expect:", "--proxy",
                   f"http://127.0.0.1:{self.world.port[f'agent-{number}']}",
                   f"http://127.0.0.1:{self.world.port[origin]}/digest/{expected}")

    def tunnel(self):
        """Octets by SOCKS5 to a server that sends them back."""
        number, way = self.by_agent()
        origin = self.random.choice(("echo-a", "echo-b"))
        yield Plan((*way, origin))
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
                    # The system tells of a reset once, and that may have been to the sender.
                    sender.join(PATIENCE)
                    raise errors[0] if errors else ended
                sender.join(PATIENCE)
                if back != data:
                    raise Wrong("other octets came back")
                time.sleep(self.random.uniform(0, 0.4))
            s.shutdown(socket.SHUT_WR)
            if s.recv(1):
                raise Wrong("more octets came back than went")

    def websocket(self):
        agent = self.random.random() < 0.5
        number, way = self.by_agent() if agent else (self.front(), BOTH)
        yield Plan(way, redundant=("echo-a", "echo-b"), idempotent=False)
        front = ("127.0.0.1", self.world.port[f"front-{self.front()}"])
        if agent:
            s = connect(("127.0.0.1", self.world.port[f"agent-{number}"]))
        else:
            s = connect(front, source_address=(self.source, 0))
        with (closing := closing_on_error(s)):
            if agent:
                s.sendall(f"CONNECT localhost:{front[1]} HTTP/1.1\r\nHost: localhost:{front[1]}\r\n\r\n".encode())
                status(s, 200)
            context = ssl.create_default_context(cafile=self.world.certificate.ca)
            s = closing.socket = context.wrap_socket(s, server_hostname="localhost", suppress_ragged_eofs=False)
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

    KINDS = (get, many, smig_get, upload, stream, watch, agent_plain, agent_tunnel, agent_port, agent_upload, tunnel,
             websocket)


# -- sockets --------------------------------------------------------------------------------------------------------

class closing_on_error:
    """Closes a socket, and makes clear errors of the system's."""

    def __init__(self, s):
        self.socket = s
        s.settimeout(PATIENCE)

    def __enter__(self):
        return self.socket

    def __exit__(self, kind, error, _):
        self.socket.close()
        if isinstance(error, TimeoutError):
            raise Wrong(f"nothing within {PATIENCE} s") from error
        if isinstance(error, (OSError, ssl.SSLError)):
            raise Broken(f"{type(error).__name__}: {error}", head=True) from error


def connect(address, **how):
    try:
        return socket.create_connection(address, timeout=PATIENCE, **how)
    except OSError as error:
        raise Broken(f"connect: {error}") from error


def try_send(s, data, errors):
    try:
        s.sendall(data)
    except OSError as error:
        errors.append(error)


def receive(s, size):
    got = bytearray()
    while len(got) < size:
        piece = s.recv(min(size - len(got), 1 << 16))
        if not piece:
            raise Ended(f"an orderly end after {len(got)} of {size} octets")
        got += piece
    return bytes(got)


def status(s, expected):
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        head += receive(s, 1)
    found = int(head.split(b" ")[1])
    if found != expected:
        if found < 500:
            raise Wrong(f"status {found}: {bytes(head)!r}")
        raise Broken(f"status {found}")


def message(opcode, data):
    length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + length + b"\0\0\0\0" + data


def incoming(s):
    first, second = receive(s, 2)
    length = second if second < 126 else int.from_bytes(receive(s, 2), "big")
    return first & 0x0F, receive(s, length)

