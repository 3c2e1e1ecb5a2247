"""Early starts are requested once per planned start, when the node is drained, despite crashes."""

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
    """A cloud that answers early start requests."""

    world: NoticeCluster
    request_count: int = 0
    answers: list[Exception | None] = field(default_factory=list)

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Return the configured response."""
        await self.world.step("before begin")
        self.request_count += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        await self.world.patch_notice(notice.name, stage=NoticeStage.STARTED)
        await self.world.step("after begin")


@dataclass
class BlockedCloud(Cloud):
    """A cloud with blockers of an early start."""

    blockers: list[str] = field(default_factory=list)

    async def start_blocker(self, _: MaintenanceNotice) -> str:
        """Return the current blocker."""
        return self.blockers.pop(0) if self.blockers else ""


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


async def test_early_start_is_requested_once_the_node_is_empty(clock: Clock) -> None:
    async with a_cloud(clock, pods=2) as (world, cloud):
        await world.cordon()
        await clock.sleep(MINUTE)
        assert cloud.request_count == 0
        await world.delete_pods(0, 1)
        await clock.sleep(2 * MINUTE)
        assert cloud.request_count == 1
        condition = await world.condition(EARLY)
        assert (condition.status, condition.reason) == ("True", "Accepted")
        message = "n1 is empty: ticket was asked to begin early, and "
        assert any(entry.message.startswith(message) for entry in (await world.notice()).status.history)
        (event,) = await world.node_event_notes("EarlyStartAccepted")
        assert event.startswith(f"m1: {message}")


@pytest.mark.parametrize("step", range(1, 17))
async def test_early_start_survives_a_crash_at_any_step(clock: Clock, step: int) -> None:
    async with a_cloud(clock, crash_at=step) as (world, cloud):
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert 1 <= cloud.request_count <= 2
        condition = await world.condition(EARLY)
        assert (condition.status, condition.reason) == ("True", "Accepted")
        assert (await world.notice()).spec.stage == NoticeStage.STARTED


async def test_two_leaders_do_no_harm(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        world.start()
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert 1 <= cloud.request_count <= 2
        assert (await world.condition(EARLY)).reason == "Accepted"


async def test_refused_early_start_is_not_requested_again_until_the_notice_is_rescheduled(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [RescheduleRefused("not now")]
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert cloud.request_count == 1
        condition = await world.condition(EARLY)
        assert (condition.status, condition.reason) == ("False", "Refused")
        assert condition.message == "n1 is empty, but ticket does not begin early: not now"
        start = clock.now().replace(microsecond=0) + 10 * MINUTE
        await world.patch_notice(start=start)
        await clock.sleep(MINUTE)
        assert cloud.request_count == 2


async def test_failed_early_start_request_is_retried(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [CloudError("", doing="x"), CloudError("", doing="x", status=503)]
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert cloud.request_count == 3
        assert (await world.condition(EARLY)).reason == "Accepted"


async def test_failed_early_start_without_retry_after_is_retried_with_backoff(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [CloudError("", doing="x")] * 3
        await world.cordon()
        await clock.sleep(3 * SECOND)
        assert cloud.request_count == 1, "the first backoff is five seconds, less some jitter"
        await clock.sleep(5 * SECOND)
        assert cloud.request_count == 2
        await clock.sleep(5 * SECOND)
        assert cloud.request_count == 2, "the second backoff is longer"


async def test_failed_early_start_with_retry_after_is_not_retried_earlier(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [CloudError("", doing="x", retry_after=3 * MINUTE)]
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert cloud.request_count == 1
        await clock.sleep(2 * MINUTE)
        assert cloud.request_count == 2


async def test_start_blocker_is_awaited_without_a_status_write(clock: Clock) -> None:
    async with a_cloud(clock, kind=BlockedCloud) as (world, cloud):
        assert isinstance(cloud, BlockedCloud)
        cloud.blockers = ["another is not empty"] * 3
        await world.cordon()
        await clock.sleep(20 * SECOND)
        assert (await world.condition(EARLY)).status == ""
        await clock.sleep(40 * SECOND)
        assert cloud.request_count == 1


async def test_node_that_is_used_again_is_not_released_for_an_early_start(clock: Clock) -> None:
    async with a_cloud(clock, kind=BlockedCloud) as (world, cloud):
        assert isinstance(cloud, BlockedCloud)
        cloud.blockers = ["another is not empty"] * 2
        await world.cordon()
        assert (await world.condition(EMPTIED)).status == "True"
        back = {"metadata": {"annotations": {"haulout.dev/cordon": None}}, "spec": {"unschedulable": False}}
        await world.client.patch(NODES, "n1", merge_patch(back))
        await clock.sleep(2 * MINUTE)
        assert cloud.request_count == 0
        condition = await world.condition(EMPTIED)
        assert (condition.status, condition.reason) == ("False", "NotCordoned")


async def test_notice_without_an_early_start_source_requests_nothing(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        world.early_start_sources.clear()
        await world.cordon()
        await clock.sleep(2 * MINUTE)
        assert cloud.request_count == 0
        assert (await world.condition(EMPTIED)).status == "True"
        assert (await world.condition(EARLY)).status == ""
