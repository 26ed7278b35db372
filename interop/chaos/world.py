"""All processes: origins, two gateways behind HAProxy, two agents. Each can be killed, stopped and restarted.

    curl and others ---+                              +- gateway-1 -+--- files:  nginx-a (HTTP/1.1), serve-a (smig)
                       +-- haproxy (TCP, by source) --+             +--- files2: nginx-b (HTTP/2, TLS), serve-b (h2c)
    agent-1, agent-2 --+                              +- gateway-2 -+--- app:    echo-a, echo-b (origin.py)

Each client and each agent has its own port of HAProxy, so that HAProxy's log shows which gateway it used, and when.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

from peers.material import write_file
from peers.ports import reserve
from peers.process import Process
from peers.servers import smig_program

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = {"1k": 1024, "10k": 10_240, "200k": 200_000, "1m": 1 << 20, "8m": 8 << 20}
DRAIN = 6
# Timeout for a program to start on a busy machine.
START = 240
# A state in /proc/net/tcp.
LISTENING = "0A"
TOKEN = "chaos-" + "5" * 32


class Service:
    """A program and its ports; `process` is the running instance."""

    def __init__(self, world, name, command, *, ready, drains=False, reloads=False):
        self.world, self.name, self.command, self.ready = world, name, command, ready
        self.drains, self.reloads = drains, reloads
        self.process, self.number = None, 0

    def start(self):
        self.number += 1
        log = os.path.join(self.world.base, "logs", f"{self.name}.{self.number}.log")
        environment = {"NO_COLOR": "1", "SMIG_AGENT_TOKEN": TOKEN, "XDG_DATA_HOME": self.world.base}
        self.process = Process(self.command, log, env=environment)
        self.ready(self.process)

    def signal(self, number):
        os.kill(self.process.pid, number)

    def wait(self, seconds):
        """Waits for the exit; returns its code."""
        return self.process.popen.wait(seconds)

    def open_files(self):
        """Returns {descriptor: what it refers to}. A descriptor that closes meanwhile is left out."""
        folder, opened = f"/proc/{self.process.pid}/fd", {}
        for fd in os.listdir(folder):
            try:
                opened[fd] = os.readlink(f"{folder}/{fd}")
            except FileNotFoundError:
                pass
        return opened

    def connections(self):
        """Returns {"socket:[inode]": (local port, remote port, state)} of the TCP connections on its network."""
        found, port = {}, lambda address: int(address.split(":")[1], 16)
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{self.process.pid}/net/{table}", encoding="ascii") as f:
                for line in list(f)[1:]:
                    _, local, remote, state, *rest = line.split()
                    if state != LISTENING:
                        found[f"socket:[{rest[5]}]"] = (port(local), port(remote), state)
        return found

    def sockets(self):
        """Returns [(local port, remote port, state)] of its TCP connections."""
        opened = set(self.open_files().values())
        return [connection for link, connection in self.connections().items() if link in opened]

    def descriptors(self):
        """Returns the number of its open file descriptors without TCP connections: a socket that was reset, or that
        listens, is among them. What opens or closes meanwhile, such as the connection of an admin request, is not."""
        before, connections = self.open_files().items(), self.connections()
        return sum(link not in connections for _, link in before & self.open_files().items())

    def holds(self):
        """Returns its resources, cheaply."""
        opened = self.open_files().values()
        sockets = sum(link.startswith("socket:") for link in opened)
        return {"memory": self.memory(), "files": len(opened) - sockets, "sockets": sockets,
                "threads": len(os.listdir(f"/proc/{self.process.pid}/task"))}

    def memory(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class World:
    def __init__(self, base, certificate, balance="source", clients=0):
        self.base, self.certificate, self.balance, self.clients = base, certificate, balance, clients
        self.www = os.path.join(base, "www")
        for folder in ("www", "logs", "scratch", "conf"):
            os.makedirs(os.path.join(base, folder), exist_ok=True)
        self.hashes = {name: write_file(os.path.join(self.www, name), size, name) for name, size in SIZES.items()}
        self.journal = os.path.join(base, "journal")
        self.port = {name: reserve() for name in (
            "nginx-a", "nginx-a-tls", "nginx-b", "nginx-b-tls", "serve-a", "serve-b", "echo-a", "echo-a-raw", "echo-b",
            "echo-b-raw", "gateway-1", "gateway-2", "admin-1", "admin-2", "front-1", "front-2", "agent-1", "agent-2",
            "socks-1", "socks-2", "forward-1", "forward-2", "agent-admin-1", "agent-admin-2",
            *(f"client-{n}" for n in range(clients)))}
        self.services = {}
        for service in (self.nginx("a"), self.nginx("b"), self.serve("a"), self.serve("b"), self.origin("a"),
                        self.origin("b"), self.gateway(1), self.gateway(2), self.haproxy(), self.agent(1), self.agent(2)):
            self.services[service.name] = service

    def conf(self, name, text):
        path = os.path.join(self.base, "conf", name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def listens(self, *names):
        return lambda process: [process.wait_for_port(self.port[name], START) for name in names]

    def nginx(self, letter):
        name = f"nginx-{letter}"
        user = "user root;" if os.geteuid() == 0 else ""
        place = os.path.join(self.base, name)
        os.makedirs(place, exist_ok=True)
        temporary = "".join(f"{kind}_temp_path {place}/{kind};" for kind in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        # One process: its death is that of the whole server.
        config = self.conf(f"{name}.conf", f"""
{user} master_process off; daemon off; pid {place}/pid; error_log stderr warn;
events {{ worker_connections 2000; }}
http {{
    default_type application/octet-stream; access_log off; sendfile on; {temporary}
    server {{
        listen 127.0.0.1:{self.port[name]};
        listen 127.0.0.1:{self.port[name + "-tls"]} ssl http2;
        ssl_certificate {self.certificate.cert}; ssl_certificate_key {self.certificate.key};
        root {self.www};
    }}
}}
""")
        return Service(self, name, ["nginx", "-e", "stderr", "-p", place, "-c", config],
                       ready=self.listens(name, name + "-tls"))

    def serve(self, letter):
        name = f"serve-{letter}"
        how = ["--cleartext"] if letter == "b" else ["--cert", self.certificate.cert, "--key", self.certificate.key]
        command = [smig_program(), "serve", self.www, "--listen", f"127.0.0.1:{self.port[name]}", "--workers", "1", *how,
                   "--drain-timeout", f"{DRAIN}s"]
        return Service(self, name, command, ready=self.listens(name), drains=True)

    def origin(self, letter):
        name = f"echo-{letter}"
        script = os.path.join(HERE, "origin.py")
        command = [sys.executable, script, self.port[name], self.port[name + "-raw"], self.journal]
        return Service(self, name, command, ready=self.listens(name, name + "-raw"))

    def gateway(self, number):
        port, digest = self.port, hashlib.sha256(TOKEN.encode()).hexdigest()
        timeouts = 'timeouts = { connect = "20s", queue = "20s", response_header = "60s", stream_idle = "60s", keepalive = "3s" }'
        config = self.conf(f"gateway-{number}.toml", f"""
