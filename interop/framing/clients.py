"""Clients that send the bytes of a row, over HTTP/1.1 and HTTP/2. Responses are parsed strictly."""

import asyncio
import contextlib
import dataclasses
import re

import hpack
from strict import CHUNK, FIELD, LENGTH, Ambiguous, Unfinished, line_at

from tap import reset

STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\x00-\x08\x0a-\x1f]*)?")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


@dataclasses.dataclass
class Answer:
    status: int
    fields: list
    body: bytes = b""
    # False: it was truncated.
    whole: bool = False
    trailers: list = dataclasses.field(default_factory=list)

    def values(self, name):
        return [value for key, value in self.fields if key == name]


def fields_at(data, at):
    fields = []
    while True:
        line, at = line_at(data, at)
        if not line:
            return fields, at
        found = FIELD.fullmatch(line)
        if not found:
            raise Ambiguous(f"a bad field line in a response: {line[:60]!r}")
        fields.append((found[1].lower(), found[2]))


def answer_at(data, at, method, ended):
    """Returns (a response, the offset of the next). One that is not `whole` is incomplete."""
    line, at = line_at(data, at)
    found = STATUS.fullmatch(line)
    if not found:
        raise Ambiguous(f"no status line: {line[:60]!r}")
    fields, at = fields_at(data, at)
    answer = Answer(int(found[1]), fields)
    lengths, codings = answer.values(b"content-length"), answer.values(b"transfer-encoding")
    if len(lengths) > 1 or len(codings) > 1 or (lengths and codings):
        raise Ambiguous("a response with more than one field of framing")
    if answer.status < 200 or answer.status in (204, 304) or method == b"HEAD":
        if answer.status < 200 or answer.status == 204:
            if lengths or codings:
                raise Ambiguous(f"{answer.status} with a field of framing")
        answer.whole = True
        return answer, at
    if codings:
        if codings[0].lower() != b"chunked":
            raise Ambiguous(f"a response with transfer-encoding {codings[0]!r}")
        with contextlib.suppress(Unfinished):
            at = chunks_at(data, at, answer)
            answer.whole = True
    elif lengths:
        if not LENGTH.fullmatch(lengths[0]):
            raise Ambiguous(f"a response with content-length {lengths[0]!r}")
        end = at + int(lengths[0])
        answer.body, answer.whole, at = bytes(data[at:end]), end <= len(data), min(end, len(data))
    else:
        answer.body, answer.whole, at = bytes(data[at:]), ended, len(data)
    return answer, at


def chunks_at(data, at, answer):
    while True:
        line, at = line_at(data, at)
        if not CHUNK.fullmatch(line):
            raise Ambiguous(f"a response with chunk size {line[:60]!r}")
        size = int(line, 16)
        if size == 0:
            answer.trailers, at = fields_at(data, at)
            return at
        answer.body += data[at:at + size]
        if len(data) < at + size + 2:
            raise Unfinished
        at += size + 2


