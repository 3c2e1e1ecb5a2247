"""The fleet history of the dashboard."""

import csv
import io
import random
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from haulout.api import maintenancerecord
from haulout.api.maintenancerecord import NODE_DELETED_ANNOTATION, DrainFacts, Entry, RecordContent
from haulout.api.objects import Node, RawObject
from haulout.controllers.nodemaintenance.informers import node_cache
from haulout.core.clock import Clock
from haulout.dashboard.api.backend import HistoryQuery, HttpError
from haulout.dashboard.api.history import fleet_history
from haulout.dashboard.api.history.fleet_history import FleetHistory
from haulout.history.record_store import new_record
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual_time import EPOCH

OS, ORDER = "profile/os", "NodeMaintenance/patch"


def at(hour: float) -> datetime:
    return EPOCH + timedelta(hours=hour)


def an_entry(hour: float, what: str = OS, **more: str) -> Entry:
    return Entry(time=at(hour), object=what, to="in-maintenance", **more)  # type: ignore[arg-type]


class HistoryWorld:
    """An API server with nodes and their records."""

    def __init__(self, clock: Clock) -> None:
        self.api = ApiServer(clock)
        self.client = Client(self.api.transport("me"), clock=clock, random=random.Random(1))
        self.nodes = node_cache(self.client)
        self.history = FleetHistory(self.client, nodes=self.nodes)

    async def start(self) -> None:
        """Have the definition served."""
        self.api.put(maintenancerecord.custom_resource_definition())
        await self.client.clock.sleep(timedelta(seconds=1))

    def put(self, node: str, *entries: Entry, deleted: str = "") -> None:
        """Have a node with a record, or the record of one that was deleted."""
        body: RawObject = msgspec.to_builtins(new_record(node, f"uid-of-{node}", RecordContent(entries, len(entries))))
        if deleted:
            body["metadata"]["annotations"][NODE_DELETED_ANNOTATION] = deleted
        else:
            node_body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {}, "status": {}}
            self.nodes.update(msgspec.convert(self.api.put(node_body), Node, strict=False))
        self.api.put(body)


async def a_fleet(clock: Clock) -> HistoryWorld:
    world = HistoryWorld(clock)
    await world.start()
    world.put("n1", an_entry(1), an_entry(4, ORDER, reason="new kernel"))
    world.put("n2", an_entry(2, requested_by="kubectl"), an_entry(2, ORDER), deleted="2026-11-01T10:00:00Z")
    world.put("n3", an_entry(3, "ESX"))
    return world


def titles(entries: Sequence[object]) -> list[str]:
    return [f"{item.node} {item.object}" for item in entries]  # type: ignore[attr-defined]


async def test_entries_are_newest_first_and_include_deleted_nodes(clock: Clock) -> None:
    world = await a_fleet(clock)
    found = await world.history.newest(HistoryQuery())
    assert titles(found.entries) == [f"n1 {ORDER}", "n3 ESX", f"n2 {ORDER}", f"n2 {OS}", f"n1 {OS}"]
    assert found.total == 5
    gone = found.entries[2]
    assert (gone.is_deleted, gone.deleted) == (True, datetime.fromisoformat("2026-11-01T10:00:00Z"))
    assert not found.entries[0].is_deleted


async def test_limit_keeps_the_newest_entries_and_reports_the_total(clock: Clock) -> None:
    world = await a_fleet(clock)
    found = await world.history.newest(HistoryQuery(limit=2))
    assert (titles(found.entries), found.total) == ([f"n1 {ORDER}", "n3 ESX"], 5)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (HistoryQuery(since=at(2), until=at(4)), ["n3 ESX", f"n2 {ORDER}", f"n2 {OS}"]),
        (HistoryQuery(nodes=frozenset({"n2", "unknown"})), [f"n2 {ORDER}", f"n2 {OS}"]),
        (HistoryQuery(objects=frozenset({"profile", "ESX"})), ["n3 ESX", f"n2 {OS}", f"n1 {OS}"]),
        (HistoryQuery(objects=frozenset({ORDER})), [f"n1 {ORDER}", f"n2 {ORDER}"]),
        (HistoryQuery(objects=frozenset({"prof"})), []),
        (HistoryQuery(terms=("kernel", "n1")), [f"n1 {ORDER}"]),
        (HistoryQuery(terms=("kubectl",)), [f"n2 {OS}"]),
    ],
    ids=["time", "nodes", "kinds", "one", "no prefix", "words", "who"],
)
async def test_query_selects_entries(clock: Clock, query: HistoryQuery, expected: list[str]) -> None:
    world = await a_fleet(clock)
    assert titles((await world.history.newest(query)).entries) == expected
    rows = list(csv.DictReader(io.StringIO(await text(world, query), newline="")))
    assert sorted(f"{row['node']} {row['object']}" for row in rows) == sorted(expected)


async def test_csv_has_the_columns_of_the_command_line(clock: Clock) -> None:
    world = HistoryWorld(clock)
    await world.start()
    drain = DrainFacts(seconds=1.5, pods=2)
    world.put("n1", Entry(time=at(1), object=OS, result="Drained", reason="=cmd()", drain=drain))
    (row,) = csv.DictReader(io.StringIO(await text(world, HistoryQuery()), newline=""))
    assert (row["reason"], row["drainSeconds"], row["result"]) == ("'=cmd()", "1.5", "Drained")


async def test_records_are_listed_in_pages_and_streamed_in_chunks(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_history, "_PIECE", 500)
    world = HistoryWorld(clock)
    await world.start()
    for number in range(120):
        world.put(f"n{number:03}", an_entry(1, reason="x" * 200), deleted="2026-11-01T10:00:00Z")
    pieces = [item async for item in world.history.csv(HistoryQuery())]
    assert len(pieces) > 10
    assert b"".join(pieces).count(b"\r\n") == 121
    assert sum(item.count for item in world.client.request_metrics.all()) == 3


async def test_concurrent_full_reads_are_limited(clock: Clock) -> None:
    world = await a_fleet(clock)
    reading = [world.history.csv(HistoryQuery()) for _ in range(3)]
    world.put("n9", *(an_entry(number, reason="x" * 400) for number in range(60)), deleted="2026-11-01T10:00:00Z")
    for reader in reading:
        await anext(reader)
    with pytest.raises(HttpError) as refused:
        await world.history.newest(HistoryQuery())
    assert refused.value.retry_after
    for reader in reading:
        await reader.aclose()
    assert (await world.history.newest(HistoryQuery())).total


async def test_missing_record_definition_is_reported_with_a_remedy(clock: Clock) -> None:
    world = HistoryWorld(clock)
    with pytest.raises(HttpError, match="MaintenanceRecord is not installed; `haulout manifests --crds-only"):
        await world.history.newest(HistoryQuery())


async def text(world: HistoryWorld, query: HistoryQuery) -> str:
    return b"".join([piece async for piece in world.history.csv(query)]).decode()
