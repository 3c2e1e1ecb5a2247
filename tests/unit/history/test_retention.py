"""The history of deleted nodes: kept for a time, bounded, and never taken from a node that exists."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.history.keeper import Keeper
from haulout.history.record import (
    CREATED,
    DELETED,
    MAINTENANCE_RECORDS,
    NODE,
    NODE_DELETED,
    NODE_UID,
    Entry,
    Note,
    Record,
)
from haulout.history.retention import Action, DeletedNodes, Retention, RetentionSettings, decide, expires_at
from haulout.kube.client import Client
from haulout.kube.objects import Metadata, OwnerReference, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import DEFINITIONS, NODES
from haulout.kube.transport import Request
from haulout.maintenance.sight import node_cache
from haulout_sandbox.event_loops.virtual import EPOCH
from support.clusters import a_cluster
from support.live import SandboxCluster
from support.recorded import DEFINITION, PLURAL, entries, moves, recorded, writes

OPERATOR = "operator"
OS, MAINTENANCE = "profile/os", "NodeMaintenance/patch"
KEPT = RetentionSettings(keep_for=timedelta(minutes=30), most=3)
_SETTLED = 5  # seconds


class Operator:
    """What the leader runs of the history."""

    def __init__(self, cluster: SandboxCluster, settings: RetentionSettings, name: str) -> None:
        client = Client(cluster.line(name), clock=cluster.clock, random=Random(1))
        self.nodes = node_cache(client)
        self.retention = Retention(client, self.nodes, is_off=lambda: self.keeper.is_off, settings=settings)
        self.keeper = Keeper(client, created=self.retention.add)
        self.keeper.subscribe(self.retention.survey)


@asynccontextmanager
async def operating(
    cluster: SandboxCluster, *, settings: RetentionSettings = KEPT, name: str = OPERATOR
) -> AsyncIterator[Operator]:
    """Run it in the cluster."""
    it = Operator(cluster, settings, name)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one) for one in (it.nodes.run(), it.keeper.run(), it.retention.run())]
        await cluster.pass_time(seconds=_SETTLED)
        yield it
        for one in running:
            one.cancel()


@asynccontextmanager
async def a_town(clock: Clock, *, nodes: int = 1) -> AsyncIterator[SandboxCluster]:
    async with recorded(a_cluster(clock)).with_nodes(nodes).on_the_sandbox() as cluster:
        yield cluster


def a_note(number: int = 0, *, what: str = OS, to: str = "in-maintenance", time: datetime = EPOCH) -> Note:
    instance, count = ("uid-of-order", number + 1) if what == MAINTENANCE else ("", 0)
    entry = Entry(time=time + timedelta(hours=number), what=what, to=to, why="why", instance=instance, number=count)
    return Note(entry=entry, begins_in="operational")


async def happens(cluster: SandboxCluster, it: Operator, *names: str, note: Note | None = None) -> None:
    for name in names:
        it.keeper.note(await cluster.me.get(NODES, name), note or a_note())
    await cluster.pass_time(seconds=_SETTLED)


async def deleted(cluster: SandboxCluster, *names: str) -> None:
    for name in names:
        await cluster.delete("nodes", name)
        await cluster.pass_time(seconds=_SETTLED)


def again(cluster: SandboxCluster, name: str) -> RawObject:
    """Have a node of this name once more; return it."""
    cluster.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {}})
    found: RawObject = cluster.get("nodes", name)
    return found


def annotations(cluster: SandboxCluster, name: str = "n1") -> dict[str, str]:
    found: dict[str, str] = cluster.get(PLURAL, name)["metadata"].get("annotations", {})
    return found


def about_node(cluster: SandboxCluster, name: str = "n1") -> list[str]:
    return [it["result"] for it in entries(cluster, name) if it["what"] == NODE]


def kept(cluster: SandboxCluster, count: int) -> list[str]:
    names = (f"n{number}" for number in range(1, count + 1))
    return [it for it in names if cluster.has(PLURAL, it)]


# The node is deleted


async def test_the_history_of_a_deleted_node_stays_and_says_when_it_was_deleted(clock: Clock) -> None:
    async with a_town(clock, nodes=2) as cluster, operating(cluster) as it:
        await happens(cluster, it, "n1")
        await cluster.pass_time(hours=1)
        at = clock.now()
        await deleted(cluster, "n1", "n2")
        await cluster.pass_time(minutes=1)
        assert moves(cluster, "n1") == [(OS, "", "in-maintenance")]
        assert about_node(cluster) == [DELETED]
        assert datetime.fromisoformat(annotations(cluster)[NODE_DELETED]) == at.replace(microsecond=0)
        assert not cluster.has(PLURAL, "n2"), "a record is made only for a node that had entries"
        assert writes(cluster, "n1") == 2


async def test_it_goes_at_the_exact_time_and_nothing_is_asked_until_then(clock: Clock) -> None:
    async with a_town(clock) as cluster, operating(cluster) as it:
        await happens(cluster, it, "n1")
        at = clock.now()
        await deleted(cluster, "n1")
        before = len(about_records(cluster))
        await cluster.pass_time(seconds=(at + KEPT.keep_for - clock.now()).total_seconds() - 2)
        assert cluster.has(PLURAL, "n1")
        assert len(about_records(cluster)) == before
        await cluster.pass_time(seconds=3)
        assert not cluster.has(PLURAL, "n1")


async def test_what_happened_last_to_a_node_is_written_before_its_end(clock: Clock) -> None:
    async with a_town(clock) as cluster, operating(cluster) as it:
        await happens(cluster, it, "n1")
        it.keeper.note(await cluster.me.get(NODES, "n1"), a_note(1, to="operational"))
        await deleted(cluster, "n1")
        assert [one["what"] for one in entries(cluster, "n1")] == [OS, OS, NODE]


async def test_a_record_that_is_made_after_the_node_is_gone_expires_too(clock: Clock) -> None:
    async with a_town(clock) as cluster, operating(cluster) as it:
        node = await cluster.me.get(NODES, "n1")
        await deleted(cluster, "n1")
        it.keeper.note(node, a_note())
        await cluster.pass_time(seconds=_SETTLED)
        assert NODE_DELETED in annotations(cluster)
        await cluster.pass_time(seconds=KEPT.keep_for.total_seconds())
        assert not cluster.has(PLURAL, "n1")


async def test_without_retention_a_record_goes_with_its_node(clock: Clock) -> None:
    none = RetentionSettings(keep_for=timedelta())
    async with a_town(clock) as cluster, operating(cluster, settings=none) as it:
        await happens(cluster, it, "n1")
        await deleted(cluster, "n1")
        assert not cluster.has(PLURAL, "n1")


# How many


async def test_of_too_many_the_nodes_that_were_deleted_first_go(clock: Clock) -> None:
    async with a_town(clock, nodes=6) as cluster, operating(cluster) as it:
        await happens(cluster, it, *(f"n{number}" for number in range(1, 7)))
        await deleted(cluster, "n5", "n2", "n4", "n1", "n3")
        assert kept(cluster, 6) == ["n1", "n3", "n4", "n6"]


async def test_a_successor_that_may_keep_fewer_deletes_the_others(clock: Clock) -> None:
    names = [f"n{number}" for number in range(1, 5)]
    async with a_town(clock, nodes=4) as cluster:
        async with operating(cluster, settings=RetentionSettings()) as it:
            await happens(cluster, it, *names)
            await deleted(cluster, *names)
            assert kept(cluster, 4) == names
        async with operating(cluster, settings=RetentionSettings(most=1), name="successor"):
            assert kept(cluster, 4) == ["n4"]


# The operator was away


async def test_a_node_deleted_while_no_operator_ran_is_noticed_at_the_start(clock: Clock) -> None:
    async with a_town(clock) as cluster:
        async with operating(cluster) as it:
            await happens(cluster, it, "n1")
        await cluster.delete("nodes", "n1")
        await cluster.pass_time(minutes=2)
        async with operating(cluster, name="successor"):
            (end,) = (one for one in entries(cluster, "n1") if one["what"] == NODE)
            assert (end["result"], end["reconstructed"]) == (DELETED, True)
            await cluster.pass_time(seconds=KEPT.keep_for.total_seconds() - 60)
            assert cluster.has(PLURAL, "n1")
            await cluster.pass_time(seconds=60)
            assert not cluster.has(PLURAL, "n1")


async def test_a_successor_counts_from_the_deletion_and_writes_nothing_again(clock: Clock) -> None:
    async with a_town(clock) as cluster:
        async with operating(cluster) as it:
            await happens(cluster, it, "n1")
            await deleted(cluster, "n1")
        await cluster.pass_time(minutes=29)
        before = writes(cluster, "n1")
        async with operating(cluster, name="successor"):
            assert (cluster.has(PLURAL, "n1"), writes(cluster, "n1")) == (True, before)
            await cluster.pass_time(minutes=1)
            assert not cluster.has(PLURAL, "n1")


async def test_what_expired_while_no_operator_ran_goes_at_the_start(clock: Clock) -> None:
    async with a_town(clock) as cluster:
        async with operating(cluster) as it:
            await happens(cluster, it, "n1")
            await deleted(cluster, "n1")
        await cluster.pass_time(minutes=31)
        async with operating(cluster, name="successor"):
            assert not cluster.has(PLURAL, "n1")


async def test_a_record_of_an_older_version_is_released_from_its_node_and_outlives_it(clock: Clock) -> None:
    async with a_town(clock) as cluster:
        uid = cluster.get("nodes", "n1")["metadata"]["uid"]
        owners = [
            {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid},
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "theirs"},
        ]
        entry = {"time": "2026-01-01T00:00:00Z", "what": OS, "to": "in-maintenance"}
        record = {"apiVersion": MAINTENANCE_RECORDS.api_version, "kind": MAINTENANCE_RECORDS.kind}
        meta = {"name": "n1", "ownerReferences": owners}
        cluster.pause("garbage")
        await cluster.create({**record, "metadata": meta, "total": 1, "entries": [entry]})
        async with operating(cluster):
            found = cluster.get(PLURAL, "n1")["metadata"]
            assert [one["kind"] for one in found["ownerReferences"]] == ["Namespace"], "what others wrote stays"
            assert found["annotations"][NODE_UID] == uid
            await cluster.delete("nodes", "n1")
            await cluster.pass_time(minutes=5)
            assert about_node(cluster) == [DELETED]


# The node comes again


async def test_a_node_that_is_created_again_continues_the_history_of_its_name(clock: Clock) -> None:
    async with a_town(clock) as cluster, operating(cluster) as it:
        await happens(cluster, it, "n1")
        await happens(cluster, it, "n1", note=a_note(what=MAINTENANCE, to="Running"))
        await deleted(cluster, "n1")
        await cluster.pass_time(minutes=1)
        new = again(cluster, "n1")["metadata"]["uid"]
        await happens(cluster, it, "n1", note=a_note(1, what=MAINTENANCE, to="Succeeded"))
        assert about_node(cluster) == [DELETED, CREATED]
        assert [to for _, _, to in moves(cluster, "n1")] == ["in-maintenance", "Running", "Succeeded"]
        assert annotations(cluster)[NODE_UID] == new
        assert NODE_DELETED not in annotations(cluster)
        await cluster.pass_time(minutes=60)
        assert cluster.has(PLURAL, "n1"), "it is the record of a node that exists"


async def test_the_new_node_begins_without_the_states_of_the_old_one(clock: Clock) -> None:
    async with a_town(clock) as cluster, operating(cluster) as it:
        await happens(cluster, it, "n1")
        await deleted(cluster, "n1")
        again(cluster, "n1")
        required = Entry(time=clock.now(), what=OS, from_="operational", to="maintenance-required", since=EPOCH)
        await happens(cluster, it, "n1", note=Note(entry=required, begins_in="operational"))
        assert moves(cluster, "n1") == [(OS, "", "in-maintenance"), (OS, "operational", "maintenance-required")]
        assert not [one for one in entries(cluster, "n1") if one["what"] == "history"], "there is no gap"


async def test_a_late_note_about_the_old_node_does_not_take_the_record_from_the_new_one(clock: Clock) -> None:
    async with a_town(clock) as cluster, operating(cluster) as it:
        old = await cluster.me.get(NODES, "n1")
        await happens(cluster, it, "n1")
        await deleted(cluster, "n1")
        new = again(cluster, "n1")["metadata"]["uid"]
        await happens(cluster, it, "n1", note=a_note(1, what=MAINTENANCE, to="Running"))
        it.keeper.note(old, a_note(2, to="operational"))
        await cluster.pass_time(seconds=_SETTLED)
        assert annotations(cluster)[NODE_UID] == new
        assert about_node(cluster) == [DELETED, CREATED]
        assert moves(cluster, "n1")[-1] == (OS, "", "operational")


async def test_a_node_that_comes_back_at_the_last_moment_is_not_robbed(clock: Clock) -> None:
    """It continues the record between the read and the deletion, which then is refused."""
    async with a_town(clock) as cluster, operating(cluster) as it:
        await happens(cluster, it, "n1")
        await deleted(cluster, "n1")
        await cluster.pass_time(seconds=KEPT.keep_for.total_seconds() - 60)
        again(cluster, "n1")
        cluster.line(OPERATOR).faults.slow(timedelta(seconds=25), where=lambda it: it.method == "DELETE")
        await cluster.pass_time(seconds=60 - _SETTLED + 1)
        assert cluster.has(PLURAL, "n1"), "the deletion is on its way"
        await happens(cluster, it, "n1", note=a_note(1, what=MAINTENANCE, to="Running"))
        await cluster.pass_time(minutes=5)
        assert [one.request.method for one in cluster.line(OPERATOR).requests].count("DELETE") == 1
        assert about_node(cluster) == [DELETED, CREATED]


async def test_a_node_that_a_cache_does_not_show_yet_is_not_taken_for_deleted(clock: Clock) -> None:
    async with a_town(clock) as cluster, operating(cluster) as it:
        await happens(cluster, it, "n1")
        row = it.nodes.get("n1")
        assert row is not None
        it.nodes.forget([row])
        it.retention.survey()
        await cluster.pass_time(seconds=_SETTLED)
        assert NODE_DELETED not in annotations(cluster)


# Trouble


async def test_a_definition_that_comes_later_is_noticed(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster, operating(cluster) as it:
        await cluster.pass_time(minutes=2)
        assert it.keeper.is_off
        asked = len(about_records(cluster))
        await cluster.pass_time(minutes=30)
        assert len(about_records(cluster)) == asked
        await cluster.me.create(DEFINITIONS, DEFINITION)
        await cluster.pass_time(minutes=2)
        await happens(cluster, it, "n1")
        await deleted(cluster, "n1")
        assert about_node(cluster) == [DELETED]


async def test_an_annotation_that_somebody_wrote_costs_no_node_its_history(clock: Clock) -> None:
    async with a_town(clock) as cluster:
        async with operating(cluster) as it:
            await happens(cluster, it, "n1")
        wrong = merge_patch({"metadata": {"annotations": {NODE_DELETED: "2020-01-01T00:00:00Z"}}})
        await cluster.me.patch(MAINTENANCE_RECORDS, "n1", wrong)
        async with operating(cluster, name="successor"):
            assert cluster.has(PLURAL, "n1")
            assert NODE_DELETED not in annotations(cluster)


def about_records(cluster: SandboxCluster) -> list[Request]:
    return [it.request for it in cluster.line(OPERATOR).requests if PLURAL in it.request.path]


# Decisions


def a_record(*, uid: str = "u1", gone: str = "", owned: bool = False) -> Record:
    notes = {NODE_UID: uid} | ({NODE_DELETED: gone} if gone else {})
    owners = (OwnerReference(api_version="v1", kind="Node", name="n1", uid=uid),) if owned else ()
    return Record(metadata=Metadata(name="n1", annotations=notes, owner_references=owners))


GONE = "2026-01-01T00:00:00Z"
GONE_AT = datetime.fromisoformat(GONE)


@pytest.mark.parametrize(
    ("record", "node", "after", "surplus", "action"),
    [
        pytest.param(a_record(), "u1", 0, False, Action.KEEP, id="it exists"),
        pytest.param(a_record(owned=True), "u1", 0, False, Action.RELEASE, id="it owns its record"),
        pytest.param(a_record(owned=True), None, 0, False, Action.MARK, id="it is gone, and owned its record"),
        pytest.param(a_record(), "u2", 0, False, Action.MARK, id="there is another"),
        pytest.param(a_record(gone=GONE), None, 29, False, Action.KEEP, id="it is kept"),
        pytest.param(a_record(gone=GONE), None, 30, False, Action.DELETE, id="its time is over"),
        pytest.param(a_record(gone=GONE), "u2", 30, False, Action.DELETE, id="so it is, though there is another"),
        pytest.param(a_record(gone=GONE), None, 0, True, Action.DELETE, id="there are too many"),
        pytest.param(a_record(gone=GONE), "u1", 99, True, Action.UNMARK, id="it exists after all"),
        pytest.param(a_record(gone="soon"), None, 0, False, Action.MARK, id="nobody can read when it went"),
        pytest.param(a_record(gone="2026-01-01T00:00:00"), None, 0, False, Action.MARK, id="nor without a zone"),
        pytest.param(a_record(uid="", gone=GONE), None, 30, False, Action.DELETE, id="nobody knows which it was"),
    ],
)
def test_what_is_done_about_a_record(
    record: Record, node: str | None, after: int, *, surplus: bool, action: Action
) -> None:
    found = decide(record, node, now=GONE_AT + timedelta(minutes=after), settings=KEPT, is_surplus=surplus)
    assert found.action is action
    is_waiting = action is Action.KEEP and record.node_deleted is not None
    assert found.requeue_at == (GONE_AT + KEPT.keep_for if is_waiting else None)


def test_a_time_beyond_the_calendar_never_comes() -> None:
    assert expires_at(GONE_AT, RetentionSettings(keep_for=timedelta.max)) is None


def test_the_ones_deleted_first_are_too_many() -> None:
    nodes = DeletedNodes()
    for name, hour in (("b", 2), ("a", 1), ("c", 3), ("a", 4)):
        nodes.put(name, GONE_AT + timedelta(hours=hour))
    nodes.discard("unknown")
    assert list(nodes.surplus(1)) == ["b", "c"]
    assert [nodes.is_surplus(it, 1) for it in ("a", "b", "c", "unknown")] == [False, True, True, False]
    nodes.discard("b")
    assert (len(nodes), list(nodes.surplus(2))) == (2, [])
