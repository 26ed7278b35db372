#!/usr/bin/python3
"""An origin for curl: serves files, and responds to uploads with their SHA-256. HTTP/1.1 in cleartext and over TLS.

    origin.py ADDRESS PORT TLS_PORT CHAIN KEY DIR
"""

import hashlib
import os
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_args):
        pass

    def answer(self, status, length):
        self.send_response(status)
        self.send_header("content-length", str(length))
        self.end_headers()

    def send_file(self, with_body):
        path = os.path.join(self.server.folder, os.path.basename(self.path))
        if not os.path.isfile(path):
            return self.answer(404, 0)
        self.answer(200, os.path.getsize(path))
        if with_body:
            with open(path, "rb") as f:
                while piece := f.read(64 << 10):
                    self.wfile.write(piece)
        return None

    def do_GET(self):
        self.send_file(True)

    def do_HEAD(self):
        self.send_file(False)

    def do_POST(self):
        digest, left = hashlib.sha256(), int(self.headers["content-length"])
        while left > 0 and (piece := self.rfile.read(min(left, 64 << 10))):
            digest.update(piece)
            left -= len(piece)
        text = digest.hexdigest().encode()
        self.answer(200, len(text))
        self.wfile.write(text)

    do_PUT = do_POST


def main():
    address, port, tls_port, chain, key, folder = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    for port, tls in ((port, None), (tls_port, context)):
        server = ThreadingHTTPServer((address, int(port)), Handler)
        server.folder = folder
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever).start()
    print("listening", flush=True)


main()
