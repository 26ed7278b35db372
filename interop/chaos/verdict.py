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
    def __init__(self, disruptions, ways, drains):
        """`drains`: names of processes that complete their requests after SIGTERM."""
        self.disruptions = [disruption for disruption in disruptions if disruption.action in ("kill", "term")]
        self.ways, self.drains = ways, drains

    def excuse(self, request):
        """Returns the disruption that explains the failure of a request, or None."""
        for disruption in self.disruptions:
            if request.ended > disruption.began - SLACK and self.explains(disruption, request):
                if not isinstance(request.error, Ended) or may_end(disruption, request.error):
                    return disruption
        return None

    def explains(self, disruption, request):
        plan, name = request.plan, disruption.name
        # All other processes abort their requests at once.
        is_orderly = disruption.action == "term" and name in self.drains
        outlasted = request.began < disruption.began and request.ended >= disruption.began + DRAIN - 0.5
        known = disruption.began + NOTICE
        if name.startswith("gateway"):
            if not self.ways.had(plan.ports, name, disruption.began - SLACK, known):
                return False
            return outlasted if is_orderly else request.began < known
        if name in plan.way:
            refused = getattr(request.error, "refused", False)
            if is_orderly and request.began < disruption.began - ARRIVAL and not refused:
                return outlasted
            back = BACK_OFF + disruption.ended - disruption.began if name == "haproxy" and plan.by_agent else NOTICE
            return request.began < disruption.ended + back
        if name in plan.redundant:
            # The other server responds instead, unless the response had begun or the request must not be repeated.
            lost = request.head or not plan.idempotent
            return lost and (outlasted if is_orderly else request.began < known)
        return False

    def met(self, disruption):
        """Returns a predicate: whether a process had the request when it was killed or terminated, as far as known; of two
        servers of an upstream either may have had it."""
        def has(request):
            plan = request.plan
            if not request.began < disruption.began < request.ended:
                return False
            if disruption.name.startswith("gateway"):
                return self.ways.had(plan.ports, disruption.name, disruption.began, disruption.began)
            return disruption.name in plan.way | plan.redundant
        return has


def may_end(disruption, error):
    """Returns whether this death may look like an orderly close. The kernel closes a killed process's connections with FIN:
    without TLS they cannot be distinguished. Proxies between must not forward a failure as an orderly close."""
    if disruption.name.startswith("echo"):
        return True
    return error.raw and disruption.name.startswith("agent") and disruption.action == "kill"
