"""Events that only the metadata server reports: live migrations and preemptions; and missing responses."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import MaintenanceKind, NoticePhase, NoticeStage
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.providers.gcp.correlation import MAINTENANCE_EVENT
from haulout_sandbox.clouds.gcp.request_handler import HttpResponse
from support.clouds.gcp import GcpWorld, a_gcp_world

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
UPCOMING, EVENT_KEY = "Metadata instance/upcoming-maintenance", "Metadata instance/maintenance-event"


async def a_node(world: GcpWorld, *, migrates: bool = False, spot: bool = False) -> str:
    node = await world.join_node("n1", migrates=migrates, spot=spot)
    world.start()
    await world.clock.sleep(2 * SECOND)
    assert await world.notices() == {}
    return node


async def test_live_migration_is_reported_within_a_second_and_ends_with_the_migration(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world, migrates=True)
        announced_at = clock.now()
        world.cloud.announce_live_migration(node)
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.DUE, within=SECOND)
        notice = await world.only_notice()
        assert (notice.spec.kind, notice.spec.reason) == (MaintenanceKind.FREEZE, "MIGRATE_ON_HOST_MAINTENANCE")
        assert notice.spec.start is not None
        assert timedelta(seconds=59) <= notice.spec.start - announced_at <= timedelta(seconds=62)
        await clock.sleep(90 * SECOND)
        world.cloud.clear_maintenance_event(node)
        await world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED, within=SECOND)
        world.cloud.announce_live_migration(node)
        await clock.sleep(SECOND)
        assert [row[2] for row in await world.notice_summaries()] == [NoticeStage.ENDED, NoticeStage.SCHEDULED]


async def test_unplanned_termination_is_due_at_once(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.instances.by_name[node].set_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.DUE, within=SECOND)
        assert (await world.only_notice()).spec.kind == MaintenanceKind.REBOOT
        assert (await world.only_notice()).spec.start is None


async def test_preemption_is_due_within_seconds(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world, spot=True)
        world.cloud.preempt(node)
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.DUE, within=SECOND)
        notice = await world.only_notice()
        assert (notice.spec.kind, notice.spec.reason) == (MaintenanceKind.TERMINATE, "PREEMPTED")
        await world.stop()  # the agent stops with its machine
        await world.client.delete(NODES, node)
        await clock.sleep(2 * HOUR)
        assert (await world.only_notice()).status.phase == NoticePhase.COMPLETED, (
            "no agent was left, but the node is deleted"
        )


async def test_notice_of_a_preempted_machine_ends_when_it_runs_again(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world, spot=True)
        world.cloud.preempt(node)
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=SECOND)
        await world.stop()
        world.cloud.set_status(node, "RUNNING")
        world.start()
        await world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED, within=5 * SECOND)


async def test_maintenance_event_updates_the_notice_of_the_upcoming_maintenance(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + 30 * MINUTE)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.instances.by_name[node].set_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
        await clock.sleep(MINUTE)
        assert (await world.only_notice()).metadata.annotations[MAINTENANCE_EVENT] == "TERMINATE_ON_HOST_MAINTENANCE"
        world.cloud.start_maintenance(node)
        await world.wait_for_stage(NoticeStage.STARTED)
        world.cloud.instances.by_name[node].set_upcoming(None)  # the other key is updated a little later
        await world.wait_for_stage(NoticeStage.ENDED)
        await clock.sleep(MINUTE)
        world.cloud.clear_maintenance_event(node)
        await clock.sleep(HOUR)
        assert (await world.only_notice()).spec.stage == NoticeStage.ENDED


async def test_late_upcoming_maintenance_value_leads_to_one_notice(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        answer_request = world.cloud.answer

        async def slow(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> HttpResponse:
            answer = await answer_request(method, target, headers, body)
            if "upcoming-maintenance" in target and "wait_for_change" in target:
                await clock.sleep(SECOND)
            return answer

        monkeypatch.setattr(world.cloud, "answer", slow)
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=2 * MINUTE)
        world.cloud.start_maintenance(node)
        await clock.sleep(MINUTE)
        assert [row[2] for row in await world.notice_summaries()] == [NoticeStage.STARTED]
        world.cloud.end_maintenance(node)
        await world.wait_for_stage(NoticeStage.ENDED)


@pytest.mark.parametrize("is_silent", [True, False])
async def test_maintenance_event_is_reported_while_upcoming_maintenance_fails(clock: Clock, *, is_silent: bool) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world, migrates=True)
        if is_silent:
            world.cloud.faults.hang(UPCOMING, times=None)
        else:
            world.cloud.faults.fail(UPCOMING, status=500, times=None)
        world.cloud.announce_live_migration(node)
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=3 * SECOND)


async def test_event_notice_ends_when_the_upcoming_maintenance_starts(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.instances.by_name[node].set_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
        await clock.sleep(MINUTE)
        assert [row[2] for row in await world.notice_summaries()] == [NoticeStage.SCHEDULED, NoticeStage.SCHEDULED], (
            "it may be another maintenance"
        )
        world.cloud.start_maintenance(node)
        await clock.sleep(MINUTE)
        assert sorted(row[2] for row in await world.notice_summaries()) == [NoticeStage.ENDED, NoticeStage.STARTED]
        world.cloud.end_maintenance(node)
        await clock.sleep(MINUTE)
        assert [row[2] for row in await world.notice_summaries()] == [NoticeStage.ENDED, NoticeStage.ENDED]


@pytest.mark.parametrize("status", [404, 503, 500, 0])
async def test_failing_upcoming_maintenance_does_not_end_the_notice(clock: Clock, status: int) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        rule = world.cloud.faults.fail(UPCOMING, status=status, times=None)
        world.cloud.cancel_maintenance(node)
        await clock.sleep(2 * HOUR)
        await world.stop()
        world.start()
        await clock.sleep(HOUR)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        is_normal = status in (404, 503)
        assert bool(world.problems()) is not is_normal
        world.cloud.faults.remove(rule)
        await world.wait_for_stage(NoticeStage.CANCELLED)
        assert world.problems() == []


async def test_started_notice_ends_after_a_reboot_on_a_new_host(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + HOUR)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await clock.sleep(HOUR)
        world.cloud.start_maintenance(node)
        await world.wait_for_stage(NoticeStage.STARTED)
        await world.stop()
        world.cloud.end_maintenance(node, on_new_host=True)
        world.start()
        await clock.sleep(HOUR)
        assert (await world.only_notice()).spec.stage == NoticeStage.STARTED, "the boot ID is unchanged"
        await world.stop()
        world.boot = "second"
        world.start()
        await world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED, within=MINUTE)


async def test_started_notice_ends_after_a_live_migration_to_a_new_host(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world, migrates=True)
        world.cloud.schedule(node, start=clock.now() + 10 * MINUTE)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await clock.sleep(10 * MINUTE)
        world.cloud.start_maintenance(node)
        await world.wait_for_stage(NoticeStage.STARTED)
        world.cloud.end_maintenance(node, on_new_host=True)
        await world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED)


async def test_unreachable_metadata_server_is_reported_and_retried(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        await world.join_node("n1")
        rule = world.cloud.faults.fail(status=503, times=None, message="not now")
        world.start()
        await clock.sleep(5 * MINUTE)
        assert "the metadata server does not answer, retrying" in "".join(world.problems())
        assert not world.is_up()
        world.cloud.faults.remove(rule)
        await clock.sleep(MINUTE)
        assert world.is_up()
        assert world.problems() == []


async def test_hanging_metadata_request_is_retried(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.faults.hang(EVENT_KEY, times=2)
        await clock.sleep(5 * MINUTE)
        world.cloud.announce_live_migration(node)
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=2 * SECOND)


async def test_idle_agent_sends_three_metadata_requests_a_minute_and_none_to_the_cluster(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.cancel_maintenance(node)  # its metadata server has a maintenance value
        await clock.sleep(5 * MINUTE)
        before, steps = len(world.cloud.faults.calls), len(world.steps)
        await clock.sleep(10 * MINUTE)
        assert len(world.cloud.faults.calls) - before <= 33
        assert len(world.steps) == steps


async def test_metadata_server_without_wait_for_change_is_polled_at_a_limited_rate(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await world.join_node("n1", spot=True)
        world.cloud.cancel_maintenance(node)  # its metadata server has a maintenance value
        answer_request = world.cloud.answer

        async def answer_without_waiting(
            method: str, target: str, headers: Mapping[str, str], body: bytes = b""
        ) -> HttpResponse:
            return await answer_request(method, target.partition("wait_for_change")[0], headers, body)

        monkeypatch.setattr(world.cloud, "answer", answer_without_waiting)
        world.start()
        await clock.sleep(MINUTE)
        assert len(world.cloud.faults.calls) <= 3 * 16
        assert world.is_up()
        world.cloud.preempt(node)
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=6 * SECOND)


async def test_event_source_is_up_only_after_a_metadata_response(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        await world.join_node("n1")
        world.cloud.faults.hang(times=1)
        world.start()
        await clock.sleep(5 * SECOND)
        assert not world.is_up()
        await clock.sleep(MINUTE)
        assert world.is_up()


async def test_missing_notifications_response_does_not_end_the_notice(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        answer_request = world.cloud.answer

        async def answer_without_notifications(
            method: str, target: str, headers: Mapping[str, str], body: bytes = b""
        ) -> HttpResponse:
            answer = await answer_request(method, target.partition("&wait_for_change")[0], headers, body)
            body_without_notifications = b'{"error": "no notifications have been received yet, try again later"}'
            return answer._replace(body=body_without_notifications) if "upcoming-maintenance" in target else answer

        monkeypatch.setattr(world.cloud, "answer", answer_without_notifications)
        await clock.sleep(HOUR)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        assert world.problems() == [], "that is the normal response where no maintenance was ever planned"
