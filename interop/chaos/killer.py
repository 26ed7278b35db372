"""Kills, terminates, stops or reloads one process after the other. Its choices depend only on the seed."""

import random
import signal
import subprocess
import time

from world import DRAIN

# Weights of the actions.
ACTIONS = {"kill": 5, "term": 3, "stop": 2, "reload": 2}


class Disruption:
    """An action on a process, from `began` until the process should work again, at `ended`: a reload's is never down."""

    def __init__(self, name, action, began):
        self.name, self.action, self.began, self.ended, self.code = name, action, began, None, None

    def told(self, start):
        return {"process": self.name, "action": self.action, "at": round(self.began - start, 2),
                "lasted": round(self.ended - self.began, 2), "code": self.code}


class Killer:
    def __init__(self, world, seed, complain):
        self.world, self.complain = world, complain
        self.random = random.Random(f"killer {seed}")
        # These are only stopped and reloaded, never ended, so that leaks accumulate.
        self.survivors = {f"gateway-{self.random.choice((1, 2))}", f"agent-{self.random.choice((1, 2))}"}
        self.disruptions = []

    def next(self):
        while True:
            action = self.random.choices(list(ACTIONS), weights=ACTIONS.values())[0]
            name = self.random.choice(sorted(self.world.services))
            service = self.world.services[name]
            if action == "reload" and not service.reloads:
                continue
            if action in ("kill", "term") and name in self.survivors:
                continue
            return service, action, self.random.uniform(0.1, 2.0), self.random.uniform(0.5, 4.0)

    def run(self, until):
        while time.monotonic() < until:
            service, action, away, pause = self.next()
            disruption = Disruption(service.name, action, time.monotonic())
            self.disruptions.append(disruption)
            try:
                getattr(self, action)(service, disruption, away)
            finally:
                disruption.ended = time.monotonic()
            time.sleep(pause)

    def kill(self, service, disruption, away):
        service.signal(signal.SIGKILL)
        disruption.code = service.wait(10)
        time.sleep(away)
        service.start()

    def term(self, service, disruption, away):
        service.signal(signal.SIGTERM)
        limit = DRAIN + 15
        try:
            disruption.code = service.wait(limit)
        except subprocess.TimeoutExpired:
            self.complain(f"{service.name} did not exit within {limit} s of SIGTERM")
            service.signal(signal.SIGKILL)
            service.wait(10)
        if service.drains and disruption.code != 0:
            self.complain(f"{service.name} exited with {disruption.code} after SIGTERM")
        time.sleep(away)
        service.start()

    def stop(self, service, disruption, away):
        service.signal(signal.SIGSTOP)
        time.sleep(away + 1)
        service.signal(signal.SIGCONT)

    def reload(self, service, disruption, away):
        service.signal(signal.SIGHUP)
        time.sleep(away)
