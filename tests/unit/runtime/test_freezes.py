"""What keeps new maintenance off a node: holds and freezes, which one is shown, and what is done in doubt."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haulout.api import hold
from haulout.api.maintenancefreeze import (
    MAINTENANCE_FREEZES,
    FreezePhase,
    MaintenanceFreeze,
    MaintenanceFreezeSpec,
    phase_at,
)
from haulout.api.objects import Node, ObjectMeta
from haulout.kube.patches import merge_patch
from haulout.runtime.freezes import Freezes, parse_freeze
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.cluster_plan import a_cluster
from support.operators.freezes import SHORTLY, freeze, freeze_source, unfreeze, with_freezes

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_freeze(name: str = "black-friday", *, metadata: dict[str, Any] | None = None, **spec: Any) -> MaintenanceFreeze:
    return MaintenanceFreeze(
        metadata=ObjectMeta(name=name, **(metadata or {})), spec=MaintenanceFreezeSpec(by="alice", **spec)
    )


def frozen_by(*freezes: MaintenanceFreeze, node: Node | None = None, **more: Any) -> str:
    """Return what keeps maintenance off a node, as users see it."""
    found = Freezes(tuple(map(parse_freeze, freezes))).hold_on(node or a_node(), now=NOW, **more)
    return "" if found is None else str(found)


def a_node(annotation: str | None = None, **labels: str) -> Node:
    annotations = {} if annotation is None else {hold.ANNOTATION: annotation}
    return Node(metadata=ObjectMeta(name="n1", labels=labels, annotations=annotations))


@pytest.mark.parametrize(
    ("spec", "phase", "until"),
    [
        ({}, FreezePhase.ACTIVE, None),
        ({"until": NOW + HOUR}, FreezePhase.ACTIVE, NOW + HOUR),
        ({"until": NOW}, FreezePhase.ENDED, None),
        ({"from_": NOW + HOUR}, FreezePhase.PENDING, NOW + HOUR),
        ({"from_": NOW, "until": NOW + HOUR}, FreezePhase.ACTIVE, NOW + HOUR),
        ({"from_": NOW - HOUR, "until": NOW - timedelta(minutes=1)}, FreezePhase.ENDED, None),
    ],
)
def test_phase_is_derived_from_the_times(spec: dict[str, Any], phase: FreezePhase, until: datetime | None) -> None:
    found = phase_at(a_freeze(**spec), now=NOW)
    assert (found.phase, found.until) == (phase, until)
    assert bool(frozen_by(a_freeze(**spec))) is (phase is FreezePhase.ACTIVE)


def test_freeze_that_is_being_deleted_has_ended() -> None:
    assert frozen_by(a_freeze(metadata={"deletion_timestamp": NOW - HOUR})) == ""


def test_text_names_who_until_when_and_why() -> None:
    found = frozen_by(a_freeze(until=datetime(2026, 12, 1, 8, tzinfo=UTC), reason="Black\nFriday"))
    assert found == "frozen by alice until 2026-12-01 08:00 UTC: Black Friday"
    assert frozen_by(a_freeze()) == "frozen by alice"


@pytest.mark.parametrize(
    ("selector", "is_frozen"),
    [
        ({}, True),
        ({"matchLabels": {"pool": "a"}}, True),
        ({"matchLabels": {"pool": "b"}}, False),
        ({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "pool", "operator": "Exists"}]}, True),
    ],
)
def test_selector_selects_nodes_by_their_labels(selector: dict[str, Any], *, is_frozen: bool) -> None:
    assert bool(frozen_by(a_freeze(selector=selector), node=a_node(pool="a"))) is is_frozen


def test_invalid_selector_selects_every_node_and_says_so() -> None:
    found = frozen_by(a_freeze(selector={"matchLabels": {"no label key": "a"}}))
    assert "its selector is invalid, so it selects every node: matchLabels.no label key" in found


def test_announced_maintenance_begins_unless_the_freeze_holds_it() -> None:
    assert frozen_by(a_freeze(), is_announced=True) == ""
    assert frozen_by(a_freeze(except_=()), is_announced=True) == "frozen by alice"


def test_the_hold_or_freeze_that_ends_last_is_shown() -> None:
    short, long, endless = a_freeze("s", until=NOW + HOUR), a_freeze("l", until=NOW + 2 * HOUR), a_freeze("e")
    assert frozen_by(long, short) == "frozen by alice until 2026-11-28 14:00 UTC"
    assert frozen_by(long, endless, short) == "frozen by alice"
    assert frozen_by(long, node=a_node("until=2026-11-28T13:00:00Z")) == "frozen by alice until 2026-11-28 14:00 UTC"
    assert frozen_by(long, node=a_node("by=bob")) == "held by bob"


def test_nothing_may_begin_before_the_freezes_are_known() -> None:
    found = Freezes(unknown="forbidden").hold_on(a_node(), now=NOW)
    assert str(found) == "held: it is not known yet whether the node is frozen: forbidden"
    assert Freezes().hold_on(a_node(), now=NOW) is None


async def test_lister_tells_each_change(clock: VirtualClock) -> None:
    async with (
        with_freezes(a_cluster(clock)).on_the_sandbox() as cluster,
        freeze_source(cluster.admin, reads_freezes=True) as lister,
    ):
        changes: list[int] = []
        unsubscribe = lister.subscribe(lambda: changes.append(len(lister.current().items)))
        await freeze(cluster)
        await cluster.eventually(lambda: changes, becomes=[1], within=SHORTLY)
        await unfreeze(cluster)
        await cluster.eventually(lambda: changes, becomes=[1, 0], within=SHORTLY)
        unsubscribe()
        await freeze(cluster)
        await cluster.pass_time(seconds=5)
        assert changes == [1, 0]
        assert len(lister.current().items) == 1


async def test_new_number_of_nodes_is_known_and_wakes_nobody(clock: VirtualClock) -> None:
    async with (
        with_freezes(a_cluster(clock)).on_the_sandbox() as cluster,
        freeze_source(cluster.admin, reads_freezes=True) as lister,
    ):
        await freeze(cluster)
        await cluster.eventually(lambda: len(lister.current().items), becomes=1)
        changes: list[int] = []
        lister.subscribe(lambda: changes.append(1))
        patch = merge_patch({"status": {"nodes": 7}})
        await cluster.admin.patch(MAINTENANCE_FREEZES, "black-friday", patch, subresource="status")
        await cluster.eventually(lambda: lister.current().items[0].freeze.status.nodes, becomes=7)
        assert changes == []


async def test_without_the_definition_there_are_no_freezes(clock: VirtualClock) -> None:
    async with (
        a_cluster(clock).on_the_sandbox() as cluster,
        freeze_source(cluster.admin, reads_freezes=True) as lister,
    ):
        assert lister.current() == Freezes()


@pytest.mark.parametrize("is_installed", [True, False])
async def test_who_may_not_list_freezes_begins_nothing_where_there_could_be_some(
    clock: VirtualClock, *, is_installed: bool
) -> None:
    plan = a_cluster(clock)
    async with (with_freezes(plan) if is_installed else plan).on_the_sandbox() as cluster:
        held: list[str] = []

        async def program(client: Any) -> None:
            async with freeze_source(client, reads_freezes=True) as lister:
                while True:
                    held[:] = [lister.current().unknown]
                    await clock.sleep(timedelta(seconds=1))

        cluster.transport().faults.fail_before_effect(path="/maintenancefreezes", response=403, times=None)
        cluster.run(program)
        await cluster.pass_time(minutes=1)
        assert bool(held[0]) is is_installed


async def test_freeze_that_is_created_while_the_watch_is_broken_is_found_afterwards(clock: VirtualClock) -> None:
    async with with_freezes(a_cluster(clock)).on_the_sandbox() as cluster:
        known: list[int] = []

        async def program(client: Any) -> None:
            async with freeze_source(client, reads_freezes=True) as lister:
                while True:
                    known[:] = [len(lister.current().items)]
                    await clock.sleep(timedelta(seconds=1))

        cluster.run(program)
        await cluster.eventually(lambda: known, becomes=[0])
        faults = cluster.transport().faults
        broken = faults.fail_before_effect(path="/maintenancefreezes", response=503, times=None)
        faults.expire_watch(path="/maintenancefreezes")
        await freeze(cluster)
        await cluster.pass_time(seconds=30)
        faults.remove(broken)
        await cluster.eventually(lambda: known, becomes=[1], within=timedelta(minutes=1))
