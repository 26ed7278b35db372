"""Rows: ambiguous or surplus responses of servers. Only the recorder sends them; clients use HTTP/1.1 and, in separate
rows, HTTP/2."""

import base64
import dataclasses
import hashlib

from recorder import CLOSE, FLUSH, HOLD, READ_ALL, RESET
from row import (ANSWERED, ARRIVED, BROKEN, HALF, HIDDEN, HIDDEN_FORM, RST, VICTIM, D, H, chunked, fields, form, h1, h2,
                 head)

HELLO = b"hello"
# Bytes that no client may receive as a response.
POISON = b"HTTP/1.1 200 OK\r\nX-Poison: ATTACKER\r\nContent-Length: 8\r\n\r\nATTACKER"
OK = (200, HELLO)
BAD = ((502, None), BROKEN)


def answer(*lines, body=HELLO, status=b"200 OK", version=b"HTTP/1.1"):
    return b"\r\n".join([version + b" " + status, *lines, b"", body])


FIVE = b"Content-Length: 5"
TE = b"Transfer-Encoding: chunked"
GET = form(method=b"GET")
POST = form(HELLO)


def both(name, source, script, sees, method=b"GET", body=None):
    """Yields the same row for a client of each version."""
    script = list(script)
    forward = (form(body or b"", method),)
    lines = [] if body is None else [b"Content-Length: %d" % len(body)]
    row = h1(f"r-{name}", source, head(*lines, method=method) + (body or b""), (), forward, respond=script, sees=sees)
    yield row
    pseudo = fields(method=method)
    send = [H(pseudo, end=True)] if body is None else [H(pseudo), D(body)]
    yield dataclasses.replace(row, name=f"r-{name}-h2", version="2", send=send)


LENGTHS = {
    "cl-different": b"Content-Length: 5\r\nContent-Length: 6", "cl-list": b"Content-Length: 5, 6",
    "cl-plus": b"Content-Length: +5",
    "cl-minus": b"Content-Length: -5", "cl-hex": b"Content-Length: 0x5", "cl-word": b"Content-Length: five",
    "cl-empty": b"Content-Length:",
    "cl-2-to-64-and-5": b"Content-Length: 18446744073709551621", "cl-obs-fold": b"Content-Length:\r\n 5",
    "cl-space-before-colon": b"Content-Length : 5", "cl-te": b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    "te-cl": b"Transfer-Encoding: chunked\r\nContent-Length: 5", "te-xchunked": b"Transfer-Encoding: xchunked",
    "te-two": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "te-identity": b"Transfer-Encoding: identity\r\nContent-Length: 5",
    "te-gzip-chunked": b"Transfer-Encoding: gzip, chunked", "te-vertical-tab": b"Transfer-Encoding: \x0bchunked",
    "connection-cl": b"Content-Length: 5\r\nConnection: content-length",
}


def lengths():
    rfc = "RFC 9112 6.3; response splitting"
    for name, line in LENGTHS.items():
        body = chunked(HELLO) if "te-" in name else HELLO
        # Some of these end only with the connection.
        yield from both(name, rfc, [READ_ALL, answer(line, body=body + POISON), FLUSH, CLOSE], BAD)
    yield from both("cl-equal", rfc, [READ_ALL, answer(FIVE, FIVE)], (OK, *BAD))
    yield from both("cl-leading-zeros", rfc, [READ_ALL, answer(b"Content-Length: 005")], (OK, *BAD))
    yield from both("te-1.0", "RFC 9112 6.1", [READ_ALL, answer(TE, body=chunked(HELLO), version=b"HTTP/1.0"), FLUSH,
                                               CLOSE], (OK, *BAD))
    yield from both("until-close", "RFC 9112 6.3; control", [READ_ALL, answer(), FLUSH, CLOSE], (OK,))
    yield from both("version-1.0", "control", [READ_ALL, answer(FIVE, version=b"HTTP/1.0"), FLUSH, CLOSE], (OK,))
    yield from both("version-1.0-keep-alive", "RFC 9112 9.3",
                    [READ_ALL, answer(FIVE, b"Connection: keep-alive", version=b"HTTP/1.0")], (OK,))