class Client:
    """`ended`: "closed" or "reset" once the gateway has ended it; `answers`: final responses; `strange`: a parse error."""

    def __init__(self, port):
        self.port, self.ended, self.answers, self.interim, self.strange = port, None, [], [], None
        self.raw, self.moved = bytearray(), asyncio.Event()
        self.reading = None

    async def connect(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.reading = asyncio.create_task(self.read())

    async def read(self):
        try:
            while data := await self.reader.read(65_536):
                self.raw += data
                self.got(data)
                self.moved.set()
            self.ended = self.ended or "closed"
        except OSError:
            self.ended = "reset"
        except Ambiguous as error:
            self.strange, self.ended = str(error), "strange"
        with contextlib.suppress(Ambiguous, Unfinished):
            self.got(b"")
        self.moved.set()

    async def send(self, data):
        # If the gateway has closed, reading notices it.
        with contextlib.suppress(OSError):
            self.writer.write(data)
            await self.writer.drain()

    async def until(self, true, seconds):
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(seconds):
                while not true() and not self.ended:
                    self.moved.clear()
                    await self.moved.wait()
        return bool(true() or self.ended)

    def end_sending(self):
        with contextlib.suppress(OSError):
            self.writer.write_eof()

    async def close(self, hard=False):
        if self.reading is None:
            return
        if hard:
            reset(self.writer)
        else:
            self.writer.close()
        self.reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.reading
        self.reading = None

    def everything(self):
        """Returns everything that the gateway has sent, decoded."""
        return bytes(self.raw)


class Http1(Client):
    """Responses belong to methods[0], methods[1]...; further ones to GET."""

    def __init__(self, port, methods=(b"GET",)):
        super().__init__(port)
        self.methods, self.read_to = list(methods), 0

    def got(self, _data):
        while self.read_to < len(self.raw):
            number = len(self.answers)
            method = self.methods[number] if number < len(self.methods) else b"GET"
            try:
                answer, at = answer_at(self.raw, self.read_to, method, bool(self.ended))
            except Unfinished:
                return
            self.broken = None if answer.whole else answer
            if not answer.whole:
                return
            self.read_to = at
            if answer.status < 200 and answer.status != 101:
                self.interim.append(answer)
            else:
                self.answers.append(answer)
                if answer.status == 101:
                    self.read_to = len(self.raw)
                    self.got = lambda data: None

    broken = None

    def whole(self, number):
        return len(self.answers) >= number

    def outcome(self):
        """Returns the responses, and the truncated one."""
        return [*self.answers, *([self.broken] if self.broken else [])]

    def is_broken(self):
        return bool(self.ended)

    def rest(self):
        return bytes(self.raw[self.read_to:])


def literal(fields):
    """Encodes fields as HPACK literals without indexing, with any bytes."""
    return b"".join(b"\0" + length(name) + name + length(value) + value for name, value in fields)


def length(text):
    size = len(text)
    if size < 127:
        return bytes([size])
    size -= 127
    out = b"\x7f"
    while size >= 128:
        out += bytes([size % 128 | 128])
        size //= 128
    return out + bytes([size])


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


class Http2(Client):
    """One session. `streams`: the response on each stream, `resets`: the codes of those that were reset."""

    def __init__(self, port):
        super().__init__(port)
        self.streams, self.resets, self.opened, self.goaway = {}, {}, set(), None
        self.decoder, self.frames, self.block = hpack.Decoder(), b"", b""

    async def connect(self):
        await super().connect()
        await self.send(PREFACE + frame(SETTINGS, 0, 0))

    def got(self, data):
        self.frames += data
        while len(self.frames) >= 9:
            size = int.from_bytes(self.frames[:3], "big")
            if len(self.frames) < 9 + size:
                return
            kind, flags, stream = self.frames[3], self.frames[4], int.from_bytes(self.frames[5:9], "big")
            payload, self.frames = self.frames[9:9 + size], self.frames[9 + size:]
            self.on_frame(kind, flags, stream, payload)

    def on_frame(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            self.writer.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.writer.write(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        elif kind == RST:
            self.resets[stream] = int.from_bytes(payload, "big")
        elif kind in (HEADERS, CONTINUATION):
            self.block += payload
            if flags & END_HEADERS:
                self.on_fields(stream, self.decoder.decode(self.block, raw=True))
                self.block = b""
        elif kind == DATA and stream in self.streams:
            self.streams[stream].body += payload
        if kind in (DATA, HEADERS) and flags & END_STREAM and stream in self.streams:
            self.streams[stream].whole = True
            self.answers.append(self.streams[stream])

    def on_fields(self, stream, decoded):
        fields = [(bytes(name), bytes(value)) for name, value in decoded]
        if stream in self.streams:
            self.streams[stream].trailers = fields
            return
        answer = Answer(int(dict(fields).get(b":status", b"0")), fields)
        if answer.status < 200:
            self.interim.append(answer)
        else:
            self.streams[stream] = answer

    def whole(self, _number):
        def done(stream):
            answer = self.streams.get(stream)
            return stream in self.resets or (answer and (answer.whole or stream in self.tunnels))
        return self.goaway is not None or all(done(stream) for stream in self.opened)

    tunnels = frozenset()

    def outcome(self):
        return list(self.streams.values())

    def is_broken(self):
        return bool(self.ended or self.resets or self.goaway is not None)

    def rest(self):
        return b"" if len(self.streams) < 2 else b"further streams"

    def everything(self):
        said = [*self.interim, *self.streams.values()]
        return bytes(self.raw) + b"\n".join(
            b"%r %r " % (answer.fields, answer.trailers) + answer.body for answer in said)
