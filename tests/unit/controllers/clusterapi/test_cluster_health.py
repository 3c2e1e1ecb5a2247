"""Whether a workload cluster is reached, and whether what it answers can be read."""

from datetime import timedelta

import pytest

from haulout.controllers.clusterapi.cluster_health import GRACE_PERIOD, ClusterHealth
from haulout.controllers.clusterapi.status import ConnectionState
from haulout.core.clock import Clock


@pytest.fixture
def said() -> list[ConnectionState]:
    return []


@pytest.fixture
async def contact(clock: Clock, said: list[ConnectionState]) -> ClusterHealth:
    found = ClusterHealth(clock, on_change=lambda: said.append(found.connection_state))
    return found


async def test_a_cluster_that_cannot_be_read_is_told_at_once_and_until_it_can_be(
    contact: ClusterHealth, said: list[ConnectionState]
) -> None:
    contact.mark_connected()
    contact.mark_unreadable("the answer is too long")
    contact.mark_responding()  # another request was answered
    assert contact.connection_state is ConnectionState.UNREADABLE
    assert contact.problem == "the answer is too long"
    contact.mark_connected()
    assert said == [ConnectionState.CONNECTED, ConnectionState.UNREADABLE, ConnectionState.CONNECTED]
    assert contact.failing_since is None


async def test_a_cluster_that_cannot_be_read_and_then_not_be_reached_is_unreachable(
    contact: ClusterHealth, clock: Clock
) -> None:
    contact.mark_connected()
    contact.mark_unreadable("the answer is too long")
    contact.mark_failed("connection refused")
    await clock.sleep(GRACE_PERIOD + timedelta(seconds=1))
    assert contact.connection_state is ConnectionState.UNREACHABLE
    assert contact.problem == "connection refused"


async def test_an_answer_does_not_connect_a_cluster_whose_nodes_are_not_known_any_more(
    contact: ClusterHealth, said: list[ConnectionState]
) -> None:
    contact.mark_connected()
    contact.mark_unreadable("too much in all caches")
    contact.mark_failed("connection refused")
    contact.mark_responding()
    assert said[-1] is ConnectionState.CONNECTING
    contact.mark_connected()
    assert contact.connection_state is ConnectionState.CONNECTED


async def test_a_cluster_that_could_never_be_read_is_connected_once_its_nodes_are_known(
    contact: ClusterHealth, said: list[ConnectionState]
) -> None:
    contact.mark_unreadable("the answer is too long")
    contact.mark_connected()
    assert said[0] is ConnectionState.UNREADABLE
    assert said[-1] is ConnectionState.CONNECTED
    assert not contact.problem