[server]
workers = 2
drain_timeout = "{DRAIN}s"
# Long: a busy machine must not cause failures.
handshake_timeout = "60s"
[[listen]]
address = "127.0.0.1:{port[f"gateway-{number}"]}"
[[certificate]]
chain = "{self.certificate.cert}"
key = "{self.certificate.key}"
[upstreams.files]
servers = ["http://127.0.0.1:{port["nginx-a"]}", "smig://127.0.0.1:{port["serve-a"]}"]
tls = {{ ca = "{self.certificate.ca}" }}
{timeouts}
[upstreams.files2]
servers = ["https://127.0.0.1:{port["nginx-b-tls"]}", "h2c://127.0.0.1:{port["serve-b"]}"]
tls = {{ ca = "{self.certificate.ca}" }}
{timeouts}
[upstreams.app]
servers = ["http://127.0.0.1:{port["echo-a"]}", "http://127.0.0.1:{port["echo-b"]}"]
{timeouts}
[[route]]
path = "/f1"
upstream = "files"
migrate = "always"
prefix_rewrite = "/"
[[route]]
path = "/f2"
upstream = "files2"
prefix_rewrite = "/"
[[route]]
upstream = "app"
[forward_proxy]
users = {{ chaos = "sha256:{digest}" }}
allow = ["127.0.0.0/8"]
ports = ["1-65535"]
[admin]
listen = "127.0.0.1:{port[f"admin-{number}"]}"
""")
        return Service(self, f"gateway-{number}", [smig_program(), "gateway", "--config", config],
                       ready=self.listens(f"gateway-{number}", f"admin-{number}"), drains=True, reloads=True)

    def haproxy(self):
        """Each frontend lists the gateways in a different order, so that the agents start with different ones."""
        def front(number, order):
            servers = "\n".join(
                f"    server gateway-{n} 127.0.0.1:{self.port[f'gateway-{n}']} check port {self.port[f'admin-{n}']} "
                "inter 300ms fall 1 rise 1" for n in order)
            mine = [f"front-{number}", *(f"client-{n}" for n in range(self.clients) if n % 2 == number - 1)]
            binds = "\n".join(f"    bind 127.0.0.1:{self.port[name]}" for name in mine)
            return f"""
