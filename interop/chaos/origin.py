#!/usr/bin/python3
"""An origin that checks uploads and sends predictable responses: PORT ECHO_PORT JOURNAL.

HTTP/1.1 without TLS:
    PUT|POST /digest/SHA   reads the body; a complete one with another hash is a violation, which is logged in JOURNAL
    GET /stream/SEED/SIZE/SECONDS   SIZE bytes of the generator SEED, spread over SECONDS, after a third of that; chunked for
                                    even seeds
    GET /call/SEED/SIZE/SECONDS     the same in chunks, with a pause of SECONDS before the end; a trailer has the hash
    GET /watch/COUNT/MILLIS   a line every MILLIS; the last one is marked
    GET /socket   WebSocket: echoes every message
ECHO_PORT: echoes all bytes.
"""

import asyncio
import base64
import hashlib
import os
import random
import sys

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PIECE = 16_384


def stream_bytes(seed, size):
    return random.Random(f"stream {seed}").randbytes(size)


class Origin:
    def __init__(self, journal):
        self.journal = journal

    def complain(self, text):
        with open(self.journal, "a", encoding="utf-8") as f:
            f.write(text + "\n")

    async def http(self, reader, writer):
        try:
            while await self.exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def exchange(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        _, path, _ = first.split(" ")
        fields = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        if fields.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        _, what, *rest = path.split("?")[0].split("/")
        if what == "socket":
            await self.websocket(reader, writer, fields)
            return False
        if what == "digest":
            await self.digest(reader, writer, fields, rest[0])
            return True
        await self.body(reader, fields)
        if what == "stream":
            await self.stream(writer, int(rest[0]), int(rest[1]), float(rest[2]))
        elif what == "call":
            await self.call(writer, int(rest[0]), int(rest[1]), float(rest[2]))
        elif what == "watch":
            await self.watch(writer, int(rest[0]), float(rest[1]) / 1000)
        else:
            await self.answer(writer, "404 Not Found", b"nothing is here\n")
        return True

    async def answer(self, writer, status, body):
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def body(self, reader, fields, take=lambda piece: None):
        """Reads a request's body. Raises IncompleteReadError if it is truncated."""
        if fields.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
                if size == 0:
                    while await reader.readuntil(b"\r\n") != b"\r\n":
                        pass
                    return
                take(await reader.readexactly(size))
                await reader.readexactly(2)
        left = int(fields.get("content-length", "0"))
        while left:
            piece = await reader.readexactly(min(left, 65_536))
            take(piece)
            left -= len(piece)

    async def digest(self, reader, writer, fields, expected):
        digest, size = hashlib.sha256(), 0

        def take(piece):
            nonlocal size
            size += len(piece)
            digest.update(piece)
        await self.body(reader, fields, take)
        if digest.hexdigest() != expected:
            self.complain(f"an upload of {size} bytes looked complete, but its hash is wrong: {fields}")
        await self.answer(writer, "200 OK", digest.hexdigest().encode())

    async def stream(self, writer, seed, size, seconds):
        chunked = seed % 2 == 0
        await asyncio.sleep(seconds / 3)
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
        writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode())
        data = stream_bytes(seed, size)
        pieces = [data[at:at + PIECE] for at in range(0, size, PIECE)]
        for piece in pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            await writer.drain()
            await asyncio.sleep(seconds / len(pieces))
        if chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def call(self, writer, seed, size, seconds):
        data = stream_bytes(seed, size)
        writer.write(b"HTTP/1.1 200 OK\r\nTrailer: call-status\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, size, PIECE):
            piece = data[at:at + PIECE]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        await asyncio.sleep(seconds)
        writer.write(b"0\r\ncall-status: %s\r\n\r\n" % hashlib.sha256(data).hexdigest().encode())
        await writer.drain()

    async def watch(self, writer, count, pause):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(count):
            line = f"event {number}{' last' if number == count - 1 else ''}\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(line), line))
            await writer.drain()
            await asyncio.sleep(pause)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def websocket(self, reader, writer, fields):
        accept = base64.b64encode(hashlib.sha1((fields["sec-websocket-key"] + GUID).encode()).digest()).decode()
        writer.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                     f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        while True:
            first, second = await reader.readexactly(2)
            length = second & 0x7F
            if length == 126:
                length = int.from_bytes(await reader.readexactly(2), "big")
            mask = await reader.readexactly(4)
            data = await reader.readexactly(length)
            data = bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))
            head = bytes([first]) + (bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big"))
            writer.write(head + data)
            await writer.drain()
            if first & 0x0F == 8:
                return

    async def echo(self, reader, writer):
        try:
            while piece := await reader.read(65_536):
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
        except ConnectionError:
            pass
        finally:
            writer.close()


async def main(port, echo_port, journal):
    origin = Origin(journal)
    await asyncio.start_server(origin.http, "127.0.0.1", port, limit=1 << 20)
    await asyncio.start_server(origin.echo, "127.0.0.1", echo_port)
    print(f"listening on http://127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), os.path.abspath(sys.argv[3])))
