"""The servers behind the gateway: each reports in `x-seen` how it parsed a request. Cleartext HTTP/1.1."""

import os
import sys

from peers.nginx import start_nginx
from peers.ports import reserve
from peers.servers import READY

HERE = os.path.dirname(os.path.abspath(__file__))


def ready(place, name, command):
    return int(place.start(name, command).wait_for_line(READY).group(2))


def go(place, _recorder_port):
    return ready(place, "go", [os.environ["FRAMING_GO_ECHO"]])


def node(place, _recorder_port):
    return ready(place, "node", ["node", os.path.join(HERE, "echo.js")])


def hyper(place, _recorder_port):
    return ready(place, "hyper", [os.environ["HYPER_ECHO"]])


def nginx(place, _recorder_port):
    """Responds without reading bodies: a response may precede the end of a request."""
    port = reserve()
    start_nginx(place, "nginx", f"""
    keepalive_timeout 1h;
    map $http_content_length $length {{ "" "-"; default $http_content_length; }}
    server {{
        listen 127.0.0.1:{port};
        default_type text/plain;
        location / {{
            add_header x-seen "$request_method $request_uri $length -";
            return 200 "seen $request_method $request_uri $length\\n";
        }}
    }}""", port)
    return port


def haproxy(place, recorder_port):
    """In front of the recorder, as a third parser."""
    port = reserve()
    config = place.write("haproxy.cfg", f"""
global
    maxconn 1000
    nbthread 1
defaults
    mode http
    timeout connect 20s
    timeout client 1h
    timeout server 1h
    timeout http-keep-alive 1h
frontend front
    bind 127.0.0.1:{port}
    default_backend recorder
backend recorder
    server recorder 127.0.0.1:{recorder_port}
""")
    process = place.start("haproxy", ["haproxy", "-db", "-f", config])
    process.wait_for_port(port)
    return port


def recorder(_place, recorder_port):
    return recorder_port


# "h2c" is the recorder, too, behind a second gateway, to which the first one uses HTTP/2.
SERVERS = {"nginx": nginx, "go": go, "node": node, "hyper": hyper, "haproxy": haproxy, "h2c": recorder,
           "recorder": recorder}
NEEDS = {"go": "FRAMING_GO_ECHO", "hyper": "HYPER_ECHO"}


def smig(place, name, server):
    """Returns a function that starts a gateway in front of a port, with one connection for all clients."""
    def gateway(name, url):
        config = place.write(f"{name}.toml", f"""
[server]
workers = 1
drain_timeout = "1s"
[[listen]]
address = "127.0.0.1:0"
protocol = "cleartext"
[upstreams.app]
servers = ["{url}"]
max_connections = 1
[upstreams.app.timeouts]
connect = "30s"
queue = "50s"
response_header = "30s"
stream_idle = "30s"
keepalive = "1h"
[upstreams.app.ejection]
consecutive_failures = 0
[[route]]
upstream = "app"
""")
        process = place.start(name, [os.environ["SMIG"], "gateway", "--config", config], env={"NO_COLOR": "1"})
        return process, int(process.wait_for_line(READY).group(2))

    def begin(upstream):
        url = f"http://127.0.0.1:{upstream}"
        if server == "h2c":
            url = f"h2c://127.0.0.1:{gateway(name + '-behind', url)[1]}"
        return gateway(name, url)
    return begin


def vulnerable(place, name, _server):
    """The same for the vulnerable proxy, whose mistakes must be found."""
    def begin(upstream):
        process = place.start(name, [sys.executable, os.path.join(HERE, "vulnerable.py"), upstream])
        return process, int(process.wait_for_line(READY).group(2))
    return begin