def more_than_asked():
    rfc = "RFC 9112 9.2; response queue poisoning"
    for name, lines, body in (("cl", FIVE, HELLO), ("chunked", TE, chunked(HELLO))):
        yield from both(f"second-answer-{name}", rfc, [READ_ALL, answer(lines, body=body) + POISON], (OK,))
        yield from both(f"second-answer-{name}-later", rfc, [READ_ALL, answer(lines, body=body), FLUSH, POISON],
                        (OK,))
        yield from both(f"junk-{name}", rfc, [READ_ALL, answer(lines, body=body) + b"ATTACKER"], (OK,))
    yield from both("half-answer", rfc, [READ_ALL, answer(FIVE) + POISON[:40]], (OK,))
    yield from both("crlf-behind", rfc, [READ_ALL, answer(FIVE) + b"\r\n"], (OK,))
    yield from both("interim-behind", rfc, [READ_ALL, answer(FIVE) + b"HTTP/1.1 100 Continue\r\n\r\n"], (OK,))
    yield from both("408-behind", "RFC 9110 15.5.9", [READ_ALL, answer(FIVE), FLUSH,
            b"HTTP/1.1 408 Late\r\nX-Poison: ATTACKER\r\nContent-Length: 0\r\n\r\n", CLOSE], (OK,))
    yield from both("empty-and-second", rfc, [READ_ALL, answer(b"Content-Length: 0", body=POISON)], ((200, b""),))
    yield from both("head-body", "RFC 9110 9.3.2", [READ_ALL,
            answer(b"Content-Length: %d" % len(POISON), body=POISON)], ((200, b""), *BAD), method=b"HEAD")
    yield from both("head-chunked", "RFC 9110 9.3.2", [READ_ALL, answer(TE, body=chunked(POISON))],
                    ((200, b""), *BAD), method=b"HEAD")
    yield from both("head-length", "control", [READ_ALL, answer(b"Content-Length: 5", body=b"")], ((200, b""),),
                    method=b"HEAD")
    for status in (b"204 No Content", b"304 Not Modified"):
        number = int(status[:3])
        sees = ((number, b""), *BAD)
        yield from both(f"{number}-length-body", "RFC 9110 15.3.5",
                        [READ_ALL, answer(b"Content-Length: %d" % len(POISON), body=POISON, status=status)], sees)
        yield from both(f"{number}-chunked-body", "RFC 9112 6.3",
                        [READ_ALL, answer(TE, body=chunked(POISON), status=status)], sees)
        yield from both(f"{number}-body", "RFC 9112 6.3", [READ_ALL, answer(body=POISON, status=status)], sees)
    yield from both("205-body", "RFC 9110 15.3.6", [READ_ALL, answer(FIVE, status=b"205 Reset")],
                    ((205, HELLO), (205, b""), *BAD))
    yield from both("close-ignored", "RFC 9112 9.6", [READ_ALL, answer(FIVE, b"Connection: close"), FLUSH, POISON],
                    (OK,))
    yield from both("close-capital", "RFC 9112 9.6", [READ_ALL, answer(FIVE, b"Connection: x, CLOSE"), FLUSH,
            POISON], (OK, *BAD))


