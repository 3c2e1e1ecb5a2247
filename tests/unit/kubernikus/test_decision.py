"""What is to be done about a node that is ordered to go, from what is seen of it alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.drain import cordon
from haulout.drain.cordon import Wishes
from haulout.drain.keeper import Kept
from haulout.drain.policy import Policy
from haulout.drain.progress import Ending, Outcome, Progress
from haulout.kube.objects import Metadata, Node, NodeSpec
from haulout.kubernikus.decision import (
    Ask,
    ChangePolicy,
    Cordon,
    Delete,
    Found,
    Note,
    Release,
    Seen,
    StartDrain,
    StopDrain,
    decide,
)
from haulout.kubernikus.keys import DELETE_NODE, OWNER, SERVER
from haulout.kubernikus.nova import Server
from haulout.kubernikus.settings import Settings
from haulout.kubernikus.versions import OddVersion, needs_update

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SETTINGS = Settings(interval=timedelta(seconds=30))
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
        metadata=Metadata(name="n1", uid="u1", resource_version="7", labels=labels, annotations=dict(notes or {})),
        spec=NodeSpec(provider_id=provider),
    )
    if not ours:
        return node
    change = cordon.acquire(node, OWNER, Wishes(), now=NOW)
    assert change is not None
    annotations = {**(notes or {}), **change["metadata"]["annotations"]}
    return msgspec.structs.replace(
        node,
        metadata=msgspec.structs.replace(node.metadata, annotations=annotations),
        spec=NodeSpec(provider_id=provider, unschedulable=True),
    )


def a_drain(*, ended: Ending | None = Ending.DRAINED, **more: Any) -> Kept:
    progress = Progress(node="n1", started=NOW)
    outcome = None if ended is None else Outcome(ended, "so it ended", progress)
    return Kept(**{"node_uid": "u1", "policy": SETTINGS.policy, "progress": progress, "outcome": outcome, **more})


def seen(node: Node | None = None, **more: Any) -> Seen:
    return Seen(**{"node": node or a_node(), "now": NOW, "settings": SETTINGS, "drain": a_drain(), **more})


def test_the_way_of_an_order_is_cordon_drain_ask_note_delete() -> None:
    assert isinstance(decide(seen(a_node(ours=False), drain=None)).step, Cordon)
    assert decide(seen(drain=None)).step == StartDrain(SETTINGS.policy)
    assert decide(seen(drain=a_drain(ended=None))).reason == "Draining"
    assert decide(seen()).step == Ask()
    note = decide(seen(found=Found(servers=(MINE,)))).step
    basis = {"uid": "u1", "resourceVersion": "7"}
    assert note == Note({"metadata": {**basis, "annotations": {SERVER: ID}}})
    noted = a_node({SERVER: ID})
    assert decide(seen(noted, found=Found(servers=(MINE,)))).step == Delete(ID)
    done = decide(seen(noted, deleted=ID))
    assert (done.step, done.reason, done.wakes_at) == (None, "ServerDeleted", NOW + SETTINGS.interval)


@pytest.mark.parametrize(
    "provider", [f"openstack:///{ID}", f"openstack://eu-de-1/{ID}", f"OPENSTACK:///{ID.upper()}", ""]
)
def test_a_server_is_the_nodes_by_its_name_and_by_its_id_if_there_is_one(provider: str) -> None:
    others = (Server(id=OTHER, name="n10"), Server(id=OTHER, name="an1"), Server(id=OTHER, name="N1"))
    assert isinstance(decide(seen(a_node(provider=provider), found=Found(servers=(*others, MINE)))).step, Note)


@pytest.mark.parametrize(
    ("node", "servers", "reason"),
    [
        (a_node(), (), "ServerNotFound"),
        (a_node(), (Server(id=ID, name="n10"),), "ServerNotFound"),
        (a_node(), (MINE, Server(id=OTHER, name="n1")), "ServerAmbiguous"),
        (a_node(), (Server(id=OTHER, name="n1"),), "ServerDiffers"),
        (a_node({SERVER: ID}, provider=""), (Server(id=OTHER, name="n1"),), "ServerReplaced"),
        (a_node(provider="aws:///eu-west-1a/i-0abc"), (MINE,), ""),
    ],
)
def test_what_is_odd_is_told_and_deletes_nothing(node: Node, servers: tuple[Server, ...], reason: str) -> None:
    decision = decide(seen(node, found=Found(servers=servers)))
    assert not isinstance(decision.step, Note | Delete)
    assert decision.reason == reason
    assert decision.is_bad or not reason


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ((), "ServerGone"),
        ((replace(MINE, task="deleting"),), "ServerLeaves"),
        ((replace(MINE, status="DELETED"),), "ServerLeaves"),
    ],
)
def test_what_leaves_already_is_not_told_to_go_again(servers: tuple[Server, ...], reason: str) -> None:
    decision = decide(seen(a_node({SERVER: ID}), found=Found(servers=servers)))
    assert (decision.step, decision.reason, decision.is_bad) == (None, reason, False)


def test_without_an_order_the_drain_stops_first_and_then_all_of_ours_goes() -> None:
    node = a_node({SERVER: ID, "somebody.else/note": "x"}, ordered=False)
    assert decide(seen(node)).step == StopDrain()
    step = decide(seen(node, drain=None)).step
    assert isinstance(step, Release)
    assert step.change["metadata"]["annotations"] == {SERVER: None, cordon.MARK: None, cordon.BACKUP: None}
    assert step.change["spec"] == {"unschedulable": None}
    assert decide(seen(a_node(ordered=False, ours=False), drain=None)).step is None


def test_a_drain_of_another_node_of_this_name_is_not_believed() -> None:
    assert decide(seen(drain=a_drain(node_uid="u0"))).step == StopDrain()


def test_another_policy_counts_at_once() -> None:
    other = Policy.like_smc(evicts_for=timedelta(minutes=1), deletes_for=timedelta(minutes=1))
    assert decide(seen(settings=Settings(policy=other))).step == ChangePolicy(other)


def test_a_mark_that_nobody_can_read_is_told_of_nodes_that_are_ordered_to_go() -> None:
    node = a_node({cordon.MARK: "?"}, ours=False)
    assert decide(seen(node, drain=None)).reason == "CordonUnreadable"
    assert decide(seen(a_node({cordon.MARK: "?"}, ours=False, ordered=False), drain=None)).reason == ""


def test_a_hold_that_comes_later_stops_nothing_that_has_begun() -> None:
    held = {"haulout.dev/hold": "until=2026-01-05T10:00:00Z; by=alice"}
    waiting = decide(seen(a_node(held, ours=False), drain=None))
    assert (waiting.reason, waiting.wakes_at) == ("Held", NOW + timedelta(hours=1))
    assert decide(seen(a_node(held))).step == Ask()


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
def test_kubelets_are_compared_by_semantic_versions(server: str, kubelet: str, *, differs: bool) -> None:
    assert needs_update(server=server, kubelet=kubelet) is differs


@pytest.mark.parametrize(
    ("server", "kubelet"), [("v1.31.4", ""), ("", "v1.31.4"), ("v1.31", "v1.31.4"), ("v1.31.4", "v")]
)
def test_what_is_no_version_is_said_to_be_none(server: str, kubelet: str) -> None:
    with pytest.raises(OddVersion, match="version"):
        needs_update(server=server, kubelet=kubelet)
