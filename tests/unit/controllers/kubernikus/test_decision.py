"""The decision about a node that is marked for deletion."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Node, NodeSpec, ObjectMeta
from haulout.controllers.kubernikus.decision import (
    ChangeDrainPolicy,
    CordonNode,
    DeleteServer,
    FindServers,
    Observation,
    RecordServer,
    ReleaseNode,
    ServerLookup,
    StartDrain,
    StopDrain,
    decide,
)
from haulout.controllers.kubernikus.kubelet_version import MalformedVersion, needs_update
from haulout.controllers.kubernikus.labels import CORDON_OWNER, DELETE_NODE, SERVER_ANNOTATION
from haulout.controllers.kubernikus.nova import Server
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.drain import cordon
from haulout.drain.cordon import CordonRequest
from haulout.drain.manager import DrainSnapshot
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import DrainOutcome, DrainProgress, OutcomeResult

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SETTINGS = KubernikusSettings(interval=timedelta(seconds=30))
ID, OTHER = "c47f54bb-9e32-43b9-8e17-3e4aea0ec0d0", "74be6cea-2b33-4f74-86dc-02c25645890a"
MINE = Server(id=ID, name="n1", status="ACTIVE")


def a_node(
    notes: Mapping[str, str] | None = None,
    *,
    ordered: bool = True,
    ours: bool = True,
    provider: str = f"openstack:///{ID}",
) -> Node:
    labels = {DELETE_NODE: "true" if ordered else "false"}
    node = Node(
        metadata=ObjectMeta(name="n1", uid="u1", resource_version="7", labels=labels, annotations=dict(notes or {})),
        spec=NodeSpec(provider_id=provider),
    )
    if not ours:
        return node
    change = cordon.acquire(node, CORDON_OWNER, CordonRequest(), now=NOW)
    assert change is not None
    annotations = {**(notes or {}), **change["metadata"]["annotations"]}
    return msgspec.structs.replace(
        node,
        metadata=msgspec.structs.replace(node.metadata, annotations=annotations),
        spec=NodeSpec(provider_id=provider, unschedulable=True),
    )


def a_drain(*, ended: OutcomeResult | None = OutcomeResult.DRAINED, **more: Any) -> DrainSnapshot:
    progress = DrainProgress(node="n1", started=NOW)
    outcome = None if ended is None else DrainOutcome(ended, "so it ended", progress)
    return DrainSnapshot(
        **{"node_uid": "u1", "policy": SETTINGS.policy, "progress": progress, "outcome": outcome, **more}
    )


def an_observation(node: Node | None = None, **more: Any) -> Observation:
    return Observation(**{"node": node or a_node(), "now": NOW, "settings": SETTINGS, "drain": a_drain(), **more})


def test_deletion_order_cordons_drains_finds_records_and_deletes_the_server() -> None:
    assert isinstance(decide(an_observation(a_node(ours=False), drain=None)).action, CordonNode)
    assert decide(an_observation(drain=None)).action == StartDrain(SETTINGS.policy)
    assert decide(an_observation(drain=a_drain(ended=None))).reason == "Draining"
    assert decide(an_observation()).action == FindServers()
    note = decide(an_observation(lookup=ServerLookup(servers=(MINE,)))).action
    basis = {"uid": "u1", "resourceVersion": "7"}
    assert note == RecordServer({"metadata": {**basis, "annotations": {SERVER_ANNOTATION: ID}}})
    noted = a_node({SERVER_ANNOTATION: ID})
    assert decide(an_observation(noted, lookup=ServerLookup(servers=(MINE,)))).action == DeleteServer(ID)
    done = decide(an_observation(noted, deleted_server=ID))
    assert (done.action, done.reason, done.requeue_at) == (None, "ServerDeleted", NOW + SETTINGS.interval)


@pytest.mark.parametrize(
    "provider", [f"openstack:///{ID}", f"openstack://eu-de-1/{ID}", f"OPENSTACK:///{ID.upper()}", ""]
)
def test_server_matches_the_node_by_name_and_by_provider_id(provider: str) -> None:
    others = (Server(id=OTHER, name="n10"), Server(id=OTHER, name="an1"), Server(id=OTHER, name="N1"))
    assert isinstance(
        decide(an_observation(a_node(provider=provider), lookup=ServerLookup(servers=(*others, MINE)))).action,
        RecordServer,
    )


@pytest.mark.parametrize(
    ("node", "servers", "reason"),
    [
        (a_node(), (), "ServerNotFound"),
        (a_node(), (Server(id=ID, name="n10"),), "ServerNotFound"),
        (a_node(), (MINE, Server(id=OTHER, name="n1")), "ServerAmbiguous"),
        (a_node(), (Server(id=OTHER, name="n1"),), "ServerIDMismatch"),
        (a_node({SERVER_ANNOTATION: ID}, provider=""), (Server(id=OTHER, name="n1"),), "ServerReplaced"),
        (a_node(provider="aws:///eu-west-1a/i-0abc"), (MINE,), ""),
    ],
)
def test_inconsistent_server_is_reported_and_not_deleted(node: Node, servers: tuple[Server, ...], reason: str) -> None:
    decision = decide(an_observation(node, lookup=ServerLookup(servers=servers)))
    assert not isinstance(decision.action, RecordServer | DeleteServer)
    assert decision.reason == reason
    assert decision.is_warning or not reason


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ((), "ServerGone"),
        ((replace(MINE, task="deleting"),), "ServerDeleting"),
        ((replace(MINE, status="DELETED"),), "ServerDeleting"),
    ],
)
def test_server_that_is_being_deleted_is_not_deleted_again(servers: tuple[Server, ...], reason: str) -> None:
    decision = decide(an_observation(a_node({SERVER_ANNOTATION: ID}), lookup=ServerLookup(servers=servers)))
    assert (decision.action, decision.reason, decision.is_warning) == (None, reason, False)


def test_withdrawn_order_stops_the_drain_and_then_releases_the_node() -> None:
    node = a_node({SERVER_ANNOTATION: ID, "somebody.else/note": "x"}, ordered=False)
    assert decide(an_observation(node)).action == StopDrain()
    step = decide(an_observation(node, drain=None)).action
    assert isinstance(step, ReleaseNode)
    assert step.change["metadata"]["annotations"] == {
        SERVER_ANNOTATION: None,
        cordon.CORDON_ANNOTATION: None,
        cordon.CORDON_BACKUP_ANNOTATION: None,
    }
    assert step.change["spec"] == {"unschedulable": None}
    assert decide(an_observation(a_node(ordered=False, ours=False), drain=None)).action is None


def test_drain_of_another_node_of_the_same_name_is_stopped() -> None:
    assert decide(an_observation(drain=a_drain(node_uid="u0"))).action == StopDrain()


def test_changed_drain_policy_applies_at_once() -> None:
    other = DrainPolicy.like_smc(eviction_timeout=timedelta(minutes=1), deletion_timeout=timedelta(minutes=1))
    assert decide(an_observation(settings=KubernikusSettings(policy=other))).action == ChangeDrainPolicy(other)


def test_unreadable_cordon_annotation_is_reported_only_for_ordered_nodes() -> None:
    node = a_node({cordon.CORDON_ANNOTATION: "?"}, ours=False)
    assert decide(an_observation(node, drain=None)).reason == "CordonUnreadable"
    assert (
        decide(an_observation(a_node({cordon.CORDON_ANNOTATION: "?"}, ours=False, ordered=False), drain=None)).reason
        == ""
    )


def test_hold_set_later_stops_nothing_that_has_started() -> None:
    held = {"haulout.dev/hold": "until=2026-01-05T10:00:00Z; by=alice"}
    waiting = decide(an_observation(a_node(held, ours=False), drain=None))
    assert (waiting.reason, waiting.requeue_at) == ("Held", NOW + timedelta(hours=1))
    assert decide(an_observation(a_node(held))).action == FindServers()


@pytest.mark.parametrize(
    ("server", "kubelet", "differs"),
    [
        ("v1.31.4", "v1.31.4", False),
        ("v1.31.4", "v1.30.9", True),
        ("v1.31.4", "v1.32.0", True),
        ("v1.31.4+a", "v1.31.4+b", False),
        ("v1.31.4-eks-1", "v1.31.4", True),
    ],
)
def test_kubelet_versions_are_compared_semantically(server: str, kubelet: str, *, differs: bool) -> None:
    assert needs_update(server=server, kubelet=kubelet) is differs


@pytest.mark.parametrize(
    ("server", "kubelet"), [("v1.31.4", ""), ("", "v1.31.4"), ("v1.31", "v1.31.4"), ("v1.31.4", "v")]
)
def test_malformed_version_is_refused(server: str, kubelet: str) -> None:
    with pytest.raises(MalformedVersion, match="version"):
        needs_update(server=server, kubelet=kubelet)
