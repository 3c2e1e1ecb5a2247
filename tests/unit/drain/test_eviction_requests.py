"""Draining by EvictionRequests, in a cluster in memory that serves them, on simulated time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.evictionrequest import EVICTION_REQUESTS
from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.drain.blockers import BlockerKind
from haulout.drain.drainer import Drainer
from haulout.drain.eviction_requests import OWNER_LABEL, REQUESTER, RequestOwner, withdraw_all
from haulout.drain.policy import Behavior, DrainPolicy, DrainRule
from haulout.drain.progress import OutcomeResult, PodDrainState
from haulout.kube.client import Client
from haulout.kube.selectors import parse
from haulout_sandbox.apiserver import Write
from support.clusters.drain_cluster import SHOP, DrainCluster, a_drain_cluster, a_pdb, a_pod
from support.evictionrequest.definitions import definitions
from support.evictionrequest.responder import MOVER, Responder, an_eviction_request, responders
from support.faults.crash_test import CrashRun, Scenario, assert_survives_crashes

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NMO = DrainPolicy.like_nmo()
BY_REQUEST = replace(NMO, eviction_requests=True)
HELPED: dict[str, Any] = {"evictionResponders": responders(mover=10_000)}


def requests(town: DrainCluster) -> list[RawObject]:
    return town.api.objects("evictionrequests")


def run_controller(town: DrainCluster, *, takes: timedelta = MINUTE) -> None:
    town.cluster.start_program(Responder(town.cluster.client("mover"), duration=takes).run(), name="mover")


def pod_messages(town: DrainCluster) -> list[str]:
    return [pod.message for it in town.progress_reports for pod in it.pods]


# The way there


async def test_pods_leave_by_request_and_nothing_is_left_behind(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 20, on="n1", stop=3)
        began = clock.monotonic()
        outcome = await town.drain("n1", BY_REQUEST)
        assert outcome.is_drained
        assert clock.monotonic() - began < 3 + 10
        assert town.evicted_pods() == []
        assert requests(town) == []
        assert len(town.transport.sent_requests(method="POST", path="evictionrequests")) == 20
        created = [it.after for it in town.api.history if it.kind.plural == "evictionrequests" and not it.before]
        assert len(created) == 20
        assert {it["spec"]["requester"] for it in created if it} == {REQUESTER}
        assert {it["metadata"]["labels"][OWNER_LABEL] for it in created if it} == {"n1"}
        await town.wait_until(lambda: not town.api.objects("evictions"))


async def test_by_default_no_request_is_made_and_none_is_looked_for(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 3, on="n1")
        assert (await town.drain("n1")).is_drained
        assert len(town.evicted_pods()) == 3
        assert not [it for it in town.transport.requests if "lifecycle" in it.request.path]


async def test_a_drain_that_lasts_clears_up_while_it_goes_on(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 3, on="n1")
        drain = town.new_drain("n1", BY_REQUEST, waiting=True, keep_running=True)
        town.start_drain(drain)
        await clock.sleep(MINUTE)
        assert requests(town) == []
        drain.begin()
        for _ in range(2):
            await town.wait_until(lambda: drain.outcome is not None and not requests(town))
            assert town.pods(on="n1") == []
            town.put(a_pod("late", on="n1", labels={"app": "late"}))
            await town.wait_until(lambda: drain.outcome is None)
        assert town.evicted_pods() == []


async def test_a_responder_is_waited_for_and_its_words_are_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        run_controller(town, takes=10 * MINUTE)
        outcome = await town.drain("n1", BY_REQUEST)
        assert outcome.is_drained
        assert town.evicted_pods() == []
        shown = [
            it for it in town.progress_reports if it.blockers and it.blockers[0].blocker.kind is BlockerKind.RESPONDER
        ]
        assert any("acme.io/mover is evicting it: moved 50%" in it.blockers[0].blocker.reason for it in shown)
        assert any("expected to be done at" in it.pods[0].message for it in shown)
        assert {it.pods[0].state for it in shown} == {PodDrainState.EVICTING}
        assert all(it.blockers[0].blocker.is_progress for it in shown)


async def test_after_a_silent_responder_the_next_makes_it_leave(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        began = clock.monotonic()
        assert (await town.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began == pytest.approx(20 * 60, abs=20)
        assert town.evicted_pods() == []
        assert any("has not reported yet" in it for it in pod_messages(town))


async def test_a_budget_that_blocks_is_named_though_another_is_refused(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        town.put(a_pdb("web", app="web", minAvailable=1))
        await town.run_pods("web", 1, on="n1")
        await town.run_pods("api", 3, on="n1")
        drain = town.new_drain("n1", BY_REQUEST)
        running = town.start_drain(drain)
        await town.wait_until(lambda: bool(drain.progress.blockers) and not town.pods(app="api"))
        (standing,) = drain.progress.blockers
        assert (standing.blocker.kind, standing.blocker.object) == (
            BlockerKind.DISRUPTION_BUDGET,
            "PodDisruptionBudget shop/web",
        )
        assert drain.progress.pods[0].state is PodDrainState.BLOCKED
        town.api.remove("poddisruptionbudgets", "web", SHOP)
        assert (await asyncio.wait_for(running, 1200)).is_drained
        assert town.evicted_pods() == []


async def test_escalation_does_not_wait_for_responders(clock: Clock) -> None:
    policy = replace(BY_REQUEST, eviction_timeout=5 * MINUTE)
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        run_controller(town, takes=HOUR)
        began = clock.monotonic()
        assert (await town.drain("n1", policy)).is_drained
        assert clock.monotonic() - began == pytest.approx(300, abs=15)
        assert any("it is deleted at" in it for it in pod_messages(town))
        assert requests(town) == []


async def test_the_field_of_an_older_alpha_is_spoken_as_well(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.put(*definitions(requester="requesterName"))
        await town.run_pods("web", 1, on="n1")
        drain = town.new_drain("n1", BY_REQUEST)
        town.start_drain(drain)
        await town.wait_until(lambda: bool(requests(town)))
        assert requests(town)[0]["spec"]["requesterName"] == REQUESTER
        assert "requester" not in requests(town)[0]["spec"]


# Falling back


async def test_a_cluster_without_the_api_is_drained_the_classic_way_at_once(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 5, on="n1", stop=2)
        began = clock.monotonic()
        assert (await town.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began < 3
        assert len(town.evicted_pods()) == 5


async def test_pods_whose_request_nobody_takes_up_are_evicted_after_a_while(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        town.cluster.pause("evictionrequest")
        await town.run_pods("web", 3, on="n1", stop=2)
        began = clock.monotonic()
        assert (await town.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began == pytest.approx(32, abs=2)
        assert len(town.evicted_pods()) == 3
        assert requests(town) == []
        assert any("is not accepted by a controller yet; the pod is evicted" in it for it in pod_messages(town))
        assert any(f"no controller accepted EvictionRequest {SHOP}/web-00-haulout-" in it for it in pod_messages(town))


async def test_a_controller_that_comes_late_takes_over_again(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        town.cluster.pause("evictionrequest")
        town.put(a_pdb("web", app="web", minAvailable=1))
        await town.run_pods("web", 1, on="n1", **HELPED)
        drain = town.new_drain("n1", BY_REQUEST)
        running = town.start_drain(drain)
        await town.wait_until(lambda: bool(drain.progress.blockers))
        assert drain.progress.blockers[0].blocker.kind is BlockerKind.DISRUPTION_BUDGET
        town.cluster.resume("evictionrequest")
        run_controller(town)
        assert (await asyncio.wait_for(running, 600)).is_drained


async def test_a_pod_whose_request_is_invalid_is_evicted(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 2, on="n1")
        town.cluster.pause("evictionrequest")
        drain = town.new_drain("n1", BY_REQUEST)
        running = town.start_drain(drain)
        await town.wait_until(lambda: len(requests(town)) == 2)
        invalid = requests(town)[0]
        refusal = {"type": "Failed", "status": "True", "reason": "EvictionInvalid", "message": "No such thing."}
        invalid["status"] = {"observedGeneration": 1, "conditions": [refusal]}
        town.put(invalid)
        await town.wait_until(lambda: len(town.pods(app="web")) == 1, within=10 * SECOND)
        assert town.evicted_pods() == [invalid["spec"]["target"]["pod"]["name"]]
        town.cluster.resume("evictionrequest")
        assert (await asyncio.wait_for(running, 60)).is_drained
        assert len(town.evicted_pods()) == 1


async def test_who_may_not_ask_by_request_evicts(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 2, on="n1")
        town.transport.faults.fail_before_effect(method="POST", path="evictionrequests", response=403, times=None)
        began = clock.monotonic()
        assert (await town.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began < 5
        assert len(town.evicted_pods()) == 2


async def test_who_may_not_even_look_evicts_after_a_while_and_says_why(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 2, on="n1")
        town.transport.faults.fail_before_effect(method="GET", path="/evictions", response=403, times=None)
        began = clock.monotonic()
        assert (await town.drain("n1", BY_REQUEST)).is_drained
        assert 30 <= clock.monotonic() - began < 35
        assert any("is evicted directly: cannot watch EvictionRequests: " in it for it in pod_messages(town))
        assert requests(town) == []


async def test_without_the_last_responder_pods_leave_once_all_had_their_turn(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        town.cluster.pause("imperative-evictor")
        await town.run_pods("web", 1, on="n1")
        began = clock.monotonic()
        assert (await town.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began == pytest.approx(20 * 60, abs=30)
        assert len(town.evicted_pods()) == 1


async def test_a_controller_that_dies_halfway_holds_nobody_up_for_ever(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        drain = town.new_drain("n1", BY_REQUEST)
        running = town.start_drain(drain)
        await town.wait_until(lambda: bool(drain.progress.blockers))
        town.cluster.pause("evictionrequest")
        outcome = await asyncio.wait_for(running, 22 * 60)
        assert outcome.is_drained
        assert any(f"responder {MOVER} has sent no heartbeat since" in it for it in pod_messages(town))
        assert requests(town) == []


# Calling it off, and going on


async def test_a_drain_that_is_called_off_withdraws_what_it_asked_for(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 3, on="n1", **HELPED)
        run_controller(town, takes=HOUR)
        drain = town.new_drain("n1", BY_REQUEST)
        running = town.start_drain(drain)
        await town.wait_until(lambda: len(drain.progress.blockers) == 3)
        drain.stop()
        outcome = await asyncio.wait_for(running, 15)
        assert outcome.result is OutcomeResult.CANCELLED
        assert requests(town) == []
        withdrawn = [it.after for it in town.api.history if it.kind.plural == "evictionrequests" and it.after]
        assert sum(it["spec"]["intent"] == "Withdrawn" for it in withdrawn) >= 3
        states = [
            each["state"]
            for it in town.api.history
            if it.kind.plural == "evictions" and it.after
            for each in it.after.get("status", {}).get("targetResponders", [])
        ]
        assert states.count("Canceled") == 3, "responders hear of it before the Eviction goes"
        await clock.sleep(2 * HOUR)
        assert len(town.pods(app="web")) == 3


async def test_a_drain_that_runs_out_of_time_withdraws_too(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        outcome = await town.drain("n1", replace(BY_REQUEST, timeout=MINUTE))
        assert outcome.result is OutcomeResult.TIMED_OUT
        assert requests(town) == []


async def test_requests_that_cannot_be_cleared_away_are_named(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        drain = town.new_drain("n1", BY_REQUEST)
        running = town.start_drain(drain)
        await town.wait_until(lambda: bool(drain.progress.blockers))
        town.transport.faults.fail_before_effect(method="PATCH", path="evictionrequests", response=403, times=None)
        town.transport.faults.fail_before_effect(method="DELETE", path="evictionrequests", response=403, times=None)
        drain.stop()
        outcome = await asyncio.wait_for(running, 30)
        assert f"could not delete EvictionRequests {SHOP}/web-00-haulout-" in outcome.message


async def test_a_drain_that_is_handed_over_leaves_responders_at_work(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 2, on="n1", **HELPED)
        run_controller(town, takes=10 * MINUTE)
        began = clock.monotonic()
        first = town.new_drain("n1", BY_REQUEST)
        running = town.start_drain(first)
        await clock.sleep(5 * MINUTE)
        first.stop(hands_over=True)
        assert (await running).result is OutcomeResult.CANCELLED
        assert {it["spec"]["intent"] for it in requests(town)} == {"Eviction"}
        outcome = await town.drain("n1", BY_REQUEST, checkpoint=first.progress.checkpoint)
        assert outcome.is_drained
        assert clock.monotonic() - began == pytest.approx(600, abs=20)
        assert town.evicted_pods() == []
        assert requests(town) == []


async def test_what_a_dead_drain_asked_for_can_be_called_off_without_draining(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 2, on="n1", **HELPED)
        running = town.start_drain(town.new_drain("n1", BY_REQUEST))
        other = town.start_drain(town.new_drain("n1", BY_REQUEST, owner=RequestOwner(name="somebody else")))
        await town.wait_until(lambda: len(requests(town)) == 4)
        running.cancel()
        other.cancel()
        assert await withdraw_all(town.client, RequestOwner(name="n1")) == ""
        assert len(requests(town)) == 2, "those of others stay"
        assert await withdraw_all(town.client, RequestOwner(name="somebody else")) == ""
        assert requests(town) == []


async def test_requests_go_with_the_object_on_whose_behalf_they_were_made(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        account = town.api.get("nodes", "n1")["metadata"]
        reference = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": account["uid"]}
        running = town.start_drain(town.new_drain("n1", BY_REQUEST, owner=RequestOwner(name="m1", reference=reference)))
        await town.wait_until(lambda: bool(requests(town)))
        running.cancel()
        town.cluster.pause("kubelets")
        await town.cluster.client("admin").delete(NODES, "n1")
        await town.wait_until(lambda: not requests(town))


async def test_a_pod_that_another_policy_keeps_is_let_alone_again(clock: Clock) -> None:
    keep = replace(BY_REQUEST, rules=(DrainRule(name="keep", pods=parse("app=web"), behavior=Behavior.SKIP),))
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        await town.run_pods("api", 1, on="n1", **HELPED)
        drain = town.new_drain("n1", BY_REQUEST)
        town.start_drain(drain)
        await town.wait_until(lambda: len(drain.progress.blockers) == 2)
        drain.set_policy(keep)
        await town.wait_until(lambda: len(requests(town)) == 1)
        assert requests(town)[0]["spec"]["target"]["pod"]["name"] == "api-00"
        assert town.pods(app="web")


def story(*, with_controller: bool) -> Scenario:
    async def told(stage: CrashRun) -> None:
        async with a_drain_cluster(stage.clock, "n1", eviction_requests=True) as town:
            if not with_controller:
                town.cluster.pause("evictionrequest")
            town.put(*(a_pod(f"web-{number}", on="n1", labels={"app": "web"}) for number in range(3)))
            await town.wait_until(lambda: len(town.pods(on="n1")) == 3)
            await stage.clock.sleep(SECOND)
            stage.start_operator(town.cluster)
            await stage.clock.sleep(2 * MINUTE)
            assert town.pods(on="n1") == []

    return told


@pytest.mark.parametrize("with_controller", [True, False])
def test_a_drain_that_dies_at_any_write_is_brought_to_the_same_end(*, with_controller: bool) -> None:
    def left(history: Sequence[Write]) -> list[str]:
        last = {(it.kind.plural, it.key): it.after for it in history}
        ours = ("evictionrequests", "evictions", "pods")
        return [key for (plural, key), after in last.items() if after is not None and plural in ours]

    async def program(client: Client) -> None:
        await Drainer(client, "n1", BY_REQUEST).run()

    writes = assert_survives_crashes(
        story(with_controller=with_controller), operator=program, compare=left, writes_only_to_api=True
    )
    assert writes >= 6


# Beside others, in the classic way


async def test_a_pod_that_its_own_responder_moves_is_not_evicted_meanwhile(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        await town.run_pods("api", 2, on="n1")
        run_controller(town, takes=10 * MINUTE)
        (pod,) = town.pods(app="web")
        await town.client.create(EVICTION_REQUESTS, an_eviction_request(pod), namespace=SHOP)
        await clock.sleep(5 * SECOND)
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await town.wait_until(lambda: not town.pods(app="api"))
        await clock.sleep(MINUTE)
        assert [it.blocker.kind for it in drain.progress.blockers] == [BlockerKind.RESPONDER]
        assert drain.progress.pods[0].state is PodDrainState.EVICTING
        assert (await asyncio.wait_for(running, 600)).is_drained
        assert "web-00" not in town.evicted_pods()


async def test_a_pod_whose_responder_has_nothing_to_do_is_evicted(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        assert (await town.drain("n1")).is_drained
        assert town.evicted_pods() == ["web-00"]
        assert requests(town) == []


async def test_responders_that_a_cluster_without_the_api_declares_hold_up_nothing(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        began = clock.monotonic()
        assert (await town.drain("n1")).is_drained
        assert clock.monotonic() - began < 2


async def test_force_holds_beside_responders_too(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        await town.run_pods("web", 1, on="n1", **HELPED)
        run_controller(town, takes=HOUR)
        (pod,) = town.pods(app="web")
        await town.client.create(EVICTION_REQUESTS, an_eviction_request(pod), namespace=SHOP)
        await clock.sleep(5 * SECOND)
        began = clock.monotonic()
        assert (await town.drain("n1", replace(NMO, eviction_timeout=5 * MINUTE))).is_drained
        assert clock.monotonic() - began == pytest.approx(300, abs=5)


# Names


@pytest.mark.parametrize("name", ["n1", "x" * 63, "x" * 200, "ends.", "a/b", "über"])
async def test_any_name_makes_a_label_and_requests_of_its_own(clock: Clock, name: str) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as town:
        town.put(a_pod("w" * 200 + ".w" * 26, on="n1", **HELPED))
        drain = town.new_drain("n1", BY_REQUEST, owner=RequestOwner(name=name))
        town.start_drain(drain)
        await town.wait_until(lambda: bool(requests(town)))
