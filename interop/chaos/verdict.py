"""What explains an error: a process on this request's way that was killed or ended while it had the request.

Nothing else does. SIGSTOP and SIGHUP explain nothing. SIGTERM of what drains explains only what was running and went on
longer than the drain time. Of two gateways, or two servers of an upstream, the other one takes what comes later.
"""

from talk import Ended
from world import DRAIN

# Clocks of processes on one machine, and the time between a signal and its time here.
SLACK = 0.05
# Until the neighbours of a process that died can know of it.
NOTICE = 1.0
# From a request's beginning (a process starts, a name is looked up) until it has come to the last one on its way.
ARRIVAL = 1.0
# An agent tries again after a pause that grows as long as its gateways are away.
BACK_OFF = 3.0


class Judge:
    def __init__(self, blows, ways, drains):
        """`drains`: names of processes that finish what runs when they are told to end."""
        self.blows = [blow for blow in blows if blow.action in ("kill", "term")]
        self.ways, self.drains = ways, drains

    def excuse(self, request):
        """The blow that explains why a request failed; None if nothing does."""
        for blow in self.blows:
            if request.ended > blow.began - SLACK and self.explains(blow, request):
                if not isinstance(request.error, Ended) or may_end(blow, request.error):
                    return blow
        return None

    def explains(self, blow, request):
        plan, name = request.plan, blow.name
        # Everything else loses what it has at once, however it is ended.
        is_orderly = blow.action == "term" and name in self.drains
        outlasted = request.began < blow.began and request.ended >= blow.began + DRAIN - 0.5
        known = blow.began + NOTICE
        if name.startswith("gateway"):
            if not self.ways.had(plan.ports, name, blow.began - SLACK, known):
                return False
            return outlasted if is_orderly else request.began < known
        if name in plan.way:
            refused = getattr(request.error, "refused", False)
            if is_orderly and request.began < blow.began - ARRIVAL and not refused:
                return outlasted
            back = BACK_OFF + blow.ended - blow.began if name == "haproxy" and plan.by_agent else NOTICE
            return request.began < blow.ended + back
        if name in plan.redundant:
            # The other server answers instead, unless the answer had begun or must not be asked for twice.
            lost = request.head or not plan.idempotent
            return lost and (outlasted if is_orderly else request.began < known)
        return False

    def met(self, blow):
        """How many requests a process had when it was killed or ended, as far as is known: of two servers of an
        upstream either may have had them."""
        def has(request):
            plan = request.plan
            if not request.began < blow.began < request.ended:
                return False
            if blow.name.startswith("gateway"):
                return self.ways.had(plan.ports, blow.name, blow.began, blow.began)
            return blow.name in plan.way | plan.redundant
        return has


def may_end(blow, error):
    """Whether this death can look like an end in order. The kernel ends a dead process's connections so: without TLS
    nobody can tell. What stands between must not pass on what it can tell from that."""
    if blow.name.startswith("echo"):
        return True
    return error.raw and blow.name.startswith("agent") and blow.action == "kill"
