"""Who writes the history: cheap, never in the way, and right whoever else writes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.errors import LeadershipLost
from haulout.history import backlog
from haulout.history.backlog import Backlog
from haulout.history.interface import NoHistory
from haulout.history.keeper import Keeper
from haulout.history.record import (
    COMPLETED,
    CREATED,
    DELETED,
    ENDED_UNSEEN,
    GAP,
    MAINTENANCE_RECORDS,
    MOST_ENTRIES,
    NODE_UID,
    STANDING,
    Entry,
    Note,
)
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.resources import DEFINITIONS, NODES
from haulout.kube.transport import Request, Response
from haulout_sandbox.event_loops.virtual import EPOCH
from support.builders import a_node
from support.clusters import a_cluster
from support.live import SandboxCluster
from support.recorded import DEFINITION, PLURAL, entries, moves, recorded, writes

OPERATIONAL, REQUIRED, MAINTAINED = STATES = ("operational", "maintenance-required", "in-maintenance")
OS = "profile/os"
KEEPER = "keeper"


@asynccontextmanager
async def a_keeper(
    cluster: SandboxCluster,
    *,
    name: str = KEEPER,
    may_write: Callable[[], None] | None = None,
    backlog: Backlog | None = None,
    warn: Callable[[str], Awaitable[object]] | None = None,
) -> AsyncIterator[Keeper]:
    """Run one in the cluster, on a line of its own."""
    client = Client(cluster.line(name), clock=cluster.clock, random=Random(1), may_write=may_write)
    keeper = Keeper(client, backlog, warn=warn)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(keeper.run())
        yield keeper
        running.cancel()


@asynccontextmanager
async def kept(clock: Clock, *, nodes: int = 1) -> AsyncIterator[tuple[SandboxCluster, Keeper]]:
    """Run a cluster, and one who keeps its history."""
    async with recorded(a_cluster(clock)).with_nodes(nodes).on_the_sandbox() as cluster, a_keeper(cluster) as keeper:
        yield cluster, keeper


async def node(cluster: SandboxCluster, name: str = "n1") -> Node:
    return await cluster.me.get(NODES, name)


def a_transition(number: int, *, what: str = OS) -> Note:
    """Return the transition of this number, an hour after the one before it."""
    time = EPOCH + timedelta(hours=number)
    before, after = STATES[number % 3], STATES[(number + 1) % 3]
    entry = Entry(time=time, what=what, from_=before, to=after, since=time - timedelta(hours=1), why="because")
    return Note(entry=entry, begins_in=OPERATIONAL)


def a_claim(state: str, hours: int) -> Note:
    entry = Entry(time=EPOCH + timedelta(hours=hours), what=OS, to=state, why=COMPLETED)
    return Note(entry=entry, begins_in=OPERATIONAL, is_claim=True)


def states(cluster: SandboxCluster, name: str = "n1") -> list[str]:
    return [to for _, _, to in moves(cluster, name)]


def about_records(request: Request) -> bool:
    return PLURAL in request.path


def asked(cluster: SandboxCluster, method: str | None = None, *, name: str = KEEPER) -> list[Request]:
    made = [it.request for it in cluster.line(name).requests if about_records(it.request)]
    return [it for it in made if method in (None, it.method)]


# What it costs


async def test_what_happens_together_is_written_together(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.note(it, a_transition(0))
        await cluster.pass_time(seconds=0.5)
        keeper.note(it, a_transition(1))
        await cluster.pass_time(seconds=1)
        assert moves(cluster, "n1") == [(OS, OPERATIONAL, REQUIRED), (OS, REQUIRED, MAINTAINED)]
        assert writes(cluster, "n1") == 1


async def test_a_transition_is_one_read_and_one_write_and_after_that_there_is_silence(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        keeper.note(await node(cluster), a_transition(0))
        await cluster.pass_time(seconds=3)
        assert [it.method for it in asked(cluster)] == ["GET", "POST"]
        keeper.note(await node(cluster), a_transition(1))
        await cluster.pass_time(hours=5)
        assert [it.method for it in asked(cluster)] == ["GET", "POST", "GET", "PATCH"]


async def test_what_is_there_already_is_not_written_again(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        for _ in range(3):
            keeper.note(it, a_transition(0))
            await cluster.pass_time(seconds=2)
        assert writes(cluster, "n1") == 1


async def test_of_a_long_history_only_what_is_new_is_sent(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        for number in range(MOST_ENTRIES + 10):
            keeper.note(it, a_transition(number))
            await cluster.pass_time(seconds=2)
        assert max(len(it.body or b"") for it in asked(cluster, "PATCH")) < 1_000
        found = cluster.get(PLURAL, "n1")
        assert (len(found["entries"]), found["total"]) == (MOST_ENTRIES, MOST_ENTRIES + 10)
        assert states(cluster)[-1] == STATES[(MOST_ENTRIES + 10) % 3]


async def test_who_takes_over_looks_at_all_records_once_and_reads_only_those_that_miss_something(clock: Clock) -> None:
    async with kept(clock, nodes=6) as (cluster, keeper):
        for number in range(1, 7):
            keeper.note(await node(cluster, f"n{number}"), a_transition(0))
        await cluster.pass_time(seconds=3)
        async with a_keeper(cluster, name="successor") as successor:
            for number in range(1, 7):
                claim = a_claim(MAINTAINED if number == 4 else REQUIRED, hours=1 if number == 4 else 0)
                successor.stands(await node(cluster, f"n{number}"), claim)
            await cluster.pass_time(seconds=5)
            lists, read, written = asked(cluster, name="successor")
        assert lists.path.endswith(PLURAL)
        assert (read.method, written.method) == ("GET", "PATCH")
        assert moves(cluster, "n4") == [(OS, OPERATIONAL, REQUIRED), (OS, REQUIRED, MAINTAINED)]
        assert entries(cluster, "n4")[-1]["why"] == COMPLETED


async def test_a_claim_that_comes_late_is_looked_at_by_itself(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        keeper.stands(await node(cluster), a_claim(OPERATIONAL, hours=0))
        await cluster.pass_time(seconds=3)
        assert not cluster.has(PLURAL, "n1")
        keeper.stands(await node(cluster), a_claim(REQUIRED, hours=1))
        await cluster.pass_time(seconds=3)
        assert states(cluster) == [REQUIRED]


async def test_claims_come_before_what_happens_after_them(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.stands(it, a_claim(REQUIRED, hours=0), a_claim(MAINTAINED, hours=1))
        keeper.note(it, a_transition(2))
        await cluster.pass_time(seconds=5)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]


async def test_a_round_that_nobody_wrote_down_is_completed_to_its_end(clock: Clock) -> None:
    """It ends where the record stands, which tells nothing about the round."""
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.note(it, *map(a_transition, range(3)))
        await cluster.pass_time(seconds=3)
        async with a_keeper(cluster, name="successor") as successor:
            claims = [a_claim(STATES[(number + 1) % 3], hours=number) for number in range(3, 6)]
            successor.stands(it, *claims)
            await cluster.pass_time(seconds=5)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL] * 2


async def test_what_waits_outlives_a_lost_leadership(clock: Clock) -> None:
    async with kept(clock) as (cluster, _):
        backlog = Backlog()
        rule = cluster.line("leader").faults.before(answer=403, where=about_records, times=None)
        async with a_keeper(cluster, name="leader", backlog=backlog) as first:
            first.note(await node(cluster), a_transition(0))
            await cluster.pass_time(seconds=5)
        cluster.line("leader").faults.lift(rule)
        async with a_keeper(cluster, name="leader", backlog=backlog):
            await cluster.pass_time(seconds=5)
        assert states(cluster) == [REQUIRED]
        assert not backlog


# Others who write


async def test_two_who_write_at_once_lose_nothing(clock: Clock) -> None:
    async with kept(clock) as (cluster, one), a_keeper(cluster, name="other") as other:
        it = await node(cluster)
        for number in range(10):
            one.note(it, a_transition(number))
            other.note(it, a_transition(number, what="profile/gpu"))
            await cluster.pass_time(seconds=1)
        await cluster.pass_time(seconds=10)
        told = moves(cluster, "n1")
        assert len(told) == len({entry["time"] + entry["what"] for entry in entries(cluster, "n1")}) == 20
        for what in (OS, "profile/gpu"):
            assert [to for about, _, to in told if about == what] == [STATES[(it + 1) % 3] for it in range(10)]


async def test_two_who_tell_the_same_write_it_once(clock: Clock) -> None:
    async with kept(clock) as (cluster, one), a_keeper(cluster, name="other") as other:
        it = await node(cluster)
        for number in range(4):
            one.note(it, a_transition(number))
            other.note(it, a_transition(number))
            await cluster.pass_time(seconds=5)
        assert states(cluster) == [STATES[(it + 1) % 3] for it in range(4)]


async def test_a_record_that_somebody_deletes_begins_anew(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.note(it, a_transition(0))
        await cluster.pass_time(seconds=2)
        await cluster.delete(PLURAL, "n1")
        keeper.note(it, a_transition(1))
        await cluster.pass_time(seconds=2)
        assert states(cluster) == [REQUIRED, MAINTAINED]


async def test_a_record_whose_annotations_somebody_removed_is_written_all_the_same(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.note(it, a_transition(0))
        await cluster.pass_time(seconds=2)
        await cluster.change(PLURAL, "n1", metadata={"annotations": {STANDING: None}})
        keeper.note(it, a_transition(1))
        await cluster.pass_time(seconds=2)
        assert states(cluster)[-1] == MAINTAINED


async def test_the_server_does_not_delete_a_record_with_its_node(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        keeper.note(await node(cluster), a_transition(0))
        await cluster.pass_time(seconds=2)
        await cluster.delete("nodes", "n1")
        await cluster.pass_time(minutes=5)
        assert cluster.has(PLURAL, "n1")


async def test_a_node_that_comes_again_under_its_name_continues_its_history(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        keeper.note(await node(cluster), a_transition(0))
        await cluster.pass_time(seconds=2)
        old = cluster.get("nodes", "n1")
        await cluster.delete("nodes", "n1")
        cluster.api.put({**old, "metadata": {"name": "n1"}})
        again = await node(cluster)
        keeper.note(again, a_transition(3))
        await cluster.pass_time(seconds=2)
        assert cluster.get(PLURAL, "n1")["metadata"]["annotations"][NODE_UID] == again.uid
        told = [it.get("to") or it["result"] for it in entries(cluster, "n1")]
        assert told == [REQUIRED, DELETED, CREATED, REQUIRED], "nobody saw the end of the first one"


# Where there is no history


async def test_without_the_definition_nothing_is_kept_and_it_is_noticed_when_it_comes(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster, a_keeper(cluster) as keeper:
        it = await node(cluster)
        keeper.stands(it, a_claim(OPERATIONAL, 0))
        for _ in range(30):
            keeper.note(it, a_transition(0))
            await cluster.pass_time(seconds=3)
        assert keeper.is_off
        assert len(asked(cluster)) <= 6
        assert len([it for it in caplog.messages if "history" in it]) == 1
        await cluster.me.create(DEFINITIONS, DEFINITION)
        await cluster.pass_time(minutes=2)
        assert len(asked(cluster)) <= 6, "asked though there was nothing to write"
        keeper.note(it, a_transition(1))
        await cluster.pass_time(seconds=3)
        assert states(cluster) == [REQUIRED, MAINTAINED]
        assert not keeper.is_off


async def test_a_definition_that_comes_later_has_everybody_tell_again_where_things_stand(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster, a_keeper(cluster) as keeper:
        it = await node(cluster)
        keeper.subscribe(lambda: keeper.stands(it, a_claim(REQUIRED, 0)))
        await cluster.pass_time(minutes=5)
        assert keeper.is_off
        await cluster.me.create(DEFINITIONS, DEFINITION)
        await cluster.pass_time(seconds=65)
        assert states(cluster) == [REQUIRED]


async def test_a_definition_that_is_missing_for_a_moment_costs_no_entry(clock: Clock) -> None:
    """A server that has just started does not know its custom resources yet."""
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        rule = cluster.line(KEEPER).faults.before(answer=404, where=about_records, times=None)
        for number in range(3):
            keeper.note(it, a_transition(number))
            await cluster.pass_time(seconds=10)
        assert not keeper.is_off
        cluster.line(KEEPER).faults.lift(rule)
        await cluster.pass_time(seconds=60)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]


async def test_a_server_that_has_just_started_does_not_switch_history_off(clock: Clock) -> None:
    async with recorded(a_cluster(clock)).with_nodes(1).on_the_sandbox() as cluster:
        cluster.line(KEEPER).faults.before(answer=404, where=lambda it: it.path.endswith("/v1alpha1"), times=1)
        async with a_keeper(cluster) as keeper:
            keeper.note(await node(cluster), a_transition(0))
            await cluster.pass_time(seconds=10)
            assert states(cluster) == [REQUIRED]


async def test_nobody_needs_to_keep_a_history(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
        silence = NoHistory()
        silence.note(await node(cluster), a_transition(0))
        silence.stands(await node(cluster), a_claim(REQUIRED, 0))
        await silence.settle("n1", within=timedelta(seconds=1))
        assert not cluster.history[-1].path.endswith(PLURAL)


# Trouble


async def test_what_cannot_be_written_now_is_written_when_the_trouble_is_over(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        cluster.line(KEEPER).cut()
        for number in range(3):
            keeper.note(it, a_transition(number))
            await cluster.pass_time(minutes=10)
        cluster.line(KEEPER).mend()
        await cluster.pass_time(minutes=6)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]


async def test_a_refused_write_keeps_its_entries_for_as_long_as_it_takes(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept(clock, nodes=2) as (cluster, keeper):
        rule = cluster.line(KEEPER).faults.before(answer=403, where=about_records, times=None)
        one, other = await node(cluster), await node(cluster, "n2")
        for number in range(6):
            keeper.note(one, a_transition(number))
            keeper.note(other, a_transition(number))
            await cluster.pass_time(hours=1)
        (trouble,) = keeper.troubles()
        assert "12 entries waiting" in trouble
        assert keeper.waits("n1")
        assert len([it for it in caplog.messages if "history cannot be written for now" in it]) == 1
        cluster.line(KEEPER).faults.lift(rule)
        await cluster.pass_time(seconds=35)
        assert states(cluster, "n1") == states(cluster, "n2") == [STATES[(it + 1) % 3] for it in range(6)]
        assert not [*keeper.troubles()]


async def test_missing_permissions_are_warned_of_once_an_hour(clock: Clock) -> None:
    warnings: list[str] = []

    async def warn(note: str) -> None:
        warnings.append(note)

    plan = recorded(a_cluster(clock)).with_nodes(2)
    async with plan.on_the_sandbox() as cluster, a_keeper(cluster, warn=warn) as keeper:
        cluster.line(KEEPER).faults.before(answer=403, where=about_records, times=None)
        for name in ("n1", "n2"):
            keeper.note(await node(cluster, name), a_transition(0))
        await cluster.pass_time(minutes=150)
        assert len(warnings) == 3
        assert "getting maintenancerecords.haulout.dev n1: forbidden" in warnings[0]


async def test_a_refusal_that_concerns_all_nodes_is_not_met_for_each_of_them(clock: Clock) -> None:
    async with kept(clock, nodes=40) as (cluster, keeper):
        cluster.line(KEEPER).faults.before(answer=403, where=about_records, times=None)
        for number in range(1, 41):
            keeper.note(await node(cluster, f"n{number}"), a_transition(0))
        await cluster.pass_time(minutes=30)
        assert len(asked(cluster)) < 30 * 60 / 15 * 4


async def test_a_node_whose_writes_are_always_refused_holds_up_no_other(clock: Clock) -> None:
    async with kept(clock, nodes=2) as (cluster, keeper):
        cluster.line(KEEPER).faults.before(answer=403, where=lambda it: it.path.endswith(f"{PLURAL}/n1"), times=None)
        one, other = await node(cluster), await node(cluster, "n2")
        for number in range(6):
            keeper.note(one, a_transition(number))
            keeper.note(other, a_transition(number))
            await cluster.pass_time(minutes=5)
        assert states(cluster, "n2") == [STATES[(it + 1) % 3] for it in range(6)]
        assert keeper.waits("n1")


async def test_half_an_answer_costs_no_entry(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        cut_off = Response(status=200, headers={}, body=b'{"apiVersion": "haul')
        rule = cluster.line(KEEPER).faults.after(answer=cut_off, where=about_records, times=None)
        for number in range(3):
            keeper.note(it, a_transition(number))
            await cluster.pass_time(minutes=2)
        cluster.line(KEEPER).faults.lift(rule)
        await cluster.pass_time(minutes=1)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]
        assert keeper.dropped == 0
        assert "delete" not in caplog.text


async def test_an_answer_that_nobody_heard_makes_nothing_double(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        cluster.line(KEEPER).faults.after(answer=504, where=lambda it: it.method != "GET", times=3)
        it = await node(cluster)
        for number in range(3):
            keeper.note(it, a_transition(number))
            await cluster.pass_time(minutes=1)
        assert states(cluster) == [REQUIRED, MAINTAINED, OPERATIONAL]


async def test_what_waits_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "_MOST_NODES", 2)
    async with kept(clock, nodes=3) as (cluster, keeper):
        cluster.line(KEEPER).cut()
        for name in ("n1", "n2", "n3"):
            keeper.note(await node(cluster, name), *map(a_transition, range(MOST_ENTRIES + 5)))
        assert keeper.dropped == 3 * 6 + MOST_ENTRIES - 1
        cluster.line(KEEPER).mend()
        await cluster.pass_time(minutes=1)
        assert [cluster.has(PLURAL, it) for it in ("n1", "n2", "n3")] == [False, True, True]


async def test_what_does_not_fit_is_a_gap_that_says_how_much_is_missing(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.note(it, a_transition(0))
        await cluster.pass_time(seconds=2)
        cluster.line(KEEPER).cut()
        for number in range(1, MOST_ENTRIES + 21):
            keeper.note(it, a_transition(number))
        cluster.line(KEEPER).mend()
        cluster.line(KEEPER).faults.after(answer=504, where=lambda it: it.method == "PATCH", times=2)
        await cluster.pass_time(minutes=1)
        gaps = [it["missing"] for it in entries(cluster, "n1") if it.get("result") == GAP]
        total = cluster.get(PLURAL, "n1")["total"]
        assert (gaps, total, keeper.dropped) == ([21], MOST_ENTRIES + 1, 21)


async def test_what_waited_for_a_node_that_was_created_again_is_a_gap(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        cluster.line(KEEPER).cut()
        keeper.note(await node(cluster), a_transition(0), a_transition(1))
        await cluster.me.delete(NODES, "n1")
        await cluster.me.create(NODES, dict(a_node("n1")))
        keeper.note(await node(cluster), a_transition(2))
        cluster.line(KEEPER).mend()
        await cluster.pass_time(minutes=1)
        assert [it["missing"] for it in entries(cluster, "n1") if it.get("result") == GAP] == [2]
        assert entries(cluster, "n1")[-1]["to"] == OPERATIONAL
        assert keeper.dropped == 2


async def test_a_gap_stands_where_the_entries_would_be(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MOST_ENTRIES", 4)
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.note(it, a_transition(0))
        await cluster.pass_time(seconds=2)
        cluster.line(KEEPER).cut()
        for number in range(1, 7):
            keeper.note(it, a_transition(number))
            await cluster.pass_time(hours=1)
        cluster.line(KEEPER).mend()
        await cluster.pass_time(minutes=1)
        first, gap, *rest = entries(cluster, "n1")
        assert (first["to"], gap["result"], gap["missing"]) == (REQUIRED, GAP, 3)
        assert gap["why"].startswith("3 entries missing between 2026-01-05 10:00:00 UTC and 2026-01-05 12:00:00 UTC")
        assert [it["to"] for it in rest] == [STATES[(it + 1) % 3] for it in (4, 5, 6)]


async def test_what_is_given_up_during_a_write_is_counted_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MOST_ENTRIES", 3)
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.note(it, *map(a_transition, range(4)))
        cluster.line(KEEPER).faults.slow(timedelta(seconds=1), where=about_records, times=None)
        await cluster.pass_time(seconds=1.5)
        keeper.note(it, *map(a_transition, range(4, 8)))
        await cluster.pass_time(minutes=1)
        gaps = [it["missing"] for it in entries(cluster, "n1") if it.get("result") == GAP]
        assert (sum(gaps), keeper.dropped) == (keeper.dropped, 6)


async def test_what_waits_for_all_nodes_together_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "_MOST_NOTES", 10)
    monkeypatch.setattr(backlog, "_COUNTED_EVERY", 1)
    async with kept(clock, nodes=2) as (cluster, keeper):
        cluster.line(KEEPER).cut()
        for name in ("n1", "n2"):
            keeper.note(await node(cluster, name), *map(a_transition, range(8)))
        assert keeper.dropped == 6
        cluster.line(KEEPER).mend()
        await cluster.pass_time(minutes=1)
        assert entries(cluster, "n1")[0]["missing"] == 6
        assert len(states(cluster, "n2")) == 8


async def test_an_entry_that_the_server_refuses_is_a_gap_and_holds_up_no_other(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.note(it, a_transition(0), Note(entry=Entry(time=EPOCH, what="", result="Odd")), a_transition(1))
        await cluster.pass_time(minutes=10)
        assert keeper.dropped == 1
        assert "is refused" in caplog.text
        told = [it.get("to") or it["result"] for it in entries(cluster, "n1")]
        assert told == [REQUIRED, GAP, MAINTAINED]
        assert entries(cluster, "n1")[1]["missing"] == 1
        assert not keeper.waits("n1")


async def test_what_cannot_be_read_of_a_record_becomes_a_gap_and_the_rest_stays(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept(clock) as (cluster, keeper):
        it = await node(cluster)
        keeper.note(it, a_transition(0))
        await cluster.pass_time(seconds=2)
        found = cluster.get(PLURAL, "n1")
        cluster.api.put({**found, "entries": [*found["entries"], {"time": "in the morning", "what": OS}]})
        keeper.note(it, a_transition(1))
        await cluster.pass_time(minutes=10)
        assert [it.get("to") or it["result"] for it in entries(cluster, "n1")] == [REQUIRED, GAP, MAINTAINED]
        assert "delete" not in caplog.text
        assert not keeper.waits("n1")


# Ends that nobody saw


@pytest.mark.parametrize(("is_gone", "told"), [(True, ["Running", "Ended"]), (False, ["Running"])])
async def test_what_is_open_by_the_record_and_gone_has_ended(clock: Clock, *, is_gone: bool, told: list[str]) -> None:
    async def look(name: str, instance: str) -> bool:
        assert (name, instance) == ("patch", "u1")
        return is_gone

    async with kept(clock) as (cluster, keeper):
        entry = Entry(time=EPOCH, what="NodeMaintenance/patch", to="Running", instance="u1")
        keeper.note(await node(cluster), Note(entry=entry, is_claim=True))
        await cluster.pass_time(seconds=3)
        async with a_keeper(cluster, name="successor") as successor:
            successor.completes("NodeMaintenance", look)
            await cluster.pass_time(seconds=5)
        assert states(cluster) == told
        last = entries(cluster, "n1")[-1]
        assert (last.get("why") == ENDED_UNSEEN, last.get("reconstructed", False)) == (is_gone, is_gone)


async def test_whoever_lost_the_lead_writes_nothing_more(clock: Clock) -> None:
    def refuse() -> None:
        raise LeadershipLost("another leads")

    async with kept(clock) as (cluster, _), a_keeper(cluster, name="deposed", may_write=refuse) as deposed:
        deposed.note(await node(cluster), a_transition(0))
        await cluster.pass_time(minutes=10)
        assert not cluster.has(PLURAL, "n1")


# Before an end


async def test_what_was_noted_is_written_before_something_ends(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        keeper.note(await node(cluster), a_transition(0))
        began = clock.monotonic()
        await keeper.settle("n1", within=timedelta(seconds=1))
        assert states(cluster) == [REQUIRED]
        assert clock.monotonic() - began < 0.1
        await cluster.pass_time(seconds=5)
        assert writes(cluster, "n1") == 1


async def test_an_end_does_not_wait_for_a_server_that_is_silent(clock: Clock) -> None:
    async with kept(clock) as (cluster, keeper):
        keeper.note(await node(cluster), a_transition(0))
        cluster.line(KEEPER).silence()
        began = clock.monotonic()
        await keeper.settle("n1", within=timedelta(seconds=1))
        assert clock.monotonic() - began < 1.1
        await keeper.flush(timedelta(seconds=2))
        assert clock.monotonic() - began < 3.2
        cluster.line(KEEPER).mend()
        await cluster.pass_time(minutes=2)
        assert states(cluster) == [REQUIRED]


async def test_a_process_that_ends_writes_all_that_waits(clock: Clock) -> None:
    async with kept(clock, nodes=3) as (cluster, keeper):
        for name in ("n1", "n2", "n3"):
            keeper.note(await node(cluster, name), a_transition(0))
        await keeper.flush(timedelta(seconds=2))
        assert [states(cluster, it) for it in ("n1", "n2", "n3")] == [[REQUIRED]] * 3
        assert MAINTENANCE_RECORDS.kind == cluster.get(PLURAL, "n1")["kind"]
