"""A server that reads as strictly as it can, says what it saw, and answers as badly as a row wants.

Honest answers have `x-seen: METHOD TARGET LENGTH DIGEST` and say the same in their body.
"""

import asyncio
import re

from strict import Ambiguous, Unfinished, head_at, request_at
from tap import reset

TOKEN = re.compile(rb"[av]q[0-9]{6}")
# Steps of an answer, beside bytes.
CLOSE, RESET, READ_ALL, FLUSH, HOLD = "close", "reset", "read all", "flush", "hold"


class Recorder:
    """`scripts`: how to answer a request whose target has this token; each a list of bytes and steps. One that does not
    begin with READ_ALL is carried out as soon as there is a head. `played`: set when it has been, by token."""

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
        """The next request; takes it away."""
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
        """Whether the connection goes on."""
        whole = False
        for step in script:
            if step == READ_ALL:
                await self.whole()
                whole = True
            elif step == FLUSH:
                await self.writer.drain()
                # What was written leaves before what comes next, as two segments.
                await asyncio.sleep(0.02)
            elif step == CLOSE:
                return False
            elif step == RESET:
                await self.writer.drain()
                reset(self.writer)
                return False
            elif step == HOLD:
                self.recorder.played[token].set()
                # Whatever comes is of no interest: a server that hangs, or a tunnel's end.
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
