"""The history writer: few requests, never blocking, correct with concurrent writers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest

from haulout.api.maintenancerecord import (
    CREATED,
    DELETED,
    ENDED_UNOBSERVED_REASON,
    GAP,
    LAST_STATES_ANNOTATION,
    MAINTENANCE_RECORDS,
    MAX_ENTRIES,
    NODE_UID_ANNOTATION,
    RECONSTRUCTED_REASON,
    Entry,
    NewEntry,
)
from haulout.api.objects import Node
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from haulout.core.clock import Clock
from haulout.errors import LeadershipLost
from haulout.history import pending_entries
from haulout.history.interface import NoHistory
from haulout.history.pending_entries import Backlog
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.transport import Request, Response
from haulout_sandbox.event_loops.virtual_time import EPOCH
from support.builders.objects import a_node
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.expectations.maintenance_records import CRD, PLURAL, entries, transitions, with_record_crd, write_count

OPERATIONAL, REQUIRED, MAINTAINED = STATES = ("operational", "maintenance-required", "in-maintenance")
OS = "profile/os"
WRITER = "keeper"


@asynccontextmanager
async def a_writer(
    cluster: SandboxCluster,
    *,
    name: str = WRITER,
    may_write: Callable[[], None] | None = None,
    backlog: Backlog | None = None,
    warn: Callable[[str], Awaitable[object]] | None = None,
) -> AsyncIterator[HistoryWriter]:
    """Run a history writer with its own transport."""
    client = Client(cluster.transport(name), clock=cluster.clock, random=Random(1), fence=may_write)
    writer = HistoryWriter(client, backlog, warn=warn)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(writer.run())
        yield writer
        running.cancel()


@asynccontextmanager
async def a_recorded_cluster(clock: Clock, *, nodes: int = 1) -> AsyncIterator[tuple[SandboxCluster, HistoryWriter]]:
    """Run a cluster and a history writer."""
    async with (
        with_record_crd(a_cluster(clock)).with_nodes(nodes).on_the_sandbox() as cluster,
        a_writer(cluster) as writer,
    ):
        yield cluster, writer


async def node(cluster: SandboxCluster, name: str = "n1") -> Node:
    return await cluster.admin.get(NODES, name)


def a_transition(number: int, *, what: str = OS) -> NewEntry:
    """Return the transition of this number, an hour after the one before it."""
    time = EPOCH + timedelta(hours=number)
    before, after = STATES[number % 3], STATES[(number + 1) % 3]
    entry = Entry(time=time, object=what, from_=before, to=after, since=time - timedelta(hours=1), reason="because")
    return NewEntry(entry=entry, initial_state=OPERATIONAL)


def a_claim(state: str, hours: int) -> NewEntry:
    entry = Entry(time=EPOCH + timedelta(hours=hours), object=OS, to=state, reason=RECONSTRUCTED_REASON)
    return NewEntry(entry=entry, initial_state=OPERATIONAL, is_state_claim=True)


def states(cluster: SandboxCluster, name: str = "n1") -> list[str]:
    return [to for _, _, to in transitions(cluster, name)]


def is_for_records(request: Request) -> bool:
    return PLURAL in request.path


def requests_for_records(cluster: SandboxCluster, method: str | None = None, *, name: str = WRITER) -> list[Request]:
    requests = [recorded.request for recorded in cluster.transport(name).requests if is_for_records(recorded.request)]
    return [recorded for recorded in requests if method in (None, recorded.method)]


# Cost


async def test_entries_that_occur_together_are_written_in_one_request(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        n1 = await node(cluster)
        writer.add(n1, a_transition(0))
        await cluster.pass_time(seconds=0.5)
        writer.add(n1, a_transition(1))
        await cluster.pass_time(seconds=1)
        assert transitions(cluster, "n1") == [(OS, OPERATIONAL, REQUIRED), (OS, REQUIRED, MAINTAINED)]
        assert write_count(cluster, "n1") == 1


async def test_transition_costs_one_read_and_one_write_and_no_polling(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        writer.add(await node(cluster), a_transition(0))
        await cluster.pass_time(seconds=3)
        assert [item.method for item in requests_for_records(cluster)] == ["GET", "POST"]
        writer.add(await node(cluster), a_transition(1))
        await cluster.pass_time(hours=5)
        assert [item.method for item in requests_for_records(cluster)] == ["GET", "POST", "GET", "PATCH"]


async def test_existing_entry_is_not_written_again(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        n1 = await node(cluster)
        for _ in range(3):
            writer.add(n1, a_transition(0))
            await cluster.pass_time(seconds=2)
        assert write_count(cluster, "n1") == 1


async def test_long_history_is_patched_with_new_entries_only(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        item = await node(cluster)
        for number in range(MAX_ENTRIES + 10):
            writer.add(item, a_transition(number))
            await cluster.pass_time(seconds=2)
        assert max(len(item.body or b"") for item in requests_for_records(cluster, "PATCH")) < 1_000
        found = cluster.get(PLURAL, "n1")
        assert (len(found["entries"]), found["total"]) == (MAX_ENTRIES, MAX_ENTRIES + 10)
        assert states(cluster)[-1] == STATES[(MAX_ENTRIES + 10) % 3]


async def test_successor_lists_records_once_and_reads_only_incomplete_ones(clock: Clock) -> None:
    async with a_recorded_cluster(clock, nodes=6) as (cluster, writer):
        for number in range(1, 7):
            writer.add(await node(cluster, f"n{number}"), a_transition(0))
        await cluster.pass_time(seconds=3)
        async with a_writer(cluster, name="successor") as successor:
            for number in range(1, 7):
                claim = a_claim(MAINTAINED if number == 4 else REQUIRED, hours=1 if number == 4 else 0)
                successor.ensure_state(await node(cluster, f"n{number}"), claim)
            await cluster.pass_time(seconds=5)
            lists, read, written = requests_for_records(cluster, name="successor")
        assert lists.path.endswith(PLURAL)
        assert (read.method, written.method) == ("GET", "PATCH")
        assert transitions(cluster, "n4") == [(OS, OPERATIONAL, REQUIRED), (OS, REQUIRED, MAINTAINED)]
        assert entries(cluster, "n4")[-1]["reason"] == RECONSTRUCTED_REASON


async def test_late_state_claim_is_checked_against_the_record(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        writer.ensure_state(await node(cluster), a_claim(OPERATIONAL, hours=0))
        await cluster.pass_time(seconds=3)
        assert not cluster.has(PLURAL, "n1")
        writer.ensure_state(await node(cluster), a_claim(REQUIRED, hours=1))
        await cluster.pass_time(seconds=3)
        assert states(cluster) == [REQUIRED]


async def test_state_claims_are_written_before_later_entries(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        n1 = await node(cluster)
        writer.ensure_state(n1, a_claim(REQUIRED, hours=0), a_claim(MAINTAINED, hours=1))
        writer.add(n1, a_transition(2))
        await cluster.pass_time(seconds=5)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]


async def test_unrecorded_cycle_is_completed_up_to_the_current_state(clock: Clock) -> None:
    """Its last state equals that of the record, which therefore does not show the cycle."""
    async with a_recorded_cluster(clock) as (cluster, writer):
        n1 = await node(cluster)
        writer.add(n1, *map(a_transition, range(3)))
        await cluster.pass_time(seconds=3)
        async with a_writer(cluster, name="successor") as successor:
            claims = [a_claim(STATES[(number + 1) % 3], hours=number) for number in range(3, 6)]
            successor.ensure_state(n1, *claims)
            await cluster.pass_time(seconds=5)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL] * 2


async def test_backlog_survives_a_lost_leadership(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, _):
        backlog = Backlog()
        rule = cluster.transport("leader").faults.fail_before_effect(response=403, where=is_for_records, times=None)
        async with a_writer(cluster, name="leader", backlog=backlog) as first:
            first.add(await node(cluster), a_transition(0))
            await cluster.pass_time(seconds=5)
        cluster.transport("leader").faults.remove(rule)
        async with a_writer(cluster, name="leader", backlog=backlog):
            await cluster.pass_time(seconds=5)
        assert states(cluster) == [REQUIRED]
        assert not backlog


# Concurrent writers


async def test_two_concurrent_writers_lose_no_entry(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, one), a_writer(cluster, name="other") as other:
        item = await node(cluster)
        for number in range(10):
            one.add(item, a_transition(number))
            other.add(item, a_transition(number, what="profile/gpu"))
            await cluster.pass_time(seconds=1)
        await cluster.pass_time(seconds=10)
        recorded = transitions(cluster, "n1")
        assert len(recorded) == len({entry["time"] + entry["object"] for entry in entries(cluster, "n1")}) == 20
        for what in (OS, "profile/gpu"):
            assert [to for about, _, to in recorded if about == what] == [STATES[(item + 1) % 3] for item in range(10)]


async def test_two_writers_of_the_same_entry_write_it_once(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, one), a_writer(cluster, name="other") as other:
        item = await node(cluster)
        for number in range(4):
            one.add(item, a_transition(number))
            other.add(item, a_transition(number))
            await cluster.pass_time(seconds=5)
        assert states(cluster) == [STATES[(item + 1) % 3] for item in range(4)]


async def test_deleted_record_is_created_again(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        n1 = await node(cluster)
        writer.add(n1, a_transition(0))
        await cluster.pass_time(seconds=2)
        await cluster.delete(PLURAL, "n1")
        writer.add(n1, a_transition(1))
        await cluster.pass_time(seconds=2)
        assert states(cluster) == [REQUIRED, MAINTAINED]


async def test_record_without_annotations_is_still_written(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        n1 = await node(cluster)
        writer.add(n1, a_transition(0))
        await cluster.pass_time(seconds=2)
        await cluster.patch(PLURAL, "n1", metadata={"annotations": {LAST_STATES_ANNOTATION: None}})
        writer.add(n1, a_transition(1))
        await cluster.pass_time(seconds=2)
        assert states(cluster)[-1] == MAINTAINED


async def test_record_is_not_garbage_collected_with_its_node(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        writer.add(await node(cluster), a_transition(0))
        await cluster.pass_time(seconds=2)
        await cluster.delete("nodes", "n1")
        await cluster.pass_time(minutes=5)
        assert cluster.has(PLURAL, "n1")


async def test_recreated_node_continues_its_history(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        writer.add(await node(cluster), a_transition(0))
        await cluster.pass_time(seconds=2)
        old = cluster.get("nodes", "n1")
        await cluster.delete("nodes", "n1")
        cluster.api.put({**old, "metadata": {"name": "n1"}})
        again = await node(cluster)
        writer.add(again, a_transition(3))
        await cluster.pass_time(seconds=2)
        assert cluster.get(PLURAL, "n1")["metadata"]["annotations"][NODE_UID_ANNOTATION] == again.uid
        recorded = [entry.get("to") or entry["result"] for entry in entries(cluster, "n1")]
        assert recorded == [REQUIRED, DELETED, CREATED, REQUIRED], "no operator observed the deletion"


# Without the CRD


async def test_missing_crd_switches_history_off_until_the_crd_is_created(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster, a_writer(cluster) as writer:
        item = await node(cluster)
        writer.ensure_state(item, a_claim(OPERATIONAL, 0))
        for _ in range(30):
            writer.add(item, a_transition(0))
            await cluster.pass_time(seconds=3)
        assert writer.is_off
        assert len(requests_for_records(cluster)) <= 6
        assert len([item for item in caplog.messages if "history" in item]) == 1
        await cluster.admin.create(CUSTOM_RESOURCE_DEFINITIONS, CRD)
        await cluster.pass_time(minutes=2)
        assert len(requests_for_records(cluster)) <= 6, "a request without anything to write"
        writer.add(item, a_transition(1))
        await cluster.pass_time(seconds=3)
        assert states(cluster) == [REQUIRED, MAINTAINED]
        assert not writer.is_off


async def test_crd_created_later_notifies_subscribers_to_claim_their_states(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster, a_writer(cluster) as writer:
        n1 = await node(cluster)
        writer.subscribe(lambda: writer.ensure_state(n1, a_claim(REQUIRED, 0)))
        await cluster.pass_time(minutes=5)
        assert writer.is_off
        await cluster.admin.create(CUSTOM_RESOURCE_DEFINITIONS, CRD)
        await cluster.pass_time(seconds=65)
        assert states(cluster) == [REQUIRED]


async def test_crd_missing_for_a_moment_loses_no_entry(clock: Clock) -> None:
    """A server that has just started does not know its custom resources yet."""
    async with a_recorded_cluster(clock) as (cluster, writer):
        n1 = await node(cluster)
        rule = cluster.transport(WRITER).faults.fail_before_effect(response=404, where=is_for_records, times=None)
        for number in range(3):
            writer.add(n1, a_transition(number))
            await cluster.pass_time(seconds=10)
        assert not writer.is_off
        cluster.transport(WRITER).faults.remove(rule)
        await cluster.pass_time(seconds=60)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]


async def test_server_that_has_just_started_does_not_switch_history_off(clock: Clock) -> None:
    async with with_record_crd(a_cluster(clock)).with_nodes(1).on_the_sandbox() as cluster:
        cluster.transport(WRITER).faults.fail_before_effect(
            response=404, where=lambda request: request.path.endswith("/v1alpha1"), times=1
        )
        async with a_writer(cluster) as writer:
            writer.add(await node(cluster), a_transition(0))
            await cluster.pass_time(seconds=10)
            assert states(cluster) == [REQUIRED]


async def test_no_history_discards_all_entries(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
        silence = NoHistory()
        silence.add(await node(cluster), a_transition(0))
        silence.ensure_state(await node(cluster), a_claim(REQUIRED, 0))
        await silence.wait_written("n1", within=timedelta(seconds=1))
        assert not cluster.history[-1].path.endswith(PLURAL)


# Failures


async def test_entries_are_written_after_the_api_server_is_reachable_again(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        n1 = await node(cluster)
        cluster.transport(WRITER).cut()
        for number in range(3):
            writer.add(n1, a_transition(number))
            await cluster.pass_time(minutes=10)
        cluster.transport(WRITER).mend()
        await cluster.pass_time(minutes=6)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]


async def test_forbidden_write_keeps_its_entries_until_it_is_allowed(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_recorded_cluster(clock, nodes=2) as (cluster, writer):
        rule = cluster.transport(WRITER).faults.fail_before_effect(response=403, where=is_for_records, times=None)
        one, other = await node(cluster), await node(cluster, "n2")
        for number in range(6):
            writer.add(one, a_transition(number))
            writer.add(other, a_transition(number))
            await cluster.pass_time(hours=1)
        (trouble,) = writer.problems()
        assert "12 entries waiting" in trouble
        assert writer.has_pending("n1")
        assert len([item for item in caplog.messages if "cannot write the history; entries are kept" in item]) == 1
        cluster.transport(WRITER).faults.remove(rule)
        await cluster.pass_time(seconds=35)
        assert states(cluster, "n1") == states(cluster, "n2") == [STATES[(item + 1) % 3] for item in range(6)]
        assert not [*writer.problems()]


async def test_missing_permission_warns_once_per_hour(clock: Clock) -> None:
    warnings: list[str] = []

    async def warn(note: str) -> None:
        warnings.append(note)

    plan = with_record_crd(a_cluster(clock)).with_nodes(2)
    async with plan.on_the_sandbox() as cluster, a_writer(cluster, warn=warn) as writer:
        cluster.transport(WRITER).faults.fail_before_effect(response=403, where=is_for_records, times=None)
        for name in ("n1", "n2"):
            writer.add(await node(cluster, name), a_transition(0))
        await cluster.pass_time(minutes=150)
        assert len(warnings) == 3
        assert "getting maintenancerecords.haulout.dev n1: forbidden" in warnings[0]


async def test_forbidden_requests_for_all_nodes_share_a_backoff(clock: Clock) -> None:
    async with a_recorded_cluster(clock, nodes=40) as (cluster, writer):
        cluster.transport(WRITER).faults.fail_before_effect(response=403, where=is_for_records, times=None)
        for number in range(1, 41):
            writer.add(await node(cluster, f"n{number}"), a_transition(0))
        await cluster.pass_time(minutes=30)
        assert len(requests_for_records(cluster)) < 30 * 60 / 15 * 4


async def test_node_whose_writes_are_always_refused_delays_no_other_node(clock: Clock) -> None:
    async with a_recorded_cluster(clock, nodes=2) as (cluster, writer):
        cluster.transport(WRITER).faults.fail_before_effect(
            response=403, where=lambda item: item.path.endswith(f"{PLURAL}/n1"), times=None
        )
        one, other = await node(cluster), await node(cluster, "n2")
        for number in range(6):
            writer.add(one, a_transition(number))
            writer.add(other, a_transition(number))
            await cluster.pass_time(minutes=5)
        assert states(cluster, "n2") == [STATES[(item + 1) % 3] for item in range(6)]
        assert writer.has_pending("n1")


async def test_truncated_response_loses_no_entry(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        n1 = await node(cluster)
        cut_off = Response(status=200, headers={}, body=b'{"apiVersion": "haul')
        rule = cluster.transport(WRITER).faults.fail_after_effect(response=cut_off, where=is_for_records, times=None)
        for number in range(3):
            writer.add(n1, a_transition(number))
            await cluster.pass_time(minutes=2)
        cluster.transport(WRITER).faults.remove(rule)
        await cluster.pass_time(minutes=1)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]
        assert writer.dropped == 0
        assert "delete" not in caplog.text


async def test_lost_response_duplicates_no_entry(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        cluster.transport(WRITER).faults.fail_after_effect(
            response=504, where=lambda item: item.method != "GET", times=3
        )
        item = await node(cluster)
        for number in range(3):
            writer.add(item, a_transition(number))
            await cluster.pass_time(minutes=1)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]


async def test_pending_entries_are_bounded_by_node(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_entries, "_MOST_NODES", 2)
    async with a_recorded_cluster(clock, nodes=3) as (cluster, writer):
        cluster.transport(WRITER).cut()
        for name in ("n1", "n2", "n3"):
            writer.add(await node(cluster, name), *map(a_transition, range(MAX_ENTRIES + 5)))
        assert writer.dropped == 3 * 6 + MAX_ENTRIES - 1
        cluster.transport(WRITER).mend()
        await cluster.pass_time(minutes=1)
        assert [cluster.has(PLURAL, node_name) for node_name in ("n1", "n2", "n3")] == [False, True, True]


async def test_dropped_entries_become_a_gap_with_their_number(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        item = await node(cluster)
        writer.add(item, a_transition(0))
        await cluster.pass_time(seconds=2)
        cluster.transport(WRITER).cut()
        for number in range(1, MAX_ENTRIES + 21):
            writer.add(item, a_transition(number))
        cluster.transport(WRITER).mend()
        cluster.transport(WRITER).faults.fail_after_effect(
            response=504, where=lambda item: item.method == "PATCH", times=2
        )
        await cluster.pass_time(minutes=1)
        gaps = [item["missing"] for item in entries(cluster, "n1") if item.get("result") == GAP]
        total = cluster.get(PLURAL, "n1")["total"]
        assert (gaps, total, writer.dropped) == ([21], MAX_ENTRIES + 1, 21)


async def test_pending_entries_of_a_recreated_node_become_a_gap(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        cluster.transport(WRITER).cut()
        writer.add(await node(cluster), a_transition(0), a_transition(1))
        await cluster.admin.delete(NODES, "n1")
        await cluster.admin.create(NODES, dict(a_node("n1")))
        writer.add(await node(cluster), a_transition(2))
        cluster.transport(WRITER).mend()
        await cluster.pass_time(minutes=1)
        assert [entry["missing"] for entry in entries(cluster, "n1") if entry.get("result") == GAP] == [2]
        assert entries(cluster, "n1")[-1]["to"] == OPERATIONAL
        assert writer.dropped == 2


async def test_gap_is_placed_where_the_entries_are_missing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_entries, "MAX_ENTRIES", 4)
    async with a_recorded_cluster(clock) as (cluster, writer):
        item = await node(cluster)
        writer.add(item, a_transition(0))
        await cluster.pass_time(seconds=2)
        cluster.transport(WRITER).cut()
        for number in range(1, 7):
            writer.add(item, a_transition(number))
            await cluster.pass_time(hours=1)
        cluster.transport(WRITER).mend()
        await cluster.pass_time(minutes=1)
        first, gap, *rest = entries(cluster, "n1")
        assert (first["to"], gap["result"], gap["missing"]) == (REQUIRED, GAP, 3)
        assert gap["reason"].startswith("3 entries missing between 2026-01-05 10:00:00 UTC and 2026-01-05 12:00:00 UTC")
        assert [item["to"] for item in rest] == [STATES[(item + 1) % 3] for item in (4, 5, 6)]


async def test_entries_dropped_during_a_write_are_counted_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_entries, "MAX_ENTRIES", 3)
    async with a_recorded_cluster(clock) as (cluster, writer):
        item = await node(cluster)
        writer.add(item, *map(a_transition, range(4)))
        cluster.transport(WRITER).faults.delay(timedelta(seconds=1), where=is_for_records, times=None)
        await cluster.pass_time(seconds=1.5)
        writer.add(item, *map(a_transition, range(4, 8)))
        await cluster.pass_time(minutes=1)
        gaps = [item["missing"] for item in entries(cluster, "n1") if item.get("result") == GAP]
        assert (sum(gaps), writer.dropped) == (writer.dropped, 6)


async def test_pending_entries_are_bounded_over_all_nodes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_entries, "_MOST_NOTES", 10)
    monkeypatch.setattr(pending_entries, "_COUNTED_EVERY", 1)
    async with a_recorded_cluster(clock, nodes=2) as (cluster, writer):
        cluster.transport(WRITER).cut()
        for name in ("n1", "n2"):
            writer.add(await node(cluster, name), *map(a_transition, range(8)))
        assert writer.dropped == 6
        cluster.transport(WRITER).mend()
        await cluster.pass_time(minutes=1)
        assert entries(cluster, "n1")[0]["missing"] == 6
        assert len(states(cluster, "n2")) == 8


async def test_entry_refused_by_the_server_becomes_a_gap_and_delays_no_other_entry(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        item = await node(cluster)
        writer.add(item, a_transition(0), NewEntry(entry=Entry(time=EPOCH, object="", result="Odd")), a_transition(1))
        await cluster.pass_time(minutes=10)
        assert writer.dropped == 1
        assert "the API server refused an entry in the history of node" in caplog.text
        recorded = [item.get("to") or item["result"] for item in entries(cluster, "n1")]
        assert recorded == [REQUIRED, GAP, MAINTAINED]
        assert entries(cluster, "n1")[1]["missing"] == 1
        assert not writer.has_pending("n1")


async def test_unreadable_entry_of_a_record_becomes_a_gap_and_the_others_stay(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        item = await node(cluster)
        writer.add(item, a_transition(0))
        await cluster.pass_time(seconds=2)
        found = cluster.get(PLURAL, "n1")
        cluster.api.put({**found, "entries": [*found["entries"], {"time": "in the morning", "object": OS}]})
        writer.add(item, a_transition(1))
        await cluster.pass_time(minutes=10)
        assert [item.get("to") or item["result"] for item in entries(cluster, "n1")] == [REQUIRED, GAP, MAINTAINED]
        assert "delete" not in caplog.text
        assert not writer.has_pending("n1")


# Unobserved ends


@pytest.mark.parametrize(("is_gone", "recorded"), [(True, ["Running", "Ended"]), (False, ["Running"])])
async def test_open_maintenance_of_a_deleted_object_is_recorded_as_ended(
    clock: Clock, *, is_gone: bool, recorded: list[str]
) -> None:
    async def look(name: str, instance: str) -> bool:
        assert (name, instance) == ("patch", "u1")
        return is_gone

    async with a_recorded_cluster(clock) as (cluster, writer):
        entry = Entry(time=EPOCH, object="NodeMaintenance/patch", to="Running", instance="u1")
        writer.add(await node(cluster), NewEntry(entry=entry, is_state_claim=True))
        await cluster.pass_time(seconds=3)
        async with a_writer(cluster, name="successor") as successor:
            successor.register_kind("NodeMaintenance", look)
            await cluster.pass_time(seconds=5)
        assert states(cluster) == recorded
        last = entries(cluster, "n1")[-1]
        assert (last.get("reason") == ENDED_UNOBSERVED_REASON, last.get("reconstructed", False)) == (is_gone, is_gone)


async def test_deposed_leader_writes_no_entries(clock: Clock) -> None:
    def refuse() -> None:
        raise LeadershipLost("another leads")

    async with (
        a_recorded_cluster(clock) as (cluster, _),
        a_writer(cluster, name="deposed", may_write=refuse) as deposed,
    ):
        deposed.add(await node(cluster), a_transition(0))
        await cluster.pass_time(minutes=10)
        assert not cluster.has(PLURAL, "n1")


# Flushing


async def test_wait_written_writes_pending_entries_at_once(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        writer.add(await node(cluster), a_transition(0))
        began = clock.monotonic()
        await writer.wait_written("n1", within=timedelta(seconds=1))
        assert states(cluster) == [REQUIRED]
        assert clock.monotonic() - began < 0.1
        await cluster.pass_time(seconds=5)
        assert write_count(cluster, "n1") == 1


async def test_wait_written_and_flush_time_out_when_the_server_does_not_respond(clock: Clock) -> None:
    async with a_recorded_cluster(clock) as (cluster, writer):
        writer.add(await node(cluster), a_transition(0))
        cluster.transport(WRITER).silence()
        began = clock.monotonic()
        await writer.wait_written("n1", within=timedelta(seconds=1))
        assert clock.monotonic() - began < 1.1
        await writer.flush(timedelta(seconds=2))
        assert clock.monotonic() - began < 3.2
        cluster.transport(WRITER).mend()
        await cluster.pass_time(minutes=2)
        assert states(cluster) == [REQUIRED]


async def test_flush_writes_all_pending_entries(clock: Clock) -> None:
    async with a_recorded_cluster(clock, nodes=3) as (cluster, writer):
        for name in ("n1", "n2", "n3"):
            writer.add(await node(cluster, name), a_transition(0))
        await writer.flush(timedelta(seconds=2))
        assert [states(cluster, node_name) for node_name in ("n1", "n2", "n3")] == [[REQUIRED]] * 3
        assert MAINTENANCE_RECORDS.kind == cluster.get(PLURAL, "n1")["kind"]
