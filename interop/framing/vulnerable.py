#!/usr/bin/python3
"""A proxy with the usual mistakes, to test that they are found: vulnerable.py UPSTREAM_PORT.

It forwards heads unchanged, uses the first content-length, ignores chunks and the body of an upgrade request, delimits
responses by length only, and reuses one connection for all clients, whatever remains on it.
"""

import re
import socket
import sys
import threading

LENGTH = re.compile(rb"(?im)^content-length:[ \t]*([0-9]+)")


class Side:
    def __init__(self, sock):
        self.sock, self.kept = sock, b""

    def message(self, has_body):
        """Reads a head, and as many bytes as its first content-length."""
        while b"\r\n\r\n" not in self.kept:
            self.more()
        size = self.kept.index(b"\r\n\r\n") + 4
        found = LENGTH.search(self.kept[:size])
        size += int(found[1]) if found and has_body(self.kept[:size]) else 0
        while len(self.kept) < size:
            self.more()
        message, self.kept = self.kept[:size], self.kept[size:]
        return message

    def more(self):
        data = self.sock.recv(65_536)
        if not data:
            raise EOFError
        self.kept += data


class Upstream:
    """The one connection for all clients."""

    def __init__(self, port):
        self.port, self.side, self.lock = port, None, threading.Lock()

    def exchange(self, request):
        with self.lock:
            if self.side is None:
                self.side = Side(socket.create_connection(("127.0.0.1", self.port), timeout=10))
            try:
                self.side.sock.sendall(request)
                return self.side.message(lambda _: not request.startswith(b"HEAD"))
            except TimeoutError:
                return b""
            except (OSError, EOFError):
                self.side = None
                raise


def serve(sock, upstream):
    client = Side(sock)
    try:
        while True:
            request = client.message(lambda head: b"\r\nUpgrade:" not in head)
            sock.sendall(upstream.exchange(request))
    except (OSError, EOFError):
        pass
    sock.close()


def main():
    listening = socket.create_server(("127.0.0.1", 0))
    upstream = Upstream(int(sys.argv[1]))
    print(f"listening on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    while True:
        threading.Thread(target=serve, args=(listening.accept()[0], upstream), daemon=True).start()


main()
