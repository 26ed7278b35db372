"""Conversations by hand, over a socket: what a client sees of a connection, and how it says so."""

import os
import socket
import ssl
import threading

# Silence for so many seconds is a violation.
PATIENCE = 120


class Broken(Exception):
    """It failed, and the client was told. `head`: a good response had begun. `refused`: it was not even connected."""

    def __init__(self, why, head=False, refused=False):
        super().__init__(why)
        self.head, self.refused = head, refused


class Wrong(Exception):
    """The client was told something that is not true, or nothing."""


class Ended(Exception):
    """A connection that was to go on was ended as if all was well. `raw`: TCP was, and there was no TLS in it."""

    def __init__(self, why, raw):
        super().__init__(why)
        self.raw = raw


class closing_on_error:
    """Closes a socket, and makes clear errors of the system's."""

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
    """One that knows an end of TLS from an end of TCP: Debian's Python has OpenSSL take one for the other."""
    context = ssl.create_default_context(cafile=ca)
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    return context


def sees_a_cut(certificate):
    """Whether this client can tell a server that dies from one that ends: the check would be worth nothing else."""
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
            raise Ended(f"an orderly end after {len(got)} of {size} octets", raw=not isinstance(s, ssl.SSLSocket))
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

