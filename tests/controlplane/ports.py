"""Loopback ports that stay free until a server listens on them, and while it restarts.

They are below the ephemeral range of the system. An ephemeral port would be free when a test checks it, and, once in
many runs, be taken when the test uses it: in the worst case by a client that tries to reach a stopped server.

Each pytest worker has its own ports. Eight workers start some fifty servers at once: if all chose from the same ports,
two would choose the same one in every twelfth run.
"""

import os
import random
import socket

from controlplane.server_process import ControlPlaneError

LOOPBACK = "127.0.0.1"
_PORTS = range(20000, 32768)
_WORKERS = 16  # the most that have ports of their own
_handed_out: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens, each another."""
    free: list[int] = []
    worker_ports = _worker_ports(os.environ.get("PYTEST_XDIST_WORKER", ""))
    if len(_handed_out) > len(worker_ports) // 2:
        _handed_out.clear()
    for port in random.SystemRandom().sample(worker_ports, len(worker_ports)):
        if len(free) == count:
            _handed_out.update(free)
            return free
        with socket.socket() as probe:
            if port not in _handed_out and probe.connect_ex((LOOPBACK, port)) != 0:
                free.append(port)
    raise ControlPlaneError(f"no {count} free ports from {worker_ports[0]} to {worker_ports[-1]}")


def _worker_ports(worker: str) -> range:
    """Return the ports of a worker, such as `gw3`; all of them for a process that is none."""
    number = worker.removeprefix("gw")
    return _PORTS[int(number) % _WORKERS :: _WORKERS] if number.isdecimal() else _PORTS


def free_port() -> int:
    """Return a port on which nobody listens."""
    return free_ports(1)[0]
