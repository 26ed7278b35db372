"""One gateway with at most one connection to one server: one attack after the other, each followed by victims."""

import asyncio
import itertools

from clients import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http1, Http2, frame, literal
from clients import RST as RST_STREAM
from judge import Bad, Judge, Victim
from row import ANSWERED, ARRIVED, FIN, RST, VICTIM, D, H, R, Raw

# Seconds after which something counts as hung.
LIMIT = 60
# Seconds that a victim waits for a connection that the attack still uses, before the attack's client closes.
PATIENCE = 0.4
# Seconds to wait for bytes that may never arrive: of a request that is refused or held back.
ARRIVAL = 0.4

numbers = itertools.count(1)


class Lane:
    """`begin(tap_port)` starts a program and returns (process, port)."""

    def __init__(self, server, tap, begin, recorder):
        self.server, self.tap, self.begin, self.recorder = server, tap, begin, recorder
        self.process, self.port = None, None

    async def start(self):
        await self.tap.start()
        self.process, self.port = await asyncio.to_thread(self.begin, self.tap.port)

    async def run(self, row):
        """Returns (verdict, whether a victim used the attack's connection). Raises Bad."""
        attack = Attack(self, row)
        try:
            judge = await attack.run()
            verdict = judge.verdict()
            self.tap.wires = [wire for wire in self.tap.wires if not wire.ended]
            return verdict, judge.reused()
        except Bad:
            # The next row must not be affected by its remains.
            self.tap.clear()
            if not self.process.alive():
                raise Bad("WRONG", f"the gateway ended: {self.process.output()[-300:]}") from None
            raise
        finally:
            await attack.close()
            self.recorder.scripts.pop(attack.token, None)


class Attack:
    def __init__(self, lane, row):
        self.lane, self.row = lane, row
        self.token = b"aq%06d" % next(numbers)
        self.client = Http2(lane.port) if row.version == "2" else Http1(lane.port, row.methods())
        if row.version == "2" and row.tunnel:
            self.client.tunnels = frozenset([1])
        self.victims, self.tasks = [], []

    async def run(self):
        if self.row.respond is not None:
            self.lane.recorder.scripts[self.token] = self.row.respond
            self.lane.recorder.played[self.token] = asyncio.Event()
        await self.client.connect()
        for step in self.row.send:
            await self.take(step)
        if not self.row.unfinished:
            await self.client.until(lambda: self.client.whole(self.row.answers), LIMIT)
        if self.row.unfinished:
            await self.client.close(hard=True)
        if self.row.respond is not None:
            # Bytes sent on the idle connection must arrive before the next request.
            await asyncio.wait({asyncio.create_task(self.lane.recorder.played[self.token].wait())}, timeout=LIMIT)
        for task in self.tasks:
            await self.finish(task)
        for method in (b"GET", b"POST"):
            await self.finish(self.victim(method))
        await self.client.close()
        await self.lane.tap.until(self.is_at_rest, LIMIT)
        return Judge(self.row, self.token, self.client, self.victims, self.lane.tap.wires)

    async def take(self, step):
        client = self.client
        if step == ARRIVED:
            before = self.arrived()
            await self.lane.tap.until(lambda: self.arrived() > before or client.ended, ARRIVAL)
        elif step == ANSWERED:
            await client.until(lambda: client.outcome() or client.ended, LIMIT)
        elif step == VICTIM:
            self.tasks.append(self.victim(b"GET"))
            # It is sent before the attack continues.
            await self.lane.tap.until(lambda: False, 0.05)
        elif step == FIN:
            client.end_sending()
        elif step == RST:
            await client.close(hard=True)
        else:
            await client.send(self.wire_form(step))

    def wire_form(self, step):
        put = lambda data: data.replace(b"ATTACKER", self.token)
        if isinstance(step, bytes):
            return put(step)
        if isinstance(step, (H, D)) and not (isinstance(step, D) and step.stream not in self.client.opened):
            self.client.opened.add(step.stream)
        if isinstance(step, H):
            block, end = put(literal(step.fields)), END_STREAM if step.end else 0
            if not step.split:
                return frame(HEADERS, END_HEADERS | end, step.stream, block)
            return (frame(HEADERS, end, step.stream, block[:step.split]) +
                    frame(CONTINUATION, END_HEADERS, step.stream, block[step.split:]))
        if isinstance(step, D):
            return frame(DATA, END_STREAM if step.end else 0, step.stream, put(step.data))
        if isinstance(step, R):
            return frame(RST_STREAM, 0, step.stream, step.code.to_bytes(4, "big"))
        assert isinstance(step, Raw)
        self.client.opened.add(step.stream)
        return frame(step.kind, step.flags, step.stream, put(step.payload))

    def arrived(self):
        """Returns the number of bytes of the attack at the server."""
        return sum(len(wire.up) - wire.read_to for wire in self.lane.tap.wires)

    def victim(self, method):
        token = b"vq%06d" % next(numbers)
        victim = Victim(token, method, b"/victim/" + token, token * 8 if method == b"POST" else b"")
        # An attack over HTTP/2 has a victim of each version.
        by_http2 = self.row.version == "2" and method == b"POST"
        victim.client = Http2(self.lane.port) if by_http2 else Http1(self.lane.port, [method])
        self.victims.append(victim)
        return asyncio.create_task(ask(victim))

    async def finish(self, task):
        """Waits for a victim, which may need the attack's connection."""
        done, _ = await asyncio.wait({task}, timeout=PATIENCE)
        if not done:
            await self.client.close()
        await task

    def is_at_rest(self):
        """Returns whether every connection is closed or between requests."""
        return all(wire.ended or wire.is_between() for wire in self.lane.tap.wires)

    async def close(self):
        await self.client.close()
        for task in self.tasks:
            task.cancel()
        for victim in self.victims:
            await victim.client.close()


async def ask(victim):
    client = victim.client
    await client.connect()
    if isinstance(client, Http2):
        client.opened.add(1)
        await client.send(frame(HEADERS, END_HEADERS, 1, literal(victim.fields())) +
                          frame(DATA, END_STREAM, 1, victim.body))
    else:
        await client.send(victim.raw())
    await client.until(lambda: client.whole(1), LIMIT)
    await client.close()
