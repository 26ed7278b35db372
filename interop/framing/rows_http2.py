"""Rows: HTTP/2 requests that would change their meaning in HTTP/1.1, and messages that are malformed by RFC 9113."""

from row import ARRIVED, BROKEN, HALF, HIDDEN, RST, D, Form, H, R, Raw, fields, form, h2

HELLO = b"hello"
MALFORMED = "RFC 9113 8.1.1"
SPLIT = "RFC 9113 8.2.1; H2 field splitting"
GET = form(method=b"GET")


def get(*more, **pseudo):
    return H(fields(*more, method=b"GET", **pseudo), end=True)


def post(*more, **pseudo):
    return H(fields(*more, **pseudo))


def lengths():
    def length(value, *more):
        return post((b"content-length", value), *more)
    fine = (form(HELLO),)
    yield h2("h2-cl", "control", length(b"5"), D(HELLO), refuse=(), forward=fine)
    yield h2("h2-cl-larger", MALFORMED + "; H2.CL", length(b"6"), D(HELLO))
    yield h2("h2-cl-smaller", MALFORMED + "; H2.CL", length(b"5"), D(HELLO + HIDDEN))
    yield h2("h2-cl-0", MALFORMED + "; H2.CL", length(b"0"), D(HIDDEN), forward=(form(),))
    yield h2("h2-cl-0-half", MALFORMED + "; H2.CL", length(b"0"), D(HALF), forward=(form(),))
    yield h2("h2-cl-smaller-later", MALFORMED + "; H2.CL", length(b"5"), D(HELLO, end=False), ARRIVED, D(HIDDEN),
             forward=fine)
    yield h2("h2-cl-no-data", MALFORMED, H(fields((b"content-length", b"50")), end=True))
    yield h2("h2-cl-get-no-data", MALFORMED, get((b"content-length", b"50")))
    yield h2("h2-cl-head-no-data", MALFORMED, H(fields((b"content-length", b"50"), method=b"HEAD"), end=True))
    yield h2("h2-cl-equal", "RFC 9110 8.6", length(b"5", (b"content-length", b"5")), D(HELLO), forward=fine)
    yield h2("h2-cl-different", "RFC 9110 8.6", length(b"5", (b"content-length", b"6")), D(HELLO))
    for name, value in (("list", b"5, 5"), ("list-different", b"5, 6"), ("plus", b"+5"), ("minus", b"-5"),
                        ("hex", b"0x5"),
                        ("word", b"five"), ("empty", b""), ("2-to-64-and-5", b"18446744073709551621"),
                        ("2-to-63", b"9223372036854775808"), ("inside-space", b"5 5"), ("crlf", b"5\r\nx: y")):
        yield h2(f"h2-cl-{name}", "RFC 9110 8.6", length(value), D(HELLO))
    yield h2("h2-cl-spaces", "RFC 9113 8.2.1", length(b" 5"), D(HELLO), forward=fine)
    yield h2("h2-cl-leading-zeros", "RFC 9110 8.6", length(b"005"), D(HELLO), forward=fine)
    yield h2("h2-get-body", "RFC 9110 9.3.1", H(fields(method=b"GET")), D(HIDDEN), forward=(form(HIDDEN, b"GET"),))
    yield h2("h2-head-body", "RFC 9110 9.3.2", H(fields(method=b"HEAD")), D(HIDDEN), forward=(form(HIDDEN, b"HEAD"),))
    yield h2("h2-body-hidden", "control", post(), D(HIDDEN), refuse=(), forward=(form(HIDDEN),))
    yield h2("h2-body-chunks", "control: chunks as a body", post(), D(b"0\r\n\r\n" + HIDDEN), refuse=(),
             forward=(form(b"0\r\n\r\n" + HIDDEN),))
    yield h2("h2-body-empty-data", "control", post(), D(b""), refuse=(), forward=(form(),))


