"""Each transition of a NodeMaintenance is told once; Events have the texts of the Node Maintenance Operator."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest

from haulout.api.nodemaintenance import NodeMaintenance, NodeMaintenanceStatus
from haulout.controllers.nodemaintenance.events import NodeMaintenanceEvents
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.metrics import KubeMetrics
from haulout.runtime.journal import TRANSITIONS, Journal
from support.builders.nodemaintenance_observation import a_maintenance, a_node
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.fakes.recorded_events import RecordedEvents
from support.invariants.object_fields import is_cordoned
from support.operators.nodemaintenance import (
    create_maintenance,
    end_maintenance,
    run_controller,
    wait_for_success,
    with_nodemaintenance_crd,
)


class Recorded:
    """What a journal has told."""

    def __init__(self) -> None:
        self.metrics, self._recorder = KubeMetrics(), RecordedEvents()
        self.journal = Journal("NodeMaintenance", self._recorder, metrics=self.metrics)  # type: ignore[arg-type]  # what a journal uses of it
        self.told = NodeMaintenanceEvents(self.journal)

    @property
    def events(self) -> list[tuple[str, str, str]]:
        return self._recorder.events

    @property
    def notes(self) -> list[str]:
        return self._recorder.notes

    @property
    def counts(self) -> dict[str, float]:
        return transition_counts(self.metrics)


def transition_counts(metrics: KubeMetrics) -> dict[str, float]:
    return {dict(sample.labels)["reason"]: sample.number for sample in metrics.counter(TRANSITIONS).samples()}


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def with_phase(maintenance: NodeMaintenance, phase: str, *, error: str = "") -> NodeMaintenanceStatus:
    return msgspec.structs.replace(maintenance.status, phase=phase, last_error=error)


def test_log_line_of_a_transition_says_what_the_text_of_its_event_does_not(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    new, running = a_maintenance(phase="", spec={"reason": "new kernel"}), a_maintenance(phase="Running")
    with caplog.at_level(logging.INFO):
        recorded.told.record_status_change(new, with_phase(new, "Running"))
        recorded.told.record_status_change(running, with_phase(running, "Failed", error="node n1 does not exist"))
    subject = f"NodeMaintenance {new.name} of node n1"
    assert recorded.notes == ["Begin a node maintenance", "Failed a node maintenance"]
    assert caplog.messages == [
        f"{subject}: BeginMaintenance: Begin a node maintenance: new kernel",
        f"{subject}: FailedMaintenance: Failed a node maintenance: node n1 does not exist",
    ]
    assert {(record.maintenance, record.node) for record in caplog.records} == {(new.name, "n1")}  # type: ignore[attr-defined]  # log fields


def test_maintenance_that_continues_is_logged_and_counted_without_an_event(recorded: Recorded) -> None:
    failed = a_maintenance(phase="Failed")
    recorded.told.record_status_change(failed, with_phase(failed, "Running"))
    recorded.told.record_status_change(failed, with_phase(failed, "Failed"))
    assert recorded.events == []
    assert recorded.counts == {"Resumed": 1}


def test_lasting_failure_is_counted_once_and_its_event_is_repeated(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the repetition, the Event expires after an hour while the failure lasts."""
    maintenance = a_maintenance()
    for _ in range(3):
        recorded.told.record_retry(maintenance, "the API server is overloaded")
    assert recorded.events == [(maintenance.name, "Warning", "MaintenanceError")] * 3
    assert recorded.counts == {"MaintenanceError": 1}
    assert len(caplog.messages) == 1


def test_failure_after_a_success_is_a_new_one(recorded: Recorded) -> None:
    maintenance = a_maintenance()
    recorded.told.record_retry(maintenance, "the API server is overloaded")
    recorded.told.record_success(maintenance)
    recorded.told.record_retry(maintenance, "the API server is overloaded")
    assert recorded.counts == {"MaintenanceError": 2}


def test_wait_for_the_same_holder_is_recorded_once_although_its_text_changes(recorded: Recorded) -> None:
    maintenance = a_maintenance()
    for problem in ("attempt 1", "attempt 2"):
        recorded.told.record_waiting(maintenance, problem=problem, waits_for="NHC to release the lease")
    recorded.told.record_waiting(maintenance, problem="attempt 3", waits_for="the etcd quorum")
    assert recorded.notes == ["attempt 1", "attempt 3"]


def test_orphaned_node_is_recorded_once_although_its_maintenance_is_forgotten(recorded: Recorded) -> None:
    for _ in range(2):
        recorded.told.record_orphaned(a_node(), "m1", released_in=timedelta(minutes=5))
        recorded.told.forget("m1")
    assert recorded.events == [("n1", "Warning", "OrphanedCordon")]


def test_problem_is_recorded_again_for_the_next_maintenance_with_the_same_name(recorded: Recorded) -> None:
    maintenance = a_maintenance()
    for _ in range(2):
        recorded.told.record_waiting(maintenance, problem="full", waits_for="the budget")
        recorded.told.record_removed(maintenance)
    assert recorded.counts == {"MaintenanceWaiting": 2, "RemovedMaintenance": 2}


@asynccontextmanager
async def a_maintained_node(clock: Clock) -> AsyncIterator[tuple[SandboxCluster, KubeMetrics]]:
    """Run a cluster whose node is drained for a maintenance, with the metrics of its operator."""
    clients: list[Client] = []

    async def operator(client: Client) -> None:
        clients.append(client)
        await run_controller(client)

    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(1).on_the_sandbox() as cluster:
        cluster.run(operator)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        yield cluster, clients[0].metrics


async def test_each_transition_of_a_maintenance_is_counted_once(clock: Clock) -> None:
    async with a_maintained_node(clock) as (cluster, metrics):
        await cluster.pass_time(minutes=10)
        await end_maintenance(cluster)
    reasons = ("BeginMaintenance", "SucceedMaintenance", "UncordonNode", "RemovedMaintenance")
    assert transition_counts(metrics) == dict.fromkeys(reasons, 1)


async def test_each_outage_is_counted_once_however_often_the_reconcile_is_retried(clock: Clock) -> None:
    async with a_maintained_node(clock) as (cluster, metrics):
        faults = cluster.transport().faults
        for _ in range(2):
            rule = faults.fail_before_effect(response=403, method="PATCH", path="nodes/n1", times=None)
            await cluster.patch("nodes", "n1", spec={"unschedulable": None})
            await cluster.pass_time(minutes=5)
            faults.remove(rule)
            await cluster.eventually(lambda: is_cordoned(cluster.get("nodes", "n1")))
            await cluster.pass_time(minutes=1)
        assert transition_counts(metrics)["MaintenanceError"] == 2
        repeated = [event.get("series", {}).get("count", 1) for event in cluster.by_key("events").values()]
        assert max(repeated) > 1
