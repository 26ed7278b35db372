"""A relay between the gateway and a server that records every byte in both directions."""

import asyncio
import contextlib
import re
import socket
import struct

from strict import Ambiguous, Unfinished, request_at

SEEN = re.compile(rb"\r\nx-seen: *([^\r\n]*)", re.IGNORECASE)
SWITCHED = re.compile(rb"(?:\A|\r\n\r\n|\n)HTTP/1\.1 101 ")


class Wire:
    """One connection of the gateway to the server."""

    def __init__(self, number):
        self.number = number
        self.up, self.down = bytearray(), bytearray()
        # Offsets up to which requests are complete, and up to which `x-seen` fields are compared.
        self.read_to = self.heard_to = 0
        self.unheard = []
        self.ended = self.tunnel = False
        self.writers = ()

    def take(self):
        """Returns (requests since the last call, an error or None). The last request may be incomplete."""
        requests, wrong = [], None
        while self.read_to < len(self.up) and not self.tunnel:
            try:
                request, end = request_at(self.up, self.read_to)
            except Ambiguous as error:
                wrong = str(error)
                break
            except Unfinished:
                break
            requests.append(request)
            if not request.whole:
                break
            self.read_to = end
            if request.values(b"upgrade") and SWITCHED.search(self.down):
                self.tunnel = True
        return requests, wrong

    def is_between(self):
        """Returns whether the last request is complete, without consuming it."""
        if self.tunnel:
            return False
        at = self.read_to
        try:
            while at < len(self.up):
                request, at = request_at(self.up, at)
                if not request.whole or (request.values(b"upgrade") and SWITCHED.search(self.down)):
                    return False
        except Ambiguous:
            return True
        except Unfinished:
            return False
        return True

    def rest(self):
        """Returns the bytes after the last complete request."""
        return bytes(self.up[self.read_to:])

    def compare(self, requests):
        """Compares the server's `x-seen` fields with these requests in order (it may have refused others); returns an error."""
        # Of an incomplete request, a server may have seen less, or it does not read bodies.
        self.unheard += [request.seen() if request.whole else b"%s %s * *" % (request.method, request.target)
                         for request in requests]
        for found in SEEN.finditer(bytes(self.down), self.heard_to):
            self.heard_to = found.end()
            said = found[1]
            while self.unheard and not same(self.unheard[0], said):
                self.unheard.pop(0)
            if not self.unheard:
                return f"the server reports {said[:80]!r}, which was not sent"
            self.unheard.pop(0)
        return None

    def abort(self):
        for writer in self.writers:
            writer.transport.abort()


def same(request, said):
    """Compares two `x-seen` values. nginx reports "-" for unknown parts; "*" matches anything."""
    parts, words = request.split(b" "), said.split(b" ")
    return len(parts) == len(words) and all(a == b"*" or b in (a, b"-") for a, b in zip(parts, words))


class Tap:
    """Listens on `port`; opens a connection to the server for each accepted one."""

    def __init__(self, server_port):
        self.server_port, self.wires, self.port = server_port, [], None
        self.moved = asyncio.Event()

    async def start(self):
        listening = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.port = listening.sockets[0].getsockname()[1]

    async def accept(self, reader, writer):
        wire = Wire(len(self.wires))
        self.wires.append(wire)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        except OSError:
            wire.ended = True
            writer.transport.abort()
            return
        wire.writers = (writer, far_writer)
        await asyncio.gather(self.pump(wire, "up", reader, far_writer), self.pump(wire, "down", far_reader, writer))
        for end in wire.writers:
            end.close()
        wire.ended = True
        self.moved.set()

    async def pump(self, wire, way, reader, writer):
        kept = wire.up if way == "up" else wire.down
        try:
            while data := await reader.read(65_536):
                kept += data
                self.moved.set()
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            reset(writer)
        if way == "up":
            # The gateway has closed it and will not reuse it.
            wire.ended = True
        self.moved.set()

    async def until(self, true, seconds):
        """Waits until a condition on bytes or ends of connections is true; returns whether it is."""
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(seconds):
                while not true():
                    self.moved.clear()
                    await self.moved.wait()
        return true()

    def clear(self):
        """Aborts all connections, so that none is reused."""
        for wire in self.wires:
            wire.abort()
        self.wires = []


def reset(writer):
    """Ends a connection with RST."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
