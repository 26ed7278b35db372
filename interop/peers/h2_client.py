"""Fetches files with Python's h2 over one TLS connection: usage: h2_client.py CA PORT NAME=SHA256...

All streams run concurrently, with small stream windows and small updates, a change of the initial window in between,
PINGs, padded request bodies, a stream that is reset in the middle, and a request body that the server refuses.
"""

import hashlib
import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

WINDOW = 20_000
BIG = "50m"


class Fetch:
    def __init__(self, name, want, drop_after=None):
        self.name, self.want, self.drop_after = name, want, drop_after
        self.digest, self.length, self.status, self.problem, self.done = hashlib.sha256(), 0, None, None, False

    def finish(self, problem=None):
        self.done = True
        if problem:
            self.problem = problem
        elif self.want and self.digest.hexdigest() != self.want:
            self.problem = f"{self.length} bytes with the wrong hash"


class Client:
    def __init__(self, sock, authority):
        self.sock, self.authority, self.streams = sock, authority, {}
        self.pongs, self.settings_acks = 0, 0
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        # Not local_settings.update(): the first SETTINGS frame would carry the values from before it.
        self.h2.local_settings = h2.settings.Settings(client=True, initial_values={
            h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW, h2.settings.SettingCodes.ENABLE_PUSH: 0,
        })
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(1_000_000)

    def request(self, fetch, method="GET", body=b""):
        stream = self.h2.get_next_available_stream_id()
        self.streams[stream] = fetch
        self.h2.send_headers(stream, [
            (":method", method), (":scheme", "https"), (":authority", self.authority), (":path", "/" + fetch.name),
            ("cookie", "a=1"), ("cookie", "b=2"),
        ], end_stream=not body)
        if body:
            self.h2.send_data(stream, body, end_stream=True, pad_length=30)

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def run(self):
        self.flush()
        while not all(f.done for f in self.streams.values()):
            data = self.sock.recv(65_536)
            if not data:
                raise SystemExit("the server closed the connection")
            for event in self.h2.receive_data(data):
                self.handle(event)
            self.flush()

    def handle(self, event):
        fetch = self.streams.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.ResponseReceived):
            fetch.status = int(dict(event.headers)[":status"])
        elif isinstance(event, h2.events.DataReceived):
            self.data(fetch, event)
        elif isinstance(event, h2.events.StreamEnded):
            fetch.finish()
        elif isinstance(event, h2.events.StreamReset):
            # A reset with NO_ERROR after a complete response only stops the upload.
            if event.error_code != h2.errors.ErrorCodes.NO_ERROR:
                fetch.finish(f"reset with {event.error_code!r}")
        elif isinstance(event, h2.events.ConnectionTerminated):
            raise SystemExit(f"GOAWAY {event.error_code!r} {event.additional_data!r}")
        elif isinstance(event, h2.events.PingAckReceived):
            self.pongs += 1
        elif isinstance(event, h2.events.SettingsAcknowledged):
            self.settings_acks += 1

    def data(self, fetch, event):
        fetch.digest.update(event.data)
        fetch.length += len(event.data)
        if fetch.done:
            self.h2.increment_flow_control_window(max(1, event.flow_controlled_length))
            return
        if fetch.drop_after and fetch.length >= fetch.drop_after:
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.h2.reset_stream(event.stream_id, h2.errors.ErrorCodes.CANCEL)
            fetch.want = None
            fetch.finish()
            return
        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)


def main():
    ca, port = sys.argv[1], int(sys.argv[2])
    wanted = dict(arg.split("=") for arg in sys.argv[3:])
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=60), server_hostname="localhost")
    if sock.selected_alpn_protocol() != "h2":
        raise SystemExit(f"ALPN gave {sock.selected_alpn_protocol()!r}")
    client = Client(sock, f"localhost:{port}")
    for name, digest in wanted.items():
        if name != BIG:
            client.request(Fetch(name, digest))
    client.request(Fetch(BIG, None, drop_after=300_000))
    refused = Fetch("1k", None)
    client.request(refused, "POST", b"x" * 5_000)
    client.h2.ping(b"12345678")
    client.run()
    client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1_000_000})
    client.request(Fetch(BIG, wanted[BIG]))
    client.h2.ping(b"87654321")
    client.run()
    failed = 0
    for fetch in client.streams.values():
        expected = (fetch.status or 0) == 200 if fetch is not refused else 400 <= (fetch.status or 0) < 500
        if fetch.problem or not expected:
            failed += 1
            print(f"{fetch.name}: status {fetch.status}: {fetch.problem}")
    if client.pongs != 2 or client.settings_acks < 2:
        failed += 1
        print(f"{client.pongs} PINGs of 2 answered, {client.settings_acks} SETTINGS acknowledged")
    print(f"{len(client.streams)} streams, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
