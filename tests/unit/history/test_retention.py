"""Retention: the history of deleted nodes is kept for a time, bounded, and never deleted while the node exists."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random

import pytest

from haulout.api.maintenancerecord import (
    CREATED,
    DELETED,
    MAINTENANCE_RECORDS,
    NODE,
    NODE_DELETED_ANNOTATION,
    NODE_UID_ANNOTATION,
    Entry,
    MaintenanceRecord,
    NewEntry,
)
from haulout.api.objects import ObjectMeta, OwnerReference, RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from haulout.controllers.nodemaintenance.informers import node_cache
from haulout.core.clock import Clock
from haulout.history.retention import DeletedNodes, Retention, RetentionAction, RetentionSettings, decide, expires_at
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Request
from haulout_sandbox.event_loops.virtual_time import EPOCH
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.expectations.maintenance_records import CRD, PLURAL, entries, transitions, with_record_crd, write_count

OPERATOR = "operator"
OS, MAINTENANCE = "profile/os", "NodeMaintenance/patch"
SETTINGS = RetentionSettings(keep_for=timedelta(minutes=30), most=3)
_SETTLE_SECONDS = 5  # seconds


class Operator:
    """The history components of a leader."""

    def __init__(self, cluster: SandboxCluster, settings: RetentionSettings, name: str) -> None:
        client = Client(cluster.transport(name), clock=cluster.clock, random=Random(1))
        self.nodes = node_cache(client)
        self.retention = Retention(client, self.nodes, is_off=lambda: self.writer.is_off, settings=settings)
        self.writer = HistoryWriter(client, on_created=self.retention.enqueue)
        self.writer.subscribe(self.retention.relist)


@asynccontextmanager
async def running_operator(
    cluster: SandboxCluster, *, settings: RetentionSettings = SETTINGS, name: str = OPERATOR
) -> AsyncIterator[Operator]:
    """Run the components in the cluster."""
    operator = Operator(cluster, settings, name)
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(one) for one in (operator.nodes.run(), operator.writer.run(), operator.retention.run())
        ]
        await cluster.pass_time(seconds=_SETTLE_SECONDS)
        yield operator
        for one in running:
            one.cancel()


@asynccontextmanager
async def a_recorded_cluster(clock: Clock, *, nodes: int = 1) -> AsyncIterator[SandboxCluster]:
    async with with_record_crd(a_cluster(clock)).with_nodes(nodes).on_the_sandbox() as cluster:
        yield cluster


def a_new_entry(number: int = 0, *, what: str = OS, to: str = "in-maintenance", time: datetime = EPOCH) -> NewEntry:
    instance, count = ("uid-of-order", number + 1) if what == MAINTENANCE else ("", 0)
    entry = Entry(
        time=time + timedelta(hours=number), object=what, to=to, reason="why", instance=instance, number=count
    )
    return NewEntry(entry=entry, initial_state="operational")


async def add_entry(
    cluster: SandboxCluster, operator: Operator, *names: str, new_entry: NewEntry | None = None
) -> None:
    for name in names:
        operator.writer.add(await cluster.admin.get(NODES, name), new_entry or a_new_entry())
    await cluster.pass_time(seconds=_SETTLE_SECONDS)


async def delete_nodes(cluster: SandboxCluster, *names: str) -> None:
    for name in names:
        await cluster.delete("nodes", name)
        await cluster.pass_time(seconds=_SETTLE_SECONDS)


def recreate_node(cluster: SandboxCluster, name: str) -> RawObject:
    """Create the node again; return it."""
    cluster.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {}})
    found: RawObject = cluster.get("nodes", name)
    return found


def annotations(cluster: SandboxCluster, name: str = "n1") -> dict[str, str]:
    found: dict[str, str] = cluster.get(PLURAL, name)["metadata"].get("annotations", {})
    return found


def node_results(cluster: SandboxCluster, name: str = "n1") -> list[str]:
    return [entry["result"] for entry in entries(cluster, name) if entry["object"] == NODE]


def existing_records(cluster: SandboxCluster, count: int) -> list[str]:
    names = (f"n{number}" for number in range(1, count + 1))
    return [name for name in names if cluster.has(PLURAL, name)]


# The node is deleted


async def test_history_of_a_deleted_node_is_kept_with_the_deletion_time(clock: Clock) -> None:
    async with a_recorded_cluster(clock, nodes=2) as cluster, running_operator(cluster) as operator:
        await add_entry(cluster, operator, "n1")
        await cluster.pass_time(hours=1)
        at = clock.now()
        await delete_nodes(cluster, "n1", "n2")
        await cluster.pass_time(minutes=1)
        assert transitions(cluster, "n1") == [(OS, "", "in-maintenance")]
        assert node_results(cluster) == [DELETED]
        assert datetime.fromisoformat(annotations(cluster)[NODE_DELETED_ANNOTATION]) == at.replace(microsecond=0)
        assert not cluster.has(PLURAL, "n2"), "a record is made only for a node that had entries"
        assert write_count(cluster, "n1") == 2


async def test_record_is_deleted_exactly_after_keep_for_without_polling(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster, running_operator(cluster) as operator:
        await add_entry(cluster, operator, "n1")
        at = clock.now()
        await delete_nodes(cluster, "n1")
        before = len(record_requests(cluster))
        await cluster.pass_time(seconds=(at + SETTINGS.keep_for - clock.now()).total_seconds() - 2)
        assert cluster.has(PLURAL, "n1")
        assert len(record_requests(cluster)) == before
        await cluster.pass_time(seconds=3)
        assert not cluster.has(PLURAL, "n1")


async def test_last_entry_of_a_node_is_written_before_its_deletion_entry(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster, running_operator(cluster) as operator:
        await add_entry(cluster, operator, "n1")
        operator.writer.add(await cluster.admin.get(NODES, "n1"), a_new_entry(1, to="operational"))
        await delete_nodes(cluster, "n1")
        assert [one["object"] for one in entries(cluster, "n1")] == [OS, OS, NODE]


async def test_record_created_after_the_node_was_deleted_expires(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster, running_operator(cluster) as operator:
        node = await cluster.admin.get(NODES, "n1")
        await delete_nodes(cluster, "n1")
        operator.writer.add(node, a_new_entry())
        await cluster.pass_time(seconds=_SETTLE_SECONDS)
        assert NODE_DELETED_ANNOTATION in annotations(cluster)
        await cluster.pass_time(seconds=SETTINGS.keep_for.total_seconds())
        assert not cluster.has(PLURAL, "n1")


async def test_record_is_deleted_with_its_node_without_retention(clock: Clock) -> None:
    none = RetentionSettings(keep_for=timedelta())
    async with a_recorded_cluster(clock) as cluster, running_operator(cluster, settings=none) as operator:
        await add_entry(cluster, operator, "n1")
        await delete_nodes(cluster, "n1")
        assert not cluster.has(PLURAL, "n1")


# How many


async def test_records_of_nodes_deleted_first_are_removed_above_the_maximum(clock: Clock) -> None:
    async with a_recorded_cluster(clock, nodes=6) as cluster, running_operator(cluster) as operator:
        await add_entry(cluster, operator, *(f"n{number}" for number in range(1, 7)))
        await delete_nodes(cluster, "n5", "n2", "n4", "n1", "n3")
        assert existing_records(cluster, 6) == ["n1", "n3", "n4", "n6"]


async def test_successor_with_a_lower_maximum_deletes_surplus_records(clock: Clock) -> None:
    names = [f"n{number}" for number in range(1, 5)]
    async with a_recorded_cluster(clock, nodes=4) as cluster:
        async with running_operator(cluster, settings=RetentionSettings()) as operator:
            await add_entry(cluster, operator, *names)
            await delete_nodes(cluster, *names)
            assert existing_records(cluster, 4) == names
        async with running_operator(cluster, settings=RetentionSettings(most=1), name="successor"):
            assert existing_records(cluster, 4) == ["n4"]


# While no operator runs


async def test_node_deleted_while_no_operator_ran_is_recorded_at_startup(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster:
        async with running_operator(cluster) as operator:
            await add_entry(cluster, operator, "n1")
        await cluster.delete("nodes", "n1")
        await cluster.pass_time(minutes=2)
        async with running_operator(cluster, name="successor"):
            (end,) = (one for one in entries(cluster, "n1") if one["object"] == NODE)
            assert (end["result"], end["reconstructed"]) == (DELETED, True)
            await cluster.pass_time(seconds=SETTINGS.keep_for.total_seconds() - 60)
            assert cluster.has(PLURAL, "n1")
            await cluster.pass_time(seconds=60)
            assert not cluster.has(PLURAL, "n1")


async def test_successor_counts_from_the_deletion_and_writes_nothing_again(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster:
        async with running_operator(cluster) as operator:
            await add_entry(cluster, operator, "n1")
            await delete_nodes(cluster, "n1")
        await cluster.pass_time(minutes=29)
        before = write_count(cluster, "n1")
        async with running_operator(cluster, name="successor"):
            assert (cluster.has(PLURAL, "n1"), write_count(cluster, "n1")) == (True, before)
            await cluster.pass_time(minutes=1)
            assert not cluster.has(PLURAL, "n1")


async def test_record_that_expired_while_no_operator_ran_is_deleted_at_startup(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster:
        async with running_operator(cluster) as operator:
            await add_entry(cluster, operator, "n1")
            await delete_nodes(cluster, "n1")
        await cluster.pass_time(minutes=31)
        async with running_operator(cluster, name="successor"):
            assert not cluster.has(PLURAL, "n1")


async def test_record_of_an_older_version_is_released_from_its_node_and_kept(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster:
        uid = cluster.get("nodes", "n1")["metadata"]["uid"]
        owners = [
            {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid},
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "theirs"},
        ]
        entry = {"time": "2026-01-01T00:00:00Z", "object": OS, "to": "in-maintenance"}
        record = {"apiVersion": MAINTENANCE_RECORDS.api_version, "kind": MAINTENANCE_RECORDS.kind}
        meta = {"name": "n1", "ownerReferences": owners}
        cluster.pause("garbage")
        await cluster.create({**record, "metadata": meta, "total": 1, "entries": [entry]})
        async with running_operator(cluster):
            found = cluster.get(PLURAL, "n1")["metadata"]
            assert [one["kind"] for one in found["ownerReferences"]] == ["Namespace"], "what others wrote stays"
            assert found["annotations"][NODE_UID_ANNOTATION] == uid
            await cluster.delete("nodes", "n1")
            await cluster.pass_time(minutes=5)
            assert node_results(cluster) == [DELETED]


# Recreated nodes


async def test_recreated_node_continues_the_history_of_its_name(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster, running_operator(cluster) as operator:
        await add_entry(cluster, operator, "n1")
        await add_entry(cluster, operator, "n1", new_entry=a_new_entry(what=MAINTENANCE, to="Running"))
        await delete_nodes(cluster, "n1")
        await cluster.pass_time(minutes=1)
        new = recreate_node(cluster, "n1")["metadata"]["uid"]
        await add_entry(cluster, operator, "n1", new_entry=a_new_entry(1, what=MAINTENANCE, to="Succeeded"))
        assert node_results(cluster) == [DELETED, CREATED]
        assert [to for _, _, to in transitions(cluster, "n1")] == ["in-maintenance", "Running", "Succeeded"]
        assert annotations(cluster)[NODE_UID_ANNOTATION] == new
        assert NODE_DELETED_ANNOTATION not in annotations(cluster)
        await cluster.pass_time(minutes=60)
        assert cluster.has(PLURAL, "n1"), "it is the record of a node that exists"


async def test_recreated_node_starts_without_the_states_of_the_old_one(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster, running_operator(cluster) as operator:
        await add_entry(cluster, operator, "n1")
        await delete_nodes(cluster, "n1")
        recreate_node(cluster, "n1")
        required = Entry(time=clock.now(), object=OS, from_="operational", to="maintenance-required", since=EPOCH)
        await add_entry(cluster, operator, "n1", new_entry=NewEntry(entry=required, initial_state="operational"))
        assert transitions(cluster, "n1") == [(OS, "", "in-maintenance"), (OS, "operational", "maintenance-required")]
        assert not [one for one in entries(cluster, "n1") if one["object"] == "history"], "there is no gap"


async def test_late_entry_of_the_old_node_does_not_move_the_record_from_the_new_one(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster, running_operator(cluster) as operator:
        old = await cluster.admin.get(NODES, "n1")
        await add_entry(cluster, operator, "n1")
        await delete_nodes(cluster, "n1")
        new = recreate_node(cluster, "n1")["metadata"]["uid"]
        await add_entry(cluster, operator, "n1", new_entry=a_new_entry(1, what=MAINTENANCE, to="Running"))
        operator.writer.add(old, a_new_entry(2, to="operational"))
        await cluster.pass_time(seconds=_SETTLE_SECONDS)
        assert annotations(cluster)[NODE_UID_ANNOTATION] == new
        assert node_results(cluster) == [DELETED, CREATED]
        assert transitions(cluster, "n1")[-1] == (OS, "", "operational")


async def test_record_of_a_node_recreated_at_the_last_moment_is_not_deleted(clock: Clock) -> None:
    """The record is continued between the read and the deletion, so the deletion is refused."""
    async with a_recorded_cluster(clock) as cluster, running_operator(cluster) as item:
        await add_entry(cluster, item, "n1")
        await delete_nodes(cluster, "n1")
        await cluster.pass_time(seconds=SETTINGS.keep_for.total_seconds() - 60)
        recreate_node(cluster, "n1")
        cluster.transport(OPERATOR).faults.delay(timedelta(seconds=25), where=lambda item: item.method == "DELETE")
        await cluster.pass_time(seconds=60 - _SETTLE_SECONDS + 1)
        assert cluster.has(PLURAL, "n1"), "the deletion is on its way"
        await add_entry(cluster, item, "n1", new_entry=a_new_entry(1, what=MAINTENANCE, to="Running"))
        await cluster.pass_time(minutes=5)
        assert [one.request.method for one in cluster.transport(OPERATOR).requests].count("DELETE") == 1
        assert node_results(cluster) == [DELETED, CREATED]


async def test_node_missing_in_the_cache_is_not_taken_for_deleted(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster, running_operator(cluster) as operator:
        await add_entry(cluster, operator, "n1")
        row = operator.nodes.get("n1")
        assert row is not None
        operator.nodes.remove([row])
        operator.retention.relist()
        await cluster.pass_time(seconds=_SETTLE_SECONDS)
        assert NODE_DELETED_ANNOTATION not in annotations(cluster)


# Failures


async def test_crd_created_later_is_detected(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster, running_operator(cluster) as operator:
        await cluster.pass_time(minutes=2)
        assert operator.writer.is_off
        request_count = len(record_requests(cluster))
        await cluster.pass_time(minutes=30)
        assert len(record_requests(cluster)) == request_count
        await cluster.admin.create(CUSTOM_RESOURCE_DEFINITIONS, CRD)
        await cluster.pass_time(minutes=2)
        await add_entry(cluster, operator, "n1")
        await delete_nodes(cluster, "n1")
        assert node_results(cluster) == [DELETED]


async def test_forged_deletion_annotation_does_not_delete_the_history(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as cluster:
        async with running_operator(cluster) as operator:
            await add_entry(cluster, operator, "n1")
        wrong = merge_patch({"metadata": {"annotations": {NODE_DELETED_ANNOTATION: "2020-01-01T00:00:00Z"}}})
        await cluster.admin.patch(MAINTENANCE_RECORDS, "n1", wrong)
        async with running_operator(cluster, name="successor"):
            assert cluster.has(PLURAL, "n1")
            assert NODE_DELETED_ANNOTATION not in annotations(cluster)


def record_requests(cluster: SandboxCluster) -> list[Request]:
    return [
        recorded_request.request
        for recorded_request in cluster.transport(OPERATOR).requests
        if PLURAL in recorded_request.request.path
    ]


# Decisions


def a_record(*, uid: str = "u1", gone: str = "", owned: bool = False) -> MaintenanceRecord:
    notes = {NODE_UID_ANNOTATION: uid} | ({NODE_DELETED_ANNOTATION: gone} if gone else {})
    owners = (OwnerReference(api_version="v1", kind="Node", name="n1", uid=uid),) if owned else ()
    return MaintenanceRecord(metadata=ObjectMeta(name="n1", annotations=notes, owner_references=owners))


GONE = "2026-01-01T00:00:00Z"
GONE_AT = datetime.fromisoformat(GONE)


@pytest.mark.parametrize(
    ("record", "node", "after", "surplus", "action"),
    [
        pytest.param(a_record(), "u1", 0, False, RetentionAction.KEEP, id="it exists"),
        pytest.param(a_record(owned=True), "u1", 0, False, RetentionAction.RELEASE, id="it owns its record"),
        pytest.param(
            a_record(owned=True), None, 0, False, RetentionAction.MARK_DELETED, id="deleted node that owned its record"
        ),
        pytest.param(a_record(), "u2", 0, False, RetentionAction.MARK_DELETED, id="there is another"),
        pytest.param(a_record(gone=GONE), None, 29, False, RetentionAction.KEEP, id="it is kept"),
        pytest.param(a_record(gone=GONE), None, 30, False, RetentionAction.DELETE, id="its time is over"),
        pytest.param(
            a_record(gone=GONE),
            "u2",
            30,
            False,
            RetentionAction.DELETE,
            id="time is over although there is another node",
        ),
        pytest.param(a_record(gone=GONE), None, 0, True, RetentionAction.DELETE, id="there are too many"),
        pytest.param(a_record(gone=GONE), "u1", 99, True, RetentionAction.UNMARK_DELETED, id="it exists after all"),
        pytest.param(
            a_record(gone="soon"), None, 0, False, RetentionAction.MARK_DELETED, id="unreadable deletion time"
        ),
        pytest.param(
            a_record(gone="2026-01-01T00:00:00"),
            None,
            0,
            False,
            RetentionAction.MARK_DELETED,
            id="deletion time without a zone",
        ),
        pytest.param(a_record(uid="", gone=GONE), None, 30, False, RetentionAction.DELETE, id="unknown UID"),
    ],
)
def test_decide_chooses_the_retention_action(
    record: MaintenanceRecord, node: str | None, after: int, *, surplus: bool, action: RetentionAction
) -> None:
    found = decide(record, node, now=GONE_AT + timedelta(minutes=after), settings=SETTINGS, is_surplus=surplus)
    assert found.action is action
    is_waiting = action is RetentionAction.KEEP and record.node_deleted is not None
    assert found.requeue_at == (GONE_AT + SETTINGS.keep_for if is_waiting else None)


def test_expiry_beyond_the_calendar_is_none() -> None:
    assert expires_at(GONE_AT, RetentionSettings(keep_for=timedelta.max)) is None


def test_surplus_returns_the_nodes_deleted_first() -> None:
    nodes = DeletedNodes()
    for name, hour in (("b", 2), ("a", 1), ("c", 3), ("a", 4)):
        nodes.put(name, GONE_AT + timedelta(hours=hour))
    nodes.discard("unknown")
    assert list(nodes.surplus(1)) == ["b", "c"]
    assert [nodes.is_surplus(node_name, 1) for node_name in ("a", "b", "c", "unknown")] == [False, True, True, False]
    nodes.discard("b")
    assert (len(nodes), list(nodes.surplus(2))) == (2, [])
