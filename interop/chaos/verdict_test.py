#!/usr/bin/python3
"""Tests which disruptions excuse an error."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

from killer import Disruption  # noqa: E402
from load import ECHO, Plan  # noqa: E402
from talk import Broken, Ended  # noqa: E402
from verdict import Judge  # noqa: E402
from world import DRAIN  # noqa: E402

DIRECT = Plan(("haproxy",), ("client-1",), redundant=ECHO)
TUNNEL = Plan(("agent-1", "haproxy", "echo-a"), ("front-1",))


class Ways:
    """One connection to gateway-1, from 0 s to 100 s."""

    def had(self, ports, gateway, first, last):
        return gateway == "gateway-1" and first <= 100 and last >= 0


class Request:
    def __init__(self, plan, began, ended, error=None):
        self.plan, self.began, self.ended = plan, began, ended
        self.error = error or Broken("it broke", head=True)
        self.head = getattr(self.error, "head", True)


def is_excused(action, name, request, began=50.0, ended=52.0):
    disruption = Disruption(name, action, began)
    disruption.ended = ended
    judge = Judge([disruption], Ways(), {"gateway-1", "gateway-2", "agent-1", "serve-a"})
    return judge.excuse(request) is not None


class Verdicts(unittest.TestCase):
    def test_only_the_gateway_that_had_it_explains_an_error(self):
        self.assertTrue(is_excused("kill", "gateway-1", Request(DIRECT, 49, 50.1)))
        self.assertFalse(is_excused("kill", "gateway-2", Request(DIRECT, 49, 50.1)))
        self.assertFalse(is_excused("stop", "gateway-1", Request(DIRECT, 49, 50.1)))

    def test_requests_after_a_death_must_succeed_on_the_other(self):
        for name in ("gateway-1", "echo-a"):
            self.assertFalse(is_excused("kill", name, Request(DIRECT, 51.5, 51.8)))
            self.assertFalse(is_excused("kill", name, Request(DIRECT, 49, 49.9)))

    def test_a_draining_process_loses_no_request_before_its_timeout(self):
        for name, plan in (("gateway-1", DIRECT), ("agent-1", TUNNEL)):
            self.assertFalse(is_excused("term", name, Request(plan, 48, 53), ended=60))
            late = Broken("it had not begun to connect", refused=True)
            self.assertEqual(is_excused("term", name, Request(plan, 48, 53, late), ended=60), name == "agent-1")
            self.assertTrue(is_excused("term", name, Request(plan, 48, 50 + DRAIN), ended=60))
        self.assertFalse(is_excused("term", "gateway-1", Request(DIRECT, 51, 50 + DRAIN), ended=60))
        self.assertTrue(is_excused("term", "agent-1", Request(TUNNEL, 51, 51.1), ended=60))

    def test_a_response_that_had_not_begun_must_come_from_the_other_server(self):
        unanswered = Broken("status 502")
        self.assertFalse(is_excused("kill", "echo-a", Request(DIRECT, 49, 50.1, unanswered)))
        once = Plan(("haproxy",), ("client-1",), redundant=ECHO, idempotent=False)
        self.assertTrue(is_excused("kill", "echo-a", Request(once, 49, 50.1, unanswered)))
        self.assertTrue(is_excused("kill", "echo-a", Request(TUNNEL, 49, 50.1, unanswered)))

    def test_only_ends_by_the_kernel_may_look_closed_in_order(self):
        for raw in (True, False):
            end = Ended("an orderly end", raw)
            for name in ("gateway-1", "haproxy"):
                self.assertFalse(is_excused("kill", name, Request(TUNNEL, 49, 50.1, end)))
            self.assertTrue(is_excused("kill", "echo-a", Request(TUNNEL, 49, 50.1, end)))
            self.assertEqual(is_excused("kill", "agent-1", Request(TUNNEL, 49, 50.1, end)), raw)
            self.assertFalse(is_excused("term", "agent-1", Request(TUNNEL, 49, 50 + DRAIN, end), ended=60))


if __name__ == "__main__":
    unittest.main()
