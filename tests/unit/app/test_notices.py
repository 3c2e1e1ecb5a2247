"""Notices in the operator: from users and clouds, with a late CRD, and across failovers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    NoticePhase,
    definition,
)
from haulout.api.notice_reports import MaintenancePlan
from haulout.api.objects import Node
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.notices.controller import MaintenanceNoticeController
from haulout.controllers.notices.metrics import NoticeMetrics
from haulout.core.clock import Clock
from haulout.core.metrics import MetricVec
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.component import EventSourceComponent
from haulout.providers.event_source import EventSource
from haulout.providers.oci.event_source import OciEventSource
from haulout.providers.oci.stream_consumer import ConsumerOptions
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.oci import OciCloud
from support.builders.objects import a_node
from support.clusters.drain_cluster import DrainCluster
from support.clusters.process import Process
from support.operators.event_sources import FakeCloud, a_notice, event_sources_of
from support.operators.replicas import NAMESPACE, a_replica_cluster, event_notes, leader

PLURAL = MAINTENANCE_NOTICES.plural
SECOND, MINUTE, HOUR, DAY = (timedelta(**{it: 1}) for it in ("seconds", "minutes", "hours", "days"))


@dataclass
class Replica:
    """An operator and its status."""

    process: Process
    notices: NoticesComponent
    vitals: OperatorStatus = field(default_factory=OperatorStatus)


def replica(town: DrainCluster, name: str, *clouds: FakeCloud, sources: Sequence[EventSourceComponent] = ()) -> Replica:
    """Start an operator with event sources of clouds."""
    notices, vitals = NoticesComponent(sources or event_sources_of(*clouds)), OperatorStatus()

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=NAMESPACE, identity=name)
        await run_operator(client, settings, notices=notices, status=vitals)

    process = Process(town.cluster, name, program)
    process.start()
    return Replica(process, notices, vitals)


def install(town: DrainCluster) -> None:
    """Install the CRD of notices."""
    town.put(definition())


async def announce(
    town: DrainCluster, name: str, node: str, *, start: timedelta, last: timedelta = HOUR, **spec: Any
) -> None:
    """Create a notice, as a user would."""
    body = a_notice(name, node, start=town.cluster.clock.now() + start, duration=last, **spec)
    await town.cluster.client("person").create(MAINTENANCE_NOTICES, body)


def status(town: DrainCluster, name: str) -> dict[str, Any]:
    """Return the status of a notice; empty if there is none."""
    found = [it for it in town.api.objects("maintenancenotices") if it["metadata"]["name"] == name]
    return dict(found[0].get("status", {})) if found else {}


def phase(town: DrainCluster, name: str) -> str:
    """Return the phase of a notice."""
    return str(status(town, name).get("phase", ""))


def node_phases(town: DrainCluster) -> list[tuple[str, str]]:
    """Return node and phase of each notice."""
    found = [it.get("status", {}) for it in town.api.objects("maintenancenotices")]
    return [(it.get("nodeName", ""), it.get("phase", "")) for it in found]


def becomes(town: DrainCluster, name: str, wanted: NoticePhase) -> Callable[[], bool]:
    """Return a condition that a notice has a phase."""
    return lambda: phase(town, name) == wanted


async def test_manual_notice_goes_through_all_phases_with_events_on_its_node(clock: Clock) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        install(town)
        one = replica(town, "one")
        await announce(town, "disk", "n1", start=16 * MINUTE, last=MINUTE)
        assert await town.wait_until(becomes(town, "disk", NoticePhase.PLANNED)) < 20
        for then in (NoticePhase.DUE, NoticePhase.ACTIVE, NoticePhase.COMPLETED):
            await town.wait_until(becomes(town, "disk", then), within=17 * MINUTE)
        assert status(town, "disk")["nodeName"] == "n1"
        await clock.sleep(MINUTE)
        for about in ("disk", "n1"):
            assert {"MaintenanceAnnounced", "MaintenanceDue", "MaintenanceActive", "MaintenanceCompleted"} <= set(
                event_notes(town, about)
            )
        assert one.vitals.troubles() == []


async def test_notice_crd_may_be_installed_later_deleted_and_reinstalled(clock: Clock) -> None:
    cloud = FakeCloud()
    async with a_replica_cluster(clock, "n1") as town:
        one = replica(town, "one", cloud)
        await town.wait_until(lambda: leader(town) == "one")
        await clock.sleep(10 * MINUTE)
        assert cloud.runs == 0
        requests = [it.request for it in one.process.transport.requests if PLURAL in it.request.path]
        assert len(requests) < 40  # as often as any informer retries while its CRD is missing
        message = "MaintenanceNotice is not installed; `haulout manifests --crds-only` prints it"
        assert list(one.vitals.troubles()) == [f"MaintenanceNotices are not reconciled: {message}"]
        assert list(one.vitals.status_lines())[1:] == [
            f"[-] notices: {message}",
            "[+] source cloud: waiting until MaintenanceNotices can be written",
        ]
        install(town)
        await announce(town, "disk", "n1", start=DAY)
        assert await town.wait_until(becomes(town, "disk", NoticePhase.PLANNED)) < 60
        cloud.report("e1", at=clock.now(), node_name="n1", plan=MaintenancePlan(start=clock.now() + DAY))
        assert await town.wait_until(becomes(town, "cloud-e1", NoticePhase.PLANNED)) < 60
        await town.cluster.client("admin").delete(CUSTOM_RESOURCE_DEFINITIONS, "maintenancenotices.haulout.dev")
        await town.wait_until(lambda: bool(one.vitals.troubles()))
        install(town)
        await announce(town, "disk", "n1", start=DAY)
        assert await town.wait_until(becomes(town, "disk", NoticePhase.PLANNED)) < 60
        await clock.sleep(MINUTE)
        assert list(one.vitals.status_lines())[1:] == [
            "[+] notices: this replica reconciles 1 notice",
            "[+] source cloud: running on this replica",
        ]


async def test_successor_continues_notices_and_cloud_sources(clock: Clock) -> None:
    cloud = FakeCloud()
    async with a_replica_cluster(clock, "n1") as town:
        install(town)
        one, two = replica(town, "one", cloud), replica(town, "two", cloud)
        await town.wait_until(lambda: cloud.runs == 1)
        cloud.report("e1", at=clock.now(), node_name="n1", plan=MaintenancePlan(start=clock.now() + 17 * MINUTE))
        await town.wait_until(becomes(town, "cloud-e1", NoticePhase.PLANNED))
        assert two.notices.controller is None
        one.process.kill()
        await town.wait_until(lambda: leader(town) == "two" and cloud.runs == 2)
        await town.wait_until(becomes(town, "cloud-e1", NoticePhase.DUE))
        cloud.report("e2", at=clock.now(), node_name="n1", plan=MaintenancePlan(start=clock.now() + DAY))
        await town.wait_until(becomes(town, "cloud-e2", NoticePhase.PLANNED))
        history = [it["message"] for it in status(town, "cloud-e1")["history"]]
        assert len(history) == len(set(history))


async def test_cloud_events_during_a_failover_are_not_lost(clock: Clock) -> None:
    """The leader dies; without a running source, one maintenance starts and the other is cancelled."""
    oci, aws = OciCloud(clock), AwsCloud(clock)
    nodes: list[Informer[Node]] = []

    def make_oci(client: Client, cache: Informer[Node]) -> EventSource:
        nodes.append(cache)
        place = ConsumerOptions(instance=f"pod-{len(nodes)}")
        return OciEventSource(
            oci.compute(),
            streaming=oci.streaming(),
            consumer_options=place,
            clock=client.clock,
            random=client.random,
        )

    def make_aws(client: Client, cache: Informer[Node]) -> EventSource:
        settings = AwsSettings(queue_url="https://queue")
        return AwsEventSource(ec2=aws, auto_scaling=aws, sqs=aws, client=client, nodes=cache, settings=settings)

    def sources() -> list[EventSourceComponent]:
        return [EventSourceComponent("oci", make_oci), EventSourceComponent("aws", make_aws)]

    async with a_replica_cluster(clock, "n1") as town:
        install(town)
        machine, instance = oci.launch("o1"), aws.launch()
        town.put(a_node("o1").with_spec(providerID=machine))
        town.put(a_node("a1").with_spec(providerID=f"aws:///eu-west-1a/{instance}"))
        one, _ = replica(town, "one", sources=sources()), replica(town, "two", sources=sources())
        await town.wait_until(lambda: leader(town) == "one")
        first = oci.schedule(machine, start=clock.now() + DAY)
        second = aws.schedule(instance, code="instance-reboot", start=clock.now() + DAY)
        await town.wait_until(
            lambda: sorted(node_phases(town)) == [("a1", NoticePhase.PLANNED), ("o1", NoticePhase.PLANNED)]
        )
        assert list(one.vitals.troubles()) == []
        assert samples(one)["haulout_notices_source_up"] == {("aws",): 1, ("oci",): 1}
        assert set(samples(one)["haulout_notices_source_silent_seconds"]) == {("aws",), ("oci",)}
        outage = oci.faults.fail("", status=503, times=None)
        await town.wait_until(lambda: samples(one)["haulout_notices_source_up"] == {("aws",): 1, ("oci",): 0})
        assert {it.partition(":")[0] for it in one.vitals.troubles()} == {"oci"}
        assert one.vitals.unready() == []
        oci.faults.remove(outage)
        await town.wait_until(lambda: not one.vitals.troubles())
        one.process.kill()
        oci.start_maintenance(first)
        aws.cancel_event(instance, second)
        await town.wait_until(
            lambda: sorted(node_phases(town)) == [("a1", NoticePhase.CANCELLED), ("o1", NoticePhase.ACTIVE)]
        )
        assert leader(town) == "two"
        assert [it.source for it in one.notices.sources] == [None, None]
        assert subscribers(nodes[0]) == []


async def test_restarted_notices_component_leaves_no_subscription(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, lives = MaintenanceNoticeController.run, 0
    leftovers: list[str] = []

    async def breaking(self: MaintenanceNoticeController) -> None:
        nonlocal lives
        lives += 1
        leftovers.extend(subscribers(self._nodes))
        async with asyncio.timeout(1 if lives <= 3 else None):
            await run(self)

    monkeypatch.setattr(MaintenanceNoticeController, "run", breaking)
    async with a_replica_cluster(clock, "n1") as town:
        install(town)
        replica(town, "one")
        await town.wait_until(lambda: lives == 4)
        assert leftovers == []
        await announce(town, "disk", "n1", start=DAY)
        await town.wait_until(becomes(town, "disk", NoticePhase.PLANNED))


async def test_failed_event_source_restarts_without_affecting_others(clock: Clock) -> None:
    bad, good = FakeCloud("bad"), FakeCloud("good")
    async with a_replica_cluster(clock, "n1") as town:
        install(town)
        one = replica(town, "one", bad, good)
        await town.wait_until(lambda: bad.runs == good.runs == 1)
        report = partial(bad.report, node_name="n1", plan=MaintenancePlan(start=clock.now() + DAY))
        report("e1", at=clock.now())
        bad.reports.put_nowait(RuntimeError("boom"))
        report("e2", at=clock.now())
        await town.wait_until(lambda: bool(one.vitals.troubles()))
        assert list(one.vitals.troubles()) == [
            "source bad failed and restarts, other components continue: RuntimeError('boom'); see the log"
        ]
        assert "[+] source good: running on this replica" in one.vitals.status_lines()
        assert one.vitals.unready() == []
        assert samples(one)["haulout_notices_source_up"] == {("bad",): 0, ("good",): 1}
        await town.wait_until(becomes(town, "bad-e2", NoticePhase.PLANNED))
        assert (bad.runs, good.runs) == (2, 1)
        assert samples(one)["haulout_notices_source_up"] == {("bad",): 1, ("good",): 1}
        assert samples(one)["haulout_notices_messages_total"] == {("bad",): 2, ("good",): 0}
        await town.wait_until(lambda: "NoticesFailed" in event_notes(town, NAMESPACE))
        await clock.sleep(11 * MINUTE)
        assert list(one.vitals.troubles()) == []


async def test_unreadable_messages_are_counted_and_reported_once_an_hour_per_kind(clock: Clock) -> None:
    cloud = FakeCloud()
    async with a_replica_cluster(clock, "n1") as town:
        install(town)
        one = replica(town, "one", cloud)
        await town.wait_until(lambda: cloud.runs == 1)
        source = one.notices.source("cloud")
        assert source is not None
        for number in range(30):
            source.quarantine.add(where=f"offset {number}", why=f"expected JSON, found {number}", what="x")
        source.quarantine.add(where="offset 30", why="expected a time, found 'soon'", what="x")
        await clock.sleep(MINUTE)
        assert sorted(unreadable(town)) == [
            "cloud: cannot parse a message, at offset 0: expected JSON, found 0; it is quarantined",
            "cloud: cannot parse a message, at offset 30: expected a time, found 'soon'; it is quarantined",
        ]
        assert samples(one)["haulout_notices_quarantined_total"] == {("cloud",): 31}
        assert samples(one)["haulout_notices_source_up"] == {("cloud",): 1}
        assert len(one.vitals.troubles()) == 1
        for number in range(30):
            source.quarantine.add(where=f"hostile {number}", why=f"strange{'!' * number}", what="x")
        await clock.sleep(MINUTE)
        assert len(unreadable(town)) == 5
        await clock.sleep(61 * MINUTE)
        source.quarantine.add(where="offset 99", why="expected JSON, found 99", what="x")
        await clock.sleep(MINUTE)
        assert any("offset 99" in it for it in unreadable(town))


async def test_failing_source_creation_is_retried_and_notices_continue(clock: Clock) -> None:
    calls = 0

    def broken(*_: object) -> EventSource:
        nonlocal calls
        calls += 1
        raise RuntimeError("no such thing")

    async with a_replica_cluster(clock, "n1") as town:
        install(town)
        one = replica(town, "one", sources=(EventSourceComponent("cloud", broken),))
        await announce(town, "disk", "n1", start=DAY)
        await town.wait_until(becomes(town, "disk", NoticePhase.PLANNED))
        await town.wait_until(lambda: calls == 2)
        assert list(one.vitals.troubles()) == [
            ("source cloud failed and restarts, other components continue: RuntimeError('no such thing'); see the log")
        ]


async def test_missing_permission_to_watch_notices_is_reported_until_granted(clock: Clock) -> None:
    async with a_replica_cluster(clock, "n1") as town:
        install(town)
        one = replica(town, "one")
        faults = one.process.transport.faults
        refused = faults.fail_before_effect(response=403, path=f"/apis/haulout.dev/v1alpha1/{PLURAL}", times=None)
        await town.wait_until(lambda: bool(one.vitals.troubles()))
        (problem,) = one.vitals.troubles()
        assert problem.startswith(f"MaintenanceNotices are not reconciled: watching {PLURAL}.haulout.dev: ")
        faults.remove(refused)
        await announce(town, "disk", "n1", start=DAY)
        await town.wait_until(becomes(town, "disk", NoticePhase.PLANNED))
        await town.wait_until(lambda: not one.vitals.troubles())


async def test_undecodable_notice_is_reported_and_others_are_reconciled(clock: Clock) -> None:
    async with a_replica_cluster(clock, "n1") as town:
        install(town)
        one = replica(town, "one")
        odd = a_notice("odd", "n1", start=clock.now())
        town.put({**odd, "spec": {"nodeName": 7}})
        await announce(town, "disk", "n1", start=DAY)
        await town.wait_until(becomes(town, "disk", NoticePhase.PLANNED))
        (problem,) = one.vitals.troubles()
        assert problem.startswith("MaintenanceNotice odd is ignored because it cannot be decoded: ")


def test_number_of_source_series_is_bounded() -> None:
    metrics = NoticeMetrics()
    notices = [MaintenanceNotice(spec=MaintenanceNoticeSpec(source=f"s{number}")) for number in range(80)]
    metrics.update(notices, running=(), up={})
    assert len(metrics.late.values) == 51
    assert ("others",) in metrics.late.values


async def test_notice_metrics_count_by_source_and_phase(clock: Clock) -> None:
    cloud = FakeCloud()
    async with a_replica_cluster(clock, "n1") as town:
        install(town)
        one = replica(town, "one", cloud)
        await announce(town, "disk", "n1", start=DAY)
        for number, start in enumerate((DAY, DAY, MINUTE)):
            cloud.report(f"e{number}", at=clock.now(), node_name="n1", plan=MaintenancePlan(start=clock.now() + start))
        await town.wait_until(becomes(town, "cloud-e2", NoticePhase.DUE))
        found = samples(one)
        assert {key: it for key, it in found["haulout_notices"].items() if it} == {
            ("", "Planned"): 1,
            ("cloud", "Planned"): 2,
            ("cloud", "Due"): 1,
        }
        assert found["haulout_notices"]["cloud", "Active"] == 0
        assert found["haulout_notices_late"] == {("",): 0, ("cloud",): 0}
        assert found["haulout_notices_source_silent_seconds"] == {("cloud",): 7}


def subscribers(nodes: Informer[Node]) -> list[str]:
    """Return the subscribers of the notices component to nodes."""
    found = [type(getattr(it, "__self__", None)) for it in nodes._handlers]
    return [it.__qualname__ for it in found if it.__module__.startswith("haulout.controllers.notices")]


def unreadable(town: DrainCluster) -> list[str]:
    """Return the events about unreadable messages."""
    return [str(it["message"]) for it in town.api.objects("events") if it["reason"] == "NoticeUnreadable"]


def samples(replica: Replica) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples by name and labels."""
    return {it.metric.name: dict(it.values) for it in replica.vitals.collect_metrics() if isinstance(it, MetricVec)}
