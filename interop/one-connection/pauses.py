#!/usr/bin/python3
"""A server that makes curl pause: it answers each request when the next half second begins. curl has no pauses of its own,
so a request to this server stands between two requests for small files. HTTP/1.1 without TLS, on the loopback of the
client's host: nothing of it crosses the link.

    pauses.py PORT
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

INTERVAL_S = 0.5


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    began = None

    def log_message(self, *_args):
        pass

    def do_GET(self):
        now = time.monotonic()
        Handler.began = Handler.began or now
        passed = (now - Handler.began) % INTERVAL_S
        time.sleep(INTERVAL_S - passed)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


def main():
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.daemon_threads = True
    print("listening", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
