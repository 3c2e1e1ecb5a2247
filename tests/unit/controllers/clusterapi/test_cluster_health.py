"""Whether a workload cluster is reachable and its responses are readable."""

from datetime import timedelta

import pytest

from haulout.controllers.clusterapi.cluster_health import GRACE_PERIOD, ClusterHealth
from haulout.controllers.clusterapi.status import ConnectionState
from haulout.core.clock import Clock


@pytest.fixture
def connection_states() -> list[ConnectionState]:
    return []


@pytest.fixture
async def cluster_health(clock: Clock, connection_states: list[ConnectionState]) -> ClusterHealth:
    found = ClusterHealth(clock, on_change=lambda: connection_states.append(found.connection_state))
    return found


async def test_unreadable_cluster_is_reported_at_once_until_it_is_connected(
    cluster_health: ClusterHealth, connection_states: list[ConnectionState]
) -> None:
    cluster_health.mark_connected()
    cluster_health.mark_unreadable("the answer is too long")
    cluster_health.mark_responding()  # another request was answered
    assert cluster_health.connection_state is ConnectionState.UNREADABLE
    assert cluster_health.problem == "the answer is too long"
    cluster_health.mark_connected()
    assert connection_states == [ConnectionState.CONNECTED, ConnectionState.UNREADABLE, ConnectionState.CONNECTED]
    assert cluster_health.failing_since is None


async def test_unreadable_cluster_becomes_unreachable_after_the_grace_period(
    cluster_health: ClusterHealth, clock: Clock
) -> None:
    cluster_health.mark_connected()
    cluster_health.mark_unreadable("the answer is too long")
    cluster_health.mark_failed("connection refused")
    await clock.sleep(GRACE_PERIOD + timedelta(seconds=1))
    assert cluster_health.connection_state is ConnectionState.UNREACHABLE
    assert cluster_health.problem == "connection refused"


async def test_response_alone_does_not_connect_a_cluster_with_stale_nodes(
    cluster_health: ClusterHealth, connection_states: list[ConnectionState]
) -> None:
    cluster_health.mark_connected()
    cluster_health.mark_unreadable("too much in all caches")
    cluster_health.mark_failed("connection refused")
    cluster_health.mark_responding()
    assert connection_states[-1] is ConnectionState.CONNECTING
    cluster_health.mark_connected()
    assert cluster_health.connection_state is ConnectionState.CONNECTED


async def test_unreadable_cluster_is_connected_once_its_nodes_are_known(
    cluster_health: ClusterHealth, connection_states: list[ConnectionState]
) -> None:
    cluster_health.mark_unreadable("the answer is too long")
    cluster_health.mark_connected()
    assert connection_states[0] is ConnectionState.UNREADABLE
    assert connection_states[-1] is ConnectionState.CONNECTED
    assert not cluster_health.problem
