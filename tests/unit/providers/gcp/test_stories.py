"""Google Cloud maintenance becomes notices, by operator or agent, despite restarts: scenarios on virtual time."""

from datetime import datetime, timedelta

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, NoticePhase, NoticeStage
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout.providers.event_source import EarlyStartSource, ReschedulableSource
from haulout.providers.gcp.correlation import GONE_AT
from haulout.providers.gcp.settings import GcpSettings
from support.clouds.gcp import GcpWorld, a_gcp_world

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)

either = pytest.mark.parametrize("agent_on", ["", "n1"], ids=["compute", "metadata"])


def a_second(clock: Clock) -> datetime:
    """Return the current time in whole seconds, as Google has no fractions here."""
    return clock.now().replace(microsecond=0)


@either
async def test_maintenance_goes_through_all_phases_of_its_notice(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        start = a_second(clock) + DAY
        world.start()
        world.cloud.schedule(node, start=start, latest_start=start + 14 * DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.PLANNED)
        notice = await world.only_notice()
        number = world.cloud.instances.by_name[node].numeric_id
        assert notice.name == f"gcp-{number}-{start:%Y%m%dt%H%M%S}"
        assert (notice.status.node_name, notice.spec.provider_id) == ("n1", world.cloud.provider_id(node))
        assert (notice.spec.kind, notice.spec.reason) == (MaintenanceKind.REBOOT, "PLANNED_UPDATE")
        times = notice.spec.start, notice.spec.end, notice.spec.deadline
        assert times == (start, start + 3 * HOUR, start + 14 * DAY)
        await clock.sleep(DAY - HOUR)
        assert (await world.only_notice()).status.phase == NoticePhase.PLANNED
        await clock.sleep(2 * HOUR)
        assert (await world.only_notice()).status.phase == NoticePhase.DUE, "its window is open, and it has not started"
        world.cloud.start_maintenance(node)
        await world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE)
        await clock.sleep(30 * MINUTE)
        world.cloud.end_maintenance(node)
        await world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED)
        assert world.problems() == []


@either
@pytest.mark.parametrize("by", [2 * DAY, -2 * DAY])
async def test_rescheduled_maintenance_changes_the_start_of_its_notice(
    clock: Clock, agent_on: str, by: timedelta
) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        start = a_second(clock) + 4 * DAY
        world.cloud.schedule(node, start=start)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.reschedule(node, start=start + by)
        await clock.sleep(6 * MINUTE)
        assert (await world.only_notice()).spec.start == start + by


@either
async def test_cancelled_maintenance_is_never_due(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + 2 * HOUR)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.cancel_maintenance(node)
        await world.wait_for_stage(NoticeStage.CANCELLED, phase=NoticePhase.CANCELLED)
        await clock.sleep(6 * HOUR)
        assert (await world.only_notice()).status.phase == NoticePhase.CANCELLED


@either
async def test_maintenance_that_starts_early_is_active(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + 3 * DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.start_maintenance(node)
        await world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE)
        world.cloud.end_maintenance(node)
        await world.wait_for_stage(NoticeStage.ENDED)


@either
async def test_repeated_notification_does_not_write_the_notice(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + 3 * DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.PLANNED)
        before = await world.only_notice()
        for _ in range(20):
            world.cloud.instances.by_name[node].notify()
            await clock.sleep(5 * MINUTE)
        after = await world.only_notice()
        assert (after.spec, after.metadata.generation) == (before.spec, before.metadata.generation)


@either
async def test_next_maintenance_of_a_machine_is_another_notice(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + HOUR)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.start_maintenance(node)
        await world.wait_for_stage(NoticeStage.STARTED)
        world.cloud.schedule(node, start=clock.now() + 30 * DAY)
        await clock.sleep(6 * MINUTE)
        assert [row[2] for row in await world.notice_summaries()] == [NoticeStage.ENDED, NoticeStage.SCHEDULED]


@either
@pytest.mark.parametrize("downtime", [MINUTE, 3 * HOUR])
async def test_changes_during_downtime_are_applied_after_a_restart(
    clock: Clock, agent_on: str, downtime: timedelta
) -> None:
    for becomes in ("moved", "cancelled", "begun", "over"):
        async with a_gcp_world(clock, agent_on=agent_on) as world:
            node, start = await world.join_node("n1"), a_second(clock) + 2 * HOUR
            world.cloud.schedule(node, start=start)
            world.start()
            await world.wait_for_stage(NoticeStage.SCHEDULED)
            await world.stop()
            if becomes == "moved":
                world.cloud.reschedule(node, start=start + 7 * DAY)
            elif becomes == "cancelled":
                world.cloud.cancel_maintenance(node)
            else:
                world.cloud.start_maintenance(node)
            await clock.sleep(downtime)
            if becomes == "over":
                world.cloud.end_maintenance(node)
            world.start()
            await clock.sleep(MINUTE)
            found = (await world.only_notice()).spec
            match becomes:
                case "moved":
                    assert (found.stage, found.start) == (NoticeStage.SCHEDULED, start + 7 * DAY)
                case "begun":
                    assert found.stage == NoticeStage.STARTED
                case _:
                    assert found.stage == (NoticeStage.CANCELLED if clock.now() < start else NoticeStage.ENDED)


