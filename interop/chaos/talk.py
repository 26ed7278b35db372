"""Conversations over plain sockets, and the exceptions that report their failures."""

import os
import socket
import ssl
import threading

# Silence for this many seconds is a violation.
PATIENCE = 120


class Broken(Exception):
    """A failure that the client noticed. `head`: a good response had begun. `refused`: no connection was established."""

    def __init__(self, why, head=False, refused=False):
        super().__init__(why)
        self.head, self.refused = head, refused


class Wrong(Exception):
    """A violation: a wrong response, or none."""


class Ended(Exception):
    """A connection was closed in order but too early. `raw`: it was TCP without TLS."""

    def __init__(self, why, raw):
        super().__init__(why)
        self.raw = raw


class closing_on_error:
    """Closes a socket, and converts errors of the system."""

    def __init__(self, s):
        self.socket = s
        s.settimeout(PATIENCE)

    def __enter__(self):
        return self.socket

    def __exit__(self, kind, error, _):
        self.socket.close()
        if isinstance(error, TimeoutError):
            raise Wrong(f"nothing within {PATIENCE} s") from error
        if isinstance(error, (OSError, ssl.SSLError)):
            raise Broken(f"{type(error).__name__}: {error}", head=True) from error


def tls_context(ca):
    """Returns a context that distinguishes the end of TLS from that of TCP, which Debian's Python does not by default."""
    context = ssl.create_default_context(cafile=ca)
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    return context


def sees_a_cut(certificate):
    """Returns whether this client distinguishes a killed server from a close_notify; the checks depend on it."""
    ours, theirs = socket.socketpair()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate.cert, certificate.key)

    def die():
        os.close(server.wrap_socket(theirs, server_side=True).detach())
    dying = threading.Thread(target=die)
    dying.start()
    with tls_context(certificate.ca).wrap_socket(ours, server_hostname="localhost", suppress_ragged_eofs=False) as s:
        dying.join()
        try:
            s.recv(1)
        except ssl.SSLError:
            return True
    return False


def connect(address, **how):
    try:
        return socket.create_connection(address, timeout=PATIENCE, **how)
    except OSError as error:
        raise Broken(f"connect: {error}", refused=True) from error


def try_send(s, data, errors):
    try:
        s.sendall(data)
    except OSError as error:
        errors.append(error)


def receive(s, size):
    got = bytearray()
    while len(got) < size:
        piece = s.recv(min(size - len(got), 1 << 16))
        if not piece:
            raise Ended(f"closed in order after {len(got)} of {size} bytes", raw=not isinstance(s, ssl.SSLSocket))
        got += piece
    return bytes(got)


def status(s, expected):
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        head += receive(s, 1)
    found = int(head.split(b" ")[1])
    if found != expected:
        if found < 500:
            raise Wrong(f"status {found}: {bytes(head)!r}")
        raise Broken(f"status {found}")


def message(opcode, data):
    length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + length + b"\0\0\0\0" + data


def incoming(s):
    first, second = receive(s, 2)
    length = second if second < 126 else int.from_bytes(receive(s, 2), "big")
    return first & 0x0F, receive(s, length)

