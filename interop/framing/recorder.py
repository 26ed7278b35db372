"""A server that parses strictly, reports what it received, and sends the malformed responses of rows.

Its regular responses have `x-seen: METHOD TARGET LENGTH DIGEST` and the same in the body.
"""

import asyncio
import re

from strict import Ambiguous, Unfinished, head_at, request_at
from tap import reset

TOKEN = re.compile(rb"[av]q[0-9]{6}")
# Steps of a response, besides bytes.
CLOSE, RESET, READ_ALL, FLUSH, HOLD = "close", "reset", "read all", "flush", "hold"


class Recorder:
    """`scripts`: responses by the token in a request's target, each a list of bytes and steps. Unless it begins with
    READ_ALL, it starts after the request's head. `played`: events by token, set when the script has ended."""

    def __init__(self):
        self.scripts, self.played = {}, {}

    async def start(self):
        listening = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        return listening.sockets[0].getsockname()[1]

    async def accept(self, reader, writer):
        try:
            await Exchange(self, reader, writer).run()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()


class Exchange:
    """One connection."""

    def __init__(self, recorder, reader, writer):
        self.recorder, self.reader, self.writer, self.data = recorder, reader, writer, b""

    async def more(self):
        data = await self.reader.read(65_536)
        if not data:
            raise EOFError
        self.data += data

    async def head(self):
        while True:
            try:
                return head_at(self.data, 0)[0]
            except Unfinished:
                await self.more()

    async def whole(self):
        """Reads the next request and removes it from the buffer."""
        while True:
            try:
                request, end = request_at(self.data, 0)
                if request.whole:
                    self.data = self.data[end:]
                    return request
            except Unfinished:
                pass
            await self.more()

    async def run(self):
        try:
            while True:
                head = await self.head()
                token = TOKEN.search(head.target)
                script = self.recorder.scripts.get(token[0]) if token else None
                if script is not None:
                    try:
                        goes_on = await self.play(script, head, token[0])
                    finally:
                        self.recorder.played[token[0]].set()
                    if not goes_on:
                        return
                else:
                    await self.answer(await self.whole())
        except Ambiguous as error:
            text = str(error).encode()
            self.writer.write(b"HTTP/1.1 400 Bad\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" %
                              (len(text), text))
            await self.writer.drain()

    async def answer(self, request):
        said = request.seen()
        body = b"" if request.method == b"HEAD" else b"seen " + said + b"\n"
        self.writer.write(b"HTTP/1.1 200 OK\r\nx-seen: %s\r\nContent-Length: %d\r\n\r\n%s" %
                          (said, len(said) + 6, body))
        await self.writer.drain()

    async def play(self, script, head, token):
        """Sends a scripted response; returns whether the connection continues."""
        whole = False
        for step in script:
            if step == READ_ALL:
                await self.whole()
                whole = True
            elif step == FLUSH:
                await self.writer.drain()
                # The next bytes go into another segment.
                await asyncio.sleep(0.02)
            elif step == CLOSE:
                return False
            elif step == RESET:
                await self.writer.drain()
                reset(self.writer)
                return False
            elif step == HOLD:
                self.recorder.played[token].set()
                # Discard the rest: a server that hangs, or the end of a tunnel.
                while await self.reader.read(65_536):
                    pass
                return False
            else:
                self.writer.write((step if isinstance(step, bytes) else step(head)).replace(b"ATTACKER", token))
        await self.writer.drain()
        self.recorder.played[token].set()
        if not whole:
            await self.whole()
        return True
