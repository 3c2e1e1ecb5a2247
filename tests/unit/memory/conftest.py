"""A cluster in memory, and one process's way into it."""

import pytest

from haulout.core.clock import Clock
from support.memory_api import MemoryCluster, MemoryTransport


@pytest.fixture
def cluster(clock: Clock) -> MemoryCluster:
    """Return an empty cluster."""
    return MemoryCluster(clock)


@pytest.fixture
def api(cluster: MemoryCluster) -> MemoryTransport:
    """Return a way into it."""
    return cluster.transport("api")