def codings():
    for name, value in (("chunked", b"chunked"), ("upper-case-value", b"Chunked"), ("identity", b"identity"),
                        ("list", b"gzip, chunked")):
        yield h2(f"h2-te-{name}", "RFC 9113 8.2.2; H2.TE", post((b"transfer-encoding", value)),
                 D(b"0\r\n\r\n" + HIDDEN))
    yield h2("h2-te-cl", "H2.TE", post((b"transfer-encoding", b"chunked"), (b"content-length", b"5")), D(HELLO))
    yield h2("h2-te-upper-case-name", "RFC 9113 8.2", post((b"Transfer-Encoding", b"chunked")),
             D(b"0\r\n\r\n" + HIDDEN))
    yield h2("h2-te-space-behind-name", SPLIT, post((b"transfer-encoding ", b"chunked")), D(b"0\r\n\r\n" + HIDDEN))
    yield h2("h2-te-in-value", SPLIT, post((b"x", b"y\r\ntransfer-encoding: chunked")), D(b"0\r\n\r\n" + HIDDEN))
    yield h2("h2-te-in-name", SPLIT, post((b"x: y\r\ntransfer-encoding", b"chunked")), D(b"0\r\n\r\n" + HIDDEN))
    yield h2("h2-te-colon-in-name", SPLIT, post((b"transfer-encoding:chunked\r\nx", b"y")), D(b"0\r\n\r\n" + HIDDEN))
    yield h2("h2-te-in-path", SPLIT, post(path=b"/a/ATTACKER HTTP/1.1\r\nTransfer-Encoding: chunked\r\nx: y"),
             D(b"0\r\n\r\n" + HIDDEN))
    yield h2("h2-te-in-method", SPLIT,
             H(fields(method=b"POST /a/ATTACKER HTTP/1.1\r\nTransfer-Encoding: chunked\r\nx: y")),
             D(b"0\r\n\r\n" + HIDDEN))
    yield h2("h2-te-in-authority", SPLIT, post(authority=b"a.test\r\nTransfer-Encoding: chunked"),
             D(b"0\r\n\r\n" + HIDDEN))
    yield h2("h2-te-in-scheme", SPLIT, post(scheme=b"http\r\nTransfer-Encoding: chunked"), D(b"0\r\n\r\n" + HIDDEN))
    for name in (b"transfer_encoding", b"content_length", b"x_forwarded_for"):
        yield h2("h2-" + name.decode().replace("_", "-") + "-underscore", "CGI", post((name, b"chunked")), D(HELLO))


def of_one_hop():
    for name, value in ((b"connection", b"close"), (b"connection", b"content-length"), (b"connection", b"upgrade"),
                        (b"keep-alive", b"timeout=5"), (b"proxy-connection", b"keep-alive"),
                        (b"upgrade", b"websocket"), (b"upgrade", b"h2c")):
        yield h2(f"h2-{name.decode()}-{value.decode().split('=')[0]}", "RFC 9113 8.2.2", get((name, value)))
    yield h2("h2-te-trailers", "RFC 9113 8.2.2; control", get((b"te", b"trailers")), refuse=(), forward=(GET,))
    yield h2("h2-te-gzip", "RFC 9113 8.2.2", get((b"te", b"gzip")), forward=(GET,))
    yield h2("h2-upgrade-socket-cl", "RFC 9113 8.2.2", get((b"connection", b"upgrade"), (b"upgrade", b"websocket"),
            (b"content-length", b"50")))
    yield h2("h2-expect", "RFC 9110 10.1.1", post((b"content-length", b"5"), (b"expect", b"100-continue")), D(HELLO),
             forward=(form(HELLO),))
    yield h2("h2-expect-odd", "RFC 9110 10.1.1", post((b"content-length", b"5"), (b"expect", b"y 100-continue")),
             D(HELLO),
             refuse=(400, 417, BROKEN), forward=(form(HELLO),))
    yield h2("h2-expect-no-data", "RFC 9110 10.1.1", get((b"expect", b"100-continue")), forward=(GET,))
    yield h2("h2-http2-settings", "h2c smuggling", get((b"http2-settings", b"AAMAAABk")), forward=(GET,))


