"""What the runtime adds to the notices controller: stale caches, failures and bursts."""

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticeCondition, NoticePhase, NoticeStage
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from support.operators.notices import DAY, HOUR, MINUTE, SECOND, NoticeCluster, a_notice_cluster

PLURAL = MAINTENANCE_NOTICES.plural
STATUS = f"/{PLURAL}/m1/status"


def status_writes(world: NoticeCluster) -> int:
    return world.count_requests(lambda request: request.startswith("PATCH") and STATUS in request)


async def test_a_notice_that_was_changed_unseen_is_read_again_at_once(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=30 * MINUTE)
        await clock.sleep(MINUTE)
        world.transports[-1].faults.delay_event(HOUR, path=f"/{PLURAL}", times=None)
        await world.client.patch(MAINTENANCE_NOTICES, "m1", merge_patch({"metadata": {"labels": {"ticket": "42"}}}))
        await clock.sleep(15 * MINUTE)
        assert (await world.notice()).status.phase == NoticePhase.DUE


async def test_a_notice_that_cannot_be_deleted_says_why_until_it_is(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=HOUR, stage=NoticeStage.ENDED)
        await clock.sleep(SECOND)
        faults = world.transports[-1].faults
        refusal = faults.fail_before_effect(method="DELETE", path=f"/{PLURAL}/m1", response=403, times=None)
        await clock.sleep(7 * DAY + MINUTE)
        ready = await world.condition(NoticeCondition.READY)
        assert (ready.status, ready.reason) == ("False", "Retrying")
        assert "deleting maintenancenotices" in ready.message
        assert (await world.condition(NoticeCondition.RECONCILING)).status == "True"
        assert (await world.notice()).status.phase == NoticePhase.COMPLETED
        faults.remove(refusal)
        await clock.sleep(2 * MINUTE)
        assert not (await world.client.list(MAINTENANCE_NOTICES)).items


async def test_a_status_in_which_only_times_change_is_written_once_a_second(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY)
        await clock.sleep(10 * SECOND)
        before = status_writes(world)
        for number in range(50):
            await world.patch_notice(deadline=clock.now().replace(microsecond=0) + (number + 2) * DAY)
            await clock.sleep(SECOND / 10)
        await clock.sleep(SECOND)
        assert status_writes(world) - before <= 6, "it took five seconds"
        notice = await world.notice()
        assert notice.status.observed_generation == notice.metadata.generation


async def test_two_processes_that_disagree_about_a_notice_pause(clock: Clock) -> None:
    """One of them has not heard that the node exists."""
    async with a_notice_cluster(clock, nodes=()) as world:
        await clock.sleep(SECOND)
        world.transports[-1].faults.delay_event(10 * MINUTE, path="/api/v1/nodes")
        await world.create_node()
        world.start()
        await clock.sleep(SECOND)
        await world.announce(start=DAY)
        await clock.sleep(5 * MINUTE)
        assert status_writes(world) < 1000
        await clock.sleep(10 * MINUTE)
        settled = status_writes(world)
        assert (await world.condition(NoticeCondition.NODE_FOUND)).status == "True"
        await clock.sleep(HOUR)
        assert status_writes(world) == settled
