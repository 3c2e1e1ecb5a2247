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
from haulout.drain.eviction_requests import OWNER_LABEL, REQUESTER, RequestOwner
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


def requests(cluster: DrainCluster) -> list[RawObject]:
    return cluster.api.objects("evictionrequests")


def run_controller(cluster: DrainCluster, *, takes: timedelta = MINUTE) -> None:
    cluster.cluster.start_program(Responder(cluster.cluster.client("mover"), duration=takes).run(), name="mover")


def pod_messages(cluster: DrainCluster) -> list[str]:
    return [pod.message for it in cluster.progress_reports for pod in it.pods]


# Draining by EvictionRequests


async def test_eviction_requests_drain_the_node_and_leave_no_objects_behind(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 20, on="n1", stop=3)
        began = clock.monotonic()
        outcome = await cluster.drain("n1", BY_REQUEST)
        assert outcome.is_drained
        assert clock.monotonic() - began < 3 + 10
        assert cluster.evicted_pods() == []
        assert requests(cluster) == []
        assert len(cluster.transport.sent_requests(method="POST", path="evictionrequests")) == 20
        created = [it.after for it in cluster.api.history if it.kind.plural == "evictionrequests" and not it.before]
        assert len(created) == 20
        assert {it["spec"]["requester"] for it in created if it} == {REQUESTER}
        assert {it["metadata"]["labels"][OWNER_LABEL] for it in created if it} == {"n1"}
        await cluster.wait_until(lambda: not cluster.api.objects("evictions"))


async def test_eviction_requests_are_neither_created_nor_read_by_default(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 3, on="n1")
        assert (await cluster.drain("n1")).is_drained
        assert len(cluster.evicted_pods()) == 3
        assert not [it for it in cluster.transport.requests if "lifecycle" in it.request.path]


async def test_keep_running_drain_deletes_its_eviction_requests_each_time(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 3, on="n1")
        drain = cluster.new_drain("n1", BY_REQUEST, waiting=True, keep_running=True)
        cluster.start_drain(drain)
        await clock.sleep(MINUTE)
        assert requests(cluster) == []
        drain.begin()
        for _ in range(2):
            await cluster.wait_until(lambda: drain.outcome is not None and not requests(cluster))
            assert cluster.pods(on="n1") == []
            cluster.put(a_pod("late", on="n1", labels={"app": "late"}))
            await cluster.wait_until(lambda: drain.outcome is None)
        assert cluster.evicted_pods() == []