def characters():
    crlf = b"\r\nContent-Length: 60"
    for name, field in (
            ("value-crlf", (b"x", b"y" + crlf)), ("value-cr", (b"x", b"y\rz")),
            ("value-lf", (b"x", b"y\nContent-Length: 60")),
            ("value-nul", (b"x", b"y\0z")), ("value-request", (b"x", b"y\r\n\r\n" + HIDDEN)),
            ("name-crlf", (b"x" + crlf.lower() + b"\r\ny", b"z")),
            ("name-upper-case", (b"X-Upper", b"y")), ("name-space", (b"x y", b"z")), ("name-colon", (b"x:y", b"z")),
            ("name-nul", (b"x\0", b"z")),
            ("name-lf", (b"x\ny", b"z")), ("name-empty", (b"", b"z")), ("name-byte-ff", (b"x\xff", b"z")),
            ("name-delete", (b"x\x7f", b"z")),
            ("name-colon-first", (b":x", b"y")), ("name-tab", (b"x\t", b"y")),
            ("name-length-upper-case", (b"Content-Length", b"60"))):
        yield h2(f"h2-{name}", SPLIT, get(field))
    for name, field in (("value-space-first", (b"x", b" y")), ("value-space-last", (b"x", b"y ")),
                        ("value-tab-last", (b"x", b"y\t"))):
        yield h2(f"h2-{name}", "RFC 9113 8.2.1", get(field), forward=(GET,))
    yield h2("h2-value-delete", "RFC 9110 5.5", get((b"x", b"y\x7f")))
    yield h2("h2-value-ff", "RFC 9110 5.5; control", get((b"x", b"y\xff")), forward=(GET,))
    yield h2("h2-cookie-crumbs", "RFC 9113 8.2.3; control", get((b"cookie", b"a=1"), (b"cookie", b"b=2")), refuse=(),
             forward=(GET,))
    yield h2("h2-cookie-crlf", SPLIT, get((b"cookie", b"a=1\r\nx: y"), (b"cookie", b"b=2")))


