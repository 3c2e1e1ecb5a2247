"""Draining nodes of a cluster in memory, on simulated time."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from haulout.api.objects import RawObject
from haulout.api.resources import PODS
from haulout.core.clock import Clock
from haulout.drain.blockers import BlockerKind
from haulout.drain.decision import DrainDecision
from haulout.drain.drainer import Drainer
from haulout.drain.eviction_client import EvictionClient
from haulout.drain.policy import Behavior, DrainOrder, DrainPolicy, DrainRule
from haulout.drain.progress import OutcomeResult, PodDrainState
from haulout.drain.state import Checkpoint
from haulout.errors import LeadershipLost
from haulout.kube.client import Client
from haulout.kube.selectors import parse
from haulout.kube.transport import Response
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.drain_cluster import (
    DRAINER,
    SHOP,
    DrainCluster,
    a_drain_cluster,
    a_pdb,
    a_pod,
    a_workload,
    is_ready,
)

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NMO = DrainPolicy.like_nmo()


def kinds(drain: Drainer) -> Counter[BlockerKind]:
    return Counter(it.blocker.kind for it in drain.progress.blockers)


# How fast, and how cheaply


async def test_a_node_is_empty_as_soon_as_its_slowest_pod_has_ended(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 20, on="n1", stop=lambda number: 0.5 + number * 2.5 / 19)
        began = clock.monotonic()
        outcome = await town.drain("n1")
        assert clock.monotonic() - began < 1.05 * 3
        assert (outcome.result, outcome.progress.percent, outcome.progress.gone) == (OutcomeResult.DRAINED, 100, 20)
        assert town.pods(on="n1") == []
        assert len(town.transport.requests) <= 1.5 * 20


async def test_while_pods_only_have_to_go_changes_are_looked_at_together(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 20, on="n1", stop=25)
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await town.wait_until(lambda: drain.progress.leaving == 20)
        town.progress_reports.clear()
        for name in town.pod_names(on="n1"):
            town.api.remove("pods", name, SHOP)
            await clock.sleep(SECOND / 20)
        assert (await running).is_drained
        assert len(town.progress_reports) <= 6


async def test_the_next_wave_and_the_end_come_the_moment_the_last_pod_has_gone(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 5, on="n1", stop=lambda number: 5 + number / 50, priority=1)
        await town.run_pods("db", 5, on="n1", stop=lambda number: 5 + number / 50, priority=2)
        assert (await town.drain("n1", replace(NMO, order=DrainOrder(by_priority=True)))).is_drained
        gone = {it.key: it.written_at for it in town.api.history if it.kind.plural == "pods" and it.after is None}
        asked = [it.written_at for it in town.api.history if it.verb == "evict" and "db" in it.key]
        moment = timedelta(milliseconds=10)
        assert max(asked) < max(at for key, at in gone.items() if "web" in key) + moment
        assert clock.now() < max(gone.values()) + moment


async def test_an_empty_node_is_drained_after_one_watch_and_one_list(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        assert (await town.drain("n1")).is_drained
        assert len(town.transport.requests) == 2


async def test_no_more_requests_are_under_way_than_allowed(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 12, on="n1", stop=0)
        town.transport.faults.delay(SECOND, method="POST", path="/eviction", times=None)
        assert (await town.drain("n1", replace(NMO, parallel=3))).is_drained
        instants = Counter(it.sent_at for it in town.transport.requests if "/eviction" in it.request.path)
        assert max(instants.values()) == 3
        assert len(instants) == 4


async def test_percent_never_goes_back_and_is_full_only_at_the_end(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 10, on="n1", stop=lambda number: number / 2)
        running = town.start_drain(town.new_drain("n1"))
        await town.wait_until(lambda: town.progress_reports[-1:] != [] and town.progress_reports[-1].percent >= 50)
        for number in range(10):
            town.put(a_pod(f"late-{number}", on="n1"))
        assert (await running).is_drained
        percents = [it.percent for it in town.progress_reports]
        assert percents == sorted(percents)
        assert percents.count(100) == 1
        assert town.progress_reports[-1].total == 20


# What stands in the way


async def test_a_budget_that_blocks_is_named_with_its_numbers_and_the_others_leave(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.put(a_pdb("cart", app="cart", maxUnavailable=0))
        town.put(a_workload("StatefulSet", "cart", replicas=2))
        await town.wait_until(lambda: sum(map(is_ready, town.pods(app="cart"))) == 2)
        await town.run_pods("web", 5, on="n1")
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await town.wait_until(lambda: len(town.pods(on="n1")) == 2)
        standing = drain.progress.blockers[0]
        assert standing.blocker.object == "PodDisruptionBudget shop/cart"
        assert standing.blocker.reason == "PodDisruptionBudget shop/cart needs 2 healthy pods and has 2"
        assert standing.blocker.workload == "StatefulSet shop/cart"
        await clock.sleep(10 * MINUTE)
        assert not running.done()
        assert drain.progress.blockers[0].since == standing.since
        asked = len(town.evicted_pods())
        await clock.sleep(10 * MINUTE)
        assert len(town.evicted_pods()) - asked <= 30
        town.put(a_pdb("cart", app="cart", maxUnavailable=1))
        town.api.remove("statefulsets", "cart", SHOP)
        assert (await asyncio.wait_for(running, 120)).is_drained


async def test_one_disruption_at_a_time_over_three_nodes(clock: Clock) -> None:
    """No more than one pod is unavailable at any revision, and it does not cost many requests."""
    async with a_drain_cluster(clock, "n1", "n2", "n3", "n4") as town:
        await town.cordon("n4")
        town.put(a_workload("Deployment", "cart", replicas=9, ready=3))
        town.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await town.wait_until(lambda: sum(map(is_ready, town.pods())) == 9)
        await town.cordon("n1", "n2", "n3")
        town.cluster.api.put(_schedulable(town.api.get("nodes", "n4")))
        from_revision = town.api.revision
        async with asyncio.TaskGroup() as group:
            drains = [group.create_task(town.drain(node)) for node in ("n1", "n2", "n3")]
        assert [it.result().result for it in drains] == [OutcomeResult.DRAINED] * 3
        assert {pod["spec"]["nodeName"] for pod in town.pods()} == {"n4"}
        for revision in range(from_revision, town.api.revision + 1):
            pods = town.api.objects("pods", revision=revision)
            assert sum(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods) >= 8
        assert len(town.evicted_pods()) <= 5 * 9


def _schedulable(node: RawObject) -> RawObject:
    spec = {key: value for key, value in node["spec"].items() if key not in ("unschedulable", "taints")}
    return {**node, "spec": spec}


async def test_pods_behind_a_budget_leave_at_once_when_it_opens(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        town.put(a_workload("StatefulSet", "cart", replicas=8, podManagementPolicy="Parallel"))
        town.put(a_pdb("cart", app="cart", maxUnavailable=0))
        await town.wait_until(lambda: sum(map(is_ready, town.pods())) == 8)
        await town.cordon("n1")
        running = town.start_drain(town.new_drain("n1"))
        await clock.sleep(5 * MINUTE)
        town.put(a_pdb("cart", app="cart", maxUnavailable=8))
        took = await town.wait_until(running.done)
        assert running.result().is_drained
        assert took < 35
        assert not town.pods(on="n1")


async def test_pods_behind_a_budget_follow_each_other_as_fast_as_it_allows_with_few_requests(clock: Clock) -> None:
    """Asking each of them every five seconds would take twice as long and four times the requests."""
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.cordon("n2")
        town.put(a_workload("Deployment", "cart", replicas=10, ready=3))
        town.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await town.wait_until(lambda: sum(map(is_ready, town.pods(on="n1"))) == 10)
        town.api.put(_schedulable(town.api.get("nodes", "n2")))
        await town.cordon("n1")
        began = clock.monotonic()
        assert (await town.drain("n1")).is_drained
        assert clock.monotonic() - began < 10 * 3.2
        assert len(town.transport.requests) <= 3 * 10


async def test_where_budgets_may_not_be_watched_pods_are_asked_at_the_usual_pace(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        town.put(a_workload("StatefulSet", "cart", replicas=4, ready=2))
        town.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await town.wait_until(lambda: sum(map(is_ready, town.pods())) == 4)
        await town.cordon("n1")
        refusal = town.transport.faults.fail_before_effect(path="/poddisruptionbudgets", response=403, times=None)
        assert (await asyncio.wait_for(town.drain("n1"), 120)).is_drained
        assert refusal.hits == 1


async def test_a_budget_that_is_deleted_forbids_nothing_from_then_on(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 3, on="n1")
        town.put(a_pdb("cart", app="cart", minAvailable=3))
        running = town.start_drain(town.new_drain("n1"))
        await clock.sleep(10 * MINUTE)
        town.api.remove("poddisruptionbudgets", "cart", SHOP)
        assert await town.wait_until(running.done) < 3


async def test_a_budget_is_heard_of_again_after_its_watch_broke(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 3, on="n1")
        town.put(a_pdb("cart", app="cart", minAvailable=3))
        broken = town.transport.faults.break_stream(path="/poddisruptionbudgets", after_lines=1, times=3)
        running = town.start_drain(town.new_drain("n1"))
        await clock.sleep(10 * MINUTE)
        assert broken.hits == 3
        town.put(a_pdb("cart", app="cart", minAvailable=0))
        assert await town.wait_until(running.done) < 3


async def test_a_nudge_makes_a_drain_ask_again_without_waiting(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        town.put(a_workload("StatefulSet", "cart", replicas=2))
        town.put(a_pdb("cart", app="cart", maxUnavailable=0))
        await town.wait_until(lambda: sum(map(is_ready, town.pods())) == 2)
        await town.cordon("n1")
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await clock.sleep(5 * MINUTE)
        town.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await clock.sleep(SECOND)
        drain.retry_namespace(SHOP)
        assert await town.wait_until(running.done) < 3


async def test_a_pod_under_two_budgets_is_told_of_and_the_others_leave(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 1, on="n1")
        await town.run_pods("web", 3, on="n1")
        town.put(a_pdb("one", app="cart", minAvailable=0), a_pdb("two", app="cart", minAvailable=0))
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await town.wait_until(lambda: town.pod_names(on="n1") == ["cart-00"])
        assert kinds(drain) == {BlockerKind.SEVERAL_DISRUPTION_BUDGETS: 1}
        town.api.remove("poddisruptionbudgets", "two", SHOP)
        assert (await asyncio.wait_for(running, 120)).is_drained


async def test_a_webhook_that_says_not_now_is_asked_until_it_agrees(clock: Clock) -> None:
    """As KubeVirt does while it moves a virtual machine."""
    said = 'admission webhook "virt.example" denied the request: Eviction triggered evacuation of VMI "shop/vm"'
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("vm", 1, on="n1")
        refusal = town.transport.faults.fail_before_effect(
            method="POST", path="/eviction", times=4, response=_status(429, said)
        )
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await town.wait_until(lambda: refusal.hits == 2)
        assert kinds(drain) == {BlockerKind.MIGRATION: 1}
        assert all(it.blocker.is_progress for it in drain.progress.blockers)
        assert (await asyncio.wait_for(running, 120)).is_drained


async def test_a_terminating_namespace_is_waited_for(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1")
        cause = {"reason": "NamespaceTerminating", "message": "namespace shop is being terminated"}
        refusal = _status(403, 'pods "web-00" is forbidden: unable to create new content', cause)
        town.transport.faults.fail_before_effect(method="POST", path="/eviction", times=None, response=refusal)
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await clock.sleep(MINUTE)
        assert kinds(drain) == {BlockerKind.NAMESPACE: 2}
        for name in town.pod_names():
            await town.cluster.client("namespaces").delete(PODS, name, namespace=SHOP)
        assert (await asyncio.wait_for(running, 60)).is_drained


async def test_a_finalizer_is_named_and_the_drain_ends_when_it_is_taken_off(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1", grace=5, meta={"finalizers": ["example.dev/hold"]})
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await town.wait_until(lambda: kinds(drain) == {BlockerKind.FINALIZER: 1})
        assert [it.state for it in drain.progress.pods] == [PodDrainState.OVERDUE]
        await clock.sleep(5 * MINUTE)
        pod = town.api.get("pods", "web-00", SHOP)
        pod["metadata"]["finalizers"] = []
        town.api.put(pod)
        town.api.remove("pods", "web-00", SHOP)
        assert (await asyncio.wait_for(running, 10)).is_drained


async def test_a_dead_kubelet_is_told_of_and_its_pods_can_be_given_up(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n1", grace=10)
        town.cluster.kubelets.kill("n1")
        await clock.sleep(2 * MINUTE)
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await town.wait_until(lambda: kinds(drain) == {BlockerKind.KUBELET: 3})
        assert "node n1 is not ready" in drain.progress.blockers[0].blocker.remedy
        before = len(town.transport.requests)
        await clock.sleep(10 * MINUTE)
        assert not running.done()
        assert len(town.transport.requests) - before < 40
        drain.set_policy(replace(NMO, filters=replace(NMO.filters, skip_wait_for_delete=MINUTE)))
        outcome = await asyncio.wait_for(running, 5)
        assert (outcome.result, outcome.progress.gone) == (OutcomeResult.DRAINED, 3)


# Pods that are not what they were


async def test_a_pod_replaced_under_its_name_elsewhere_is_left_alone(clock: Clock) -> None:
    """B01."""
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.cordon("n2")
        town.put(a_workload("StatefulSet", "cart", replicas=1))
        town.put(a_pdb("cart", app="cart", maxUnavailable=0))
        await town.wait_until(lambda: sum(map(is_ready, town.pods(on="n1"))) == 1)
        town.api.put(_schedulable(town.api.get("nodes", "n2")))
        await town.cordon("n1")
        running = town.start_drain(town.new_drain("n1"))
        await clock.sleep(12 * SECOND)
        await town.cluster.client("person").delete(PODS, "cart-0", namespace=SHOP)
        assert (await asyncio.wait_for(running, 60)).is_drained
        asked = len(town.evicted_pods())
        town.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await clock.sleep(5 * MINUTE)
        assert len(town.evicted_pods()) == asked
        replacement = town.pods(on="n2")[0]
        assert is_ready(replacement)


async def test_a_request_that_comes_too_late_does_not_hit_the_pod_that_took_the_name(clock: Clock) -> None:
    """D2: the server refuses it by the uid, which counts as gone."""
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("cart", 1, on="n1")
        town.transport.faults.delay(5 * SECOND, path="/eviction", times=1)
        running = town.start_drain(town.new_drain("n1"))
        await clock.sleep(SECOND)
        town.api.remove("pods", "cart-00", SHOP)
        await town.run_pods("cart", 1, on="n2")
        assert (await asyncio.wait_for(running, 30)).is_drained
        await clock.sleep(MINUTE)
        assert len(town.evicted_pods()) == 1
        assert [is_ready(pod) for pod in town.pods(on="n2")] == [True]


async def test_pods_that_keep_coming_back_are_told_of_and_not_evicted_for_ever(clock: Clock) -> None:
    """D12."""
    async with a_drain_cluster(clock, "n1", "n2") as town:
        pinned: RawObject = {"nodeSelector": {"kubernetes.io/hostname": "n1"}, "tolerations": [{"operator": "Exists"}]}
        town.put(a_workload("Deployment", "agent", replicas=2, **pinned))
        await town.run_pods("web", 2, on="n1")
        await town.wait_until(lambda: sum(map(is_ready, town.pods(app="agent"))) == 2)
        await town.cordon("n1")
        outcome = await asyncio.wait_for(town.drain("n1"), 120)
        assert outcome.is_drained
        assert len(outcome.progress.returning) == 2
        assert "these pods were recreated on the node" in outcome.message
        agents = [name for name in town.evicted_pods() if name.startswith("agent")]
        assert len(agents) <= 4
        assert len(agents) == len(set(agents))


async def test_a_pod_that_comes_late_is_drained_too(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1", stop=3)
        running = town.start_drain(town.new_drain("n1"))
        await clock.sleep(2 * SECOND)
        town.put(a_pod("late", on="n1", stop=10))
        outcome = await running
        assert (outcome.result, outcome.progress.gone) == (OutcomeResult.DRAINED, 3)
        assert town.pod_names() == []


async def test_finished_pods_go_and_static_ones_stay(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        done = a_pod("done", on="n1")
        done["status"] = {"phase": "Succeeded"}
        static = a_pod("static", on="n1", meta={"annotations": {"kubernetes.io/config.mirror": "x"}})
        static["status"] = {"phase": "Running"}
        town.cluster.pause("kubelets")
        town.put(done, static)
        assert (await town.drain("n1", DrainPolicy())).is_drained
        assert town.pod_names() == ["static"]


async def test_a_node_that_is_deleted_meanwhile_ends_the_drain(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n1", stop=600, grace=600)
        running = town.start_drain(town.new_drain("n1"))
        await clock.sleep(5 * SECOND)
        await town.cluster.kubelets.remove("n1")
        if town.api.has("nodes", "n1"):
            town.api.remove("nodes", "n1")
        assert (await asyncio.wait_for(running, 300)).is_drained
        assert town.pod_names(on="n1") == []


# What the policy says


async def test_what_the_policy_forbids_is_said_before_any_pod_is_touched(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.put(a_workload("Deployment", "cart", replicas=2))
        await town.run_pods("bare", 1, on="n1")
        await town.wait_until(lambda: len(town.pods(on="n1")) == 3)
        outcome = await town.drain("n1", DrainPolicy())
        assert outcome.result is OutcomeResult.REFUSED
        assert outcome.problems == (
            "cannot delete Pods that declare no controller (use --force to override): shop/bare-00",
        )
        assert town.evicted_pods() == []


async def test_pods_of_daemon_sets_stay_and_each_set_is_asked_for_once(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        daemon_set = a_workload("DaemonSet", "agent", replicas=1)
        del daemon_set["spec"]["replicas"]
        town.put(daemon_set)
        await town.wait_until(lambda: sum(map(is_ready, town.pods(app="agent"))) == 1)
        await town.run_pods("web", 2, on="n1")
        outcome = await town.drain("n1")
        assert outcome.is_drained
        assert outcome.progress.warning.startswith("ignoring DaemonSet-managed Pods: shop/agent-")
        assert [name[:5] for name in town.pod_names()] == ["agent"]
        assert len(town.transport.sent_requests(path="/daemonsets/")) == 1


async def test_a_daemon_set_that_cannot_be_asked_for_holds_up_only_its_own_pod(clock: Clock) -> None:
    """B04."""
    async with a_drain_cluster(clock, "n1") as town:
        daemon_set = a_workload("DaemonSet", "agent", replicas=1)
        del daemon_set["spec"]["replicas"]
        town.put(daemon_set)
        await town.wait_until(lambda: sum(map(is_ready, town.pods(app="agent"))) == 1)
        await town.run_pods("web", 3, on="n1")
        town.transport.faults.fail_before_effect(path="/daemonsets/", response=500, times=12)
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await town.wait_until(lambda: len(town.pods(on="n1")) == 1)
        assert not running.done()
        assert kinds(drain) == {BlockerKind.API: 1}
        assert (await asyncio.wait_for(running, 120)).is_drained


async def test_waves_leave_one_after_the_other(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1", stop=2)
        await town.run_pods("vital", 2, on="n1", stop=2, priority=1000)
        await town.run_pods("store", 2, on="n1", stop=2)
        rules = (DrainRule(name="stores", pods=parse("app=store"), order=10),)
        policy = replace(NMO, rules=rules, order=DrainOrder(by_priority=True))
        drain = town.new_drain("n1", policy)
        running = town.start_drain(drain)
        await clock.sleep(SECOND)
        queued = [it.message for it in drain.progress.pods if it.state is PodDrainState.QUEUED]
        assert queued == ["waiting for earlier pods to leave: order 0"] * 4
        assert (await running).is_drained
        assert [name[:3] for name in town.evicted_pods()] == ["web", "web", "vit", "vit", "sto", "sto"]
        deleted = [it for it in town.api.history if it.after is None and "/pods/" in it.path]
        assert [it.path.rpartition("/")[2][:3] for it in deleted] == ["web", "web", "vit", "vit", "sto", "sto"]


async def test_a_rule_can_keep_pods_or_wait_for_their_end(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("kept", 1, on="n1")
        await town.run_pods("batch", 1, on="n1", behaviour={"run-seconds": "300"}, restartPolicy="Never")
        await town.run_pods("web", 1, on="n1")
        rules = (
            DrainRule(name="a", pods=parse("app=kept"), behavior=Behavior.SKIP),
            DrainRule(name="b", pods=parse("app=batch"), behavior=Behavior.WAIT_COMPLETED),
        )
        drain = town.new_drain("n1", replace(NMO, rules=rules))
        running = town.start_drain(drain)
        await town.wait_until(lambda: not town.pod_names(app="web"))
        assert [it.state for it in drain.progress.pods] == [PodDrainState.FINISHING]
        await clock.sleep(2 * MINUTE)
        assert not running.done()
        outcome = await asyncio.wait_for(running, 300)
        assert (outcome.result, outcome.progress.gone) == (OutcomeResult.DRAINED, 2)
        assert town.evicted_pods() == ["web-00"]
        assert sorted(town.pod_names()) == ["batch-00", "kept-00"]


async def test_the_time_in_which_pods_may_complete_begins_with_the_drain(clock: Clock) -> None:
    """Before that no end of it is shown: it would not be true. A successor does not begin it anew."""
    rule = DrainRule(
        name="b", pods=parse("app=batch"), behavior=Behavior.WAIT_COMPLETED, wait_completed_timeout=5 * MINUTE
    )
    policy = replace(NMO, rules=(rule,))
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("batch", 1, on="n1")
        drain = town.new_drain("n1", policy, waiting=True)
        running = town.start_drain(drain)
        await clock.sleep(6 * MINUTE)
        (waiting,) = drain.progress.blockers
        assert "evicted" not in waiting.blocker.reason
        drain.begin()
        await clock.sleep(MINUTE)
        (limited,) = drain.progress.blockers
        assert limited.blocker.reason.endswith(f"at {clock.now() + 4 * MINUTE:%Y-%m-%d %H:%M:%S} UTC if it has not")
        drain.stop(hands_over=True)
        checkpoint = (await running).progress.checkpoint
        assert town.evicted_pods() == []
        began = clock.monotonic()
        assert (await town.drain("n1", policy, checkpoint=checkpoint)).is_drained
        assert 4 * 60 <= clock.monotonic() - began <= 4 * 60 + 2
        assert town.evicted_pods() == ["batch-00"]


async def test_rules_can_choose_by_the_labels_of_namespaces(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1")
        namespace = town.api.get("namespaces", SHOP)
        namespace["metadata"]["labels"] = {"tier": "calm"}
        town.put(namespace)
        keep = DrainRule(name="calm", namespace_selector=parse("tier=calm"), behavior=Behavior.SKIP)
        assert (await town.drain("n1", replace(NMO, rules=(keep,)))).is_drained
        assert len(town.pod_names(on="n1")) == 2
        assert len(town.transport.sent_requests(path="/namespaces/shop")) == 1


async def test_a_blocked_pod_is_deleted_and_a_hanging_one_killed_on_time(clock: Clock) -> None:
    policy = replace(
        NMO, eviction_timeout=10 * MINUTE, deletion_timeout=5 * MINUTE, force_delete=True, timeout=30 * MINUTE
    )
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 1, on="n1", stop=1, grace=60)
        town.put(a_pdb("cart", app="cart", minAvailable=1))
        await town.run_pods("hang", 1, on="n1", behaviour={"hang": "true"}, grace=20)
        asked: list[tuple[str, str]] = []
        drain = town.new_drain("n1", policy, on_pod_requested=lambda pod, rung: asked.append((pod.name, rung)))
        running = town.start_drain(drain)
        began = clock.now()
        assert (await running).is_drained
        assert len(town.evicted_pods()) > 10
        # Each is told once, though it was asked again and again.
        assert asked == [("cart-00", "evict"), ("hang-00", "evict"), ("hang-00", "force-delete"), ("cart-00", "delete")]
        gone = {it.path.rpartition("/")[2]: it.written_at - began for it in town.api.history if it.after is None}
        assert timedelta(minutes=5) <= gone["hang-00"] < timedelta(minutes=5, seconds=2)
        assert timedelta(minutes=10) <= gone["cart-00"] < timedelta(minutes=10, seconds=3)


async def test_without_leave_nothing_is_deleted_and_the_drain_ends_with_a_verdict(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 1, on="n1")
        town.put(a_pdb("cart", app="cart", minAvailable=1))
        await town.run_pods("hang", 1, on="n1", behaviour={"hang": "true"}, grace=20)
        began = clock.monotonic()
        outcome = await town.drain("n1", replace(NMO, timeout=15 * MINUTE))
        assert clock.monotonic() - began == pytest.approx(900, abs=0.1)
        assert outcome.result is OutcomeResult.TIMED_OUT
        assert "not drained within 15m0s, 2 pods left: " in outcome.message
        assert "PodDisruptionBudget shop/cart needs 1 healthy pods" in outcome.message
        assert town.transport.sent_requests(method="DELETE") == []


async def test_a_pod_whose_grace_would_pass_the_deadline_is_told_to_go_in_time(clock: Clock) -> None:
    policy = replace(NMO, eviction_timeout=9 * MINUTE, timeout=10 * MINUTE)
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 1, on="n1", stop=299, grace=300)
        town.put(a_pdb("cart", app="cart", minAvailable=1))
        assert (await town.drain("n1", policy)).is_drained


async def test_the_grace_period_of_the_policy_counts(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1", stop=100, grace=100)
        began = clock.monotonic()
        assert (await town.drain("n1", replace(NMO, grace_period=5 * SECOND))).is_drained
        assert clock.monotonic() - began < 8


@pytest.mark.parametrize("how", ["disabled", "absent"])
async def test_without_evictions_pods_are_deleted_whatever_their_budget_says(clock: Clock, how: str) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 3, on="n1")
        town.put(a_pdb("cart", app="cart", minAvailable=3))
        if how == "absent":
            nothing = _answer(200, {"kind": "APIResourceList", "resources": [{"name": "pods", "kind": "Pod"}]})
            town.transport.faults.fail_before_effect(
                method="GET", where=lambda it: it.path == "/api/v1", response=nothing
            )
        policy = replace(NMO, disable_eviction=how == "disabled")
        assert (await asyncio.wait_for(town.drain("n1", policy), 10)).is_drained
        assert town.evicted_pods() == []
        assert len(town.transport.sent_requests(method="DELETE")) == 3


async def test_an_old_server_gets_the_evictions_that_it_knows(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 1, on="n1")
        eviction = {"name": "pods/eviction", "kind": "Eviction", "group": "policy", "version": "v1beta1"}
        old = _answer(200, {"kind": "APIResourceList", "resources": [eviction]})
        town.transport.faults.fail_before_effect(method="GET", where=lambda it: it.path == "/api/v1", response=old)
        running = town.start_drain(town.new_drain("n1"))
        await town.wait_until(lambda: bool(town.evicted_pods()))
        assert b'"policy/v1beta1"' in (town.transport.sent_requests(path="/eviction")[0].body or b"")
        running.cancel()


# Others have a say, too


async def test_a_drain_that_is_stopped_asks_nobody_any_more(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 20, on="n1", stop=30)
        town.transport.faults.delay(SECOND, method="POST", path="/eviction", times=None)
        drain = town.new_drain("n1", replace(NMO, parallel=4))
        running = town.start_drain(drain)
        await clock.sleep(2.5 * SECOND)
        drain.stop()
        asked = len(town.evicted_pods())
        outcome = await asyncio.wait_for(running, 1.5)
        assert outcome.result is OutcomeResult.CANCELLED
        assert outcome.progress.leaving == asked == 12
        await clock.sleep(MINUTE)
        assert len(town.evicted_pods()) == asked


async def test_a_cancelled_drain_leaves_no_task_behind(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 5, on="n1")
        town.transport.faults.hang(method="POST", path="/eviction", times=None)
        before = asyncio.all_tasks()
        running = town.start_drain(town.new_drain("n1"))
        await clock.sleep(SECOND)
        running.cancel()
        await asyncio.wait([running], timeout=0.001)
        assert asyncio.all_tasks() <= before


async def test_another_policy_counts_from_the_next_moment_on(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 1, on="n1")
        town.put(a_pdb("cart", app="cart", minAvailable=1))
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await clock.sleep(20 * MINUTE)
        assert not running.done()
        drain.set_policy(replace(NMO, eviction_timeout=10 * MINUTE))
        assert (await asyncio.wait_for(running, 3)).is_drained


async def test_a_successor_goes_on_where_the_ladder_stood(clock: Clock) -> None:
    policy = replace(NMO, eviction_timeout=10 * MINUTE)
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 1, on="n1")
        await town.run_pods("web", 3, on="n1")
        town.put(a_pdb("cart", app="cart", minAvailable=1))
        began = clock.monotonic()
        first = town.start_drain(town.new_drain("n1", policy))
        await clock.sleep(6 * MINUTE)
        first.cancel()
        checkpoint = town.progress_reports[-1].checkpoint
        assert (checkpoint.gone, checkpoint.percent) == (3, 75)
        await clock.sleep(MINUTE)
        outcome = await town.drain("n1", policy, checkpoint=checkpoint)
        assert outcome.is_drained
        assert clock.monotonic() - began == pytest.approx(602, abs=2)
        assert outcome.progress.gone == 4
        percents = [it.percent for it in town.progress_reports]
        assert percents == sorted(percents)


@pytest.mark.parametrize("crash", range(1, 10))
async def test_a_drain_that_dies_after_any_request_is_brought_to_its_end_by_the_next(clock: Clock, crash: int) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 5, on="n1", stop=2)
        first = town.start_drain(town.new_drain("n1", replace(NMO, parallel=1)))
        await town.wait_until(lambda: len(town.transport.requests) >= crash or first.done())
        first.cancel()
        await asyncio.wait([first])
        checkpoint = town.progress_reports[-1].checkpoint if town.progress_reports else None
        outcome = await asyncio.wait_for(town.drain("n1", checkpoint=checkpoint), 60)
        assert outcome.is_drained
        assert town.pod_names() == []
        assert len(town.evicted_pods()) <= 6


async def test_who_may_no_longer_lead_stops_with_that_error(clock: Clock) -> None:
    def may_write() -> None:
        if clock.monotonic() > deposed_at:
            raise LeadershipLost("somebody else leads")

    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 5, on="n1")
        town.put(a_pdb("web", app="web", minAvailable=4))
        deposed_at = clock.monotonic() + 2
        before = asyncio.all_tasks()
        with pytest.raises(LeadershipLost):
            await Drainer(town.client.with_fence(may_write), "n1", NMO).run()
        more = asyncio.all_tasks() - before
        assert [task for task in more if not task.get_name().startswith("sandbox ")] == []  # the cluster's own
        assert len(town.pod_names()) == 4


async def test_all_drains_of_a_process_together_have_a_limit(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as town:
        for node in ("n1", "n2", "n3"):
            await town.run_pods(f"on-{node}", 4, on=node, stop=0)
        town.transport.faults.delay(SECOND, method="POST", path="/eviction", times=None)
        lane = EvictionClient(town.client, max_in_flight=2)
        drains = [town.start_drain(town.new_drain(node, eviction_client=lane)) for node in ("n1", "n2", "n3")]
        await asyncio.wait(drains)
        instants = Counter(it.sent_at for it in town.transport.requests if "/eviction" in it.request.path)
        assert max(instants.values()) == 2
        assert [it.path for it in town.transport.sent_requests(method="GET")].count("/api/v1") == 1


async def test_a_request_that_waits_for_its_turn_is_not_sent_after_a_stop(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 5, on="n1", stop=30)
        town.transport.faults.delay(SECOND, method="POST", path="/eviction", times=None)
        drain = town.new_drain("n1", eviction_client=EvictionClient(town.client, max_in_flight=1))
        running = town.start_drain(drain)
        await clock.sleep(1.5 * SECOND)
        drain.stop()
        outcome = await asyncio.wait_for(running, 2)
        assert (outcome.result, len(town.evicted_pods()), outcome.progress.leaving) == (OutcomeResult.CANCELLED, 2, 2)


# What goes wrong between us and the server


STEPS = {
    "evictions fail": lambda town: town.transport.faults.fail_before_effect(path="/eviction", response=500, times=5),
    "evictions are throttled": lambda town: town.transport.faults.fail_before_effect(
        path="/eviction", response=429, retry_after=2, times=5
    ),
    "evictions work but nobody hears": lambda town: town.transport.faults.fail_after_effect(path="/eviction", times=5),
    "no answer": lambda town: town.transport.faults.hang(path="/eviction", times=2),
    "no answer but an effect": lambda town: town.transport.faults.hang(path="/eviction", takes_effect=True, times=2),
    "discovery fails": lambda town: town.transport.faults.fail_before_effect(
        method="GET", where=lambda it: it.path == "/api/v1", response=503, times=6
    ),
    "the list fails": lambda town: town.transport.faults.fail_before_effect(
        method="GET", where=lambda it: it.path == "/api/v1/pods" and ("limit", "500") in it.query, response=500, times=6
    ),
    "the watch cannot begin": lambda town: town.transport.faults.fail_before_effect(
        method="GET", where=lambda it: ("watch", "true") in it.query, response=503, times=3
    ),
    "the watch breaks": lambda town: town.transport.faults.break_stream(path="/pods", after_lines=8, times=1),
    "events are repeated": lambda town: town.transport.faults.duplicate(path="/pods", times=None),
    "events are late": lambda town: town.transport.faults.delay_event(
        timedelta(seconds=3), path="/pods", skip=5, times=5
    ),
    "events are swapped": lambda town: town.transport.faults.reorder(path="/pods", skip=5, times=2),
}


@pytest.mark.parametrize("trouble", STEPS)
async def test_trouble_delays_a_drain_and_does_not_end_it(clock: Clock, trouble: str) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 5, on="n1", grace=20)
        rule = STEPS[trouble](town)
        outcome = await asyncio.wait_for(town.drain("n1"), 600)
        assert outcome.is_drained
        assert town.pod_names(on="n1") == []
        assert rule.hits
        assert len(town.transport.requests) < 60


@pytest.mark.parametrize("lost", range(20))
async def test_an_event_that_is_lost_delays_a_drain_and_does_not_mislead_it(clock: Clock, lost: int) -> None:
    """The first six lines are the initial list, its end included."""
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 5, on="n1", grace=20)
        town.transport.faults.drop(path="/pods", skip=lost, times=1)
        outcome = await asyncio.wait_for(town.drain("n1"), 900)
        assert outcome.is_drained
        assert town.pod_names(on="n1") == []


async def test_a_request_that_hangs_does_not_hold_up_the_end_once_its_pod_is_gone(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 3, on="n1", stop=1)
        town.transport.faults.hang(path="/eviction", takes_effect=True, times=1)
        assert (await asyncio.wait_for(town.drain("n1"), 3)).is_drained


async def test_a_pod_whose_coming_was_missed_is_found_by_the_last_list(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1", stop=2)
        running = town.start_drain(town.new_drain("n1"))
        await clock.sleep(SECOND)
        loss = town.transport.faults.drop(path="/pods", where=lambda it: ("watch", "true") in it.query, times=4)
        town.put(a_pod("missed", on="n1"))
        await town.wait_until(lambda: loss.hits >= 1)
        town.transport.faults.clear()
        assert (await asyncio.wait_for(running, 120)).is_drained
        assert town.pod_names() == []


def isolated_clock(town: DrainCluster) -> tuple[VirtualClock, Client]:
    """Return a client of those who drain, and its clock, which only they have."""
    clock = VirtualClock(town.clock.now() - timedelta(seconds=town.clock.monotonic()))
    return clock, Client(town.transport, clock=clock, random=town.client.random)


@pytest.mark.parametrize("by", [3 * HOUR, -3 * HOUR], ids=str)
async def test_a_drain_keeps_its_pace_and_its_deadline_when_the_wall_clock_is_set_and_set_right(
    clock: Clock, by: timedelta
) -> None:
    """The budget may not be watched here, so it is asked again and again whether the pod may go."""
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1")
        town.put(a_pdb("web", app="web", minAvailable=1))
        town.transport.faults.fail_before_effect(path="/poddisruptionbudgets", response=403, times=None)
        wall, client = isolated_clock(town)
        running = town.start_drain(drain := Drainer(client, "n1", replace(NMO, timeout=HOUR)))
        await town.wait_until(lambda: kinds(drain) == {BlockerKind.DISRUPTION_BUDGET: 1})
        for step in (by, -by):
            wall.move_wall_clock(step)
            asked = len(town.evicted_pods())
            await clock.sleep(2 * MINUTE)
            assert 2 <= len(town.evicted_pods()) - asked <= 30
            assert (running.done(), drain.progress.deadline) == (False, drain.progress.started + HOUR)
        town.api.remove("poddisruptionbudgets", "web", SHOP)
        assert (await asyncio.wait_for(running, 60)).is_drained


@pytest.mark.parametrize("by", [3 * HOUR, -3 * HOUR], ids=str)
async def test_a_list_that_failed_is_tried_again_though_the_wall_clock_was_set(clock: Clock, by: timedelta) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        rule = town.transport.faults.fail_before_effect(
            where=lambda it: ("limit", "500") in it.query, response=500, times=None
        )
        wall, client = isolated_clock(town)
        running = town.start_drain(Drainer(client, "n1", NMO))
        wall.move_wall_clock(by)
        await clock.sleep(2 * MINUTE)
        assert 8 <= rule.hits <= 40
        wall.move_wall_clock(-by)
        town.transport.faults.remove(rule)
        assert (await asyncio.wait_for(running, 60)).is_drained


async def test_a_deadline_that_passes_while_it_is_decided_ends_the_drain(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1")
        town.put(a_pdb("web", app="web", minAvailable=1))
        wall, client = isolated_clock(town)
        running = town.start_drain(drain := Drainer(client, "n1", replace(NMO, timeout=50 * SECOND)))
        await town.wait_until(lambda: kinds(drain) == {BlockerKind.DISRUPTION_BUDGET: 1})
        act = drain._act

        def act_slowly(plan: DrainDecision) -> None:
            wall.move_wall_clock(SECOND / 500)
            act(plan)

        await clock.sleep(drain.progress.started + 50 * SECOND - SECOND / 1000 - wall.now())
        monkeypatch.setattr(drain, "_act", act_slowly)
        drain.set_policy(replace(NMO, timeout=50 * SECOND))
        assert (await asyncio.wait_for(running, 3)).result is OutcomeResult.TIMED_OUT


async def test_what_a_predecessor_has_noted_is_not_moved_when_our_clock_is_set_right(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1")
        town.put(a_pdb("web", app="web", minAvailable=1))
        wall, client = isolated_clock(town)
        wall.move_wall_clock(HOUR)  # from the beginning
        began = clock.now()
        town.start_drain(drain := Drainer(client, "n1", NMO, checkpoint=Checkpoint(started=began)))
        await town.wait_until(lambda: kinds(drain) == {BlockerKind.DISRUPTION_BUDGET: 1})
        wall.move_wall_clock(-HOUR)
        await clock.sleep(2 * MINUTE)
        (standing,) = drain.progress.blockers
        assert drain.progress.started == began
        assert began <= standing.since <= began + SECOND


async def test_an_api_server_that_is_away_is_waited_for_and_not_hammered(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 20, on="n1")
        drain = town.new_drain("n1")
        town.transport.cut()
        running = town.start_drain(drain)
        await clock.sleep(10 * MINUTE)
        assert drain.progress.stale_reason
        assert len(town.transport.requests) < 60
        town.transport.mend()
        assert (await asyncio.wait_for(running, 60)).is_drained


async def test_without_permission_a_drain_says_so_and_does_not_hammer(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 20, on="n1")
        town.transport.faults.fail_before_effect(path="/eviction", response=403, times=None)
        drain = town.new_drain("n1")
        running = town.start_drain(drain)
        await clock.sleep(10 * MINUTE)
        assert kinds(drain) == {BlockerKind.PERMISSION: 20}
        assert len(town.transport.requests) < 100
        town.transport.faults.clear()
        assert (await asyncio.wait_for(running, 60)).is_drained


async def test_each_request_is_about_one_pod_and_no_other(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1")
        uids = {pod["metadata"]["uid"].encode() for pod in town.pods()}
        assert (await town.drain("n1")).is_drained
        bodies = [it.body or b"" for it in town.transport.sent_requests(path="/eviction")]
        assert len(bodies) == 2
        assert all(any(b'"preconditions":{"uid":"' + uid in body for uid in uids) for body in bodies)


# One that waits, and one that lasts


async def test_a_drain_that_waits_looks_and_touches_nothing(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 3, on="n1")
        drain = town.new_drain("n1", replace(NMO, timeout=MINUTE), waiting=True)
        running = town.start_drain(drain)
        await clock.sleep(5 * MINUTE)
        assert [(pod.state, pod.turn_since) for pod in drain.progress.pods] == [(PodDrainState.QUEUED, None)] * 3
        assert (drain.progress.total, drain.progress.percent, drain.progress.deadline) == (3, 0, None)
        assert town.evicted_pods() == []
        told = len(town.progress_reports)
        await clock.sleep(5 * MINUTE)
        assert len(town.progress_reports) == told
        drain.begin()
        assert (await asyncio.wait_for(running, 30)).is_drained
        assert drain.progress.started >= clock.now() - 30 * SECOND


async def test_an_empty_node_that_waits_is_not_drained_before_it_begins(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        drain = town.new_drain("n1", waiting=True)
        running = town.start_drain(drain)
        await clock.sleep(MINUTE)
        assert not running.done()
        drain.begin()
        assert (await asyncio.wait_for(running, 30)).is_drained


async def test_a_lasting_drain_makes_those_leave_that_come_later(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1")
        drain = town.new_drain("n1", replace(NMO, timeout=MINUTE), keep_running=True)
        running = town.start_drain(drain)
        await town.wait_until(lambda: drain.outcome is not None)
        assert drain.progress.percent == 100
        told, asked = len(town.progress_reports), len(town.transport.requests)
        await clock.sleep(60 * MINUTE)
        assert (len(town.progress_reports), len(town.transport.requests) - asked < 20) == (told, True)
        town.put(a_pod("late", on="n1", stop=5))
        await town.wait_until(lambda: drain.outcome is None)
        assert drain.progress.percent < 100
        await town.wait_until(lambda: drain.outcome is not None)
        assert (town.pod_names(on="n1"), running.done()) == ([], False)


async def test_a_pod_that_comes_late_has_the_time_of_a_whole_drain(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        drain = town.new_drain("n1", replace(NMO, timeout=MINUTE), keep_running=True)
        running = town.start_drain(drain)
        await clock.sleep(10 * MINUTE)
        town.put(a_pdb("web", app="web", maxUnavailable=0))
        await town.run_pods("web", 1, on="n1")
        await clock.sleep(50 * SECOND)
        assert not running.done()
        assert (await asyncio.wait_for(running, 30)).result is OutcomeResult.TIMED_OUT


async def test_a_lasting_drain_does_not_chase_what_comes_back(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.put(a_workload("Deployment", "web", replicas=1, nodeName="n1"))
        await town.wait_until(lambda: [is_ready(pod) for pod in town.pods(on="n1")] == [True])
        drain = town.new_drain("n1", keep_running=True)
        town.start_drain(drain)
        await town.wait_until(lambda: drain.outcome is not None)
        asked = len(town.evicted_pods())
        assert len(drain.progress.returning) == 1
        await clock.sleep(60 * MINUTE)
        assert len(town.evicted_pods()) == asked


async def test_a_drain_of_no_node_is_refused(clock: Clock) -> None:
    """Its field selector would mean all pods that are not scheduled yet."""
    with pytest.raises(ValueError, match="name of a node"):
        Drainer(Cluster(clock).client(DRAINER), "", NMO)


def _answer(code: int, body: RawObject) -> Response:
    return Response(code, {"content-type": "application/json"}, msgspec.json.encode(body))


def _status(code: int, message: str, *causes: RawObject) -> Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message, "details": {"causes": causes}}
    return _answer(code, body)
