"""Rows: HTTP/1.1 requests whose body has an ambiguous end."""

from row import ARRIVED, BROKEN, FIN, GET, HALF, HIDDEN, HIDDEN_FORM, RST, Form, chunked, form, h1, head

HELLO = b"hello"
TWO = (Form(b"POST", b"/a/ATTACKER"), HIDDEN_FORM)
PAIR = (Form(b"POST", b"/a/ATTACKER", HELLO), HIDDEN_FORM)


def both():
    """content-length and transfer-encoding."""
    all_of_it = b"0\r\n\r\n" + HIDDEN
    inside = chunked(HIDDEN)
    rfc = "RFC 9112 6.3, 11.2"
    yield h1("cl-te", rfc + "; CL.TE", head(b"Content-Length: %d" % len(all_of_it),
                                            b"Transfer-Encoding: chunked") + all_of_it)
    yield h1("te-cl-order", rfc + "; CL.TE", head(b"Transfer-Encoding: chunked",
                                                  b"Content-Length: %d" % len(all_of_it)) + all_of_it)
    yield h1("te-cl", rfc + "; TE.CL", head(b"Content-Length: 4", b"Transfer-Encoding: chunked") + inside)
    yield h1("te-0-cl", rfc + "; TE.0", head(b"Content-Length: 0", b"Transfer-Encoding: chunked") + inside)
    yield h1("cl-te-agree", rfc, head(b"Content-Length: %d" % len(chunked(HELLO)),
                                      b"Transfer-Encoding: chunked") + chunked(HELLO))
    yield h1("cl-te-half", "CL.TE, a prefix without an end",
             head(b"Content-Length: %d" % len(b"0\r\n\r\n" + HALF),
                  b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + HALF)
    yield h1("cl-te-get", rfc, head(b"Content-Length: 5", b"Transfer-Encoding: chunked",
                                    method=b"GET") + chunked(HELLO))
    yield h1("cl-twice-te", rfc, head(b"Content-Length: 5", b"Transfer-Encoding: chunked",
                                      b"Content-Length: 5") + chunked(HELLO))


# TE.TE: a parser that does not recognise the coding uses the length, or assumes no body.
CODINGS = {
    "xchunked": b"Transfer-Encoding: xchunked",
    "space-before-colon": b"Transfer-Encoding : chunked",
    "tab-before-colon": b"Transfer-Encoding\t: chunked",
    "obs-fold": b"Transfer-Encoding:\r\n chunked",
    "obs-fold-tab": b"Transfer-Encoding:\r\n\tchunked",
    "name-folded": b"Transfer-Encoding\r\n : chunked",
    "leading-space": b" Transfer-Encoding: chunked",
    "leading-tab": b"\tTransfer-Encoding: chunked",
    "two-x-last": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    "two-x-first": b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
    "two-equal": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "two-identity": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "chunked-identity": b"Transfer-Encoding: chunked, identity",
    "identity-chunked": b"Transfer-Encoding: identity, chunked",
    "chunked-chunked": b"Transfer-Encoding: chunked, chunked",
    "chunked-space-chunked": b"Transfer-Encoding: chunked chunked",
    "gzip-chunked": b"Transfer-Encoding: gzip, chunked",
    "chunked-gzip": b"Transfer-Encoding: chunked, gzip",
    "identity": b"Transfer-Encoding: identity",
    "cow": b"Transfer-Encoding: cow",
    "vertical-tab": b"Transfer-Encoding: \x0bchunked",
    "vertical-tab-behind": b"Transfer-Encoding: chunked\x0b",
    "form-feed": b"Transfer-Encoding: \x0cchunked",
    "nul-behind": b"Transfer-Encoding: chunked\0",
    "nul-in-name": b"Transfer-Encoding\0: chunked",
    "byte-ff": b"Transfer-Encoding: \xffchunked",
    "byte-a0": b"Transfer-Encoding: \xa0chunked",
    "quoted": b'Transfer-Encoding: "chunked"',
    "single-quoted": b"Transfer-Encoding: 'chunked'",
    "trailing-comma": b"Transfer-Encoding: chunked,",
    "leading-comma": b"Transfer-Encoding: ,chunked",
    "parameter": b"Transfer-Encoding: chunked;q=1",
    "semicolon": b"Transfer-Encoding: chunked;",
    "empty": b"Transfer-Encoding:",
    "bare-lf-before": b"X: x\nTransfer-Encoding: chunked",
    "bare-cr-before": b"X: x\rTransfer-Encoding: chunked",
    "cr-behind": b"Transfer-Encoding: chunked\r",
    "upper-case": b"TRANSFER-ENCODING: CHUNKED",
}


def codings():
    rfc = "RFC 9112 6.1, 7; TE.TE"
    behind = b"0\r\n\r\n" + HIDDEN
    for name, line in CODINGS.items():
        yield h1(f"te-{name}-cl", rfc, head(b"Content-Length: %d" % len(behind), line) + behind, refuse=(400, 501))
        if name in ("xchunked", "two-identity", "chunked-identity", "gzip-chunked", "quoted", "vertical-tab",
                    "byte-ff", "empty"):
            # Without a length: a parser that does not recognise it assumes no body.
            yield h1(f"te-{name}", rfc, head(line) + chunked(HIDDEN), refuse=(400, 501))
    yield h1("te-underscore-cl", rfc + "; CGI", head(b"Content-Length: %d" % len(behind), b"Transfer_Encoding: chunked")
             + behind)
    for name, line in (("minus-less", b"TransferEncoding: chunked"), ("prefix", b"X-Transfer-Encoding: chunked")):
        yield h1(f"te-{name}-cl", rfc, head(b"Content-Length: %d" % len(behind), line) + behind,
                 forward=(form(behind),))
    yield h1("te-upper-case", "RFC 9112 7: case does not count",
             head(b"transfer-encoding: CHUNKED") + chunked(HELLO), (), (form(HELLO),))
    yield h1("te-tab", "RFC 9110 5.5", head(b"Transfer-Encoding:\tchunked\t") + chunked(HELLO),
             forward=(form(HELLO),))
    yield h1("te-no-space", "RFC 9110 5.5", head(b"Transfer-Encoding:chunked") + chunked(HELLO), (), (form(HELLO),))
    yield h1("te-get", "RFC 9112 6.1", head(b"Transfer-Encoding: chunked", method=b"GET") + chunked(HIDDEN),
             forward=(form(HIDDEN, b"GET"),))
    yield h1("te-hidden", "control: a request as a body", head(b"Transfer-Encoding: chunked") + chunked(HIDDEN), (),
             (form(HIDDEN),))
    yield h1("te-1.0", "RFC 9112 6.1", head(b"Transfer-Encoding: chunked", version=b"HTTP/1.0") + chunked(HIDDEN))
    yield h1("te-1.0-keep-alive", "RFC 9112 6.1",
             head(b"Transfer-Encoding: chunked", b"Connection: keep-alive", version=b"HTTP/1.0") + chunked(HIDDEN))
    yield h1("te-1.0-cl", "RFC 9112 6.1",
             head(b"Transfer-Encoding: chunked", b"Content-Length: 5", version=b"HTTP/1.0") + chunked(HIDDEN))


LENGTHS = {
    "list-equal": b"Content-Length: 5, 5", "list-different": b"Content-Length: 5, 6", "plus": b"Content-Length: +5",
    "minus": b"Content-Length: -5", "minus-0": b"Content-Length: -0", "hex": b"Content-Length: 0x5",
    "exponent": b"Content-Length: 5e0", "point": b"Content-Length: 5.0", "digits-underscore": b"Content-Length: 0_5",
    "spaces-inside": b"Content-Length: 5 5", "quoted": b'Content-Length: "5"', "semicolon": b"Content-Length: 5;",
    "trailing-comma": b"Content-Length: 5,", "leading-comma": b"Content-Length: ,5", "empty": b"Content-Length:",
    "word": b"Content-Length: five", "nul": b"Content-Length: 5\0", "nul-first": b"Content-Length: \x005",
    "vertical-tab": b"Content-Length: \x0b5", "byte-a0": b"Content-Length: \xa05",
    "arabic": "Content-Length: ٥".encode(),
    "2-to-63": b"Content-Length: 9223372036854775808", "2-to-64": b"Content-Length: 18446744073709551616",
    "2-to-64-and-5": b"Content-Length: 18446744073709551621",
    "2-to-32-of-lines": b"Content-Length: 4294967301\r\nContent-Length: 5",
    "ten-to-30": b"Content-Length: 1000000000000000000000000000000", "space-before-colon": b"Content-Length : 5",
    "obs-fold": b"Content-Length:\r\n 5", "obs-fold-digits": b"Content-Length: 5\r\n 0",
    "name-nul": b"Content-Length\0: 5",
    "bare-cr": b"Content-Length: 5\r0", "different": b"Content-Length: 5\r\nContent-Length: 6",
    "different-case": b"Content-Length: 5\r\ncontent-length: 0",
    "zero-first": b"Content-Length: 0\r\nContent-Length: 5",
    "empty-second": b"Content-Length: 5\r\nContent-Length:", "hex-digits": b"Content-Length: 5a",
}


def lengths():
    rfc = "RFC 9110 8.6, RFC 9112 6.3"
    for name, line in LENGTHS.items():
        yield h1(f"cl-{name}", rfc, head(line) + HELLO + HIDDEN)
    yield h1("cl-equal", rfc, head(b"Content-Length: 5", b"Content-Length: 5") + HELLO + HIDDEN,
             forward=(form(HELLO), PAIR))
    yield h1("cl-leading-zeros", rfc, head(b"Content-Length: 005") + HELLO + HIDDEN, forward=(PAIR,), answers=2)
    yield h1("cl-leading-zeros-8", rfc + "; octal", head(b"Content-Length: 010") + HELLO + b"world" + HIDDEN,
             forward=((Form(b"POST", b"/a/ATTACKER", HELLO + b"world"), HIDDEN_FORM),), answers=2)
    yield h1("cl-blanks", "RFC 9110 5.5", head(b"Content-Length: \t 5 \t") + HELLO, forward=(form(HELLO),))
    yield h1("cl-0-hidden", "CL.0", head(b"Content-Length: 0") + HIDDEN, (), (TWO,), answers=2)
    yield h1("cl-none-hidden", "CL.0", head() + HIDDEN, (), (TWO,), answers=2)
    yield h1("cl-hidden", "control: a request as a body", head(b"Content-Length: %d" % len(HIDDEN)) + HIDDEN, (),
             (form(HIDDEN),))
    yield h1("cl-half", "control: half a request as a body", head(b"Content-Length: %d" % len(HALF)) + HALF, (),
             (form(HALF),))
    # The rest is a separate request, as without the field.
    yield h1("cl-underscore", "CL.0; CGI", head(b"Content_Length: 5") + HIDDEN, forward=((HIDDEN_FORM,),), answers=2)
    yield h1("cl-smaller", rfc, head(b"Content-Length: 5") + HELLO + HIDDEN, (), (PAIR,), answers=2)
    for method in (b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"PUT", b"PROPFIND"):
        name = method.decode().lower()
        yield h1(f"body-{name}", "RFC 9110 9.3", head(b"Content-Length: %d" % len(HIDDEN), method=method) + HIDDEN,
                 forward=(form(HIDDEN, method),))
        if method != b"GET":
            yield h1(f"body-{name}-chunked", "RFC 9110 9.3", head(b"Transfer-Encoding: chunked",
                    method=method) + chunked(HIDDEN),
                     forward=(form(HIDDEN, method),))
    yield h1("body-trace", "RFC 9110 9.3.8", head(b"Content-Length: %d" % len(HIDDEN), method=b"TRACE") + HIDDEN,
             refuse=(400, 405, 501), forward=(form(HIDDEN, b"TRACE"),))
    yield h1("body-get-0", "CL.0", head(b"Content-Length: 0", method=b"GET") + HIDDEN, (),
             ((Form(b"GET"), HIDDEN_FORM),), answers=2)


SIZES = {
    "2-to-64": b"10000000000000000", "2-to-64-and-5": b"10000000000000005", "f-times-17": b"fffffffffffffffff",
    "minus": b"-5", "plus": b"+5", "0x": b"0x5", "leading-space": b" 5", "inside-space": b"0 5",
    "empty": b"", "underscore": b"0_5", "g": b"5g", "nul": b"5\0", "quote": b'"5"', "vertical-tab": b"5\x0b",
}


def chunks():
    rfc, funky = "RFC 9112 7.1", "RFC 9112 7.1.1; Funky chunks"
    te = head(b"Transfer-Encoding: chunked")
    cut = (400, BROKEN)
    for name, size in SIZES.items():
        yield h1(f"chunk-size-{name}", rfc, te + size + b"\r\nhello\r\n0\r\n\r\n" + HIDDEN, refuse=cut)
    # It fits into 64 bits: the end never arrives.
    yield h1("chunk-size-2-to-63", rfc, [te + b"8000000000000000\r\nhello\r\n0\r\n\r\n" + HIDDEN, ARRIVED], cut,
             unfinished=True)
    fine = (form(HELLO),)
    yield h1("chunk-size-zeros", rfc, te + b"0000000000005\r\nhello\r\n000\r\n\r\n", cut, fine)
    yield h1("chunk-size-many-zeros", rfc, te + b"00000000000000000000005\r\nhello\r\n0\r\n\r\n", cut, fine)
    yield h1("chunk-size-trailing-space", rfc, te + b"5 \r\nhello\r\n0\r\n\r\n", cut, fine)
    yield h1("chunk-size-trailing-tab", rfc, te + b"5\t\r\nhello\r\n0\r\n\r\n", cut, fine)
    yield h1("chunk-size-capital", rfc, te + b"A\r\nhellohello\r\n0\r\n\r\n", (), (form(HELLO * 2),))
    yield h1("chunk-extension", rfc, te + b"5;name=value\r\nhello\r\n0;last\r\n\r\n", cut, fine)
    yield h1("chunk-extension-quoted-crlf", funky, te + b'5;a="\r\nhello\r\n0\r\n\r\n"\r\n', cut, (form(HELLO),))
    yield h1("chunk-extension-bare-lf", funky + ", TERM.EXT", te + b"5;\nhello\r\n0\r\n\r\n" + HIDDEN, refuse=cut)
    yield h1("chunk-extension-lf-inside", funky + ", EXT.TERM",
             te + b"2;\nxx\r\n%x\r\n0\r\n\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN) + 5, HIDDEN), refuse=cut)
    yield h1("chunk-extension-cr-inside", funky, te + b"5;a\rb\r\nhello\r\n0\r\n\r\n", cut)
    yield h1("chunk-extension-long", "RFC 9112 7.1.1; CVE-2023-39326",
             te + b"5;" + b"a" * 20_000 + b"\r\nhello\r\n0\r\n\r\n", cut, fine)
    yield h1("chunk-size-lf", rfc, te + b"5\nhello\r\n0\r\n\r\n", cut)
    yield h1("chunk-size-cr", rfc, te + b"5\rhello\r\n0\r\n\r\n", cut)
    yield h1("chunk-size-cr-cr-lf", rfc, te + b"5\r\r\nhello\r\n0\r\n\r\n", cut)
    yield h1("chunk-no-end", rfc, te + b"5\r\nhello0\r\n\r\n" + HIDDEN, cut)
    yield h1("chunk-longer", funky + ", a spill", te + b"5\r\nhelloAB0\r\n\r\n" + HIDDEN, cut)
    yield h1("chunk-end-lf", funky + ", two-byte terminators", te + b"5\r\nhello\n0\r\n\r\n" + HIDDEN, cut)
    yield h1("chunk-end-cr", funky, te + b"5\r\nhello\r0\r\n\r\n" + HIDDEN, cut)
    yield h1("chunk-end-xx", funky + ", any two bytes", te + b"5\r\nhelloXX0\r\n\r\n" + HIDDEN, cut)
    yield h1("last-chunk-lf", rfc, te + b"5\r\nhello\r\n0\n\n" + HIDDEN, cut)
    yield h1("last-chunk-xx", rfc, te + b"5\r\nhello\r\n0\r\nXX" + HIDDEN, cut)
    yield h1("last-chunk-and-request", "control", te + chunked(HELLO) + HIDDEN, (), (PAIR,), answers=2)
    yield h1("last-chunk-and-junk", rfc, te + chunked(HELLO) + b"XX\r\n\r\n", (400,), (form(HELLO),))
    for name in (b"Content-Length", b"Transfer-Encoding", b"Host", b"Connection", b"Authorization", b"Trailer",
                 b"Upgrade"):
        value = {b"Content-Length": b"60", b"Transfer-Encoding": b"chunked", b"Upgrade": b"websocket"}.get(name,
                b"evil.test")
        yield h1(f"trailer-{name.decode().lower()}", "RFC 9110 6.5.1",
                 te + b"5\r\nhello\r\n0\r\n%s: %s\r\n\r\n" % (name, value), cut, fine)
    # Some servers forward only announced trailers.
    for name in (b"Content-Length", b"Transfer-Encoding", b"Host", b"Connection", b"Authorization", b"Cookie",
                 b"Forwarded", b"X-Forwarded-For", b"X_Forwarded_For", b"X-Real-IP"):
        announced = head(b"Transfer-Encoding: chunked", b"Trailer: " + name)
        yield h1(f"trailer-announced-{name.decode().lower()}", "RFC 9110 6.5.1",
                 announced + b"5\r\nhello\r\n0\r\n%s: 60\r\n\r\n" % name, cut, fine)
    yield h1("trailer-announced", "control",
             head(b"Transfer-Encoding: chunked", b"Trailer: X-Sum") + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", (),
             fine)
    yield h1("trailer", "control", te + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", (), fine)
    yield h1("trailer-no-colon", "RFC 9112 7.1.2", te + b"5\r\nhello\r\n0\r\nGET /hidden/ATTACKER HTTP/1.1\r\n\r\n",
             cut, fine)
    yield h1("trailer-obs-fold", "RFC 9112 5.2", te + b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n", cut, fine)
    yield h1("trailer-bare-lf", "RFC 9112 2.2", te + b"5\r\nhello\r\n0\r\nX: a\nY: b\r\n\r\n", cut, fine)
    yield h1("trailer-bare-cr", "RFC 9112 2.2", te + b"5\r\nhello\r\n0\r\nX: a\rContent-Length: 60\r\n\r\n", cut,
             fine)
    yield h1("trailer-nul", "RFC 9110 5.5", te + b"5\r\nhello\r\n0\r\nX: a\0b\r\n\r\n", cut, fine)
    yield h1("trailer-space-before-colon", "RFC 9112 5.1", te + b"5\r\nhello\r\n0\r\nContent-Length : 60\r\n\r\n",
             cut, fine)


def stops():
    """Clients that stop in the middle: nothing may be taken for a complete request."""
    te, rfc = head(b"Transfer-Encoding: chunked"), "RFC 9112 8"
    long = head(b"Content-Length: 60") + HELLO
    for how, step in (("fin", FIN), ("rst", RST), ("close", ARRIVED)):
        yield h1(f"stop-in-body-{how}", rfc, [long, ARRIVED, step], (400, 408, BROKEN), unfinished=True)
        yield h1(f"stop-in-chunk-{how}", rfc, [te + b"60\r\n" + HALF, ARRIVED, step], (400, 408, BROKEN),
                 unfinished=True)
    yield h1("stop-between-chunks", rfc, [te + b"5\r\nhello\r\n", ARRIVED, RST], (400, 408, BROKEN), unfinished=True)
    yield h1("stop-in-last-chunk", rfc, [te + b"5\r\nhello\r\n0\r\n", ARRIVED, FIN], (400, 408, BROKEN),
             unfinished=True)
    yield h1("stop-in-trailer", rfc, [te + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n", ARRIVED, RST], (400, 408, BROKEN),
             unfinished=True)
    yield h1("stop-in-head", rfc, [HALF, RST], (400, 408, BROKEN), unfinished=True)
    yield h1("stop-before-body", rfc, [head(b"Content-Length: 60"), ARRIVED, RST], (400, 408, BROKEN),
             unfinished=True)
    yield h1("body-slow", "control", [head(b"Content-Length: 10") + HELLO, ARRIVED, HELLO], (), (form(HELLO * 2),))
    yield h1("get-pipelined", "RFC 9112 9.3.2; control", head(method=b"GET") + HIDDEN, (), ((*GET, HIDDEN_FORM),),
             answers=2)


def rows():
    for part in (both, codings, lengths, chunks, stops):
        yield from part()
