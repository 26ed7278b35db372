"""The rows of the table, and functions to write them.

`ATTACKER` in any bytes is replaced by a token of the same length that is unique in the run.
"""

import dataclasses

# Instead of a status: the gateway ends the connection or the stream without a response.
BROKEN = "broken"
# Steps besides bytes and frames: wait until bytes have arrived at the server, wait for a response, start a victim's request,
# end the connection.
ARRIVED, ANSWERED, VICTIM, FIN, RST = "arrived", "answered", "victim", "fin", "rst"


@dataclasses.dataclass(frozen=True)
class Form:
    """A request in the form in which it may arrive at the server. `body` is complete even if it may be truncated."""
    method: bytes = b"POST"
    target: bytes = b"/a/ATTACKER"
    body: bytes = b""
    host: bytes = b"a.test"


@dataclasses.dataclass(eq=False)
class Row:
    """An attack. `refuse`: the statuses with which the gateway may refuse it, before the server gets a complete request;
    `forward`: what the server may get instead, each a tuple of Forms. `unfinished`: the request is incomplete, so no
    response is expected. `respond`: the server's response (only the recorder's), and `sees`: what the client may
    receive, statuses with bodies (None: any) or BROKEN."""
    name: str
    source: str
    send: list
    version: str = "1.1"
    refuse: tuple = (400,)
    forward: tuple = ()
    answers: int = 1
    unfinished: bool = False
    tunnel: bool = False
    respond: list | None = None
    sees: tuple = ()

    def methods(self):
        """Returns the method of an HTTP/1.1 request, as far as it has one."""
        first = self.send[0].lstrip(b"\r\n ").split(b" ", 1)[0] if self.version != "2" else b"GET"
        return [first.upper()]


def form(body=b"", method=b"POST", target=b"/a/ATTACKER", host=b"a.test"):
    """Returns the forms of one request."""
    return (Form(method, target, body, host),)


GET = form(method=b"GET")
HIDDEN = b"GET /hidden/ATTACKER HTTP/1.1\r\nHost: a.test\r\n\r\n"
HIDDEN_FORM = Form(b"GET", b"/hidden/ATTACKER")
# An incomplete request: the next bytes on the connection would become part of it.
HALF = b"GET /hidden/ATTACKER HTTP/1.1\r\nHost: a.test\r\nX-Half: "


def chunked(*pieces):
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def head(*lines, method=b"POST", target=b"/a/ATTACKER", version=b"HTTP/1.1", host=b"Host: a.test"):
    """Returns an HTTP/1.1 head; each of `lines` is a field."""
    first = b"%s %s %s" % (method, target, version)
    return b"\r\n".join([first, *([host] if host else []), *lines, b"", b""])


def h1(name, source, raw, refuse=(400,), forward=(), **more):
    return Row(name, source, raw if isinstance(raw, list) else [raw], "1.1", refuse, forward, **more)


@dataclasses.dataclass(frozen=True)
class H:
    """HEADERS: unmodified fields, each as a literal."""
    fields: tuple
    end: bool = False
    stream: int = 1
    # The rest after this many bytes goes into CONTINUATION.
    split: int = 0


@dataclasses.dataclass(frozen=True)
class D:
    """DATA."""
    data: bytes
    end: bool = True
    stream: int = 1


@dataclasses.dataclass(frozen=True)
class R:
    """RST_STREAM."""
    stream: int = 1
    code: int = 8


@dataclasses.dataclass(frozen=True)
class Raw:
    """An arbitrary frame."""
    kind: int
    flags: int
    payload: bytes
    stream: int = 1


def fields(*more, method=b"POST", path=b"/a/ATTACKER", scheme=b"http", authority=b"a.test"):
    """Returns a request's fields, without pseudo-headers that are None."""
    pseudo = ((b":method", method), (b":scheme", scheme), (b":path", path), (b":authority", authority))
    return tuple((name, value) for name, value in pseudo if value is not None) + more


def h2(name, source, *send, refuse=(400, BROKEN), forward=(), **more):
    return Row(name, source, list(send), "2", refuse, forward, **more)
