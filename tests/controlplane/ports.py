"""Ports of loopback that stay free until somebody listens on them, and while nobody does for a moment.

They lie below those that the system gives to outgoing connections. One of those would be free when a test looks, and,
once in many runs, be taken when the test comes to use it: least of all may a client take it that tries to reach a
stopped server.
"""

import random
import socket

from controlplane.daemon import ControlPlaneError

LOOPBACK = "127.0.0.1"
_PORTS = range(20000, 32768)


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens, each another."""
    free: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(free) == count:
            return free
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) != 0:
                free.append(port)
    raise ControlPlaneError(f"no {count} free ports from {_PORTS.start} to {_PORTS.stop - 1}")


def free_port() -> int:
    """Return a port on which nobody listens."""
    return free_ports(1)[0]
