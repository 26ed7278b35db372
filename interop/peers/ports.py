"""Ports for servers that cannot let the kernel pick one, and for those that restart on the same port.

A free port may be taken a moment later: by an outgoing connection, or by another process that looks for one. So these are
below the kernel's ephemeral ports, and each is reserved by a name in the abstract socket namespace, which only one
process can bind; crates/smig-gateway/tests/gateway/support.rs uses the same names.
"""

import os
import socket

FIRST, END = 12_000, 32_000
_held = {}


def reserve():
    """Reserves a port until this process ends. Raises OSError if none is free."""
    count = END - FIRST
    for step in range(count):
        port = FIRST + (os.getpid() * 37 + step) % count
        if port not in _held and _take(port):
            return port
    raise OSError(f"no port from {FIRST} to {END} is free")


def _take(port):
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0smig-test-port-{port}")
        # A process without such a reservation may listen there.
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        mark.close()
        return False
    _held[port] = mark
    return True