@either
async def test_deleted_notice_is_recreated_while_the_maintenance_is_scheduled(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.client.delete(MAINTENANCE_NOTICES, (await world.only_notice()).name)
        await clock.sleep(6 * MINUTE)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED


@either
async def test_notice_cancelled_by_a_user_stays_cancelled(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        patch = merge_patch({"spec": {"stage": "Cancelled"}})
        await world.client.patch(MAINTENANCE_NOTICES, (await world.only_notice()).name, patch)
        await clock.sleep(20 * MINUTE)
        await world.stop()
        world.start()
        await clock.sleep(20 * MINUTE)
        assert (await world.only_notice()).spec.stage == NoticeStage.CANCELLED


@either
async def test_maintenance_scheduled_again_for_the_same_time_is_another_notice(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node, start = await world.join_node("n1"), clock.now() + DAY
        world.start()
        world.cloud.schedule(node, start=start)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.cancel_maintenance(node)
        await world.wait_for_stage(NoticeStage.CANCELLED)
        assert GONE_AT in (await world.only_notice()).metadata.annotations
        world.cloud.schedule(node, start=start)
        await clock.sleep(10 * MINUTE)
        assert [row[2] for row in await world.notice_summaries()] == [NoticeStage.CANCELLED, NoticeStage.SCHEDULED]
        await clock.sleep(HOUR)
        assert len(await world.notices()) == 2


@either
async def test_recreated_instance_of_the_same_name_cancels_the_old_notice(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + 5 * DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.stop()
        world.cloud.launch("n1")
        world.start()
        await world.wait_for_stage(NoticeStage.CANCELLED)


@either
async def test_failed_notice_writes_are_retried(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        await clock.sleep(SECOND)
        world.transport.cut()  # type: ignore[attr-defined] # of the sandbox
        world.cloud.schedule(node, start=clock.now() + DAY)
        await clock.sleep(6 * MINUTE)
        assert "MaintenanceNotices cannot be" in "".join(world.problems())
        world.transport.mend()  # type: ignore[attr-defined] # of the sandbox
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await clock.sleep(6 * MINUTE)
        assert world.problems() == []


@either
async def test_malformed_maintenance_is_quarantined_and_ends_no_notice(clock: Clock, agent_on: str) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.instances.by_name[node].update_upcoming(windowStartTime="soon")
        await clock.sleep(20 * MINUTE)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        assert "expected a time as windowStartTime, found 'soon'" in "".join(world.problems())
        world.cloud.cancel_maintenance(node)
        await world.wait_for_stage(NoticeStage.CANCELLED)


async def test_operator_and_agent_update_the_same_notice(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        node, start = await world.join_node("n1"), a_second(clock) + DAY
        world.cloud.schedule(node, start=start)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.stop()
        world.agent_on = node
        world.start()
        await clock.sleep(10 * MINUTE)
        world.cloud.reschedule(node, start=start + DAY)
        await clock.sleep(10 * MINUTE)
        await world.stop()
        world.agent_on = ""
        world.start()
        await clock.sleep(10 * MINUTE)
        assert (await world.only_notice()).spec.start == start + DAY


@pytest.mark.parametrize(
    ("migrates", "spot", "kind"),
    [
        (False, False, MaintenanceKind.REBOOT),
        (True, False, MaintenanceKind.MIGRATE),
        (False, True, MaintenanceKind.STOP),
    ],
)
@either
async def test_maintenance_kind_follows_from_the_scheduling_of_the_machine(
    clock: Clock, agent_on: str, kind: MaintenanceKind, *, migrates: bool, spot: bool
) -> None:
    async with a_gcp_world(clock, agent_on=agent_on) as world:
        node = await world.join_node("n1", migrates=migrates, spot=spot)
        world.start()
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        assert (await world.only_notice()).spec.kind == kind


async def test_gcp_notice_is_not_reschedulable_and_supports_early_start(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        await world.join_node("n1")
        world.cloud.schedule("n1", start=clock.now() + DAY, latest_start=clock.now() + 9 * DAY)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        assert not (await world.only_notice()).spec.reschedulable
        assert not isinstance(world.source, ReschedulableSource)
        assert isinstance(world.source, EarlyStartSource)


async def count_polls(world: GcpWorld) -> int:
    return world.cloud.faults.calls.count("AggregatedList")


async def test_compute_api_is_polled_at_the_poll_interval(clock: Clock) -> None:
    async with a_gcp_world(clock, settings=GcpSettings(poll_interval=20 * MINUTE)) as world:
        await world.join_node("n1")
        world.start()
        await clock.sleep(3 * HOUR + MINUTE)
        assert await count_polls(world) == 10
