"""Azure events are approved once every machine of the event is empty, never before, also after agent crashes."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from haulout.api.maintenancenotice import EARLY_START_ANNOTATION, NoticeCondition, NoticePhase, NoticeStage
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.errors import RescheduleRefused
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout.providers.azure.event_source import AzureEarlyStartSource
from support.clouds.azure import HOUR, MINUTE, SECOND, AzureWorld, an_azure_world, vm_name

N1, N2 = vm_name("n1"), vm_name("n2")
EMPTIED, EARLY = NoticeCondition.EMPTIED, NoticeCondition.EARLY_START


async def make_due(world: AzureWorld, *machines: str) -> str:
    """Return an event that is due, and that all agents have reported."""
    event = world.cloud.schedule(machines, "Reboot", start=world.clock.now() + 14 * MINUTE)
    for machine in machines:
        await world.wait_for_phase(f"n{machine[-1]}", event, NoticePhase.DUE)
    return event


async def test_azure_event_is_approved_once_the_node_is_empty(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = await make_due(world, N1)
        await clock.sleep(MINUTE)
        assert not world.cloud.approvals
        assert await world.condition_of("n1", event, EMPTIED) == ("", "", "")
        await world.mark_drained("n1")
        notice = await world.wait_for_phase("n1", event, NoticePhase.ACTIVE)
        assert world.cloud.approvals == [(N1, event)]
        assert notice.status.condition(EMPTIED) is not None
        await clock.sleep(2 * SECOND)
        assert await world.condition_of("n1", event, EARLY) == (
            "True",
            "Accepted",
            "n1 is empty: azure was asked to begin early, and agreed",
        )
        history = [entry.message for entry in (await world.notice("n1", event)).status.history]
        assert history.index("n1 is empty: azure was asked to begin early, and agreed") < history.index(
            "Active: it has begun"
        )
        world.cloud.remove_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.COMPLETED)


async def test_azure_event_is_not_approved_if_early_start_is_never(clock: Clock) -> None:
    async with an_azure_world(clock, "n1", starts_early=False) as world:
        world.start("n1")
        event = await make_due(world, N1)
        await world.mark_drained("n1")
        await clock.sleep(5 * MINUTE)
        assert await world.condition_of("n1", event, EMPTIED) == (
            "True",
            "Empty",
            "n1 is cordoned and empty: the maintenance may begin",
        )
        assert not world.cloud.approvals


async def test_azure_event_is_approved_once_all_its_machines_are_empty(clock: Clock) -> None:
    async with an_azure_world(clock, "n1", "n2") as world:
        world.start("n1", "n2")
        event = await make_due(world, N1, N2)
        await world.mark_drained("n1")
        await clock.sleep(2 * MINUTE)
        assert not world.cloud.approvals
        assert EARLY_START_ANNOTATION not in (await world.notice("n1", event)).metadata.annotations
        await world.mark_drained("n2")
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE, within=20 * SECOND)
        await world.wait_for_phase("n2", event, NoticePhase.ACTIVE)
        assert {item for _, item in world.cloud.approvals} == {event}


async def test_another_agent_approves_if_the_agent_of_the_last_machine_is_down(clock: Clock) -> None:
    async with an_azure_world(clock, "n1", "n2") as world:
        world.start("n1", "n2")
        event = await make_due(world, N1, N2)
        await world.mark_drained("n1")
        await clock.sleep(MINUTE)
        world.kill("n2")
        await world.mark_drained("n2")
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE, within=30 * SECOND)
        assert world.cloud.approvals == [(N1, event)]


async def test_event_with_an_unknown_machine_is_not_approved(clock: Clock) -> None:
    async with an_azure_world(clock, "n1", "n2") as world:
        world.start("n1")
        event = world.cloud.schedule([N1, N2], "Reboot", start=clock.now() + 10 * MINUTE)
        await world.wait_for_phase("n1", event, NoticePhase.DUE)
        await world.mark_drained("n1")
        await clock.sleep(9 * MINUTE)
        assert not world.cloud.approvals
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE, within=2 * MINUTE)  # at its scheduled time


async def test_event_is_not_approved_for_a_node_cordoned_by_a_node_maintenance(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        await make_due(world, N1)
        await world.mark_drained("n1", owner="NodeMaintenance/kernel")
        await clock.sleep(3 * MINUTE)
        assert not world.cloud.approvals


async def test_event_of_an_empty_node_is_approved_only_once_it_is_due(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + HOUR)
        await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
        await world.mark_drained("n1")
        await clock.sleep(30 * MINUTE)
        assert not world.cloud.approvals
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE, within=16 * MINUTE)
        assert world.cloud.approvals == [(N1, event)]


async def test_emptied_condition_is_cleared_when_the_node_is_uncordoned(clock: Clock) -> None:
    async with an_azure_world(clock, "n1", "n2") as world:
        world.start("n1", "n2")
        event = await make_due(world, N1, N2)
        await world.mark_drained("n1")
        await clock.sleep(10 * SECOND)
        assert (await world.condition_of("n1", event, EMPTIED))[:2] == ("True", "Empty")
        back = {"metadata": {"annotations": {"haulout.dev/cordon": None}}, "spec": {"unschedulable": False}}
        await world.client.patch(NODES, "n1", merge_patch(back))
        await clock.sleep(10 * SECOND)
        assert (await world.condition_of("n1", event, EMPTIED))[:2] == ("False", "NotCordoned")
        await world.mark_drained("n2")
        await clock.sleep(2 * MINUTE)
        assert not world.cloud.approvals


async def test_refused_approval_is_not_retried_and_is_reported(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        world.cloud.faults.fail("Approve", status=400, message="not now", times=None)
        event = await make_due(world, N1)
        await world.mark_drained("n1")
        await clock.sleep(2 * MINUTE)
        assert world.cloud.faults.calls.count("Approve") == 1
        status, reason, message = await world.condition_of("n1", event, EARLY)
        assert (status, reason) == ("False", "Refused")
        assert "Azure refuses: not now" in message
        world.cloud.remove_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.CANCELLED, within=20 * SECOND)


async def test_early_start_of_a_removed_event_is_refused(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = await make_due(world, N1)
        notice = await world.notice("n1", event)
        world.cloud.remove_event(event)
        await clock.sleep(2 * SECOND)
        starter = world.agents["n1"].source
        assert isinstance(starter, AzureEarlyStartSource)
        with pytest.raises(RescheduleRefused, match="Azure no longer lists the event"):
            await starter.start_early(notice)


async def test_approval_is_retried_after_retry_after(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        world.cloud.faults.fail("Approve", status=429, times=1, retry_after=2 * MINUTE)
        event = await make_due(world, N1)
        await world.mark_drained("n1")
        await clock.sleep(110 * SECOND)
        assert world.cloud.faults.calls.count("Approve") == 1
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE, within=MINUTE)


@pytest.mark.parametrize("after", [False, True])
async def test_approval_without_a_response_is_retried(clock: Clock, *, after: bool) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        world.cloud.faults.fail("Approve", status=0, times=2, after=after)
        event = await make_due(world, N1)
        await world.mark_drained("n1")
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE, within=MINUTE)
        await clock.sleep(20 * SECOND)
        assert (await world.condition_of("n1", event, EARLY))[:2] == ("True", "Accepted")


async def test_event_removed_right_after_its_approval_is_completed(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        world.start("n1")
        event = await make_due(world, N1)
        await world.mark_drained("n1")

        async def vanish(operation: str, after: bool) -> None:  # noqa: FBT001 - as faults call it
            if operation == "Approve" and after:
                world.kill("n1")
                world.cloud.remove_event(event)
                await asyncio.Event().wait()

        world.cloud.faults.on_call = vanish
        await clock.sleep(5 * SECOND)
        world.start("n1")
        notice = await world.wait_for_phase("n1", event, NoticePhase.COMPLETED, within=20 * SECOND)
        assert notice.spec.stage == NoticeStage.ENDED


@pytest.mark.parametrize("step", range(1, 9))
async def test_early_start_succeeds_after_an_agent_crash_at_any_step(clock: Clock, step: int) -> None:
    """Before and after each write and approval: a new agent starts, and the result is as without a crash."""
    async with an_azure_world(clock, "n1") as world:
        crash_plan = _CrashPlan(world, step)
        world.cloud.faults.on_call = crash_plan.count_call
        world.start("n1", transport=_CrashingTransport(world.cluster.api_server.transport(), crash_plan))
        event = world.cloud.schedule([N1], "Reboot", start=clock.now() + 14 * MINUTE)
        await world.wait_for_phase("n1", event, NoticePhase.DUE, within=30 * SECOND)
        await world.mark_drained("n1")
        await world.wait_for_phase("n1", event, NoticePhase.ACTIVE, within=MINUTE)
        await clock.sleep(MINUTE)
        assert (await world.condition_of("n1", event, EARLY))[:2] == ("True", "Accepted")
        assert {item for _, item in world.cloud.approvals} == {event}
        assert len(world.cloud.approvals) <= 2
        world.cloud.remove_event(event)
        await world.wait_for_phase("n1", event, NoticePhase.COMPLETED, within=20 * SECOND)
        assert len(await world.notices()) == 1
        assert crash_plan.has_died


class _CrashPlan:
    """Kills the agent at a step, and starts another soon after."""

    def __init__(self, world: AzureWorld, step: int) -> None:
        self.has_died = False
        self._world = world
        self._left = step

    async def count_call(self, operation: str, after: bool) -> None:  # noqa: FBT001 - as faults call it
        """Count a call of Azure."""
        if operation == "Approve":
            await self.step(f"{operation} {after}")

    async def step(self, _: str) -> None:
        """Count a step."""
        self._left -= 1
        if self._left == 0:
            self.has_died = True
            self._world.kill("n1")
            self._world.tasks.create_task(self._restart_later())
            await asyncio.Event().wait()

    async def _restart_later(self) -> None:
        await self._world.clock.sleep(3 * SECOND)
        self._world.start("n1")


class _CrashingTransport:
    """A transport that counts steps before and after each write, so that its agent can be killed there."""

    def __init__(self, transport: Transport, doomed: _CrashPlan) -> None:
        self.server = transport.server
        self._transport = transport
        self._doomed = doomed

    async def send(self, request: Request) -> Response:
        """Send it."""
        if request.method == "GET":
            return await self._transport.send(request)
        await self._doomed.step("before")
        response = await self._transport.send(request)
        await self._doomed.step("after")
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open a stream."""
        return self._transport.stream(request)

    async def close(self) -> None:
        """Close it."""
        await self._transport.close()