async def test_drain_waits_for_a_responder_and_shows_its_message(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        run_controller(cluster, takes=10 * MINUTE)
        outcome = await cluster.drain("n1", BY_REQUEST)
        assert outcome.is_drained
        assert cluster.evicted_pods() == []
        shown = [
            it
            for it in cluster.progress_reports
            if it.blockers and it.blockers[0].blocker.kind is BlockerKind.RESPONDER
        ]
        assert any("acme.io/mover is evicting it: moved 50%" in it.blockers[0].blocker.reason for it in shown)
        assert any("expected to be done at" in it.pods[0].message for it in shown)
        assert {it.pods[0].state for it in shown} == {PodDrainState.EVICTING}
        assert all(it.blockers[0].blocker.is_progress for it in shown)


async def test_next_responder_evicts_the_pod_after_a_silent_one(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        began = clock.monotonic()
        assert (await cluster.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began == pytest.approx(20 * 60, abs=20)
        assert cluster.evicted_pods() == []
        assert any("has not reported yet" in it for it in pod_messages(cluster))


async def test_blocking_pdb_is_named_behind_the_imperative_responder(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        cluster.put(a_pdb("web", app="web", minAvailable=1))
        await cluster.run_pods("web", 1, on="n1")
        await cluster.run_pods("api", 3, on="n1")
        drain = cluster.new_drain("n1", BY_REQUEST)
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: bool(drain.progress.blockers) and not cluster.pods(app="api"))
        (active,) = drain.progress.blockers
        assert (active.blocker.kind, active.blocker.object) == (
            BlockerKind.DISRUPTION_BUDGET,
            "PodDisruptionBudget shop/web",
        )
        assert drain.progress.pods[0].state is PodDrainState.BLOCKED
        cluster.api.remove("poddisruptionbudgets", "web", SHOP)
        assert (await asyncio.wait_for(running, 1200)).is_drained
        assert cluster.evicted_pods() == []


async def test_escalation_does_not_wait_for_responders(clock: Clock) -> None:
    policy = replace(BY_REQUEST, eviction_timeout=5 * MINUTE)
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        run_controller(cluster, takes=HOUR)
        began = clock.monotonic()
        assert (await cluster.drain("n1", policy)).is_drained
        assert clock.monotonic() - began == pytest.approx(300, abs=15)
        assert any("it is deleted at" in it for it in pod_messages(cluster))
        assert requests(cluster) == []


async def test_eviction_request_supports_the_requester_field_of_an_older_alpha(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(*definitions(requester="requesterName"))
        await cluster.run_pods("web", 1, on="n1")
        drain = cluster.new_drain("n1", BY_REQUEST)
        cluster.start_drain(drain)
        await cluster.wait_until(lambda: bool(requests(cluster)))
        assert requests(cluster)[0]["spec"]["requesterName"] == REQUESTER
        assert "requester" not in requests(cluster)[0]["spec"]


# Falling back


async def test_cluster_without_eviction_requests_is_drained_by_evictions_at_once(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 5, on="n1", stop=2)
        began = clock.monotonic()
        assert (await cluster.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began < 3
        assert len(cluster.evicted_pods()) == 5


async def test_pods_are_evicted_after_a_timeout_when_no_controller_accepts_their_request(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        cluster.cluster.pause("evictionrequest")
        await cluster.run_pods("web", 3, on="n1", stop=2)
        began = clock.monotonic()
        assert (await cluster.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began == pytest.approx(32, abs=2)
        assert len(cluster.evicted_pods()) == 3
        assert requests(cluster) == []
        assert any("is not accepted by a controller yet; the pod is evicted" in it for it in pod_messages(cluster))
        assert any(
            f"no controller accepted EvictionRequest {SHOP}/web-00-haulout-" in it for it in pod_messages(cluster)
        )


async def test_late_controller_takes_over_eviction_requests_again(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        cluster.cluster.pause("evictionrequest")
        cluster.put(a_pdb("web", app="web", minAvailable=1))
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        drain = cluster.new_drain("n1", BY_REQUEST)
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: bool(drain.progress.blockers))
        assert drain.progress.blockers[0].blocker.kind is BlockerKind.DISRUPTION_BUDGET
        cluster.cluster.resume("evictionrequest")
        run_controller(cluster)
        assert (await asyncio.wait_for(running, 600)).is_drained


async def test_pod_with_an_invalid_eviction_request_is_evicted(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 2, on="n1")
        cluster.cluster.pause("evictionrequest")
        drain = cluster.new_drain("n1", BY_REQUEST)
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: len(requests(cluster)) == 2)
        invalid = requests(cluster)[0]
        refusal = {"type": "Failed", "status": "True", "reason": "EvictionInvalid", "message": "No such thing."}
        invalid["status"] = {"observedGeneration": 1, "conditions": [refusal]}
        cluster.put(invalid)
        await cluster.wait_until(lambda: len(cluster.pods(app="web")) == 1, within=10 * SECOND)
        assert cluster.evicted_pods() == [invalid["spec"]["target"]["pod"]["name"]]
        cluster.cluster.resume("evictionrequest")
        assert (await asyncio.wait_for(running, 60)).is_drained
        assert len(cluster.evicted_pods()) == 1


async def test_drain_evicts_without_permission_to_create_eviction_requests(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 2, on="n1")
        cluster.transport.faults.fail_before_effect(method="POST", path="evictionrequests", response=403, times=None)
        began = clock.monotonic()
        assert (await cluster.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began < 5
        assert len(cluster.evicted_pods()) == 2


async def test_drain_evicts_with_a_reason_without_permission_to_read_eviction_requests(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 2, on="n1")
        cluster.transport.faults.fail_before_effect(method="GET", path="/evictions", response=403, times=None)
        began = clock.monotonic()
        assert (await cluster.drain("n1", BY_REQUEST)).is_drained
        assert 30 <= clock.monotonic() - began < 35
        assert any("is evicted directly: cannot watch EvictionRequests: " in it for it in pod_messages(cluster))
        assert requests(cluster) == []


async def test_pods_are_evicted_after_all_responders_when_the_imperative_responder_is_missing(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        cluster.cluster.pause("imperative-evictor")
        await cluster.run_pods("web", 1, on="n1")
        began = clock.monotonic()
        assert (await cluster.drain("n1", BY_REQUEST)).is_drained
        assert clock.monotonic() - began == pytest.approx(20 * 60, abs=30)
        assert len(cluster.evicted_pods()) == 1


async def test_dead_eviction_request_controller_does_not_block_the_drain_for_ever(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        drain = cluster.new_drain("n1", BY_REQUEST)
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: bool(drain.progress.blockers))
        cluster.cluster.pause("evictionrequest")
        outcome = await asyncio.wait_for(running, 22 * 60)
        assert outcome.is_drained
        assert any(f"responder {MOVER} has sent no heartbeat since" in it for it in pod_messages(cluster))
        assert requests(cluster) == []


# Cancellation and handover


async def test_stopped_drain_withdraws_its_eviction_requests(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 3, on="n1", **HELPED)
        run_controller(cluster, takes=HOUR)
        drain = cluster.new_drain("n1", BY_REQUEST)
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: len(drain.progress.blockers) == 3)
        drain.stop()
        outcome = await asyncio.wait_for(running, 15)
        assert outcome.result is OutcomeResult.CANCELLED
        assert requests(cluster) == []
        withdrawn = [it.after for it in cluster.api.history if it.kind.plural == "evictionrequests" and it.after]
        assert sum(it["spec"]["intent"] == "Withdrawn" for it in withdrawn) >= 3
        states = [
            each["state"]
            for it in cluster.api.history
            if it.kind.plural == "evictions" and it.after
            for each in it.after.get("status", {}).get("targetResponders", [])
        ]
        assert states.count("Canceled") == 3, "responders are canceled before the Eviction is deleted"
        await clock.sleep(2 * HOUR)
        assert len(cluster.pods(app="web")) == 3


async def test_timed_out_drain_withdraws_its_eviction_requests(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        outcome = await cluster.drain("n1", replace(BY_REQUEST, timeout=MINUTE))
        assert outcome.result is OutcomeResult.TIMED_OUT
        assert requests(cluster) == []


async def test_eviction_requests_that_cannot_be_deleted_are_named(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        drain = cluster.new_drain("n1", BY_REQUEST)
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: bool(drain.progress.blockers))
        cluster.transport.faults.fail_before_effect(method="PATCH", path="evictionrequests", response=403, times=None)
        cluster.transport.faults.fail_before_effect(method="DELETE", path="evictionrequests", response=403, times=None)
        drain.stop()
        outcome = await asyncio.wait_for(running, 30)
        assert f"could not delete EvictionRequests {SHOP}/web-00-haulout-" in outcome.message


async def test_drain_that_hands_over_leaves_responders_running(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 2, on="n1", **HELPED)
        run_controller(cluster, takes=10 * MINUTE)
        began = clock.monotonic()
        first = cluster.new_drain("n1", BY_REQUEST)
        running = cluster.start_drain(first)
        await clock.sleep(5 * MINUTE)
        first.stop(hands_over=True)
        assert (await running).result is OutcomeResult.CANCELLED
        assert {it["spec"]["intent"] for it in requests(cluster)} == {"Eviction"}
        outcome = await cluster.drain("n1", BY_REQUEST, checkpoint=first.progress.checkpoint)
        assert outcome.is_drained
        assert clock.monotonic() - began == pytest.approx(600, abs=20)
        assert cluster.evicted_pods() == []
        assert requests(cluster) == []


async def test_eviction_requests_are_garbage_collected_with_their_owner(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        account = cluster.api.get("nodes", "n1")["metadata"]
        reference = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": account["uid"]}
        running = cluster.start_drain(
            cluster.new_drain("n1", BY_REQUEST, owner=RequestOwner(name="m1", reference=reference))
        )
        await cluster.wait_until(lambda: bool(requests(cluster)))
        running.cancel()
        cluster.cluster.pause("kubelets")
        await cluster.cluster.client("admin").delete(NODES, "n1")
        await cluster.wait_until(lambda: not requests(cluster))


async def test_eviction_request_is_withdrawn_when_a_new_policy_keeps_the_pod(clock: Clock) -> None:
    keep = replace(BY_REQUEST, rules=(DrainRule(name="keep", pods=parse("app=web"), behavior=Behavior.SKIP),))
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        await cluster.run_pods("api", 1, on="n1", **HELPED)
        drain = cluster.new_drain("n1", BY_REQUEST)
        cluster.start_drain(drain)
        await cluster.wait_until(lambda: len(drain.progress.blockers) == 2)
        drain.set_policy(keep)
        await cluster.wait_until(lambda: len(requests(cluster)) == 1)
        assert requests(cluster)[0]["spec"]["target"]["pod"]["name"] == "api-00"
        assert cluster.pods(app="web")


def story(*, with_controller: bool) -> Scenario:
    async def scenario(run: CrashRun) -> None:
        async with a_drain_cluster(run.clock, "n1", eviction_requests=True) as cluster:
            if not with_controller:
                cluster.cluster.pause("evictionrequest")
            cluster.put(*(a_pod(f"web-{number}", on="n1", labels={"app": "web"}) for number in range(3)))
            await cluster.wait_until(lambda: len(cluster.pods(on="n1")) == 3)
            await run.clock.sleep(SECOND)
            run.start_operator(cluster.cluster)
            await run.clock.sleep(2 * MINUTE)
            assert cluster.pods(on="n1") == []

    return scenario


@pytest.mark.parametrize("with_controller", [True, False])
def test_drain_by_eviction_requests_ends_the_same_after_a_crash_at_any_write(*, with_controller: bool) -> None:
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


# Responders without EvictionRequests of the drain


async def test_pod_that_its_own_responder_moves_is_not_evicted(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        await cluster.run_pods("api", 2, on="n1")
        run_controller(cluster, takes=10 * MINUTE)
        (pod,) = cluster.pods(app="web")
        await cluster.client.create(EVICTION_REQUESTS, an_eviction_request(pod), namespace=SHOP)
        await clock.sleep(5 * SECOND)
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: not cluster.pods(app="api"))
        await clock.sleep(MINUTE)
        assert [it.blocker.kind for it in drain.progress.blockers] == [BlockerKind.RESPONDER]
        assert drain.progress.pods[0].state is PodDrainState.EVICTING
        assert (await asyncio.wait_for(running, 600)).is_drained
        assert "web-00" not in cluster.evicted_pods()


async def test_pod_with_an_idle_responder_is_evicted(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        assert (await cluster.drain("n1")).is_drained
        assert cluster.evicted_pods() == ["web-00"]
        assert requests(cluster) == []


async def test_declared_responders_block_nothing_in_a_cluster_without_eviction_requests(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        began = clock.monotonic()
        assert (await cluster.drain("n1")).is_drained
        assert clock.monotonic() - began < 2


async def test_eviction_timeout_applies_despite_responders(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        await cluster.run_pods("web", 1, on="n1", **HELPED)
        run_controller(cluster, takes=HOUR)
        (pod,) = cluster.pods(app="web")
        await cluster.client.create(EVICTION_REQUESTS, an_eviction_request(pod), namespace=SHOP)
        await clock.sleep(5 * SECOND)
        began = clock.monotonic()
        assert (await cluster.drain("n1", replace(NMO, eviction_timeout=5 * MINUTE))).is_drained
        assert clock.monotonic() - began == pytest.approx(300, abs=5)


# Names


@pytest.mark.parametrize("name", ["n1", "x" * 63, "x" * 200, "ends.", "a/b", "über"])
async def test_eviction_request_labels_and_names_are_valid_for_any_name(clock: Clock, name: str) -> None:
    async with a_drain_cluster(clock, "n1", eviction_requests=True) as cluster:
        cluster.put(a_pod("w" * 200 + ".w" * 26, on="n1", **HELPED))
        drain = cluster.new_drain("n1", BY_REQUEST, owner=RequestOwner(name=name))
        cluster.start_drain(drain)
        await cluster.wait_until(lambda: bool(requests(cluster)))
