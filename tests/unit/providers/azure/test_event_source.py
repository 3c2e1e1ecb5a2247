"""Notices of Azure scheduled events through their phases, despite failures."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import MaintenanceKind, NoticePhase, NoticeStage
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.providers.http_fetch import FetchedResponse
from support.clouds.azure import DAY, HOUR, MINUTE, SECOND, AzureWorld, an_azure_world, vm_name
from support.expectations.eventually import eventually

N1, N2 = vm_name("n1"), vm_name("n2")


async def test_azure_event_goes_through_all_phases_of_its_notice(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        start = clock.now().replace(microsecond=0) + HOUR
        event = world.cloud.schedule([N1], "Reboot", start=start, duration_seconds=40)
        notice = await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        assert (notice.spec.kind, notice.spec.start, notice.spec.deadline) == (MaintenanceKind.REBOOT, start, start)
        assert (notice.spec.node_name, notice.spec.reason) == ("n1", "Platform")
        assert notice.spec.description == "Host server is undergoing maintenance; it takes about 40 s"
        await world.wait_for_phase("n1", event, NoticePhase.DUE, within=HOUR)
        notice = await world.wait_for_phase("n1", event, NoticePhase.ACTIVE, within=HOUR)
        assert notice.spec.end is not None
        assert timedelta() <= notice.spec.end - start - 40 * SECOND <= 2 * SECOND
        world.cloud.remove_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.COMPLETED)
        assert not world.agents["n1"].problems()
        assert world.agents["n1"].is_up


async def test_rescheduled_event_changes_start_and_deadline_of_its_notice(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        start = clock.now().replace(microsecond=0) + HOUR
        event = world.cloud.schedule([N1], "Redeploy", start=start)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        world.cloud.reschedule(event, start + DAY)
        await clock.sleep(3 * SECOND)
        notice = await world.notice("n1", event)
        assert (notice.spec.start, notice.spec.deadline) == (start + DAY, start + DAY)
        assert any("moved" in entry.message for entry in notice.status.history)


async def test_event_started_early_is_active_and_completes(clock: Clock) -> None:
    """Another client may have approved the event, such as the agent of another of its machines."""
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + DAY)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        world.cloud.start_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE)
        world.cloud.remove_event(event)
        notice = await world.wait_for_phase("n1", event, NoticePhase.COMPLETED)
        assert notice.spec.stage == NoticeStage.ENDED


async def test_event_removed_before_its_start_is_cancelled(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + HOUR)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        world.cloud.remove_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.CANCELLED)


async def test_event_during_agent_downtime_is_completed(clock: Clock) -> None:
    """The agent of a restarted machine observes neither the start nor the end of the restart."""
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + 20 * MINUTE)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        world.kill("n1")
        await clock.sleep(HOUR)
        world.cloud.remove_event(event)
        world.start("n1")
        await world.wait_for_phase("n1", event, NoticePhase.COMPLETED)


async def test_host_failure_is_reported_without_an_announcement(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.fail_host(N1)
        notice = await world.wait_for_phase("n1", event, NoticePhase.ACTIVE)
        assert notice.spec.start is not None
        assert notice.spec.description == "Host server has failed"
        world.cloud.remove_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.COMPLETED)


async def test_events_of_other_machines_are_ignored(clock: Clock) -> None:
    async with an_azure_world(clock, "n1", "n2") as world:
        world.start("n1")
        event = world.cloud.schedule([N2], "Reboot", start=clock.now() + HOUR)
        await clock.sleep(MINUTE)
        assert not await world.notices()
        world.start("n2")
        notice = await world.wait_for_phase("n2", event, NoticePhase.PLANNED)
        assert [item.name for item in await world.notices()] == [notice.name]


async def test_two_machines_of_one_event_have_a_notice_each(clock: Clock) -> None:
    async with an_azure_world(clock, "n1", "n2") as world:
        world.start("n1", "n2")
        event = world.cloud.schedule([N1, N2], "Reboot", start=clock.now() + HOUR)
        first = await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        second = await world.wait_for_phase("n2", event, NoticePhase.PLANNED)
        assert first.name != second.name
        assert "1 more machine will be affected with it" in first.spec.description
        world.cloud.remove_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.CANCELLED)
        await world.wait_for_phase("n2", event, NoticePhase.CANCELLED)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Freeze", MaintenanceKind.FREEZE),
        ("Redeploy", MaintenanceKind.REBOOT),
        ("Preempt", MaintenanceKind.TERMINATE),
        ("Terminate", MaintenanceKind.TERMINATE),
        ("Melt", MaintenanceKind.UNKNOWN),
    ],
)
async def test_each_azure_event_type_has_its_maintenance_kind(
    clock: Clock, kind: str, expected: MaintenanceKind
) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], kind, start=clock.now() + 30 * SECOND)
        notice = await world.wait_for_phase("n1", event, NoticePhase.DUE)
        assert notice.spec.kind == expected
        assert notice.spec.reason == ("Platform" if kind == expected else kind)


async def test_unchanged_document_does_not_write_the_notice_again(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + DAY)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        await clock.sleep(2 * SECOND)
        before = await world.notice("n1", event)
        world.cloud.faults.calls.clear()
        await clock.sleep(MINUTE)
        assert (await world.notice("n1", event)).resource_version == before.resource_version
        assert 50 <= world.cloud.faults.calls.count("GetEvents") <= 61


async def test_idle_agent_polls_rarely_and_detects_a_preemption_in_time(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        await clock.sleep(MINUTE)
        assert world.cloud.faults.calls.count("GetEvents") <= 13
        event = world.cloud.schedule([N1], "Preempt", start=clock.now() + 30 * SECOND)
        await world.wait_for_phase("n1", event, NoticePhase.DUE, within=6 * SECOND)


async def test_first_metadata_call_may_take_two_minutes(clock: Clock) -> None:
    async with an_azure_world(clock, "n1", warm_up=2 * MINUTE) as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + HOUR)
        await clock.sleep(MINUTE)
        assert not world.agents["n1"].is_up
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED, within=2 * MINUTE)
        assert world.cloud.faults.calls.count("GetEvents") <= 20


@pytest.mark.parametrize("status", [0, 404, 429, 500, 503])
async def test_metadata_error_ends_no_notice_and_is_reported(clock: Clock, status: int) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + DAY)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        rule = world.cloud.faults.fail("GetEvents", status=status, times=None)
        world.cloud.faults.calls.clear()
        await clock.sleep(10 * MINUTE)
        assert await world.phase_of("n1", event) == NoticePhase.PLANNED
        assert world.cloud.faults.calls.count("GetEvents") < 60
        assert "Azure does not answer" in world.agents["n1"].problems()[0]
        assert not world.agents["n1"].is_up
        world.cloud.faults.remove(rule)
        world.cloud.remove_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.CANCELLED, within=MINUTE)
        assert not world.agents["n1"].problems()


async def test_event_missing_from_one_document_only_is_kept(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + DAY)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        event_data = world.cloud.events[event]
        world.cloud.remove_event(event)
        await clock.sleep(3 * SECOND)
        world.cloud.events[event] = event_data
        await clock.sleep(MINUTE)
        assert await world.phase_of("n1", event) == NoticePhase.PLANNED


async def test_hanging_metadata_call_times_out(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        await clock.sleep(10 * SECOND)
        world.cloud.faults.hang("GetEvents")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + HOUR)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED, within=30 * SECOND)


async def test_agent_writes_notices_without_an_operator_and_they_stay_without_an_agent(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.kill_operator()
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + DAY)
        await eventually(clock, lambda: _stage(world, event), becomes=NoticeStage.SCHEDULED, within=10 * SECOND)
        world.kill("n1")
        world.start_operator()
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        await clock.sleep(HOUR)
        assert await world.phase_of("n1", event) == NoticePhase.PLANNED


async def _stage(world: AzureWorld, event: str) -> str:
    return (await world.notice("n1", event)).spec.stage


async def test_operator_completes_the_notice_of_a_deleted_node(clock: Clock) -> None:
    """The agent of a terminated machine is terminated with it and reports nothing any more."""
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Terminate", start=clock.now() + 5 * MINUTE)
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE, within=6 * MINUTE)
        world.kill("n1")
        await world.client.delete(NODES, "n1")
        await clock.sleep(9 * MINUTE)
        assert await world.phase_of("n1", event) == NoticePhase.ACTIVE
        await world.wait_for_phase("n1", event, NoticePhase.COMPLETED, within=2 * MINUTE)


async def test_scheduled_notice_of_a_deleted_node_is_kept_until_its_end(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + DAY)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        world.kill("n1")
        await world.client.delete(NODES, "n1")
        await clock.sleep(DAY + HOUR - MINUTE)
        assert (await world.notice("n1", event)).spec.stage == NoticeStage.SCHEDULED
        await world.wait_for_phase("n1", event, NoticePhase.COMPLETED, within=2 * MINUTE)


@pytest.mark.parametrize("body", [b'{"compute": {"name": "\xff"}}', b"[" * 100_000, b'{"compute": 7}', b"null"])
async def test_malformed_metadata_response_does_not_stop_the_agent(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    async with an_azure_world(clock, "n1") as world:
        answers = [body] * 3
        handle = world.cloud.handle

        async def garbage(machine: str, method: str, target: str, **more: Any) -> FetchedResponse:
            if target.startswith("/metadata/instance") and answers:
                return FetchedResponse(200, {}, answers.pop())
            return await handle(machine, method, target, **more)

        monkeypatch.setattr(world.cloud, "handle", garbage)
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + HOUR)
        await clock.sleep(SECOND / 2)
        assert "expected JSON with a compute.name" in world.agents["n1"].problems()[0]
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED, within=30 * SECOND)


@pytest.mark.parametrize("time", ["2026-05-14T09:30:00Z", "Thu, 31 Feb 2026 09:30:00 GMT", "soon", 1234])
async def test_event_with_an_unreadable_time_has_no_start_and_is_due(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, time: object
) -> None:
    async with an_azure_world(clock, "n1") as world:
        monkeypatch.setattr("haulout_sandbox.clouds.azure.cloud.format_rfc1123", lambda _: time)
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + DAY)
        notice = await world.wait_for_phase("n1", event, NoticePhase.DUE)
        assert notice.spec.start is None
        assert f"NotBefore '{time}': expected a date" in "".join(world.agents["n1"].problems())
        world.cloud.start_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE)
        world.cloud.remove_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.COMPLETED, within=MINUTE)


async def test_long_retry_after_is_capped(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        await clock.sleep(10 * SECOND)
        world.cloud.faults.fail("GetEvents", status=429, retry_after=DAY)
        await clock.sleep(10 * SECOND)
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + HOUR)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED, within=5 * MINUTE)
