"""The notices controller on a simulated cluster and virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceKind,
    MaintenanceNotice,
    NoticeCondition,
    NoticePhase,
    NoticeStage,
    definition,
)
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.api.objects import Node, RawObject
from haulout.api.resources import EVENTS, NODES
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.controllers.notices.drain_prediction import DrainPrediction
from haulout.core.clock import Clock
from haulout.core.timestamps import micro_time
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.providers.notice_writer import NoticeWriter
from haulout.runtime.freezes import NoFreezes
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually

MACHINE = "ocid1.instance.oc1.fra.a"
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


@dataclass
class FixedPredictor:
    """A predictor with a constant prediction."""

    takes: timedelta

    def predict(self, node: Node) -> DrainPrediction:
        """Return the prediction."""
        return DrainPrediction(self.takes, f"draining node {node.name} took so long last time")

    def set_enabled(self, *, enabled: bool) -> None:
        """Ignore the setting."""

    async def run(self, on_change: object) -> None:
        """Return at once."""


@dataclass
class World:
    """A cluster with a controller, and a source that reports."""

    clock: Clock
    client: Client
    notice_writer: NoticeWriter

    async def report(
        self, stage: NoticeStage = NoticeStage.SCHEDULED, *, start: timedelta | None = None, last: timedelta = HOUR
    ) -> None:
        """Report on the one maintenance there is; a start is from now on."""
        now = self.clock.now()
        plan = None
        if start is not None:
            plan = MaintenancePlan(
                kind=MaintenanceKind.REBOOT, reason="EVACUATION", start=now + start, end=now + start + last
            )
        report = NoticeReport(source="oci", notice_id="e1", at=now, provider_id=MACHINE, stage=stage, plan=plan)
        await self.notice_writer.write(report)

    async def notice(self) -> MaintenanceNotice:
        """Return the notice."""
        return await self.client.get(MAINTENANCE_NOTICES, "oci-e1")

    async def phase(self) -> str:
        """Return the phase."""
        return (await self.notice()).status.phase

    async def becomes(self, phase: NoticePhase, *, within: timedelta = timedelta(seconds=5)) -> MaintenanceNotice:
        """Return the notice when it stands so."""
        await eventually(self.clock, self.phase, becomes=phase, within=within, every=within / 50)
        return await self.notice()

    async def is_found(self) -> str:
        """Return whether its node is found."""
        found = (await self.notice()).status.condition(NoticeCondition.NODE_FOUND)
        return "" if found is None else found.status

    async def ready_message(self) -> str:
        """Return why its node is found, or not."""
        found = (await self.notice()).status.condition(NoticeCondition.NODE_FOUND)
        return "" if found is None else found.message

    async def announced_conditions(self) -> list[str]:
        """Return the true maintenance conditions of n1."""
        node = await self.client.get(NODES, "n1")
        kinds = ("MaintenancePlanned", "MaintenanceInProgress")
        return [notice.type for notice in node.status.conditions if notice.type in kinds and notice.status == "True"]

    async def events(self) -> list[tuple[str, str]]:
        """Return the events about nodes: reasons and notes."""
        return [(event["reason"], event["note"]) for event in await self._events()]

    async def warnings(self) -> set[str]:
        """Return the reasons of the warnings about nodes."""
        return {event["reason"] for event in await self._events() if event["type"] == "Warning"}

    async def _events(self) -> list[RawObject]:
        found = (await self.client.list(EVENTS.with_model(RawObject), namespace="default")).items
        return [item for item in found if item["regarding"]["kind"] == "Node"]


@asynccontextmanager
async def a_world(
    clock: Clock, *, nodes: tuple[str, ...] = ("n1",), predictor: FixedPredictor | None = None
) -> AsyncIterator[World]:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    for name in nodes:
        await client.create(NODES, a_node(name).with_spec(providerID=f"oci://{MACHINE}"))
    async with running(client, predictor=predictor):
        yield World(clock, client, NoticeWriter(client))


@asynccontextmanager
async def running(client: Client, *, predictor: FixedPredictor | None = None) -> AsyncIterator[None]:
    """Run a controller."""
    events = EventRecorder(client, instance="test")
    cache: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
    controller = MaintenanceNoticeController(
        client, events=events, nodes=cache, notices=notice_informer(client), freezes=NoFreezes(), predictor=predictor
    )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run()) for run in (cache.run, controller.notices.run, events.run, controller.run)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def history_messages(notice: MaintenanceNotice) -> list[str]:
    return [entry.message.partition(":")[0] for entry in notice.status.history]


async def test_notice_passes_all_phases_from_announcement_to_completion(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.report(start=2 * DAY)
        planned = await world.becomes(NoticePhase.PLANNED)
        assert planned.status.node_name == "n1"
        assert planned.spec.start is not None
        assert planned.status.drain_at == planned.spec.start - 15 * MINUTE
        await clock.sleep(2 * DAY - 16 * MINUTE)
        assert await world.phase() == NoticePhase.PLANNED
        await world.becomes(NoticePhase.DUE, within=MINUTE)
        await clock.sleep(30 * MINUTE)
        assert await world.phase() == NoticePhase.DUE
        await world.report(NoticeStage.STARTED)
        await world.becomes(NoticePhase.ACTIVE)
        await world.report(NoticeStage.ENDED)
        ended = await world.becomes(NoticePhase.COMPLETED)
        assert history_messages(ended) == [
            "Reboot (EVACUATION) is announced, not before 2026-01-07 09",
            "the notice is for node n1",
            "Due",
            "Active",
            "Completed",
        ]
        reasons = [reason for reason, _ in await world.events()]
        assert set(reasons) == {"MaintenanceDue", "MaintenanceActive", "MaintenanceCompleted"}


async def test_rescheduled_notice_is_due_at_its_new_time(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.report(start=HOUR)
        await world.becomes(NoticePhase.PLANNED)
        await clock.sleep(MINUTE)
        await world.report(start=3 * HOUR)
        await clock.sleep(2 * HOUR)
        assert await world.phase() == NoticePhase.PLANNED
        moved = await world.becomes(NoticePhase.DUE, within=HOUR)
        assert any("is moved" in item for item in history_messages(moved))


async def test_cancelled_notice_is_never_due(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.report(start=HOUR)
        await world.report(NoticeStage.CANCELLED)
        await world.becomes(NoticePhase.CANCELLED)
        await clock.sleep(DAY)
        assert await world.phase() == NoticePhase.CANCELLED


async def test_notice_without_updates_is_missed_with_a_warning(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.report(start=HOUR)
        await world.becomes(NoticePhase.MISSED, within=3 * HOUR)
        assert await world.warnings() == {"MaintenanceMissed"}, "MaintenanceDue is no warning"


async def test_notice_waits_for_the_node_of_its_machine(clock: Clock) -> None:
    async with a_world(clock, nodes=()) as world:
        await world.report(start=HOUR)
        found = (await world.becomes(NoticePhase.PLANNED)).status.condition(NoticeCondition.NODE_FOUND)
        assert found is not None
        assert (found.status, found.message) == ("False", f"no node runs on {MACHINE} yet")
        await world.client.create(NODES, a_node("late").with_spec(providerID=MACHINE))
        await eventually(clock, lambda: _node_of(world), becomes="late")


@pytest.mark.parametrize(("reason", "about"), [("EVACUATION", "Reboot (EVACUATION)"), ("", "Reboot")])
async def test_announcement_names_the_reason_of_the_cloud(clock: Clock, reason: str, about: str) -> None:
    async with a_world(clock) as world:
        plan = MaintenancePlan(kind=MaintenanceKind.REBOOT, reason=reason, start=clock.now() + 2 * DAY)
        report = NoticeReport(source="oci", notice_id="e1", at=clock.now(), provider_id=MACHINE, plan=plan)
        await world.notice_writer.write(report)
        planned = await world.becomes(NoticePhase.PLANNED)
        assert history_messages(planned)[0].startswith(f"{about} is announced")


async def test_node_with_the_machine_name_is_found_when_it_is_created(clock: Clock) -> None:
    async with a_world(clock, nodes=()) as world:
        plan = MaintenancePlan(kind=MaintenanceKind.REBOOT, reason="EVACUATION", start=clock.now() + 2 * DAY)
        report = NoticeReport(
            source="oci", notice_id="e1", at=clock.now(), provider_id="other", machine_name="db-7", plan=plan
        )
        await world.notice_writer.write(report)
        await eventually(clock, world.is_found, becomes="False")
        await world.client.create(NODES, a_node("late", labels={"hostname": "db-7"}))
        await eventually(clock, lambda: _node_of(world), becomes="late")


async def test_node_name_is_kept_when_the_node_is_deleted(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.report(start=2 * DAY)
        await world.becomes(NoticePhase.PLANNED)
        await world.client.delete(NODES, "n1")
        await eventually(clock, world.is_found, becomes="False")
        status = (await world.notice()).status
        assert status.node_name == "n1"
        await world.report(NoticeStage.ENDED)
        status = (await world.becomes(NoticePhase.COMPLETED)).status
        assert status.node_name == "n1"
        messages = [entry.message for entry in status.history if "is gone" in entry.message]
        assert messages == [f"node n1 is gone: no node runs on {MACHINE} yet"]


async def test_another_machine_under_the_name_of_a_deleted_node_does_not_match(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.report(start=HOUR)
        await world.becomes(NoticePhase.PLANNED)
        await world.client.delete(NODES, "n1")
        await eventually(clock, world.is_found, becomes="False")
        await world.client.create(NODES, a_node("n1").with_spec(providerID="oci://ocid1.instance.oc1.fra.b"))
        await clock.sleep(50 * MINUTE)
        assert ((await world.notice()).status.phase, (await world.notice()).node) == (NoticePhase.DUE, "n1")
        assert await world.announced_conditions() == []
        await world.client.delete(NODES, "n1")
        await world.client.create(NODES, a_node("n1").with_spec(providerID=MACHINE))
        await eventually(clock, world.announced_conditions, becomes=["MaintenancePlanned"])


async def test_notice_with_a_node_name_is_bound_to_the_provider_id_of_that_node(clock: Clock) -> None:
    async with a_world(clock) as world:
        times = {"start": micro_time(clock.now() + HOUR), "end": micro_time(clock.now() + 2 * HOUR)}
        spec = {"nodeName": "n1", "source": "oci", "noticeID": "e1", "kind": "Reboot", **times}
        kind = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
        await world.client.create(MAINTENANCE_NOTICES, {**kind, "metadata": {"name": "oci-e1"}, "spec": spec})
        assert (await world.becomes(NoticePhase.PLANNED)).status.provider_id == f"oci://{MACHINE}"
        await world.client.delete(NODES, "n1")
        await world.client.create(NODES, a_node("n1").with_spec(providerID="ocid1.instance.oc1.fra.b"))
        why = f"node n1 runs on ocid1.instance.oc1.fra.b now, but the notice is for {MACHINE}"
        await eventually(clock, world.ready_message, becomes=why)
        assert await world.is_found() == "False"
        assert await world.announced_conditions() == []

        await world.client.create(NODES, a_node("n2").with_spec(providerID="ocid1.instance.oc1.fra.c"))
        await world.client.patch(MAINTENANCE_NOTICES, "oci-e1", merge_patch({"spec": {"nodeName": "n2"}}))
        await eventually(clock, world.is_found, becomes="True")
        assert (await world.notice()).status.provider_id == "ocid1.instance.oc1.fra.c"


async def test_two_nodes_with_the_same_provider_id_are_left_alone(clock: Clock) -> None:
    async with a_world(clock, nodes=("n1", "n2")) as world:
        await world.report(start=HOUR)
        notice = await world.becomes(NoticePhase.PLANNED)
        found = notice.status.condition(NoticeCondition.NODE_FOUND)
        assert found is not None
        assert "n1, n2 all claim" in found.message
        assert notice.status.node_name == ""
        await world.client.delete(NODES, "n2")
        await eventually(clock, lambda: _node_of(world), becomes="n1")


async def test_long_predicted_drain_starts_earlier_and_is_reported(clock: Clock) -> None:
    async with a_world(clock, predictor=FixedPredictor(40 * MINUTE)) as world:
        await world.report(start=2 * HOUR)
        notice = await world.becomes(NoticePhase.PLANNED)
        assert notice.spec.start is not None
        assert notice.status.drain_at == notice.spec.start - 40 * MINUTE
        assert any(reason == "DrainStartsEarlier" for reason, _ in await world.events())
        await world.becomes(NoticePhase.DUE, within=2 * HOUR - 39 * MINUTE)


async def test_only_finished_notices_are_deleted_after_seven_days(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.report(start=HOUR)
        await world.report(NoticeStage.ENDED)
        await world.becomes(NoticePhase.COMPLETED)
        await clock.sleep(6 * DAY)
        await world.notice()
        await clock.sleep(DAY + MINUTE)
        try:
            await world.notice()
        except NotFound:
            return
        raise AssertionError("it is still there")


async def test_idle_controller_and_its_successor_write_nothing(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.report(start=DAY)
        before = (await world.becomes(NoticePhase.PLANNED)).resource_version
        await world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"any": "label"}}}))
        async with running(world.client):
            await clock.sleep(10 * HOUR)
        assert (await world.notice()).resource_version == before


async def _node_of(world: World) -> str:
    return (await world.notice()).status.node_name
