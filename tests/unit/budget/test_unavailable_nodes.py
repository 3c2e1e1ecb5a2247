"""Unavailable nodes: in maintenance or down for a minute, but not joining ones."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Node
from haulout.budget.unavailable_nodes import (
    MaintenanceCause,
    down_since,
    is_unavailable,
    is_under_maintenance,
    is_under_maintenance_by,
    may_be_available_again,
    may_be_unavailable,
    node_maintenances_of,
    unavailability_reason,
)
from haulout.controllers.nodemaintenance.node_cordon import CORDON_REQUEST
from haulout.controllers.profiles.machine import transitions
from haulout.controllers.profiles.machine.transitions import PendingTransition
from haulout.controllers.profiles.plugin import STATE_LABEL, State
from haulout.drain import cordon
from haulout.drain.cordon import CordonRequest
from support.builders.objects import NodeObject, a_node
from support.fakes.cluster_view import MINUTE, NOW

DAY = timedelta(days=1)


def decoded_node(built: NodeObject, *, created: datetime = NOW - DAY) -> Node:
    built["metadata"] = {**built["metadata"], "uid": "u1", "resourceVersion": "7", "creationTimestamp": created}
    return msgspec.convert(built, Node)


def a_ready(status: str = "True", *, since: datetime | None = NOW - DAY, **more: Any) -> NodeObject:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": since, **more}
    return a_node("n1").with_status(conditions=[condition])


def held_by(owner: str, request: CordonRequest = CORDON_REQUEST) -> Node:
    node = decoded_node(a_ready())
    change = cordon.acquire(node, owner, request, now=NOW)
    assert change is not None
    mark = change["metadata"]["annotations"][cordon.CORDON_ANNOTATION]
    return decoded_node(a_ready().annotated({cordon.CORDON_ANNOTATION: mark}))


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
def test_node_is_down_when_it_has_not_been_ready_for_a_minute(made: NodeObject, *, is_down: bool) -> None:
    assert (down_since(decoded_node(made), NOW) is not None) == is_down
    assert is_unavailable(decoded_node(made), NOW) == is_down


def test_node_without_a_transition_time_is_down_since_its_creation() -> None:
    assert down_since(decoded_node(a_ready("False", since=None), created=NOW - DAY), NOW) == NOW - DAY
    assert (
        unavailability_reason(decoded_node(a_ready("False", since=None), created=NOW - DAY), NOW)
        == "down since 2024-04-30 10:00:00 UTC"
    )


def test_node_that_has_never_been_ready_is_joining_and_not_down() -> None:
    created = NOW - timedelta(hours=1)
    joining = decoded_node(a_ready("False", since=created + timedelta(seconds=2)), created=created)
    fallen = decoded_node(a_ready("False", since=created + timedelta(minutes=2)), created=created)
    assert down_since(joining, NOW) is None
    assert down_since(fallen, NOW) == created + timedelta(minutes=2)
    assert may_be_unavailable(joining)


def test_node_under_maintenance_is_recognized_by_the_marks_of_its_owner() -> None:
    on_its_way = (
        transitions.encode_pending({"os": PendingTransition(next=State.IN_MAINTENANCE, check="c", since=NOW)}) or ""
    )
    by_profile = decoded_node(a_ready().labelled({STATE_LABEL: State.IN_MAINTENANCE}))
    coming = decoded_node(a_ready().annotated({transitions.PENDING_ANNOTATION: on_its_way}))
    by_order = held_by("NodeMaintenance/patch")
    by_nmo = decoded_node(a_ready().tainted("medik8s.io/drain"))
    for node, cause in (
        (by_profile, MaintenanceCause.PROFILES),
        (coming, MaintenanceCause.PROFILES),
        (by_order, MaintenanceCause.NODE_MAINTENANCES),
        (by_nmo, MaintenanceCause.NODE_MAINTENANCES),
    ):
        assert is_under_maintenance(node)
        assert [candidate for candidate in MaintenanceCause if is_under_maintenance_by(candidate, node)] == [cause]
    assert node_maintenances_of(by_order) == ("patch",)
    assert unavailability_reason(by_order, NOW) == "NodeMaintenance patch"
    assert unavailability_reason(by_profile, NOW) == "in maintenance by a profile"
    to_be_deleted = held_by("Kubernikus/delete-node")
    assert unavailability_reason(to_be_deleted, NOW) == "held by Kubernikus delete-node"
    with_its_host = held_by("ESX")
    assert is_under_maintenance(with_its_host)
    assert unavailability_reason(with_its_host, NOW) == "held by ESX"


@pytest.mark.parametrize(
    "made",
    [
        a_ready().cordoned(),
        a_ready().labelled({STATE_LABEL: State.REQUIRED}),
        a_ready().annotated(
            {
                transitions.PENDING_ANNOTATION: transitions.encode_pending(
                    {"os": PendingTransition(next=State.REQUIRED, check="c", since=NOW)}
                )
                or ""
            }
        ),
        a_ready().annotated({transitions.PENDING_ANNOTATION: "oops"}),
    ],
)
def test_manual_cordon_and_other_profile_states_are_not_maintenance(made: NodeObject) -> None:
    assert not is_under_maintenance(decoded_node(made))


def test_unreadable_cordon_annotation_does_not_prove_that_a_slot_is_free() -> None:
    node = decoded_node(a_ready().annotated({cordon.CORDON_ANNOTATION: "oops"}))
    assert not is_under_maintenance(node)
    assert is_under_maintenance_by(MaintenanceCause.NODE_MAINTENANCES, node)


def test_only_changes_that_may_make_a_node_available_free_a_slot() -> None:
    held, free = held_by("NodeMaintenance/patch"), decoded_node(a_ready())
    assert may_be_available_again(held, free)
    assert may_be_available_again(held, None)
    assert not may_be_available_again(free, held)
    assert not may_be_available_again(held, held)
    assert may_be_available_again(decoded_node(a_ready("False")), free)
