"""The life of a maintenance that GKE tells of by labels of a node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.errors import CannotMove
from haulout.kinds.early import Answer, Early
from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind, MaintenanceNotice, Phase, Stage
from haulout.kube.cache import Cache, as_is
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.notices.inbox import Inbox
from haulout.notices.sources.gke.labels import ACTIVE, LATEST_START, PERFORM, START, TERMINATING
from haulout.notices.sources.gke.source import BeginningGkeSource
from support.builders import a_node
from support.gcp_world import World, a_world

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


@dataclass
class Gke:
    """A cluster, and a source that can be stopped."""

    world: World
    source: BeginningGkeSource
    running: asyncio.Task[None] | None = None

    async def label(self, **values: str | None) -> None:
        """Change labels of the node, as GKE does."""
        names = {"start": START, "latest": LATEST_START, "active": ACTIVE, "perform": PERFORM}
        labels = {names[name]: value for name, value in values.items()}
        await self.world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": labels}}))

    def start(self) -> None:
        """Run the source."""
        self.running = self.world.group.create_task(self.source.run(Inbox(self.world.client)))

    async def stop(self) -> None:
        """End it as a crash does."""
        if self.running is not None:
            self.running.cancel()
            await asyncio.wait([self.running])

    def at(self, ahead: timedelta) -> str:
        """Return an instant as GKE writes it."""
        return str(int((self.world.clock.now() + ahead).timestamp()))

    async def planned(self, ahead: timedelta = DAY) -> MaintenanceNotice:
        """Return the notice of a maintenance that was just planned."""
        await self.label(start=self.at(ahead))
        await self.world.becomes(Stage.SCHEDULED, within=SECOND)
        return await self.world.the()


@asynccontextmanager
async def gke(clock: Clock) -> AsyncIterator[Gke]:
    """Yield a cluster with a node, in which the source runs."""
    async with a_world(clock) as world:
        await world.join("n1")
        nodes: Cache[Node] = Cache(world.client, Selection(NODES), row=as_is)
        task = world.group.create_task(nodes.run())
        made = Gke(world, BeginningGkeSource(world.client, nodes))
        made.start()
        await clock.sleep(SECOND)
        try:
            yield made
        finally:
            await made.stop()
            task.cancel()


async def test_planned_from_its_announcement_to_its_end(clock: Clock) -> None:
    async with gke(clock) as it:
        await it.label(latest=it.at(2 * DAY))
        notice = await it.planned()
        spec = notice.spec
        assert (spec.kind, spec.node_name, spec.reason) == (Kind.REBOOT, "n1", "HostMaintenance")
        assert spec.start is not None
        assert (spec.start.microsecond, spec.deadline) == (0, spec.start + DAY)
        await it.world.becomes(Stage.SCHEDULED, phase=Phase.PLANNED, within=SECOND)
        await clock.sleep(DAY)
        await it.label(active="true")
        await it.world.becomes(Stage.STARTED, phase=Phase.ACTIVE, within=SECOND)
        await it.label(active=None, start=None, latest=None)
        await it.world.becomes(Stage.ENDED, phase=Phase.COMPLETED, within=SECOND)


async def test_moved_is_the_same_at_another_time(clock: Clock) -> None:
    async with gke(clock) as it:
        before = await it.planned()
        await it.label(start=it.at(3 * DAY))
        await clock.sleep(SECOND)
        after = await it.world.the()
        assert after.name == before.name
        assert after.spec.start is not None
        assert before.spec.start is not None
        assert timedelta(days=1.9) < after.spec.start - before.spec.start < timedelta(days=2.1)


async def test_cancelled_before_its_start(clock: Clock) -> None:
    async with gke(clock) as it:
        await it.planned()
        await it.label(start=None)
        await it.world.becomes(Stage.CANCELLED, phase=Phase.CANCELLED, within=SECOND)


async def test_begun_early_is_active_and_another_start_is_another_maintenance(clock: Clock) -> None:
    async with gke(clock) as it:
        await it.planned()
        await it.label(active="true")
        await it.world.becomes(Stage.STARTED, phase=Phase.ACTIVE, within=SECOND)
        await it.label(active=None, start=it.at(9 * DAY))
        await clock.sleep(SECOND)
        assert [stage for *_, stage in await it.world.outcome()] == [Stage.ENDED, Stage.SCHEDULED]


async def test_a_node_that_is_terminated_at_its_time_has_begun(clock: Clock) -> None:
    async with gke(clock) as it:
        await it.planned()
        taint = {"spec": {"taints": [{"key": TERMINATING, "effect": "NoSchedule"}]}}
        await it.world.client.patch(NODES, "n1", merge_patch(taint))
        await it.world.becomes(Stage.STARTED, within=SECOND)


async def test_a_maintenance_that_nobody_announced_is_told_once(clock: Clock) -> None:
    async with gke(clock) as it:
        await it.label(active="true")
        await it.world.becomes(Stage.STARTED, phase=Phase.ACTIVE, within=SECOND)
        await clock.sleep(HOUR)
        await it.label(active="false")
        await it.world.becomes(Stage.ENDED, phase=Phase.COMPLETED, within=SECOND)


async def test_one_that_goes_on_unannounced_and_that_a_person_ended_stays_so(clock: Clock) -> None:
    async with gke(clock) as it:
        await it.label(active="true")
        await it.world.becomes(Stage.STARTED, within=SECOND)
        ended = merge_patch({"spec": {"stage": Stage.ENDED}})
        await it.world.client.patch(MAINTENANCE_NOTICES, (await it.world.the()).name, ended)
        await it.label(latest="1")
        await clock.sleep(HOUR)
        assert (await it.world.the()).spec.stage == Stage.ENDED


async def test_what_we_had_begin_early_and_nobody_saw_begin_has_ended(clock: Clock) -> None:
    async with gke(clock) as it:
        notice = await it.planned()
        early = Early(start=notice.spec.start, answer=Answer.AGREED)
        await it.world.client.patch(MAINTENANCE_NOTICES, notice.name, merge_patch({"metadata": early.change}))
        await it.label(start=None)
        await it.world.becomes(Stage.ENDED, within=SECOND)


async def test_a_duplicate_is_neither_written_nor_another_notice(clock: Clock) -> None:
    async with gke(clock) as it:
        notice = await it.planned()
        await clock.sleep(MINUTE)
        before = (await it.world.the()).resource_version
        await it.label(perform="false")
        await it.stop()
        it.start()
        await clock.sleep(2 * HOUR)
        assert ((await it.world.the()).name, (await it.world.the()).resource_version) == (notice.name, before)


async def test_what_happened_while_the_operator_was_down_is_heard_when_it_is_back(clock: Clock) -> None:
    async with gke(clock) as it:
        await it.planned(HOUR)
        await it.stop()
        await clock.sleep(2 * HOUR)
        await it.label(start=None)
        assert (await it.world.the()).spec.stage == Stage.SCHEDULED
        it.start()
        await it.world.becomes(Stage.ENDED, phase=Phase.COMPLETED, within=SECOND)


async def test_what_a_person_called_off_or_deleted(clock: Clock) -> None:
    async with gke(clock) as it:
        notice = await it.planned()
        await it.world.client.delete(MAINTENANCE_NOTICES, notice.name)
        await clock.sleep(11 * MINUTE)
        assert (await it.world.the()).name == notice.name, "as long as GKE plans it"
        called_off = merge_patch({"spec": {"stage": Stage.CANCELLED}})
        await it.world.client.patch(MAINTENANCE_NOTICES, notice.name, called_off)
        await clock.sleep(HOUR)
        assert (await it.world.the()).spec.stage == Stage.CANCELLED


async def test_a_node_that_is_gone_or_another_ends_what_was_about_it(clock: Clock) -> None:
    async with gke(clock) as it:
        await it.planned()
        await it.world.client.delete(NODES, "n1")
        await it.world.becomes(Stage.CANCELLED, within=SECOND)
        await it.world.client.create(NODES, a_node("n1").labelled({START: it.at(HOUR)}))
        await clock.sleep(SECOND)
        assert [stage for *_, stage in await it.world.outcome()] == [Stage.CANCELLED, Stage.SCHEDULED]


@pytest.mark.parametrize("value", ["soon", "m1", "9999999999999", "99999999999"])
async def test_a_label_that_makes_no_sense_says_nothing(clock: Clock, value: str) -> None:
    async with gke(clock) as it:
        await it.planned()
        await it.label(start=value)
        await clock.sleep(HOUR)
        assert (await it.world.the()).spec.stage == Stage.SCHEDULED
        assert f"expected seconds since 1970 as label {START}" in it.source.troubles()[0]
        assert it.source.is_up


async def test_it_begins_by_a_label_of_the_very_node(clock: Clock) -> None:
    async with gke(clock) as it:
        notice = await it.planned()
        await it.source.begin(notice)
        await it.source.begin(notice)
        labels = (await it.world.client.get(NODES, "n1")).metadata.labels
        assert labels[PERFORM] == "true"
        await it.world.client.delete(NODES, "n1")
        await it.world.client.create(NODES, a_node("n1"))
        with pytest.raises(CannotMove, match="the node is not there any more"):
            await it.source.begin(notice)
        assert PERFORM not in (await it.world.client.get(NODES, "n1")).metadata.labels


async def test_a_cluster_without_such_labels_costs_no_request(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gke(clock) as it:
        lists: list[str] = []
        found = it.world.client.list

        async def listing(*args: Any, **more: Any) -> Any:
            lists.append("notices")
            return await found(*args, **more)

        monkeypatch.setattr(it.world.client, "list", listing)
        await clock.sleep(DAY)
        await it.world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"team": "a"}}}))
        await clock.sleep(DAY)
        assert lists == []