def interim():
    rfc = "RFC 9110 15.2"
    cases = {
        "100": (b"HTTP/1.1 100 Continue\r\n\r\n", (OK,)), "103": (b"HTTP/1.1 103 Early\r\nLink: <x>\r\n\r\n", (OK,)),
        "103-length": (b"HTTP/1.1 103 Early\r\nContent-Length: 60\r\n\r\n", (OK, *BAD)),
        "103-chunked": (b"HTTP/1.1 103 Early\r\nTransfer-Encoding: chunked\r\n\r\n", (OK, *BAD)),
        "103-body": (b"HTTP/1.1 103 Early\r\nContent-Length: 8\r\n\r\nATTACKER", BAD),
        "100-100-103": (b"HTTP/1.1 100 Go\r\n\r\n" * 2 + b"HTTP/1.1 103 Early\r\n\r\n", (OK,)),
        "199": (b"HTTP/1.1 199 What\r\n\r\n", (OK, *BAD)),
        "101-unasked": (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", BAD),
        "101-bare": (b"HTTP/1.1 101 Switching\r\n\r\n", BAD),
        "101-length": (b"HTTP/1.1 101 Switching\r\nContent-Length: 5\r\n\r\nhello", BAD),
        "101-h2c": (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", BAD),
    }
    for name, (first, sees) in cases.items():
        yield from both(f"interim-{name}", rfc, [READ_ALL, first + answer(FIVE) + (b"" if OK in sees else POISON)],
                        sees)
    yield from both("interim-101-post", rfc, [READ_ALL, cases["101-unasked"][0] + POISON], BAD, method=b"POST",
                    body=HELLO)


def heads():
    rfc = "RFC 9112 4, 5"
    for name, raw in {
            "obs-fold": answer(b"X: a\r\n b", FIVE), "space-before-colon": answer(b"X : a", FIVE),
            "no-colon": answer(b"XYZ", FIVE),
            "nul": answer(b"X: a\0b", FIVE), "cr": answer(b"X: a\rSet-Cookie: b", FIVE),
            "name-space": answer(b"X Y: z", FIVE),
            "name-empty": answer(b": z", FIVE), "first-space": answer(b" X: y", FIVE),
            "version-2.0": answer(FIVE, version=b"HTTP/2.0"),
            "version-1.2": answer(FIVE, version=b"HTTP/1.2"), "status-99": answer(FIVE, status=b"99 Low"),
            "status-1000": answer(FIVE, status=b"1000 High"),
            "status-000": answer(FIVE, status=b"000 None"), "status-word": answer(FIVE, status=b"OK 200"),
            "status-minus": answer(FIVE, status=b"-20 OK"),
            "junk": b"ATTACKER\r\n\r\n", "long": answer(b"X: " + b"a" * 600_000, FIVE),
            "lf": answer(FIVE).replace(b"\r\n", b"\n")}.items():
        sees = (OK, *BAD) if name in ("obs-fold", "lf", "version-1.2", "no-colon", "name-space", "cr",
                                      "long") else BAD
        yield from both(f"head-{name}", rfc, [READ_ALL, raw, FLUSH, CLOSE], sees)
    yield from both("head-none", rfc, [READ_ALL, CLOSE], BAD)
    yield from both("head-cut", rfc, [READ_ALL, POISON[:30], FLUSH, CLOSE], BAD)
    yield from both("head-reset", rfc, [READ_ALL, RESET], BAD)


def bodies():
    rfc = "RFC 9112 7.1, 8"
    te = answer(TE, body=b"")
    for name, body in {
            "size-word": b"xyz\r\nhello\r\n0\r\n\r\n", "size-minus": b"-5\r\nhello\r\n0\r\n\r\n",
            "size-2-to-64-and-5": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
            "size-empty": b"\r\nhello\r\n0\r\n\r\n", "size-0x": b"0x5\r\nhello\r\n0\r\n\r\n",
            "no-crlf": b"5\r\nhelloXX0\r\n\r\n", "longer": b"5\r\nhelloworld\r\n0\r\n\r\n",
            "extension-lf": b"5;\nhello\r\n0\r\n\r\n", "last-xx": b"5\r\nhello\r\n0\r\nXX"}.items():
        yield from both(f"chunk-{name}", rfc, [READ_ALL, te + body + POISON, FLUSH, CLOSE], BAD)
    yield from both("chunk-eof", rfc, [READ_ALL, te + b"60\r\nhello", FLUSH, CLOSE], BAD)
    yield from both("chunk-eof-between", rfc, [READ_ALL, te + b"5\r\nhello\r\n", FLUSH, CLOSE], BAD)
    yield from both("chunk-eof-last", rfc, [READ_ALL, te + b"5\r\nhello\r\n0\r\n", FLUSH, CLOSE], (OK, *BAD))
    yield from both("chunk-reset", rfc, [READ_ALL, te + b"5\r\nhello\r\n", FLUSH, RESET], BAD)
    yield from both("length-eof", rfc, [READ_ALL, answer(b"Content-Length: 60"), FLUSH, CLOSE], BAD)
    yield from both("length-reset", rfc, [READ_ALL, answer(b"Content-Length: 60"), FLUSH, RESET], BAD)
    for name in (b"Content-Length", b"Transfer-Encoding", b"Connection", b"Set-Cookie"):
        value = {b"Content-Length": b"60", b"Transfer-Encoding": b"chunked"}.get(name, b"x")
        yield from both(f"trailer-{name.decode().lower()}", "RFC 9110 6.5.1",
                        [READ_ALL, te + b"5\r\nhello\r\n0\r\n%s: %s\r\n\r\n" % (name, value)], (OK, *BAD))


def accept(request):
    """Returns the head that accepts a WebSocket."""
    key = request.values(b"sec-websocket-key")[0] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    return (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
            base64.b64encode(hashlib.sha1(key).digest()) + b"\r\n\r\n")


SOCKET = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
          b"Sec-WebSocket-Version: 13")
ASK = ((b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"http"), (b":path", b"/a/ATTACKER"),
       (b":authority", b"a.test"),
       (b"sec-websocket-version", b"13"))


def tunnels():
    """Data of a tunnel reaches no other client, and a refused tunnel is not one."""
    for name, script, sees in (
            ("tunnel", [accept, b"ATTACKER", HOLD], ((101, None), (200, None))),
            ("tunnel-wrong-accept", [b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                                     b"Sec-WebSocket-Accept: eA==\r\n\r\n", HOLD],
             (*BAD, (101, None), (200, None))),
            ("tunnel-h2c", [b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", HOLD], BAD),
            ("tunnel-no-upgrade", [b"HTTP/1.1 101 S\r\n\r\n", HOLD], BAD),
            ("tunnel-426", [READ_ALL, answer(FIVE, status=b"426 Upgrade") + POISON], ((426, HELLO), *BAD)),
            ("tunnel-200", [READ_ALL, answer(FIVE) + POISON], (OK, *BAD)),
            ("tunnel-200-chunked", [READ_ALL, answer(TE, body=chunked(HELLO))], (OK, *BAD)),
            ("tunnel-101-length", [lambda request: accept(request)[:-2] + b"Content-Length: 60\r\n\r\n", HOLD],
             (*BAD, (101, None), (200, None))),
            ("tunnel-101-chunked", [lambda request: accept(request)[:-2] + b"Transfer-Encoding: chunked\r\n\r\n",
                                    HOLD], (*BAD, (101, None), (200, None)))):
        row = h1(f"r-{name}", "RFC 9110 7.8", [head(*SOCKET, method=b"GET"), ANSWERED, HIDDEN], (502,),
                 (GET, (*GET, HIDDEN_FORM)), respond=script, sees=sees, tunnel=True)
        if (101, None) not in sees:
            # The protocol does not change: the client's next bytes would be a request.
            row = dataclasses.replace(row, send=[head(*SOCKET, method=b"GET")])
        yield row
        yield dataclasses.replace(row, name=f"r-{name}-h2", version="2",
                                  send=[H(ASK), ANSWERED, D(HIDDEN, end=False)])


def early():
    """A response before the end of the upload: the rest of the upload must not mix with the next request."""
    rfc, body = "RFC 9112 9.3, 9.5", b"0\r\n\r\n" + HIDDEN
    length = head(b"Content-Length: %d" % (5 + len(body)))
    te = head(TE)
    for name, script in (("", [answer(FIVE)]), ("-close", [answer(FIVE, b"Connection: close"), FLUSH, CLOSE]),
                         ("-413", [answer(FIVE, status=b"413 Large")]),
                         ("-chunked", [answer(TE, body=chunked(HELLO))]), ("-poison", [answer(FIVE), FLUSH, POISON]),
                         ("-304", [answer(status=b"304 N", body=b"")])):
        sees = ((413, HELLO), *BAD) if name == "-413" else ((304, b""), *BAD) if name == "-304" else (OK, *BAD)
        more = dict(respond=script, sees=sees)
        whole = (form(HELLO + body),)
        yield h1(f"r-early{name}", rfc, [length + HELLO, ANSWERED, VICTIM, body], (), whole, **more)
        yield h1(f"r-early{name}-te", rfc, [te + b"5\r\nhello\r\n", ANSWERED, VICTIM, chunked(body)], (), whole,
                 **more)
        yield h1(f"r-early{name}-stop", rfc, [length + HELLO, ANSWERED, VICTIM, RST], (), whole, **more)
        yield h2(f"r-early{name}-h2", rfc, H(fields()), D(HELLO, end=False), ANSWERED, VICTIM, D(body), refuse=(),
                 forward=whole, **more)
        yield h2(f"r-early{name}-cl-h2", rfc, H(fields((b"content-length", b"%d" % (5 + len(body))))),
                 D(HELLO, end=False), ANSWERED, VICTIM, D(body),
                 refuse=(), forward=whole, **more)
    yield h1("r-early-expect", "RFC 9110 10.1.1; Expect: the body is not sent, a request is",
             [head(b"Content-Length: %d" % len(HIDDEN), b"Expect: 100-continue"), ANSWERED, HIDDEN], (), ((),),
             respond=[answer(FIVE, status=b"401 No")], sees=((401, HELLO), *BAD))
    yield h1("r-early-half", rfc, [head(b"Content-Length: 500") + HELLO, ANSWERED, VICTIM, HALF, ARRIVED], (), ((),),
             respond=[answer(FIVE)], sees=(OK, *BAD))


def rows():
    for part in (lengths, more_than_asked, interim, heads, bodies, tunnels, early):
        yield from part()
