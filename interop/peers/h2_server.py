"""Serves a directory with Python's h2 over TLS: usage: h2_server.py DIR CERT KEY

One thread per connection. It sends small frames, a padded first DATA frame and trailers: valid, but rare, and a client
must accept them.
"""

import os
import socket
import ssl
import sys
import threading

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

FRAME = 5_000


class Connection:
    def __init__(self, sock, root):
        self.sock, self.root = sock, root
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.open_bodies = {}  # stream id -> open file

    def run(self):
        self.h2.initiate_connection()
        self.h2.ping(b"testping")
        self.sock.sendall(self.h2.data_to_send())
        while data := self.sock.recv(65_536):
            try:
                events = self.h2.receive_data(data)
            except h2.exceptions.ProtocolError as error:
                print(f"protocol error of the peer: {error}", flush=True)
                self.sock.sendall(self.h2.data_to_send())
                return
            for event in events:
                self.handle(event)
            self.send_bodies()
            self.sock.sendall(self.h2.data_to_send())

    def handle(self, event):
        if isinstance(event, h2.events.RequestReceived):
            self.answer(event.stream_id, dict(event.headers))
        elif isinstance(event, h2.events.DataReceived):
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            body = self.open_bodies.pop(event.stream_id, None)
            if body:
                body.close()

    def answer(self, stream, headers):
        path = os.path.normpath(os.path.join(self.root, headers[":path"].lstrip("/")))
        inside = path.startswith(self.root + os.sep)
        if headers[":method"] not in ("GET", "HEAD") or not inside or not os.path.isfile(path):
            status = "404" if headers[":method"] in ("GET", "HEAD") else "405"
            self.h2.send_headers(stream, [(":status", status), ("content-length", "0")], end_stream=True)
            return
        head = headers[":method"] == "HEAD"
        self.h2.send_headers(stream, [(":status", "103"), ("link", "</x.css>; rel=preload")])
        self.h2.send_headers(
            stream, [(":status", "200"), ("content-length", str(os.path.getsize(path))), ("x-cookie", "a" * 300)],
            end_stream=head,
        )
        if not head:
            self.open_bodies[stream] = open(path, "rb")  # closed in send_bodies

    def send_bodies(self):
        """Sends one frame of each open body in turn, as far as the windows allow."""
        moved = True
        while moved:
            moved = False
            for stream in list(self.open_bodies):
                moved = self.send_one(stream) or moved
                self.sock.sendall(self.h2.data_to_send())

    def send_one(self, stream):
        body = self.open_bodies[stream]
        padding = 7 if body.tell() == 0 else None
        room = self.h2.local_flow_control_window(stream) - (8 if padding else 0)
        if room <= 0:
            return False
        data = body.read(min(FRAME, room))
        if data:
            self.h2.send_data(stream, data, pad_length=padding)
            return True
        self.h2.send_headers(stream, [("x-end", "here")], end_stream=True)
        body.close()
        del self.open_bodies[stream]
        return True


def serve(sock, root):
    try:
        with sock:
            Connection(sock, root).run()
    except (OSError, h2.exceptions.ProtocolError) as error:
        print(f"connection ended: {error!r}", flush=True)


def main():
    root, cert, key = os.path.realpath(sys.argv[1]), sys.argv[2], sys.argv[3]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2"])
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    print(f"listening on https://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    while True:
        plain, _ = listener.accept()
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock = context.wrap_socket(plain, server_side=True)
        except OSError as error:
            print(f"no TLS: {error!r}", flush=True)
            continue
        threading.Thread(target=serve, args=(sock, root), daemon=True).start()


if __name__ == "__main__":
    main()
