"""The status of a MaintenanceFreeze, its Events, and crashes at each write."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haulout.api.maintenancefreeze import (
    MaintenanceFreeze,
    MaintenanceFreezeSpec,
    MaintenanceFreezeStatus,
)
from haulout.api.objects import ObjectMeta
from haulout.controllers.freeze.component import MaintenanceFreezes
from haulout.controllers.freeze.controller import Observation, decide
from haulout.core.clock import Clock
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.runtime.freezes import parse_freeze
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.operators.components import run_component
from support.operators.freezes import PLURAL, freeze, freeze_status, unfreeze, with_freezes

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def decided(status: MaintenanceFreezeStatus | None = None, **spec: Any) -> tuple[MaintenanceFreezeStatus, Any]:
    """Return the status of a freeze, and when it is decided again."""
    freeze = MaintenanceFreeze(
        metadata=ObjectMeta(name="black-friday", generation=3),
        spec=MaintenanceFreezeSpec(**spec),
        status=status or MaintenanceFreezeStatus(observed_generation=-1),
    )
    decision = decide(Observation(parse_freeze(freeze), nodes=7, now=NOW))
    return decision.status, decision.requeue_at


def conditions_of(status: MaintenanceFreezeStatus) -> list[tuple[str, str, str]]:
    return [(condition.type, condition.status, condition.reason) for condition in status.conditions]


@pytest.mark.parametrize(
    ("spec", "phase", "requeue_at"),
    [
        ({}, "Active", None),
        ({"until": NOW + HOUR}, "Active", NOW + HOUR),
        ({"from_": NOW + HOUR, "until": NOW + 2 * HOUR}, "Pending", NOW + HOUR),
        ({"until": NOW}, "Ended", None),
    ],
)
def test_status_has_phase_nodes_and_when_it_changes(spec: dict[str, Any], phase: str, requeue_at: Any) -> None:
    status, at = decided(**spec)
    assert (status.phase, status.nodes, status.observed_generation, at) == (phase, 7, 3, requeue_at)
    assert conditions_of(status) == [("Ready", "True", phase)]


def test_invalid_selector_needs_a_person() -> None:
    status, _ = decided(selector={"matchLabels": {"no label key": "a"}})
    assert conditions_of(status) == [("Ready", "False", "SelectorInvalid"), ("Stalled", "True", "SelectorInvalid")]
    assert "so it selects every node: matchLabels.no label key" in status.conditions[0].message


def test_unchanged_status_is_not_written_again() -> None:
    status, _ = decided()
    freeze = MaintenanceFreeze(metadata=ObjectMeta(name="black-friday", generation=3), status=status)
    assert decide(Observation(parse_freeze(freeze), nodes=7, now=NOW + HOUR)).change == {}


async def run(client: Client) -> None:
    await run_component(client, MaintenanceFreezes())


def events(cluster: SandboxCluster) -> list[tuple[str, str]]:
    found = [event for event in cluster.by_key("events").values() if event["reason"].startswith("Freeze")]
    return [(event["reason"], event.get("note") or event["message"]) for event in found]


async def test_begin_and_end_are_told_once(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock).with_nodes(2)).on_the_sandbox() as cluster:
        cluster.run(run)
        await freeze(cluster, begins_in=timedelta(minutes=5), ends_in=timedelta(minutes=10))
        await cluster.eventually(lambda: freeze_status(cluster).get("phase"), becomes="Pending")
        assert events(cluster) == []
        await cluster.pass_time(minutes=6)
        assert [reason for reason, _ in events(cluster)] == ["FreezeStarted"]
        assert events(cluster)[0][1].startswith("2 nodes: frozen by alice until ")
        await cluster.pass_time(minutes=5)
        assert sorted(reason for reason, _ in events(cluster)) == ["FreezeEnded", "FreezeStarted"]
        await unfreeze(cluster)
        await cluster.pass_time(minutes=1)
        assert len(events(cluster)) == 2


async def test_deletion_ends_an_active_freeze(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock).with_nodes(1)).on_the_sandbox() as cluster:
        cluster.run(run)
        await freeze(cluster)
        await cluster.eventually(lambda: freeze_status(cluster).get("phase"), becomes="Active")
        await unfreeze(cluster)
        await cluster.eventually(
            lambda: sorted(reason for reason, _ in events(cluster)), becomes=["FreezeEnded", "FreezeStarted"]
        )


async def test_freeze_that_is_extended_after_its_end_is_active_again(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock).with_nodes(1)).on_the_sandbox() as cluster:
        cluster.run(run)
        await freeze(cluster, ends_in=timedelta(minutes=1))
        await cluster.pass_time(minutes=2)
        assert freeze_status(cluster)["phase"] == "Ended"
        await cluster.patch(PLURAL, "black-friday", spec={"until": None})
        await cluster.eventually(lambda: freeze_status(cluster).get("phase"), becomes="Active")


async def test_number_of_nodes_follows_the_cluster_and_idle_freezes_cost_nothing(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock).with_nodes(3)).on_the_sandbox() as cluster:
        cluster.run(run)
        await freeze(cluster, selector={"matchExpressions": [{"key": "pool", "operator": "Exists"}]})
        await cluster.eventually(lambda: freeze_status(cluster).get("nodes"), becomes=0)
        for node in ("n1", "n2"):
            await cluster.patch("nodes", node, metadata={"labels": {"pool": "a"}})
        await cluster.eventually(lambda: freeze_status(cluster).get("nodes"), becomes=2)
        await cluster.delete("nodes", "n2")
        await cluster.eventually(lambda: freeze_status(cluster).get("nodes"), becomes=1)
        version = cluster.get(PLURAL, "black-friday")["metadata"]["resourceVersion"]
        await cluster.pass_time(minutes=30)
        assert cluster.get(PLURAL, "black-friday")["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"from": "2026-12-02T00:00:00Z", "until": "2026-12-01T00:00:00Z"}, "until must be after from"),
        ({"from": "2026-12-01T00:00:00Z", "until": "2026-12-01T00:00:00Z"}, "until must be after from"),
        ({"until": "tomorrow"}, "spec.until"),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "matchExpressions[0]: Invalid value: In and NotIn need values",
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            "matchExpressions[0]: Invalid value: In and NotIn need values",
        ),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "matchExpressions[0].operator"),
        ({"selector": {"matchExpressions": [{"key": "no key", "operator": "Exists"}]}}, "matchExpressions[0].key"),
        ({"except": ["Profiles"]}, "spec.except[0]"),
    ],
)
async def test_bad_input_is_refused(clock: Clock, spec: dict[str, Any], text: str) -> None:
    async with with_freezes(a_cluster(clock)).on_the_sandbox() as cluster:
        with pytest.raises(KubeError) as caught:
            await freeze(cluster, **spec)
        assert text in str(caught.value)


def phases(history: Sequence[Any]) -> Any:
    found = [write.after for write in history if write.kind.plural == PLURAL and write.after is not None]
    return found[-1].get("status", {}).get("phase") if found else None


def test_status_is_right_although_the_process_dies_at_any_write() -> None:
    async def scenario(stage: CrashRun) -> None:
        async with with_freezes(a_cluster(stage.clock).with_nodes(2)).on_the_sandbox() as cluster:
            stage.start_operator(cluster.cluster)
            await freeze(cluster, begins_in=timedelta(minutes=1), ends_in=timedelta(minutes=2))
            await cluster.eventually(lambda: freeze_status(cluster).get("phase"), becomes="Pending")
            await cluster.pass_time(minutes=3)
            assert freeze_status(cluster)["phase"] == "Ended"

    assert assert_survives_crashes(scenario, operator=run, compare=phases, writes_only_to_api=True) == 3
