"""Ports for servers that cannot pick one themselves, and for those that come back to the same one.

A port that was free a moment ago may be another's by now: the kernel gives it to an outgoing connection, or a second
process finds it as well. So these lie below the ports that the kernel gives away, and each has a name in the abstract
socket namespace that only one process can hold; crates/smig-gateway/tests/gateway/support.rs takes from the same.
"""

import os
import socket

FIRST, END = 12_000, 32_000
_held = {}


def reserve():
    """A port that is this process's until it ends. Raises OSError if there is none."""
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
        # Somebody who knows nothing of marks may listen there.
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        mark.close()
        return False
    _held[port] = mark
    return True
