"""A cluster in memory, and one process's way into it."""

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import ApiServer, InProcessTransport


@pytest.fixture
def cluster(clock: Clock) -> ApiServer:
    """Return a cluster with a few namespaces and nothing in them."""
    return ApiServer(clock, namespaces=["shop", "x"])


@pytest.fixture
def api(cluster: ApiServer) -> InProcessTransport:
    """Return a way into it."""
    return cluster.transport("api")
