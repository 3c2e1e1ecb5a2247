"""The clusters that behaviour tests run on: the sandbox, or real ones with `--backend=real`.

`cluster` is a bare API server in which nothing runs; `a_cluster` plans a whole cluster, with nodes and workloads.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from controlplane import ControlPlane
from haulout.core.clock import Clock
from support.clusters import cluster_plan
from support.clusters.backends import ClusterBackend, SandboxBackend, a_real_backend
from support.clusters.cluster_plan import PlanFactory

# A sandbox kubelet that stops is detected soon: its lease lasts four seconds.
_SHORT_NODE_MONITOR_FLAGS = ("--node-monitor-period=1s", "--node-monitor-grace-period=6s")


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[ClusterBackend]:
    """Yield a cluster for this test alone."""
    if request.config.getoption("--backend") == "sandbox":
        yield SandboxBackend(clock)
        return
    control_plane = request.getfixturevalue("control_plane")
    async with a_real_backend(control_plane, namespace=request.getfixturevalue("namespace")) as real:
        yield real


@pytest.fixture(scope="session")
def control_plane_with_controllers() -> Iterator[ControlPlane]:
    """Run a control plane with all its controllers; a test that uses it leaves nothing behind."""
    with ControlPlane() as alone:
        alone.start_controllers(flags=_SHORT_NODE_MONITOR_FLAGS)
        yield alone


@pytest.fixture
def a_cluster(request: pytest.FixtureRequest, clock: Clock) -> PlanFactory:
    """Return how to plan a whole cluster on the backend that was asked for."""
    if request.config.getoption("--backend") == "sandbox":
        return lambda: cluster_plan.a_cluster(clock)
    control_plane: ControlPlane = request.getfixturevalue("control_plane_with_controllers")
    return lambda: cluster_plan.a_cluster(clock, control_plane=control_plane)
