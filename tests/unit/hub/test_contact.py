"""Whether a workload cluster is reached, and whether what it answers can be read."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.hub.contact import GRACE, Contact
from haulout.hub.standing import Reach


@pytest.fixture
def said() -> list[Reach]:
    return []


@pytest.fixture
async def contact(clock: Clock, said: list[Reach]) -> Contact:
    found = Contact(clock, changed=lambda: said.append(found.reach))
    return found


async def test_a_cluster_that_cannot_be_read_is_told_at_once_and_until_it_can_be(
    contact: Contact, said: list[Reach]
) -> None:
    contact.connected()
    contact.unreadable("the answer is too long")
    contact.succeeded()  # another request was answered
    assert contact.reach is Reach.UNREADABLE
    assert contact.problem == "the answer is too long"
    contact.connected()
    assert said == [Reach.CONNECTED, Reach.UNREADABLE, Reach.CONNECTED]
    assert contact.failing_since is None


async def test_a_cluster_that_cannot_be_read_and_then_not_be_reached_is_unreachable(
    contact: Contact, clock: Clock
) -> None:
    contact.connected()
    contact.unreadable("the answer is too long")
    contact.failed("connection refused")
    await clock.sleep(GRACE + timedelta(seconds=1))
    assert contact.reach is Reach.UNREACHABLE
    assert contact.problem == "connection refused"


async def test_an_answer_does_not_connect_a_cluster_whose_nodes_are_not_known_any_more(
    contact: Contact, said: list[Reach]
) -> None:
    contact.connected()
    contact.unreadable("too much in all caches")
    contact.failed("connection refused")
    contact.succeeded()
    assert said[-1] is Reach.CONNECTING
    contact.connected()
    assert contact.reach is Reach.CONNECTED


async def test_a_cluster_that_could_never_be_read_is_connected_once_its_nodes_are_known(
    contact: Contact, said: list[Reach]
) -> None:
    contact.unreadable("the answer is too long")
    contact.connected()
    assert said[0] is Reach.UNREADABLE
    assert said[-1] is Reach.CONNECTED
    assert not contact.problem
