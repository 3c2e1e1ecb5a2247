"""Clouds are told to begin once the node is empty: once for each start that they plan, whoever dies meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition, NoticeStage
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.errors import CloudError, RescheduleRefused
from haulout.kube.patches import merge_patch
from support.operators.notices import MINUTE, SECOND, NoticeCluster, a_notice_cluster

EMPTIED, EARLY = NoticeCondition.EMPTIED, NoticeCondition.EARLY_START


@dataclass
class Cloud:
    """A cloud of which only the answer to "begin" is of interest."""

    world: NoticeCluster
    told: int = 0
    answers: list[Exception | None] = field(default_factory=list)

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Answer."""
        await self.world.step("before begin")
        self.told += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        await self.world.patch_notice(notice.name, stage=NoticeStage.STARTED)
        await self.world.step("after begin")


@dataclass
class BlockedCloud(Cloud):
    """One that has to wait for others."""

    obstacles: list[str] = field(default_factory=list)

    async def start_blocker(self, _: MaintenanceNotice) -> str:
        """Return what is in the way."""
        return self.obstacles.pop(0) if self.obstacles else ""


@asynccontextmanager
async def a_cloud(
    clock: Clock, *, crash_at: int | None = None, kind: type[Cloud] = Cloud, pods: int = 0
) -> AsyncIterator[tuple[NoticeCluster, Cloud]]:
    """Yield a world with a maintenance that is due, and a node that is not cordoned yet."""
    async with a_notice_cluster(clock) as world:
        cloud = kind(world)
        world.crash_at = crash_at
        world.early_start_sources["ticket"] = cloud
        await world.create_pods(pods)
        await world.announce(start=14 * MINUTE, stage=NoticeStage.SCHEDULED)
        await clock.sleep(SECOND)
        yield world, cloud


async def test_it_is_told_once_nothing_is_left_on_the_node(clock: Clock) -> None:
    async with a_cloud(clock, pods=2) as (world, cloud):
        await world.cordon()
        await clock.sleep(MINUTE)
        assert cloud.told == 0
        await world.delete_pods(0, 1)
        await clock.sleep(2 * MINUTE)
        assert cloud.told == 1
        said = await world.condition(EARLY)
        assert (said.status, said.reason) == ("True", "Accepted")
        told = "n1 is empty: ticket was asked to begin early, and "
        assert any(entry.message.startswith(told) for entry in (await world.notice()).status.history)
        (event,) = await world.node_event_notes("EarlyStartAccepted")
        assert event.startswith(f"m1: {told}")


@pytest.mark.parametrize("step", range(1, 17))
async def test_the_operator_may_die_at_any_moment(clock: Clock, step: int) -> None:
    async with a_cloud(clock, crash_at=step) as (world, cloud):
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert 1 <= cloud.told <= 2
        said = await world.condition(EARLY)
        assert (said.status, said.reason) == ("True", "Accepted")
        assert (await world.notice()).spec.stage == NoticeStage.STARTED


async def test_two_who_both_believe_they_lead_do_no_harm(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        world.start()
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert 1 <= cloud.told <= 2
        assert (await world.condition(EARLY)).reason == "Accepted"


async def test_a_refusal_is_believed_until_it_is_planned_anew(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [RescheduleRefused("not now")]
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert cloud.told == 1
        said = await world.condition(EARLY)
        assert (said.status, said.reason) == ("False", "Refused")
        assert said.message == "n1 is empty, but ticket does not begin early: not now"
        start = clock.now().replace(microsecond=0) + 10 * MINUTE
        await world.patch_notice(start=start)
        await clock.sleep(MINUTE)
        assert cloud.told == 2


async def test_no_answer_is_asked_for_again(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [CloudError("", doing="x"), CloudError("", doing="x", status=503)]
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert cloud.told == 3
        assert (await world.condition(EARLY)).reason == "Accepted"


async def test_a_cloud_that_fails_without_a_retry_after_is_asked_again_after_a_backoff(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [CloudError("", doing="x")] * 3
        await world.cordon()
        await clock.sleep(3 * SECOND)
        assert cloud.told == 1, "the first backoff is five seconds, less some jitter"
        await clock.sleep(5 * SECOND)
        assert cloud.told == 2
        await clock.sleep(5 * SECOND)
        assert cloud.told == 2, "the second backoff is longer"


async def test_a_cloud_that_fails_with_a_retry_after_is_not_asked_before(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [CloudError("", doing="x", retry_after=3 * MINUTE)]
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert cloud.told == 1
        await clock.sleep(2 * MINUTE)
        assert cloud.told == 2


async def test_what_is_in_the_way_is_waited_for_and_nothing_is_written_down_before(clock: Clock) -> None:
    async with a_cloud(clock, kind=BlockedCloud) as (world, cloud):
        assert isinstance(cloud, BlockedCloud)
        cloud.obstacles = ["another is not empty"] * 3
        await world.cordon()
        await clock.sleep(20 * SECOND)
        assert (await world.condition(EARLY)).status == ""
        await clock.sleep(40 * SECOND)
        assert cloud.told == 1


async def test_a_node_that_is_used_again_is_not_given(clock: Clock) -> None:
    async with a_cloud(clock, kind=BlockedCloud) as (world, cloud):
        assert isinstance(cloud, BlockedCloud)
        cloud.obstacles = ["another is not empty"] * 2
        await world.cordon()
        assert (await world.condition(EMPTIED)).status == "True"
        back = {"metadata": {"annotations": {"haulout.dev/cordon": None}}, "spec": {"unschedulable": False}}
        await world.client.patch(NODES, "n1", merge_patch(back))
        await clock.sleep(2 * MINUTE)
        assert cloud.told == 0
        said = await world.condition(EMPTIED)
        assert (said.status, said.reason) == ("False", "NotCordoned")


async def test_who_listens_to_no_such_source_tells_nobody(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        world.early_start_sources.clear()
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert cloud.told == 0
        assert (await world.condition(EMPTIED)).status == "True"
        assert (await world.condition(EARLY)).status == ""
