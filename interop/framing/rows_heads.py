"""Rows: HTTP/1.1 heads that change the meaning of the rest: protocols, Expect, Connection, request lines, hosts, ends."""

from row import ARRIVED, BROKEN, GET, HALF, HIDDEN, HIDDEN_FORM, Form, chunked, form, h1, head

HELLO = b"hello"
FIFTY = b"Content-Length: 50"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
SOCKET = (b"Connection: Upgrade", b"Upgrade: websocket", KEY, b"Sec-WebSocket-Version: 13")
ASKED = form(method=b"GET")
GET_TWO = ((*GET, HIDDEN_FORM),)


def upgrades():
    rfc = "RFC 9110 7.8"

    def get(*lines):
        return head(*lines, method=b"GET")
    # A server without WebSocket responds as to any GET; the gateway may respond to that with 502 or 501.
    plain = dict(refuse=(400, 426, 501, 502), forward=(ASKED,))
    yield h1("upgrade", "RFC 6455; control", get(*SOCKET), **plain)
    yield h1("upgrade-cl-no-body", "RFC 9110 7.8, 8.6; CL.0 by upgrade", get(*SOCKET, FIFTY), refuse=(400,))
    yield h1("upgrade-cl-body", rfc, get(*SOCKET, FIFTY) + b"a" * 50)
    yield h1("upgrade-cl-hidden", rfc, get(*SOCKET, b"Content-Length: %d" % len(HIDDEN)) + HIDDEN)
    yield h1("upgrade-cl-0", rfc, get(*SOCKET, b"Content-Length: 0"), **plain)
    yield h1("upgrade-cl-huge", rfc, get(*SOCKET, b"Content-Length: 9223372036854775807"))
    yield h1("upgrade-te", rfc, get(*SOCKET, b"Transfer-Encoding: chunked") + chunked(HIDDEN), refuse=(400, 501))
    yield h1("upgrade-te-no-body", rfc, get(*SOCKET, b"Transfer-Encoding: chunked"), refuse=(400, 501))
    yield h1("upgrade-cl-te", rfc, get(*SOCKET, FIFTY, b"Transfer-Encoding: chunked"), refuse=(400, 501))
    yield h1("upgrade-expect", rfc, get(*SOCKET, FIFTY, b"Expect: 100-continue"), refuse=(400, 417))
    yield h1("upgrade-post", rfc, head(*SOCKET, b"Content-Length: 5") + HELLO, forward=(form(HELLO),))
    yield h1("upgrade-post-no-body", rfc, [head(*SOCKET, FIFTY), ARRIVED], (400, BROKEN), unfinished=True)
    yield h1("upgrade-early-request", "WebSocket smuggling", get(*SOCKET) + HIDDEN, refuse=(400, 426, 501, 502),
             forward=(ASKED, *GET_TWO))
    yield h1("upgrade-version", "WebSocket smuggling: a version that the server refuses",
             get(*SOCKET[:3], b"Sec-WebSocket-Version: 1337") + HIDDEN, refuse=(400, 426, 501, 502),
             forward=(ASKED, *GET_TWO))
    yield h1("upgrade-no-connection", rfc, get(SOCKET[1], KEY, FIFTY) + HIDDEN + b"a" * (50 - len(HIDDEN)),
             forward=(form(HIDDEN + b"a" * (50 - len(HIDDEN)), b"GET"),))
    yield h1("upgrade-no-name", rfc, get(b"Connection: Upgrade", b"Content-Length: 5") + HELLO,
             forward=(form(HELLO, b"GET"),))
    yield h1("upgrade-two", rfc, get(b"Connection: upgrade", b"Upgrade: websocket, h2c", FIFTY) + b"a" * 50,
             forward=(form(b"a" * 50, b"GET"),))
    yield h1("upgrade-twice", rfc, get(*SOCKET, b"Upgrade: h2c", FIFTY) + b"a" * 50,
             forward=(form(b"a" * 50, b"GET"),))
    yield h1("upgrade-capital", rfc, get(b"Connection: UPGRADE", b"Upgrade: WebSocket", KEY, FIFTY), refuse=(400,))
    yield h1("upgrade-connection-list", rfc, get(b"Connection: keep-alive, Upgrade", *SOCKET[1:], FIFTY),
             refuse=(400,))
    yield h1("upgrade-h2c", "RFC 7540 3.2; h2c smuggling",
             get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
                 b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"), (400, 501), (ASKED,))
    yield h1("upgrade-h2c-alone", "h2c smuggling", get(b"Connection: Upgrade", b"Upgrade: h2c",
            b"HTTP2-Settings: AAMAAABk"), (400, 501), (ASKED,))
    yield h1("upgrade-h2c-body", "h2c smuggling", get(b"Connection: Upgrade", b"Upgrade: h2c",
            b"Content-Length: 5") + HELLO,
             (400, 501), (form(HELLO, b"GET"),))
    yield h1("upgrade-tls", "RFC 2817", get(b"Connection: Upgrade", b"Upgrade: TLS/1.0",
                                            b"Content-Length: 5") + HELLO,
             (400, 501), (form(HELLO, b"GET"),))
    yield h1("upgrade-1.0", rfc, head(*SOCKET, FIFTY, method=b"GET", version=b"HTTP/1.0") + b"a" * 50,
             refuse=(400, 426, 501), forward=(form(b"a" * 50, b"GET"),))


def connects():
    rfc, refuse = "RFC 9110 9.3.6", (400, 403, 404, 405, 407, 501)

    def connect(*lines, target=b"a.test:80"):
        return head(*lines, method=b"CONNECT", target=target, host=b"Host: a.test:80")
    yield h1("connect", rfc, connect(), refuse)
    yield h1("connect-cl", rfc, connect(b"Content-Length: %d" % len(HIDDEN)) + HIDDEN, refuse)
    yield h1("connect-te", rfc, connect(b"Transfer-Encoding: chunked") + chunked(HIDDEN), refuse)
    yield h1("connect-early", rfc, connect() + HIDDEN, refuse, forward=((HIDDEN_FORM,),))
    yield h1("connect-path", rfc, connect(target=b"/a/ATTACKER"), refuse)
    yield h1("connect-url", rfc, connect(target=b"http://a.test/a/ATTACKER"), refuse)


def expects():
    rfc, fine = "RFC 9110 10.1.1", (form(HELLO),)
    five = b"Content-Length: 5"
    yield h1("expect", rfc + "; control", head(five, b"Expect: 100-continue") + HELLO, (), fine)
    yield h1("expect-chunked", rfc, head(b"Transfer-Encoding: chunked", b"Expect: 100-continue") + chunked(HELLO),
             (), fine)
    # A client that waits for 100 (Continue).
    yield h1("expect-waits", rfc, [head(five, b"Expect: 100-continue"), ARRIVED, HELLO], (), fine)
    for name, value in (("twice", b"100-continue\r\nExpect: 100-continue"), ("list", b"100-continue, 100-continue"),
                        ("word-before", b"y 100-continue"), ("capital", b"100-CONTINUE"), ("unknown", b"200-ok"),
                        ("empty", b""), ("newline", b"\r\n 100-continue"), ("quoted", b'"100-continue"')):
        yield h1(f"expect-{name}", rfc + "; 0.CL by Expect", head(five, b"Expect: " + value) + HELLO, (400, 417),
                 fine)
    yield h1("expect-get", rfc, head(five, b"Expect: 100-continue", method=b"GET") + HELLO, (400,),
             (form(HELLO, b"GET"),))
    yield h1("expect-no-body", rfc, head(b"Expect: 100-continue", method=b"GET"), (400,), (GET,))
    yield h1("expect-cl-0", rfc, head(b"Content-Length: 0", b"Expect: 100-continue") + HIDDEN, (400,),
             ((Form(b"POST"), HIDDEN_FORM),), answers=2)
    yield h1("expect-1.0", rfc, head(five, b"Expect: 100-continue", version=b"HTTP/1.0") + HELLO, (400, 417), fine)
    yield h1("expect-cl-te", rfc, head(five, b"Transfer-Encoding: chunked", b"Expect: 100-continue") + HELLO)


def connections():
    rfc, five = "RFC 9110 7.6.1; hop-by-hop abuse", b"Content-Length: 5"
    fine = (form(HELLO),)
    for name in (b"content-length", b"transfer-encoding", b"host", b"Content-Length, close", b"cookie",
                 b"x-forwarded-for",
                 b"authorization", b"close, host", b"forwarded", b"cache-control"):
        word = name.decode().lower().replace(", ", "-and-")
        yield h1(f"connection-{word}", rfc, head(five, b"Connection: " + name) + HELLO)
    yield h1("connection-two-fields", rfc, head(five, b"Connection: close", b"Connection: content-length") + HELLO)
    yield h1("connection-te-chunked", rfc, head(b"Transfer-Encoding: chunked",
                                                b"Connection: transfer-encoding") + chunked(HELLO))
    yield h1("connection-not-a-name", rfc, head(five, b"Connection: a b") + HELLO, (400,), fine)
    yield h1("connection-byte-ff", rfc, head(five, b"Connection: \xff") + HELLO, (400,), fine)
    yield h1("connection-expect", rfc, head(five, b"Expect: 100-continue", b"Connection: expect") + HELLO, (400,),
             fine)
    yield h1("connection-own", rfc, head(five, b"X-Own: 1", b"Connection: x-own") + HELLO, (), fine)
    yield h1("connection-close-pipelined", rfc, head(b"Connection: close", method=b"GET") + HIDDEN, (), (GET,))
    yield h1("proxy-connection", rfc, head(five, b"Proxy-Connection: keep-alive", b"Keep-Alive: timeout=5") + HELLO,
             (), fine)
    yield h1("te-field", "RFC 9110 10.1.4", head(five, b"TE: chunked, trailers;q=0.5", b"Connection: te") + HELLO,
             (), fine)
    yield h1("trailer-field", "RFC 9110 6.6.2", head(five, b"Trailer: content-length") + HELLO, (400,), fine)
    yield h1("http-1.0-keep-alive", "RFC 9112 C.2.2", head(five, b"Connection: keep-alive",
            version=b"HTTP/1.0") + HELLO, (), fine)
    yield h1("http-1.0-pipelined", "RFC 9112 9.3", head(version=b"HTTP/1.0", method=b"GET") + HIDDEN, (), (GET,))
    yield h1("http-1.0-no-host", "RFC 9112 3.2", head(version=b"HTTP/1.0", method=b"GET", host=None), (400, 404))
    yield h1("http-1.0-get-body", "RFC 9112 6.3", head(five, version=b"HTTP/1.0", method=b"GET") + HELLO, (400,),
             (form(HELLO, b"GET"),))


def lines():
    rfc, end = "RFC 9112 3", b"\r\nHost: a.test\r\n\r\n"
    refuse = (400, 404, 414, 501, 505, BROKEN)

    def line(name, first, forward=(), source=rfc, **more):
        return h1(f"line-{name}", source, first + end, refuse, forward, **more)
    yield line("two-spaces", b"GET  /a/ATTACKER HTTP/1.1")
    yield line("two-spaces-behind", b"GET /a/ATTACKER  HTTP/1.1")
    yield line("tabs", b"GET\t/a/ATTACKER\tHTTP/1.1")
    yield line("no-version", b"GET /a/ATTACKER")
    yield line("version-1.2", b"GET /a/ATTACKER HTTP/1.2", (GET,))
    yield line("version-2.0", b"GET /a/ATTACKER HTTP/2.0")
    yield line("version-3.0", b"GET /a/ATTACKER HTTP/3.0")
    yield line("version-0.9", b"GET /a/ATTACKER HTTP/0.9")
    yield line("version-01.1", b"GET /a/ATTACKER HTTP/01.1")
    yield line("version-1.10", b"GET /a/ATTACKER HTTP/1.10")
    yield line("version-lower-case", b"GET /a/ATTACKER http/1.1")
    yield line("version-space-behind", b"GET /a/ATTACKER HTTP/1.1 ")
    yield line("version-twice", b"GET /a/ATTACKER HTTP/1.1 HTTP/1.1")
    yield line("method-lower-case", b"get /a/ATTACKER HTTP/1.1", (form(method=b"get"),))
    yield line("method-odd", b"G@T /a/ATTACKER HTTP/1.1")
    yield line("method-colon", b"GET: /a/ATTACKER HTTP/1.1")
    yield line("method-own", b"SMUGGLE /a/ATTACKER HTTP/1.1", (form(method=b"SMUGGLE"),))
    yield line("method-long", b"A" * 3000 + b" /a/ATTACKER HTTP/1.1", (form(method=b"A" * 3000),))
    yield line("empty-before", b"\r\nGET /a/ATTACKER HTTP/1.1", (GET,), "RFC 9112 2.2")
    yield line("lf-before", b"\nGET /a/ATTACKER HTTP/1.1", (GET,), "RFC 9112 2.2")
    yield line("space-before", b" GET /a/ATTACKER HTTP/1.1")
    yield line("fragment", b"GET /a/ATTACKER#hidden HTTP/1.1", (GET,))
    yield line("space-in-target", b"GET /a/ATTACKER /hidden HTTP/1.1")
    yield line("cr-in-target", b"GET /a/ATTACKER\rX HTTP/1.1")
    yield line("nul-in-target", b"GET /a/ATTACKER\0 HTTP/1.1")
    yield line("tab-in-target", b"GET /a/ATTACKER\tx HTTP/1.1")
    yield line("delete-in-target", b"GET /a/ATTACKER\x7f HTTP/1.1")
    yield line("byte-ff-in-target", b"GET /a/ATTACKER\xff HTTP/1.1",
               (form(method=b"GET", target=b"/a/ATTACKER\xff"),))
    yield line("backslash", b"GET /a\\ATTACKER HTTP/1.1", (form(method=b"GET", target=b"/a\\ATTACKER"),))
    yield line("encoded-crlf", b"GET /a/ATTACKER%0d%0aX:%20y HTTP/1.1",
               (form(method=b"GET", target=b"/a/ATTACKER%0d%0aX:%20y"),))
    yield line("no-slash", b"GET a/ATTACKER HTTP/1.1")
    yield line("two-slashes", b"GET //evil.test/ATTACKER HTTP/1.1",
               (form(method=b"GET", target=b"//evil.test/ATTACKER"),))
    yield line("star", b"GET * HTTP/1.1")
    yield line("query-only", b"GET ?ATTACKER HTTP/1.1")
    yield line("dot-segments", b"GET /a/../ATTACKER HTTP/1.1")
    yield line("absolute", b"GET http://a.test/a/ATTACKER HTTP/1.1", (GET,))
    yield line("absolute-https", b"GET https://a.test/a/ATTACKER HTTP/1.1", (GET,))
    yield line("absolute-no-path", b"GET http://a.test HTTP/1.1", (form(method=b"GET", target=b"/"),))
    yield line("absolute-query", b"GET http://a.test?ATTACKER HTTP/1.1", (form(method=b"GET", target=b"/?ATTACKER"),))
    yield line("absolute-other-host", b"GET http://evil.test/a/ATTACKER HTTP/1.1",
               (form(method=b"GET", host=b"evil.test"),), "RFC 9112 3.2.2")
    yield line("absolute-userinfo", b"GET http://a.test@evil.test/a/ATTACKER HTTP/1.1")
    yield line("absolute-port", b"GET http://a.test:81/a/ATTACKER HTTP/1.1",
               (form(method=b"GET", host=b"a.test:81"),))
    yield line("absolute-ftp", b"GET ftp://a.test/a/ATTACKER HTTP/1.1")
    yield h1("options-star", rfc, head(method=b"OPTIONS", target=b"*"), (400, 404, 405),
             (form(method=b"OPTIONS", target=b"*"), form(method=b"OPTIONS", target=b"/")))


HOSTS = {
    "twice": b"Host: a.test\r\nHost: b.test", "twice-equal": b"Host: a.test\r\nHost: a.test",
    "comma": b"Host: a.test, b.test",
    "userinfo": b"Host: user@a.test", "space": b"Host: a.test b.test", "path": b"Host: a.test/x",
    "query": b"Host: a.test?x",
    "port-letters": b"Host: a.test:http", "port-plus": b"Host: a.test:+80",
    "two-ports": b"Host: a.test:80:81", "nul": b"Host: a.test\0",
    "tab": b"Host: a\t.test",
    "space-before-colon": b"Host : a.test", "obs-fold": b"Host: a.test\r\n b.test", "folded-first": b" Host: a.test",
    "backslash": b"Host: a.test\\b", "bracket": b"Host: [::1", "byte-ff": b"Host: a\xff.test",
    "quote": b'Host: "a.test"',
    "underscore-name": b"Host_: a.test", "url": b"Host: http://a.test/",
}


def hosts():
    rfc = "RFC 9112 3.2"
    for name, line in HOSTS.items():
        yield h1(f"host-{name}", rfc, head(method=b"GET", host=line), (400, 404))
    yield h1("host-missing", rfc, head(method=b"GET", host=None))
    yield h1("host-empty", rfc, head(method=b"GET", host=b"Host:"), (400, 404), (form(method=b"GET", host=b""),))
    yield h1("host-port", rfc + "; control", head(method=b"GET", host=b"Host: a.test:80"), (),
             (form(method=b"GET", host=b"a.test:80"),))
    yield h1("host-port-empty", rfc, head(method=b"GET", host=b"Host: a.test:"), (400,),
             (form(method=b"GET", host=b"a.test:"), GET))
    yield h1("host-port-99999", rfc, head(method=b"GET", host=b"Host: a.test:99999"), (400,),
             (form(method=b"GET", host=b"a.test:99999"),))


def fields():
    rfc, five = "RFC 9112 5", b"Content-Length: 5"
    fine = (form(HELLO),)
    for name, line in (
            ("name-space", b"X Y: z"), ("name-empty", b": z"), ("no-colon", b"XYZ"), ("name-byte-ff", b"X\xff: z"),
            ("name-nul", b"X\0: z"), ("value-nul", b"X: a\0b"), ("value-cr", b"X: a\rContent-Length: 60"),
            ("value-delete", b"X: a\x7f"),
            ("obs-fold", b"X: a\r\n b"), ("obs-fold-length", b"X: a\r\n Content-Length: 60"), ("only-space", b" "),
            ("name-tab", b"X\t: z"),
            ("name-bracket", b"X(y): z"), ("cr-cr-lf", b"X: a\r")):
        yield h1(f"field-{name}", rfc, head(line, five) + HELLO, (400,))
    yield h1("field-first-space", "RFC 9112 2.2",
             b"POST /a/ATTACKER HTTP/1.1\r\n X: y\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello", (400,))
    yield h1("field-value-ff", "RFC 9110 5.5", head(b"X: a\xffb", five) + HELLO, (400,), fine)
    yield h1("field-many", "RFC 9112 5", head(*[b"X-%d: y" % n for n in range(500)], five) + HELLO, (400, 431))
    yield h1("field-long", "RFC 9112 5", head(b"X: " + b"a" * 600_000, five) + HELLO, (400, 431, BROKEN))
    lf = head(five).replace(b"\r\n", b"\n") + HELLO
    yield h1("lf-everywhere", "RFC 9112 2.2", lf, (400,), fine)
    yield h1("lf-one-field", "RFC 9112 2.2", head(b"X: y\nContent-Length: 5") + HELLO, (400,), fine)
    yield h1("lf-empty-line", "RFC 9112 2.2", head(five)[:-2] + b"\n" + HELLO, (400,), fine)
    yield h1("lf-lf-cr-lf", "RFC 9112 2.2", head(five)[:-4] + b"\n\n\r\n" + HELLO[:-1], (400,),
             (form(b"\r\nhel"[:5]), form(b"\r\nhell"[:5])))
    yield h1("cr-everywhere", "RFC 9112 2.2", head(five).replace(b"\r\n", b"\r") + HELLO + b"\r\n\r\n", (400,))
    yield h1("cr-empty-line", "RFC 9112 2.2", head(five)[:-2] + b"\r" + HALF + b"\r\n\r\n", (400,))
    yield h1("half-and-end", "control", HALF + b"x\r\n\r\n", (), ((HIDDEN_FORM,),))


def rows():
    for part in (upgrades, connects, expects, connections, lines, hosts, fields):
        yield from part()
