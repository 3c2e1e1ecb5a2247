"""Maintenance that GKE announces by labels of nodes, through its phases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    EarlyStart,
    EarlyStartAnswer,
    MaintenanceKind,
    MaintenanceNotice,
    NoticePhase,
    NoticeStage,
)
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.errors import RescheduleRefused
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.reflector import ListWatch
from haulout.providers.gke.event_source import ACTIVE, LATEST_START, PERFORM, START, TERMINATING, GkeEarlyStartSource
from haulout.providers.notice_writer import NoticeWriter
from support.builders.objects import a_node
from support.clouds.gcp import GcpWorld, a_gcp_world

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


@dataclass
class GkeWorld:
    """A cluster, and a source that can be stopped."""

    world: GcpWorld
    source: GkeEarlyStartSource
    running: asyncio.Task[None] | None = None

    async def label(self, **values: str | None) -> None:
        """Change labels of the node, as GKE does."""
        names = {"start": START, "latest": LATEST_START, "active": ACTIVE, "perform": PERFORM}
        labels = {names[name]: value for name, value in values.items()}
        await self.world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": labels}}))

    def start(self) -> None:
        """Run the source."""
        self.running = self.world.group.create_task(self.source.run(NoticeWriter(self.world.client)))

    async def stop(self) -> None:
        """Stop the source as a crash does."""
        if self.running is not None:
            self.running.cancel()
            await asyncio.wait([self.running])

    def at(self, ahead: timedelta) -> str:
        """Return an instant in the format of GKE labels."""
        return str(int((self.world.clock.now() + ahead).timestamp()))

    async def planned(self, ahead: timedelta = DAY) -> MaintenanceNotice:
        """Schedule a maintenance by label and return its notice."""
        await self.label(start=self.at(ahead))
        await self.world.wait_for_stage(NoticeStage.SCHEDULED, within=SECOND)
        return await self.world.only_notice()


@asynccontextmanager
async def a_gke_world(clock: Clock) -> AsyncIterator[GkeWorld]:
    """Yield a cluster with a node, in which the source runs."""
    async with a_gcp_world(clock) as world:
        await world.join_node("n1")
        nodes: Informer[Node] = Informer(world.client, ListWatch(NODES), transform=as_is)
        task = world.group.create_task(nodes.run())
        made = GkeWorld(world, GkeEarlyStartSource(world.client, nodes))
        made.start()
        await clock.sleep(SECOND)
        try:
            yield made
        finally:
            await made.stop()
            task.cancel()


async def test_gke_maintenance_goes_through_all_phases_of_its_notice(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        await world.label(latest=world.at(2 * DAY))
        notice = await world.planned()
        spec = notice.spec
        assert (spec.kind, spec.node_name, spec.reason) == (MaintenanceKind.REBOOT, "n1", "HostMaintenance")
        assert spec.start is not None
        assert (spec.start.microsecond, spec.deadline) == (0, spec.start + DAY)
        await world.world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.PLANNED, within=SECOND)
        await clock.sleep(DAY)
        await world.label(active="true")
        await world.world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE, within=SECOND)
        await world.label(active=None, start=None, latest=None)
        await world.world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED, within=SECOND)


async def test_rescheduled_maintenance_changes_the_start_of_its_notice(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        before = await world.planned()
        await world.label(start=world.at(3 * DAY))
        await clock.sleep(SECOND)
        after = await world.world.only_notice()
        assert after.name == before.name
        assert after.spec.start is not None
        assert before.spec.start is not None
        assert timedelta(days=1.9) < after.spec.start - before.spec.start < timedelta(days=2.1)


async def test_label_removed_before_the_start_cancels_the_notice(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        await world.planned()
        await world.label(start=None)
        await world.world.wait_for_stage(NoticeStage.CANCELLED, phase=NoticePhase.CANCELLED, within=SECOND)


async def test_early_start_is_active_and_a_new_start_is_another_notice(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        await world.planned()
        await world.label(active="true")
        await world.world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE, within=SECOND)
        await world.label(active=None, start=world.at(9 * DAY))
        await clock.sleep(SECOND)
        assert [stage for *_, stage in await world.world.notice_summaries()] == [
            NoticeStage.ENDED,
            NoticeStage.SCHEDULED,
        ]


async def test_termination_taint_starts_the_notice(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        await world.planned()
        taint = {"spec": {"taints": [{"key": TERMINATING, "effect": "NoSchedule"}]}}
        await world.world.client.patch(NODES, "n1", merge_patch(taint))
        await world.world.wait_for_stage(NoticeStage.STARTED, within=SECOND)


async def test_unannounced_active_maintenance_is_one_notice(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        await world.label(active="true")
        await world.world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE, within=SECOND)
        await clock.sleep(HOUR)
        await world.label(active="false")
        await world.world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED, within=SECOND)


async def test_unannounced_notice_ended_by_a_user_stays_ended(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        await world.label(active="true")
        await world.world.wait_for_stage(NoticeStage.STARTED, within=SECOND)
        ended = merge_patch({"spec": {"stage": NoticeStage.ENDED}})
        await world.world.client.patch(MAINTENANCE_NOTICES, (await world.world.only_notice()).name, ended)
        await world.label(latest="1")
        await clock.sleep(HOUR)
        assert (await world.world.only_notice()).spec.stage == NoticeStage.ENDED


async def test_unobserved_early_start_has_ended_when_its_label_is_removed(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        notice = await world.planned()
        early = EarlyStart(start=notice.spec.start, answer=EarlyStartAnswer.ACCEPTED)
        await world.world.client.patch(
            MAINTENANCE_NOTICES, notice.name, merge_patch({"metadata": early.metadata_patch})
        )
        await world.label(start=None)
        await world.world.wait_for_stage(NoticeStage.ENDED, within=SECOND)


async def test_unchanged_labels_do_not_write_the_notice(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        notice = await world.planned()
        await clock.sleep(MINUTE)
        before = (await world.world.only_notice()).resource_version
        await world.label(perform="false")
        await world.stop()
        world.start()
        await clock.sleep(2 * HOUR)
        assert ((await world.world.only_notice()).name, (await world.world.only_notice()).resource_version) == (
            notice.name,
            before,
        )


async def test_label_changes_during_downtime_are_applied_after_a_restart(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        await world.planned(HOUR)
        await world.stop()
        await clock.sleep(2 * HOUR)
        await world.label(start=None)
        assert (await world.world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        world.start()
        await world.world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED, within=SECOND)


async def test_deleted_notice_is_recreated_and_a_cancelled_one_stays_cancelled(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        notice = await world.planned()
        await world.world.client.delete(MAINTENANCE_NOTICES, notice.name)
        await clock.sleep(11 * MINUTE)
        assert (await world.world.only_notice()).name == notice.name, "while GKE schedules it"
        called_off = merge_patch({"spec": {"stage": NoticeStage.CANCELLED}})
        await world.world.client.patch(MAINTENANCE_NOTICES, notice.name, called_off)
        await clock.sleep(HOUR)
        assert (await world.world.only_notice()).spec.stage == NoticeStage.CANCELLED


async def test_deleted_or_recreated_node_cancels_its_notice(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        await world.planned()
        await world.world.client.delete(NODES, "n1")
        await world.world.wait_for_stage(NoticeStage.CANCELLED, within=SECOND)
        await world.world.client.create(NODES, a_node("n1").labelled({START: world.at(HOUR)}))
        await clock.sleep(SECOND)
        assert [stage for *_, stage in await world.world.notice_summaries()] == [
            NoticeStage.CANCELLED,
            NoticeStage.SCHEDULED,
        ]


@pytest.mark.parametrize("value", ["soon", "m1", "9999999999999", "99999999999"])
async def test_malformed_label_is_reported_and_ends_no_notice(clock: Clock, value: str) -> None:
    async with a_gke_world(clock) as world:
        await world.planned()
        await world.label(start=value)
        await clock.sleep(HOUR)
        assert (await world.world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        assert f"expected seconds since 1970 as label {START}" in world.source.problems()[0]
        assert world.source.is_up


async def test_early_start_sets_the_perform_label_of_the_same_node(clock: Clock) -> None:
    async with a_gke_world(clock) as world:
        notice = await world.planned()
        await world.source.start_early(notice)
        await world.source.start_early(notice)
        labels = (await world.world.client.get(NODES, "n1")).metadata.labels
        assert labels[PERFORM] == "true"
        await world.world.client.delete(NODES, "n1")
        await world.world.client.create(NODES, a_node("n1"))
        with pytest.raises(RescheduleRefused, match="the node no longer exists"):
            await world.source.start_early(notice)
        assert PERFORM not in (await world.world.client.get(NODES, "n1")).metadata.labels


async def test_source_without_gke_labels_sends_no_requests(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_gke_world(clock) as world:
        lists: list[str] = []
        found = world.world.client.list

        async def listing(*args: Any, **more: Any) -> Any:
            lists.append("notices")
            return await found(*args, **more)

        monkeypatch.setattr(world.world.client, "list", listing)
        await clock.sleep(DAY)
        await world.world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"team": "a"}}}))
        await clock.sleep(DAY)
        assert lists == []
