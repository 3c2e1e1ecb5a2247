"""Which nodes are out of service: taken by somebody, or down; not those that slip for a moment, or join."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.budget.away import (
    Cause,
    down_since,
    is_away,
    is_taken,
    is_taken_by,
    may_be_back,
    may_count,
    orders_of,
    why,
)
from haulout.drain import cordon
from haulout.drain.cordon import Wishes
from haulout.kube.objects import Node
from haulout.maintenance.holding import WISHES
from haulout.profiles import begun
from haulout.profiles.begun import Begun
from haulout.profiles.plugin import STATE_LABEL, State
from support.builders import NodeThing, a_node
from support.scenes import MINUTE, NOW

DAY = timedelta(days=1)


def seen(made: NodeThing, *, created: datetime = NOW - DAY) -> Node:
    made["metadata"] = {**made["metadata"], "uid": "u1", "resourceVersion": "7", "creationTimestamp": created}
    return msgspec.convert(made, Node)


def a_ready(status: str = "True", *, since: datetime | None = NOW - DAY, **more: Any) -> NodeThing:
    told = {"type": "Ready", "status": status, "lastTransitionTime": since, **more}
    return a_node("n1").with_status(conditions=[told])


def held_by(owner: str, wishes: Wishes = WISHES) -> Node:
    node = seen(a_ready())
    change = cordon.acquire(node, owner, wishes, now=NOW)
    assert change is not None
    mark = change["metadata"]["annotations"][cordon.MARK]
    return seen(a_ready().annotated({cordon.MARK: mark}))


@pytest.mark.parametrize(
    ("made", "is_down"),
    [
        (a_ready(), False),
        (a_ready("False", since=NOW - MINUTE), True),
        (a_ready("Unknown", since=NOW - MINUTE), True),
        (a_ready("False", since=NOW - MINUTE + timedelta(seconds=1)), False),
        (a_ready("False", since=NOW + MINUTE), True),
        (a_ready("False", since=NOW + MINUTE - timedelta(seconds=1)), False),
        (a_ready("False", since=None), True),
        (a_ready("Unknown", since=NOW - MINUTE, reason="NodeStatusNeverUpdated"), False),
        (a_node("n1"), False),
    ],
)
def test_a_node_is_down_when_it_has_not_been_ready_for_a_minute(made: NodeThing, *, is_down: bool) -> None:
    assert (down_since(seen(made), NOW) is not None) == is_down
    assert is_away(seen(made), NOW) == is_down


def test_a_node_that_does_not_say_since_when_it_is_down_is_so_since_it_was_created() -> None:
    assert down_since(seen(a_ready("False", since=None), created=NOW - DAY), NOW) == NOW - DAY
    assert why(seen(a_ready("False", since=None), created=NOW - DAY), NOW) == "down since 2024-04-30 10:00:00 UTC"


def test_a_node_that_has_never_been_ready_joins_and_is_not_missed() -> None:
    created = NOW - timedelta(hours=1)
    joining = seen(a_ready("False", since=created + timedelta(seconds=2)), created=created)
    fallen = seen(a_ready("False", since=created + timedelta(minutes=2)), created=created)
    assert down_since(joining, NOW) is None
    assert down_since(fallen, NOW) == created + timedelta(minutes=2)
    assert may_count(joining)


def test_whoever_takes_a_node_is_recognised_by_what_they_leave_on_it() -> None:
    on_its_way = begun.write({"os": Begun(next=State.IN_MAINTENANCE, check="c", since=NOW)}) or ""
    by_profile = seen(a_ready().labelled({STATE_LABEL: State.IN_MAINTENANCE}))
    coming = seen(a_ready().annotated({begun.ANNOTATION: on_its_way}))
    by_order = held_by("NodeMaintenance/patch")
    by_nmo = seen(a_ready().tainted("medik8s.io/drain"))
    for node, cause in (
        (by_profile, Cause.PROFILES),
        (coming, Cause.PROFILES),
        (by_order, Cause.ORDERS),
        (by_nmo, Cause.ORDERS),
    ):
        assert is_taken(node)
        assert [it for it in Cause if is_taken_by(it, node)] == [cause]
    assert orders_of(by_order) == ("patch",)
    assert why(by_order, NOW) == "NodeMaintenance patch"
    assert why(by_profile, NOW) == "in maintenance by a profile"
    to_be_deleted = held_by("Kubernikus/delete-node")
    assert why(to_be_deleted, NOW) == "to be deleted, by label cloud.sap/delete-node"
    with_its_host = held_by("ESX")
    assert is_taken(with_its_host)
    assert why(with_its_host, NOW) == "shut down for its ESX host"


@pytest.mark.parametrize(
    "made",
    [
        a_ready().cordoned(),
        a_ready().labelled({STATE_LABEL: State.REQUIRED}),
        a_ready().annotated(
            {begun.ANNOTATION: begun.write({"os": Begun(next=State.REQUIRED, check="c", since=NOW)}) or ""}
        ),
        a_ready().annotated({begun.ANNOTATION: "oops"}),
    ],
)
def test_a_cordon_by_hand_or_another_state_is_nothing_that_counts(made: NodeThing) -> None:
    assert not is_taken(seen(made))


def test_a_mark_that_nobody_can_read_is_no_proof_that_a_slot_is_free() -> None:
    node = seen(a_ready().annotated({cordon.MARK: "oops"}))
    assert not is_taken(node)
    assert is_taken_by(Cause.ORDERS, node)


def test_only_a_change_that_may_bring_a_node_back_makes_room() -> None:
    held, free = held_by("NodeMaintenance/patch"), seen(a_ready())
    assert may_be_back(held, free)
    assert may_be_back(held, None)
    assert not may_be_back(free, held)
    assert not may_be_back(held, held)
    assert may_be_back(seen(a_ready("False")), free)
