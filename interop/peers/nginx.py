"""How nginx is run: in the foreground, with all that it writes in one directory."""

import os

# One process: a worker would outlive a killed master.
ONE_PROCESS = "master_process off;"
# A master and its worker, as nginx is deployed.
ONE_WORKER = "worker_processes 1;"


def start_nginx(place, name, http, port, processes=ONE_PROCESS):
    """Starts nginx with this content of its section `http`; returns the process once it accepts connections at `port`."""
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = "\n".join(f"    {kind}_temp_path {place.path(f'{name}-{kind}')};"
                          for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = place.write(f"{name}.conf", f"""
{user}
{processes}
daemon off;
pid {place.path(f"{name}.pid")};
error_log stderr warn;
events {{ worker_connections 20000; }}
worker_rlimit_nofile 40000;
http {{
    default_type application/octet-stream;
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    http2_max_concurrent_streams 128;
{temporary}
{http}
}}
""")
    process = place.start(name, ["nginx", "-e", "stderr", "-p", place.scratch, "-c", config])
    process.wait_for_port(port)
    return process
