"""The clusters that behaviour tests run on: the sandbox, or real ones with `--backend=real`.

`cluster` is a bare API server in which nothing runs; `a_cluster` plans a whole cluster, with nodes and workloads.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from controlplane import ControlPlane
from haulout.core.clock import Clock
from support import clusters
from support.backends import Cluster, Sandbox, a_real_cluster
from support.clusters import Plans

# A kubelet of ours that falls silent is missed soon: its lease lasts four seconds.
_HASTY = ("--node-monitor-period=1s", "--node-monitor-grace-period=6s")


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Cluster]:
    """Yield a cluster for this test alone."""
    if request.config.getoption("--backend") == "sandbox":
        yield Sandbox(clock)
        return
    control_plane = request.getfixturevalue("control_plane")
    async with a_real_cluster(control_plane, namespace=request.getfixturevalue("namespace")) as real:
        yield real


@pytest.fixture(scope="session")
def whole_control_plane() -> Iterator[ControlPlane]:
    """Run a control plane with all its controllers; a test that uses it leaves nothing behind."""
    with ControlPlane() as alone:
        alone.start_controllers(flags=_HASTY)
        yield alone


@pytest.fixture
def a_cluster(request: pytest.FixtureRequest, clock: Clock) -> Plans:
    """Return how to plan a whole cluster on the backend that was asked for."""
    if request.config.getoption("--backend") == "sandbox":
        return lambda: clusters.a_cluster(clock)
    control_plane: ControlPlane = request.getfixturevalue("whole_control_plane")
    return lambda: clusters.a_cluster(clock, control_plane=control_plane)
