"""An HTTP/1.1 server for a directory, of Python's standard library: server.py PORT DIRECTORY [CERTIFICATE KEY]."""

import functools
import http.server
import ssl
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open

    def log_message(self, *_):
        pass


def main():
    port, directory, *tls = sys.argv[1:]
    handler = functools.partial(Handler, directory=directory)
    server = http.server.ThreadingHTTPServer(("", int(port)), handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        # Without the handshake in the thread that accepts: one slow client would hold up the others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(f"serving {directory} on port {port}", flush=True)
    server.serve_forever()


main()
