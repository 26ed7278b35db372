"""What explains an error: a process on the request's path that was killed or terminated while it had the request.

Nothing else does: not SIGSTOP, not SIGHUP. SIGTERM of a process that drains explains only requests that were
active before it and outlasted the drain timeout. Of two gateways, or two servers of an upstream, the other one must handle later requests.
"""

from talk import Ended
from world import DRAIN

# Differences of clocks, and between the time of a signal and its record here.
SLACK = 0.05
# Until the peers of a killed process notice.
NOTICE = 1.0
# From a request's start (a client process starts, a name is resolved) until it has reached the last process on its path.
ARRIVAL = 1.0
# Maximum delay before an agent reconnects, which grows while its gateways are unavailable.
BACK_OFF = 3.0


class Judge:
    def __init__(self, blows, ways, drains):
        """`drains`: names of processes that complete their requests after SIGTERM."""
        self.blows = [blow for blow in blows if blow.action in ("kill", "term")]
        self.ways, self.drains = ways, drains

    def excuse(self, request):
        """Returns the blow that explains the failure of a request, or None."""
        for blow in self.blows:
            if request.ended > blow.began - SLACK and self.explains(blow, request):
                if not isinstance(request.error, Ended) or may_end(blow, request.error):
                    return blow
        return None

    def explains(self, blow, request):
        plan, name = request.plan, blow.name
        # All other processes abort their requests at once.
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
            # The other server responds instead, unless the response had begun or the request must not be repeated.
            lost = request.head or not plan.idempotent
            return lost and (outlasted if is_orderly else request.began < known)
        return False

    def met(self, blow):
        """Returns a predicate: whether a process had the request when it was killed or terminated, as far as known; of two
        servers of an upstream either may have had it."""
        def has(request):
            plan = request.plan
            if not request.began < blow.began < request.ended:
                return False
            if blow.name.startswith("gateway"):
                return self.ways.had(plan.ports, blow.name, blow.began, blow.began)
            return blow.name in plan.way | plan.redundant
        return has


def may_end(blow, error):
    """Returns whether this death may look like an orderly close. The kernel closes a killed process's connections with FIN:
    without TLS they cannot be distinguished. Proxies between must not forward a failure as an orderly close."""
    if blow.name.startswith("echo"):
        return True
    return error.raw and blow.name.startswith("agent") and blow.action == "kill"
