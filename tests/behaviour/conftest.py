"""The cluster that behaviour tests run on: the sandbox, or a real one with `--backend=real`."""

from collections.abc import AsyncIterator

import pytest

from haulout.core.clock import Clock
from support.backends import Cluster, Sandbox, a_real_cluster


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Cluster]:
    """Yield a cluster for this test alone."""
    if request.config.getoption("--backend") == "sandbox":
        yield Sandbox(clock)
        return
    control_plane = request.getfixturevalue("control_plane")
    async with a_real_cluster(control_plane, namespace=request.getfixturevalue("namespace")) as real:
        yield real
