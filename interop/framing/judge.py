"""Judges a row at a server by what the server and each client received."""

import dataclasses
import re

from row import BROKEN
from tap import same

TOKEN = re.compile(rb"[av]q[0-9]{6}")
# Fields that a victim's request may have at the server in addition to its own.
ADDED = {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"}
OWN = {b"host", b"x-victim", b"content-length", b"transfer-encoding"}
# Statuses of servers that refuse valid requests (Node supports few methods, nginx no TRACE).
SERVERS_OWN = {400, 404, 405, 411, 413, 414, 417, 426, 431, 501, 505}


class Bad(Exception):
    """`kind`: LEAK, AMBIGUOUS, WRONG or HANG."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


@dataclasses.dataclass
class Victim:
    """A request independent of the attack, and what its client received."""
    token: bytes
    method: bytes
    target: bytes
    body: bytes
    client: object = None

    def fields(self):
        """Returns the request's fields for HTTP/2."""
        return ((b":method", self.method), (b":scheme", b"http"), (b":path", self.target), (b":authority", b"a.test"),
                (b"x-victim", self.token))

    def raw(self):
        """Returns the request for HTTP/1.1."""
        length = b"Content-Length: %d\r\n" % len(self.body) if self.body else b""
        return b"%s %s HTTP/1.1\r\nHost: a.test\r\nX-Victim: %s\r\n%s\r\n%s" % (
            self.method, self.target, self.token, length, self.body)


def short(data, size=400):
    text = repr(bytes(data[:size]))[2:-1]
    return text + ("..." if len(data) > size else "")


def tokens(data):
    return set(TOKEN.findall(bytes(data)))


class Judge:
    """Judges `row` with its token inserted; `wires`: the gateway's connections to the server since the row began."""

    def __init__(self, row, token, attack, victims, wires):
        self.row, self.token, self.attack, self.victims, self.wires = row, token, attack, victims, wires
        # In the order of arrival: complete requests of the attack, and incomplete ones at the end of a connection.
        self.arrived, self.cut = [], []
        self.wire_of = {}
        self.problems = []
        # A victim's request followed ambiguous bytes on the same connection.
        self.mixed = False

    def verdict(self):
        """Returns the verdict in a word or two. Raises Bad."""
        for check in (self.look_at_wires, self.look_at_victims, self.look_at_attacker):
            try:
                check()
            except Bad as bad:
                self.problems.append(bad)
        first = self.problems[0] if self.problems else None
        if first and first.kind == "AMBIGUOUS" and len(self.problems) > 1 and self.mixed:
            raise Bad("LEAK", f"{first.text}; and {self.problems[1].text}")
        if self.problems:
            raise min(self.problems, key=lambda bad: ("LEAK", "AMBIGUOUS", "WRONG", "HANG").index(bad.kind))
        return self.outcome()

    # What the server received.

    def look_at_wires(self):
        for wire in self.wires:
            before = wire.read_to
            requests, wrong = wire.take()
            rest = wire.rest() if not (requests and not requests[-1].whole) else b""
            for request in requests:
                self.look_at_request(wire, request)
            mixed = tokens(rest)
            if wrong:
                self.mixed = len(mixed) > 1
                raise Bad("AMBIGUOUS", f"{wrong}; the server got: {short(wire.up[before:])}")
            if self.token in mixed and len(mixed) > 1:
                raise Bad("LEAK", f"one request has bytes of two clients: {short(rest)}")
            if rest and mixed - {self.token}:
                raise Bad("LEAK", f"a victim's bytes in no request of its own: {short(rest)}")
            if rest and not wire.tunnel and not wire.ended:
                raise Bad("AMBIGUOUS", f"half a head on an open connection: {short(rest)}")
            lie = wire.compare(requests)
            if lie:
                raise Bad("LEAK", lie)

    def look_at_request(self, wire, request):
        found = tokens(request.raw)
        if len(found) > 1:
            raise Bad("LEAK", f"one request has bytes of two clients: {short(request.raw)}")
        victim = next((victim for victim in self.victims if victim.token in found), None)
        self.wire_of.setdefault(next(iter(found), None), wire.number)
        if victim:
            return self.look_at_victims_request(request, victim)
        if not request.whole:
            if not wire.ended:
                raise Bad("HANG", f"a connection with an unfinished request stays open: {short(request.raw)}")
            self.cut.append(request)
            return None
        if not self.arrived or what(self.arrived[-1]) != what(request):
            self.arrived.append(request)
        return None

    def look_at_victims_request(self, request, victim):
        got = (request.method, request.target, request.body, request.values(b"x-victim"), request.host)
        strange = {name for name, _ in request.fields} - ADDED - OWN
        if got != (victim.method, victim.target, victim.body, [victim.token], b"a.test") or strange:
            raise Bad("LEAK", f"a victim's request arrived as {short(request.raw)}")

    # What the clients received.

    def look_at_victims(self):
        for victim in self.victims:
            client = victim.client
            other = tokens(client.everything()) - {victim.token}
            if other:
                raise Bad("LEAK", f"a victim got {short(client.raw)}")
            if client.strange:
                raise Bad("LEAK", f"a victim got no HTTP: {client.strange}")
            word = victim.method.decode()
            if not client.answers:
                raise Bad("HANG", f"a victim's {word} got no response ({client.ended or 'open'})")
            answer = client.answers[0]
            said = answer.values(b"x-seen")
            expected = b"%s %s %d " % (victim.method, victim.target, len(victim.body))
            if answer.status != 200 or len(client.answers) > 1 or client.rest():
                kind = "HANG" if answer.status in (503, 504) else "WRONG"
                raise Bad(kind, f"a victim's {word} got {answer.status}: {short(client.raw)}")
            if len(said) != 1 or not same(expected + said[0].rpartition(b" ")[2], said[0]):
                raise Bad("LEAK", f"a victim's {word} got another's response: {said}")

    def look_at_attacker(self):
        other = tokens(self.attack.everything()) - {self.token}
        if other:
            raise Bad("LEAK", f"the attacker got {short(self.attack.raw)}")
        if self.attack.strange:
            raise Bad("WRONG", f"the attacker got no HTTP: {self.attack.strange}")

    # The outcome of the attack.

    def outcome(self):
        allowed = [[what_form(form, self.token) for form in forms] for forms in self.row.forward]
        arrived = [what(request) for request in self.arrived]
        answers = [(answer.status, answer.body if answer.whole else None) for answer in self.attack.outcome()]
        if arrived and arrived not in allowed and not self.is_beginning(arrived,
                allowed) and not self.may_be_cut(arrived, allowed):
            raise Bad("AMBIGUOUS", "the server got " + "; ".join(short(request.raw) for request in self.arrived))
        if self.cut and not (self.row.unfinished or BROKEN in self.row.refuse or self.row.respond is not None
                             or self.may_be_cut(arrived, allowed)):
            raise Bad("AMBIGUOUS", f"the server got {short(self.cut[0].raw)} and no end")
        if self.row.respond is not None:
            return self.seen(answers)
        if not arrived and not self.cut:
            return self.refused(answers)
        if self.cut:
            return self.cut_off(answers)
        return self.forwarded(answers, len(arrived))

    def is_beginning(self, arrived, allowed):
        """Whether these are the first requests only: the server refused one and closed, or the attack ended earlier."""
        return any(arrived == forms[:len(arrived)] for forms in allowed) and len(self.attack.outcome()) <= len(arrived)

    def may_be_cut(self, arrived, allowed):
        """Whether an incomplete request is explained: a server that responds early (as nginx does) does not get the rest."""
        cut = [what(request) for request in self.cut]
        for forms in allowed:
            left = [form for form in forms if form not in arrived]
            if cut and len(left) + len(arrived) == len(forms) and all(
                    any(begins(one, form) for form in left) for one in cut):
                return self.is_servers_own()
        return False

    def refused(self, answers):
        if not answers:
            if not self.attack.is_broken() and not self.row.unfinished:
                raise Bad("HANG", "no response, and nothing arrived")
            if BROKEN not in self.row.refuse and not self.row.unfinished:
                raise Bad("WRONG", "the connection ended without a response")
            return "broken"
        status = answers[0][0]
        if status not in self.row.refuse:
            raise Bad("WRONG", f"refused by {status}, expected {words(self.row.refuse)}")
        return f"refused {status}"

    def cut_off(self, answers):
        for request in self.cut:
            if self.token not in request.target:
                raise Bad("AMBIGUOUS", f"the server got {short(request.raw)}")
        for status, _ in answers:
            if status not in self.row.refuse and not self.is_servers_own():
                raise Bad("WRONG", f"cut off with {status}, expected {words(self.row.refuse)}")
        return "cut"

    def is_servers_own(self):
        return all(answer.values(b"x-seen") or answer.status in SERVERS_OWN for answer in self.attack.outcome())

    def forwarded(self, answers, number):
        if not answers and not self.attack.is_broken():
            raise Bad("HANG", "the server got the request, but the client no response")
        for answer in self.attack.outcome():
            fine = answer.values(b"x-seen") or answer.status in SERVERS_OWN or answer.status in self.row.refuse
            # Servers respond differently to `OPTIONS *`.
            if not fine and not 200 <= answer.status < 300:
                raise Bad("HANG" if answer.status == 504 else "WRONG", f"answered {answer.status}")
        own = [status for status, _ in answers if status not in (*self.row.refuse, 400)]
        if len(own) > number:
            raise Bad("WRONG", f"more responses than requests: {own}")
        return "forwarded"

    def seen(self, answers):
        if len(answers) > 1 and self.row.version != "2" and any(status not in (400, *self.row.refuse) for status,
                _ in answers[1:]):
            raise Bad("LEAK", f"{len(answers)} responses to one request: {short(self.attack.raw)}")
        if not answers or answers[0][1] is None and not self.row.tunnel:
            if BROKEN not in self.row.sees:
                raise Bad("WRONG", f"truncated, expected {words(self.row.sees)}: {short(self.attack.raw)}")
            return "broken"
        status, body = answers[0]
        if (status, body) not in self.row.sees and (status, None) not in self.row.sees:
            raise Bad("WRONG", f"{status} with {short(body or b'')}, expected {words(self.row.sees)}")
        return f"answered {status}"

    def reused(self):
        """Returns whether a victim used the attack's connection."""
        mine = self.wire_of.get(self.token)
        return mine is not None and any(self.wire_of.get(victim.token) == mine for victim in self.victims)


def begins(cut, whole):
    """Returns whether an incomplete request is the beginning of a complete one."""
    return (cut[:2], cut[3]) == (whole[:2], whole[3]) and whole[2].startswith(cut[2])


def what(request):
    return (request.method, request.target, request.body, request.host)


def what_form(form, token):
    return tuple(part.replace(b"ATTACKER", token) for part in (form.method, form.target, form.body, form.host))


def words(allowed):
    return " or ".join(str(one[0]) if isinstance(one,
                                                 tuple) else str(one) for one in allowed) or "a response of the server"
