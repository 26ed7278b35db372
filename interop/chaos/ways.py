"""Which gateway a request used: from HAProxy's log of connections; each client has a port of its own."""

import os
import re
import time

LINE = re.compile(r"^way (\d+) (\d+) (\d+) (\d+) (\S+) ", re.MULTILINE)


class Ways:
    """Closed connections. Those open when HAProxy was killed are not logged, but its death excuses them."""

    def __init__(self, world):
        ahead = time.time() - time.monotonic()
        names = {port: name for name, port in world.port.items()}
        self.by_port = {}
        service = world.services["haproxy"]
        for number in range(1, service.number + 1):
            with open(os.path.join(world.base, "logs", f"{service.name}.{number}.log"), errors="replace") as f:
                for port, seconds, millis, lasted, gateway in LINE.findall(f.read()):
                    began = int(seconds) + int(millis) / 1000 - ahead
                    connection = (began, began + int(lasted) / 1000, gateway)
                    self.by_port.setdefault(names[int(port)], []).append(connection)

    def had(self, names, gateway, first, last):
        """Returns whether one of these ports had a connection to that gateway at any time from `first` to `last`."""
        return any(there == gateway and began <= last and ended >= first
                   for name in names for began, ended, there in self.by_port.get(name, ()))
