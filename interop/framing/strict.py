"""A strict parser of HTTP/1.1 requests: whatever two parsers could interpret differently is an error.

Everything that a gateway sends to a server must pass it (RFC 9112), whatever its client has sent.
"""

import dataclasses
import hashlib
import re

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
# No control characters, no spaces, no fragment.
REQUEST_LINE = re.compile(rb"(%s) ([!-\"$-~\x80-\xff]+) HTTP/1\.1" % TOKEN)
FIELD = re.compile(rb"(%s):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*" % TOKEN)
LENGTH = re.compile(rb"0|[1-9][0-9]{0,18}")
# Many servers use signed integers.
MAX_LENGTH = 2**63 - 1
CHUNK = re.compile(rb"[0-9A-Fa-f]{1,15}")
HOST = re.compile(rb"([A-Za-z0-9._~%!$&'()*+,;=-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
# Connection options that a gateway may send.
OPTIONS = {b"te", b"upgrade", b"close", b"keep-alive"}
# Fields that may not be trailers: they belong before the body.
FORBIDDEN_TRAILERS = {
    b"content-length", b"transfer-encoding", b"host", b"connection", b"te", b"upgrade", b"keep-alive",
    b"proxy-connection", b"trailer", b"content-encoding", b"content-type", b"authorization", b"expect",
    b"cookie", b"forwarded", b"x-forwarded-for", b"x_forwarded_for", b"x-forwarded-proto", b"x-real-ip",
}


class Ambiguous(Exception):
    """Two parsers may interpret this differently; the message says why."""


class Unfinished(Exception):
    """The data is incomplete."""


@dataclasses.dataclass
class Request:
    """`whole`: it is complete; otherwise `body` is the received part."""
    method: bytes
    target: bytes
    fields: list
    body: bytes = b""
    trailers: list = dataclasses.field(default_factory=list)
    raw: bytes = b""
    whole: bool = True

    def values(self, name):
        return [value for key, value in self.fields if key == name]

    @property
    def host(self):
        return self.values(b"host")[0]

    def seen(self):
        """Returns the expected `x-seen` field of its response."""
        return seen(self.method, self.target, self.body)


def seen(method, target, body):
    return b"%s %s %d %s" % (method, target, len(body), digest(body))


def digest(body):
    return hashlib.sha256(body).hexdigest()[:16].encode()


def line_at(data, at):
    """Returns (the line, the offset of the next)."""
    end = data.find(b"\n", at)
    if end < 0:
        raise Unfinished
    if end == at or data[end - 1:end] != b"\r":
        raise Ambiguous("a bare LF")
    line = bytes(data[at:end - 1])
    if b"\r" in line:
        raise Ambiguous("a bare CR")
    return line, end + 1


def fields_at(data, at):
    fields = []
    while True:
        line, at = line_at(data, at)
        if not line:
            return fields, at
        found = FIELD.fullmatch(line)
        if not found:
            raise Ambiguous(f"a bad field line {line[:60]!r}")
        fields.append((found[1].lower(), found[2]))


def framing(request):
    """Returns None, a length, or "chunked"."""
    lengths, codings = request.values(b"content-length"), request.values(b"transfer-encoding")
    if lengths and codings:
        raise Ambiguous("content-length and transfer-encoding")
    if len(lengths) > 1 or len(codings) > 1:
        raise Ambiguous("a field of framing twice")
    if lengths and not (LENGTH.fullmatch(lengths[0]) and int(lengths[0]) <= MAX_LENGTH):
        raise Ambiguous(f"content-length: {lengths[0]!r}")
    if codings and codings[0] != b"chunked":
        raise Ambiguous(f"transfer-encoding: {codings[0]!r}")
    if (lengths or codings) and request.values(b"upgrade"):
        raise Ambiguous("upgrade with a body")
    if lengths:
        return int(lengths[0])
    return "chunked" if codings else None


def check_head(request):
    hosts = request.values(b"host")
    if len(hosts) != 1 or not HOST.fullmatch(hosts[0]):
        raise Ambiguous(f"host: {hosts}")
    for value in request.values(b"connection"):
        for option in value.split(b","):
            if option.strip().lower() not in OPTIONS:
                raise Ambiguous(f"connection names {option!r}")
    if request.values(b"proxy-connection") or request.values(b"keep-alive"):
        raise Ambiguous("a field of another hop")


def head_at(data, at):
    line, at = line_at(data, at)
    found = REQUEST_LINE.fullmatch(line)
    if not found:
        raise Ambiguous(f"a bad request line {line[:60]!r}")
    fields, at = fields_at(data, at)
    request = Request(found[1], found[2], fields)
    check_head(request)
    return request, at


def chunks_at(data, at, request):
    while True:
        line, at = line_at(data, at)
        if not CHUNK.fullmatch(line):
            raise Ambiguous(f"a bad chunk size {line[:60]!r}")
        size = int(line, 16)
        if size == 0:
            break
        request.body += data[at:at + size]
        if len(data) < at + size + 2:
            raise Unfinished
        if data[at + size:at + size + 2] != b"\r\n":
            raise Ambiguous("no CRLF after a chunk")
        at += size + 2
    request.trailers, at = fields_at(data, at)
    for name, _ in request.trailers:
        if name in FORBIDDEN_TRAILERS:
            raise Ambiguous(f"a trailer {name!r}")
    return at


def request_at(data, at):
    """Returns (a request, the offset of the next). An incomplete one is not `whole`. Raises Ambiguous; Unfinished in a head."""
    start = at
    request, at = head_at(data, at)
    how = framing(request)
    try:
        if how == "chunked":
            at = chunks_at(data, at, request)
        elif how:
            request.body = bytes(data[at:at + how])
            if len(request.body) < how:
                raise Unfinished
            at += how
    except Unfinished:
        request.whole, at = False, len(data)
    request.raw = bytes(data[start:at])
    return request, at