frontend front-{number}
{binds}
    default_backend gateways-{number}
backend gateways-{number}
    balance {self.balance}
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
    option redispatch
{servers}
"""
        # Parsed by ways.py: the port, the start (seconds, milliseconds), the duration, and the server.
        config = self.conf("haproxy.cfg", f"""
global
    maxconn 4000
    nbthread 1
    log stdout format raw local0 info
defaults
    mode tcp
    log global
    log-format "way %fp %Ts %ms %Tt %s %ts"
    retries 3
    timeout connect 20s
    timeout check 5s
    timeout client 5m
    timeout server 5m
{front(1, (1, 2))}{front(2, (2, 1))}
""")
        return Service(self, "haproxy", ["haproxy", "-db", "-f", config], ready=self.listens("front-1", "front-2"))

    def agent(self, number):
        port = self.port
        command = [
            smig_program(), "agent", "--connect-timeout", "20", "--via", f"https://localhost:{port[f'front-{number}']}",
            "--cacert", self.certificate.ca, "--listen", f"127.0.0.1:{port[f'agent-{number}']}", "--socks",
            f"127.0.0.1:{port[f'socks-{number}']}", "--forward",
            f"127.0.0.1:{port[f'forward-{number}']}=127.0.0.1:{port['serve-b']}", "--drain-timeout", f"{DRAIN}s",
            "--admin", f"127.0.0.1:{port[f'agent-admin-{number}']}"]
        up = re.compile(r"SMig, large streams migrate")

        def ready(process):
            self.listens(f"agent-{number}", f"socks-{number}", f"forward-{number}")(process)
            process.wait_for_line(up, START)
        return Service(self, f"agent-{number}", command, ready=ready, drains=True)

    def start(self, *names):
        """Starts all services, or only the named ones."""
        for name in names or self.services:
            self.services[name].start()

    def scratch(self, name):
        path = os.path.join(self.base, "scratch", name)
        os.makedirs(path, exist_ok=True)
        return path

    def metrics(self, name):
        """Returns the metrics of a gateway or an agent by name with labels."""
        values = {}
        for line in self.admin(name, "/metrics").decode().splitlines():
            if not line.startswith("#"):
                label, _, value = line.rpartition(" ")
                values[label] = float(value)
        return values

    def sessions(self, name):
        return json.loads(self.admin(name, "/api/sessions"))["sessions"]

    def admin(self, name, path):
        kind, _, number = name.partition("-")
        port = self.port[f"{'agent-' if kind == 'agent' else ''}admin-{number}"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read()


def end(service, number, seconds):
    """Signals a service to end, and waits; returns None if it did not and was killed."""
    service.signal(number)
    try:
        return service.wait(seconds)
    except subprocess.TimeoutExpired:
        service.signal(signal.SIGKILL)
        service.wait(10)
        return None