def pseudo():
    rfc = "RFC 9113 8.3"

    def raw(*found):
        return H(tuple(found), end=True)
    m, s, p, a = ((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/a/ATTACKER"), (b":authority", b"a.test"))
    for name, found in (
            ("method-twice", (m, (b":method", b"POST"), s, p, a)),
            ("path-twice", (m, s, p, (b":path", b"/hidden"), a)),
            ("authority-twice", (m, s, p, a, (b":authority", b"b.test"))), ("scheme-twice", (m, s, s, p, a)),
            ("behind-fields", (m, s, a, (b"x", b"y"), p)), ("unknown", (m, s, p, a, (b":unknown", b"x"))),
            ("status", (m, s, p, a, (b":status", b"200"))), ("no-method", (s, p, a)), ("no-path", (m, s, a)),
            ("no-scheme", (m, p, a)),
            ("method-empty", ((b":method", b""), s, p, a)), ("path-empty", (m, s, (b":path", b""), a)),
            ("upper-case", (m, s, (b":Path", b"/a/ATTACKER"), a)),
            ("protocol-get", (m, s, p, a, (b":protocol", b"websocket")))):
        yield h2(f"h2-{name}", rfc, raw(*found))
    yield h2("h2-no-authority", rfc, raw(m, s, p), refuse=(400, 404, BROKEN))
    yield h2("h2-no-authority-host", rfc, raw(m, s, p, (b"host", b"a.test")), forward=(GET,))
    yield h2("h2-authority-empty", rfc, raw(m, s, p, (b":authority", b"")), refuse=(400, 404, BROKEN))
    yield h2("h2-host-differs", rfc + ".1", raw(m, s, p, a, (b"host", b"b.test")), forward=(GET,))
    yield h2("h2-host-equal", rfc + ".1", raw(m, s, p, a, (b"host", b"a.test")), forward=(GET,))
    yield h2("h2-host-twice", rfc + ".1", raw(m, s, p, a, (b"host", b"a.test"), (b"host", b"b.test")), forward=(GET,))
    yield h2("h2-host-crlf", SPLIT, raw(m, s, p, a, (b"host", b"a.test\r\nx: y")))
    yield h2("h2-authority-userinfo", rfc + ".1", get(authority=b"user@a.test"))
    yield h2("h2-authority-comma", rfc + ".1; a name may have a comma", get(authority=b"a.test,b.test"),
             refuse=(400, 404, BROKEN),
             forward=(form(method=b"GET", host=b"a.test,b.test"),))
    for name, value in (("space", b"a.test b"), ("path", b"a.test/x"), ("crlf", b"a.test\r\nx: y"),
                        ("at", b"@a.test"),
                        ("nul", b"a.test\0")):
        yield h2(f"h2-authority-{name}", rfc + ".1", get(authority=value), refuse=(400, 404, BROKEN))
    refuse = (400, 404, BROKEN)
    for name, value in (("no-slash", b"a/ATTACKER"), ("space", b"/a/ATTACKER x"),
                        ("request", b"/a/ATTACKER HTTP/1.1\r\nHost: a.test\r\n\r\nGET /hidden"),
                        ("cr", b"/a/ATTACKER\rx"), ("lf", b"/a/ATTACKER\nx"), ("nul", b"/a/ATTACKER\0"),
                        ("tab", b"/a/ATTACKER\tx"), ("star", b"*"),
                        ("dot-segments", b"/a/../ATTACKER"), ("query-only", b"?ATTACKER"),
                        ("delete", b"/a/ATTACKER\x7f")):
        yield h2(f"h2-path-{name}", rfc + ".1", get(path=value), refuse=refuse)
    yield h2("h2-path-fragment", rfc + ".1", get(path=b"/a/ATTACKER#x"), refuse=refuse, forward=(GET,))
    yield h2("h2-path-absolute", rfc + ".1", get(path=b"http://evil.test/a/ATTACKER"), refuse=refuse)
    yield h2("h2-path-two-slashes", rfc + ".1", get(path=b"//evil.test/ATTACKER"), refuse=refuse,
             forward=(form(method=b"GET", target=b"//evil.test/ATTACKER"),))
    yield h2("h2-path-encoded-crlf", "control", get(path=b"/a/ATTACKER%0d%0ax"),
             forward=(form(method=b"GET", target=b"/a/ATTACKER%0d%0ax"),))
    yield h2("h2-path-byte-ff", rfc + ".1", get(path=b"/a/ATTACKER\xff"), refuse=refuse,
             forward=(form(method=b"GET", target=b"/a/ATTACKER\xff"),))
    for name, value in (("space", b"GET /hidden"), ("crlf", b"GET\r\nx: y"), ("nul", b"GET\0"), ("colon", b"GET:")):
        yield h2(f"h2-method-{name}", rfc + ".1", H(fields(method=value), end=True), refuse=(400, 405, 501, BROKEN))
    yield h2("h2-method-lower-case", "RFC 9110 9.1", H(fields(method=b"get"), end=True),
             forward=(form(method=b"get"),))
    for name, value in (("path", b"http://evil.test/x?"), ("space", b"ht tp"), ("crlf", b"http\r\nx: y"),
                        ("empty", b"")):
        yield h2(f"h2-scheme-{name}", rfc + ".1", get(scheme=value))
    yield h2("h2-scheme-https", "RFC 9113 8.3.1", get(scheme=b"https"), forward=(GET,))
    yield h2("h2-scheme-ftp", "RFC 9113 8.3.1", get(scheme=b"ftp"), forward=(GET,))


def tunnels():
    rfc = "RFC 8441"
    ask = ((b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"http"), (b":path", b"/a/ATTACKER"),
           (b":authority", b"a.test"))
    version = (b"sec-websocket-version", b"13")
    refuse = (400, 403, 404, 405, 426, 501, 502, BROKEN)
    asked = (form(method=b"GET"),)

    def row(name, *send, forward=asked, source=rfc):
        return h2(f"h2-extended-{name}", source, *send, refuse=refuse, forward=forward, tunnel=True)
    only_400 = dict(refuse=(400, BROKEN), tunnel=True)
    yield row("connect", H((*ask, version)))
    yield h2("h2-extended-cl-no-body", rfc + "; CL.0 by upgrade", H((*ask, version, (b"content-length", b"50"))),
             **only_400)
    yield h2("h2-extended-cl-body", rfc, H((*ask, version, (b"content-length", b"50"))), D(b"a" * 50, end=False),
             **only_400)
    yield h2("h2-extended-cl-hidden", rfc, H((*ask, version, (b"content-length", b"%d" % len(HIDDEN)))), D(HIDDEN),
             **only_400)
    yield row("cl-0", H((*ask, version, (b"content-length", b"0"))))
    yield h2("h2-extended-te", rfc, H((*ask, version, (b"transfer-encoding", b"chunked"))), **only_400)
    yield row("expect", H((*ask, version, (b"expect", b"100-continue"))))
    yield row("early-data", H((*ask, version)), D(HIDDEN, end=False))
    yield row("end-stream", H((*ask, version), end=True))
    yield row("h2c", H(((b":method", b"CONNECT"), (b":protocol", b"h2c"), *ask[2:])), forward=())
    yield row("protocol-crlf", H(((b":method", b"CONNECT"), (b":protocol", b"websocket\r\nx: y"), *ask[2:])),
              forward=(), source=SPLIT)
    yield row("protocol-empty", H(((b":method", b"CONNECT"), (b":protocol", b""), *ask[2:])), forward=())
    yield row("protocol-list", H(((b":method", b"CONNECT"), (b":protocol", b"websocket, h2c"), *ask[2:])), forward=())
    yield row("own-fields", H((*ask, version, (b"sec-websocket-key", b"eA=="), (b"sec-websocket-key", b"eQ=="))))
    plain = (400, 403, 404, 405, 407, 501, BROKEN)
    yield h2("h2-connect", "RFC 9113 8.5", H(((b":method", b"CONNECT"), (b":authority", b"a.test:80"))),
             D(HIDDEN, end=False), refuse=plain, tunnel=True)
    yield h2("h2-connect-cl", "RFC 9113 8.5", H(((b":method", b"CONNECT"), (b":authority", b"a.test:80"),
                                                 (b"content-length", b"50"))), refuse=plain, tunnel=True)
    yield h2("h2-connect-path", "RFC 9113 8.5", H(((b":method", b"CONNECT"), (b":scheme", b"http"),
            (b":path", b"/a/ATTACKER"), (b":authority", b"a.test:80"))),
             refuse=plain, tunnel=True)


def bodies():
    rfc, fine = "RFC 9113 8.1", (form(HELLO),)

    def trailers(*found):
        return (post(), D(HELLO, end=False), H(found, end=True))
    yield h2("h2-trailer", "control", *trailers((b"x-sum", b"1")), refuse=(), forward=fine)
    for name, field in (("pseudo", (b":path", b"/hidden")), ("content-length", (b"content-length", b"60")),
                        ("te", (b"transfer-encoding", b"chunked")),
                        ("host", (b"host", b"evil.test")), ("connection", (b"connection", b"close")),
                        ("crlf", (b"x", b"y\r\n\r\n" + HIDDEN)),
                        ("upper-case", (b"X", b"y")), ("name-crlf", (b"x\r\ny", b"z")),
                        ("authorization", (b"authorization", b"x")), ("cookie", (b"cookie", b"x")),
                        ("forwarded", (b"forwarded", b"for=127.0.0.1")),
                        ("x-forwarded-for", (b"x-forwarded-for", b"127.0.0.1"))):
        yield h2(f"h2-trailer-{name}", rfc, *trailers(field))
    yield h2("h2-trailer-no-end", rfc, post(), D(HELLO, end=False), H(((b"x", b"y"),)))
    yield h2("h2-trailer-cl-mismatch", rfc, post((b"content-length", b"6")), D(HELLO, end=False),
             H(((b"x", b"y"),), end=True))
    yield h2("h2-data-after-end", "RFC 9113 5.1", post(), D(HELLO), D(HIDDEN), forward=fine)
    yield h2("h2-data-before-headers", "RFC 9113 5.1", D(HIDDEN), refuse=(BROKEN,))
    yield h2("h2-headers-after-end", "RFC 9113 5.1", get(), get(), forward=(GET,))
    yield h2("h2-data-after-reset", "RFC 9113 5.1", post((b"content-length", b"60")), D(HELLO, end=False), ARRIVED,
             R(), D(HIDDEN),
             refuse=(BROKEN,), unfinished=True)
    yield h2("h2-reset-in-body", rfc, post((b"content-length", b"60")), D(HELLO, end=False), ARRIVED, R(),
             refuse=(BROKEN,), unfinished=True)
    yield h2("h2-reset-in-body-no-length", rfc, post(), D(HALF, end=False), ARRIVED, R(), refuse=(BROKEN,),
             unfinished=True)
    yield h2("h2-reset-before-body", rfc, post((b"content-length", b"60")), ARRIVED, R(), refuse=(BROKEN,),
             unfinished=True)
    yield h2("h2-reset-no-error", rfc, post(), D(HALF, end=False), ARRIVED, R(code=0), refuse=(BROKEN,),
             unfinished=True)
    yield h2("h2-stop-in-body", rfc, post(), D(HALF, end=False), ARRIVED, RST, refuse=(BROKEN,), unfinished=True)
    yield h2("h2-no-end", rfc, post(), D(HELLO, end=False), ARRIVED, refuse=(BROKEN,), unfinished=True)
    yield h2("h2-two-streams", "control", H(fields((b"content-length", b"5"))),
             H(fields(method=b"GET", path=b"/hidden/ATTACKER"), True, 3), D(HELLO),
             refuse=(), forward=((Form(b"POST", b"/a/ATTACKER", HELLO), Form(b"GET", b"/hidden/ATTACKER")),
                                 (Form(b"GET", b"/hidden/ATTACKER"), Form(b"POST", b"/a/ATTACKER", HELLO))))
    yield h2("h2-continuation", "RFC 9113 6.10; control", H(fields((b"x", b"y" * 100), method=b"GET"), True,
            split=20), refuse=(), forward=(GET,))
    yield h2("h2-continuation-alien", "RFC 9113 6.10", Raw(1, 1, b"\0\x07:method\x03GET"), Raw(0, 1, HIDDEN),
             refuse=(BROKEN,))
    yield h2("h2-bad-hpack", "RFC 7541 2.3.3", Raw(1, 5, b"\xff\xff\xff\xff\xff\xff"), refuse=(BROKEN,))
    yield h2("h2-padded-data", "RFC 9113 6.1; control", post(), Raw(0, 9, bytes([20]) + HELLO + HIDDEN[:20]),
             refuse=(), forward=fine)
    yield h2("h2-padding-too-long", "RFC 9113 6.1", post(), Raw(0, 9, b"\xff" + HELLO), refuse=(BROKEN,))


def rows():
    for part in (lengths, codings, of_one_hop, characters, pseudo, tunnels, bodies):
        yield from part()
