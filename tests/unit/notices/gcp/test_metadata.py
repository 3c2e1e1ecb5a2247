"""What only the metadata server tells: live migrations and preemptions; and what its silence means."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.kinds.notice import Kind, Phase, Stage
from haulout.kube.resources import NODES
from haulout.notices.sources.gcp.joining import EVENT
from haulout_sandbox.clouds.gcp.calls import Answer
from support.gcp_world import World, a_world

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
UPCOMING, EVENT_KEY = "Metadata instance/upcoming-maintenance", "Metadata instance/maintenance-event"


async def a_node(world: World, *, migrates: bool = False, spot: bool = False) -> str:
    node = await world.join("n1", migrates=migrates, spot=spot)
    world.start()
    await world.clock.sleep(2 * SECOND)
    assert await world.notices() == {}
    return node


async def test_a_live_migration_is_told_within_a_second_and_ends_when_the_machine_has_moved(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world, migrates=True)
        told = clock.now()
        world.cloud.migrate(node)
        await world.becomes(Stage.SCHEDULED, phase=Phase.DUE, within=SECOND)
        notice = await world.the()
        assert (notice.spec.kind, notice.spec.reason) == (Kind.FREEZE, "MIGRATE_ON_HOST_MAINTENANCE")
        assert notice.spec.start is not None
        assert timedelta(seconds=59) <= notice.spec.start - told <= timedelta(seconds=62)
        await clock.sleep(90 * SECOND)
        world.cloud.settle(node)
        await world.becomes(Stage.ENDED, phase=Phase.COMPLETED, within=SECOND)
        world.cloud.migrate(node)
        await clock.sleep(SECOND)
        assert [it[2] for it in await world.outcome()] == [Stage.ENDED, Stage.SCHEDULED]


async def test_a_stop_that_nobody_planned_is_due_at_once(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.machines.by_name[node].happen("TERMINATE_ON_HOST_MAINTENANCE")
        await world.becomes(Stage.SCHEDULED, phase=Phase.DUE, within=SECOND)
        assert (await world.the()).spec.kind == Kind.REBOOT
        assert (await world.the()).spec.start is None


async def test_a_machine_that_is_taken_back_is_due_within_seconds(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world, spot=True)
        world.cloud.preempt(node)
        await world.becomes(Stage.SCHEDULED, phase=Phase.DUE, within=SECOND)
        notice = await world.the()
        assert (notice.spec.kind, notice.spec.reason) == (Kind.TERMINATE, "PREEMPTED")
        await world.stop()  # with its machine
        await world.client.delete(NODES, node)
        await clock.sleep(2 * HOUR)
        assert (await world.the()).status.phase == Phase.COMPLETED, "nobody was left to tell, but the node is gone"


async def test_a_machine_that_was_taken_back_and_runs_again_is_in_service(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world, spot=True)
        world.cloud.preempt(node)
        await world.becomes(Stage.SCHEDULED, within=SECOND)
        await world.stop()
        world.cloud.change(node, "RUNNING")
        world.start()
        await world.becomes(Stage.ENDED, phase=Phase.COMPLETED, within=5 * SECOND)


async def test_what_was_planned_is_one_notice_with_what_the_machine_is_told_when_it_begins(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + 30 * MINUTE)
        await world.becomes(Stage.SCHEDULED)
        world.cloud.machines.by_name[node].happen("TERMINATE_ON_HOST_MAINTENANCE")
        await clock.sleep(MINUTE)
        assert (await world.the()).metadata.annotations[EVENT] == "TERMINATE_ON_HOST_MAINTENANCE"
        world.cloud.begin(node)
        await world.becomes(Stage.STARTED)
        world.cloud.machines.by_name[node].plan(None)  # the other key follows a little later
        await world.becomes(Stage.ENDED)
        await clock.sleep(MINUTE)
        world.cloud.settle(node)
        await clock.sleep(HOUR)
        assert (await world.the()).spec.stage == Stage.ENDED


async def test_it_is_one_notice_also_if_the_machine_hears_last_of_what_was_planned(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        ask = world.cloud.answer

        async def slow(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
            answer = await ask(method, target, headers, body)
            if "upcoming-maintenance" in target and "wait_for_change" in target:
                await clock.sleep(SECOND)
            return answer

        monkeypatch.setattr(world.cloud, "answer", slow)
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.becomes(Stage.SCHEDULED, within=2 * MINUTE)
        world.cloud.begin(node)
        await clock.sleep(MINUTE)
        assert [it[2] for it in await world.outcome()] == [Stage.STARTED]
        world.cloud.end(node)
        await world.becomes(Stage.ENDED)


@pytest.mark.parametrize("is_silent", [True, False])
async def test_what_happens_is_told_within_seconds_though_nobody_says_what_is_planned(
    clock: Clock, *, is_silent: bool
) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world, migrates=True)
        if is_silent:
            world.cloud.faults.hang(UPCOMING, times=None)
        else:
            world.cloud.faults.fail(UPCOMING, status=500, times=None)
        world.cloud.migrate(node)
        await world.becomes(Stage.SCHEDULED, within=3 * SECOND)


async def test_what_was_told_as_an_event_is_over_when_it_proves_to_be_what_was_planned(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.becomes(Stage.SCHEDULED)
        world.cloud.machines.by_name[node].happen("TERMINATE_ON_HOST_MAINTENANCE")
        await clock.sleep(MINUTE)
        assert [it[2] for it in await world.outcome()] == [Stage.SCHEDULED, Stage.SCHEDULED], "it may be another one"
        world.cloud.begin(node)
        await clock.sleep(MINUTE)
        assert sorted(it[2] for it in await world.outcome()) == [Stage.ENDED, Stage.STARTED]
        world.cloud.end(node)
        await clock.sleep(MINUTE)
        assert [it[2] for it in await world.outcome()] == [Stage.ENDED, Stage.ENDED]


@pytest.mark.parametrize("status", [404, 503, 500, 0])
async def test_a_server_that_does_not_say_what_is_planned_has_not_cleared_it(clock: Clock, status: int) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.becomes(Stage.SCHEDULED)
        rule = world.cloud.faults.fail(UPCOMING, status=status, times=None)
        world.cloud.cancel(node)
        await clock.sleep(2 * HOUR)
        await world.stop()
        world.start()
        await clock.sleep(HOUR)
        assert (await world.the()).spec.stage == Stage.SCHEDULED
        is_normal = status in (404, 503)
        assert bool(world.troubles()) is not is_normal
        world.cloud.faults.lift(rule)
        await world.becomes(Stage.CANCELLED)
        assert world.troubles() == []


async def test_a_machine_that_was_started_on_a_new_host_is_done_though_that_knows_of_nothing(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + HOUR)
        await world.becomes(Stage.SCHEDULED)
        await clock.sleep(HOUR)
        world.cloud.begin(node)
        await world.becomes(Stage.STARTED)
        await world.stop()
        world.cloud.end(node, is_elsewhere=True)
        world.start()
        await clock.sleep(HOUR)
        assert (await world.the()).spec.stage == Stage.STARTED, "it is the same start of the machine"
        await world.stop()
        world.boot = "second"
        world.start()
        await world.becomes(Stage.ENDED, phase=Phase.COMPLETED, within=MINUTE)


async def test_a_machine_that_moved_is_done_though_its_new_host_knows_of_nothing(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world, migrates=True)
        world.cloud.schedule(node, start=clock.now() + 10 * MINUTE)
        await world.becomes(Stage.SCHEDULED)
        await clock.sleep(10 * MINUTE)
        world.cloud.begin(node)
        await world.becomes(Stage.STARTED)
        world.cloud.end(node, is_elsewhere=True)
        await world.becomes(Stage.ENDED, phase=Phase.COMPLETED)


async def test_a_server_that_is_away_is_waited_for_and_said(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        await world.join("n1")
        rule = world.cloud.faults.fail(status=503, times=None, message="not now")
        world.start()
        await clock.sleep(5 * MINUTE)
        assert "the metadata server does not answer, which is tried again" in "".join(world.troubles())
        assert not world.is_up()
        world.cloud.faults.lift(rule)
        await clock.sleep(MINUTE)
        assert world.is_up()
        assert world.troubles() == []


async def test_a_server_that_hangs_is_asked_again(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.faults.hang(EVENT_KEY, times=2)
        await clock.sleep(5 * MINUTE)
        world.cloud.migrate(node)
        await world.becomes(Stage.SCHEDULED, within=2 * SECOND)


async def test_a_quiet_machine_costs_three_questions_a_minute_and_no_request_to_the_cluster(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.cancel(node)  # its server has heard of maintenance once
        await clock.sleep(5 * MINUTE)
        before, steps = len(world.cloud.faults.calls), len(world.steps)
        await clock.sleep(10 * MINUTE)
        assert len(world.cloud.faults.calls) - before <= 33
        assert len(world.steps) == steps


async def test_a_server_that_does_not_wait_for_a_change_is_not_asked_without_end(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await world.join("n1", spot=True)
        world.cloud.cancel(node)  # its server has heard of maintenance once
        ask = world.cloud.answer

        async def hasty(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
            return await ask(method, target.partition("wait_for_change")[0], headers, body)

        monkeypatch.setattr(world.cloud, "answer", hasty)
        world.start()
        await clock.sleep(MINUTE)
        assert len(world.cloud.faults.calls) <= 3 * 16
        assert world.is_up()
        world.cloud.preempt(node)
        await world.becomes(Stage.SCHEDULED, within=6 * SECOND)


async def test_it_is_up_only_once_the_server_has_answered(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        await world.join("n1")
        world.cloud.faults.hang(times=1)
        world.start()
        await clock.sleep(5 * SECOND)
        assert not world.is_up()
        await clock.sleep(MINUTE)
        assert world.is_up()


async def test_a_server_that_says_it_has_heard_nothing_yet_has_not_cleared_anything(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_world(clock, agent_on="n1") as world:
        node = await a_node(world)
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.becomes(Stage.SCHEDULED)
        ask = world.cloud.answer

        async def unheard(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
            answer = await ask(method, target.partition("&wait_for_change")[0], headers, body)
            said = b'{"error": "no notifications have been received yet, try again later"}'
            return answer._replace(body=said) if "upcoming-maintenance" in target else answer

        monkeypatch.setattr(world.cloud, "answer", unheard)
        await clock.sleep(HOUR)
        assert (await world.the()).spec.stage == Stage.SCHEDULED
        assert world.troubles() == [], "that is how it answers where nothing was ever planned"
