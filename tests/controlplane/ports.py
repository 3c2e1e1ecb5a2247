"""Loopback ports that stay free until a server listens on them, and while it restarts.

They are below the ephemeral range of the system. An ephemeral port would be free when a test checks it, and, once in
many runs, be taken when the test uses it: in the worst case by a client that tries to reach a stopped server.

Each process has its own ports. Two runs of tests at the same time start some sixty servers: if all chose from the same
ports, two would choose the same one in every tenth run.
"""

import fcntl
import functools
import os
import random
import socket
import tempfile
from collections import deque
from pathlib import Path

from controlplane.server_process import ControlPlaneError

LOOPBACK = "127.0.0.1"
_PORTS = range(20000, 32768)
_BLOCKS = 32  # the most processes that have ports of their own at the same time
_handed_out: deque[int] = deque(maxlen=len(_PORTS) // _BLOCKS // 2)  # of late


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens, each another."""
    free: list[int] = []
    own_ports = _own_ports()
    for port in random.SystemRandom().sample(own_ports, len(own_ports)):
        if len(free) == count:
            _handed_out.extend(free)
            return free
        with socket.socket() as probe:
            if port not in _handed_out and probe.connect_ex((LOOPBACK, port)) != 0:
                free.append(port)
    raise ControlPlaneError(f"no {count} free ports from {own_ports[0]} to {own_ports[-1]}")


def free_port() -> int:
    """Return a port on which nobody listens."""
    return free_ports(1)[0]


@functools.cache
def _own_ports() -> range:
    return claim_block(Path(tempfile.gettempdir()) / f"haulout-test-ports-{os.getuid()}")


def claim_block(folder: Path) -> range:
    """Return ports that no other process is given, for as long as this one lives: it keeps a lock on a file."""
    folder.mkdir(exist_ok=True)
    for block in range(_BLOCKS):
        descriptor = os.open(folder / str(block), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return _PORTS[block::_BLOCKS]
    raise ControlPlaneError(f"{_BLOCKS} processes have all ports from {_PORTS[0]} to {_PORTS[-1]}")
