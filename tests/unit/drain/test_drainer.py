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


# Duration and number of requests


async def test_drain_ends_as_soon_as_the_slowest_pod_has_terminated(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 20, on="n1", stop=lambda number: 0.5 + number * 2.5 / 19)
        began = clock.monotonic()
        outcome = await cluster.drain("n1")
        assert clock.monotonic() - began < 1.05 * 3
        assert (outcome.result, outcome.progress.percent, outcome.progress.gone) == (OutcomeResult.DRAINED, 100, 20)
        assert cluster.pods(on="n1") == []
        assert len(cluster.transport.requests) <= 1.5 * 20


async def test_pod_deletions_are_processed_in_batches_while_pods_terminate(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 20, on="n1", stop=25)
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: drain.progress.leaving == 20)
        cluster.progress_reports.clear()
        for name in cluster.pod_names(on="n1"):
            cluster.api.remove("pods", name, SHOP)
            await clock.sleep(SECOND / 20)
        assert (await running).is_drained
        assert len(cluster.progress_reports) <= 6


async def test_next_order_and_end_of_the_drain_follow_at_once_after_the_last_pod(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 5, on="n1", stop=lambda number: 5 + number / 50, priority=1)
        await cluster.run_pods("db", 5, on="n1", stop=lambda number: 5 + number / 50, priority=2)
        assert (await cluster.drain("n1", replace(NMO, order=DrainOrder(by_priority=True)))).is_drained
        gone = {it.key: it.written_at for it in cluster.api.history if it.kind.plural == "pods" and it.after is None}
        evicted_at = [it.written_at for it in cluster.api.history if it.verb == "evict" and "db" in it.key]
        moment = timedelta(milliseconds=10)
        assert max(evicted_at) < max(at for key, at in gone.items() if "web" in key) + moment
        assert clock.now() < max(gone.values()) + moment


async def test_drain_of_an_empty_node_takes_one_watch_and_one_list(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        assert (await cluster.drain("n1")).is_drained
        assert len(cluster.transport.requests) == 2


async def test_drain_sends_no_more_parallel_requests_than_allowed(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 12, on="n1", stop=0)
        cluster.transport.faults.delay(SECOND, method="POST", path="/eviction", times=None)
        assert (await cluster.drain("n1", replace(NMO, parallel=3))).is_drained
        instants = Counter(it.sent_at for it in cluster.transport.requests if "/eviction" in it.request.path)
        assert max(instants.values()) == 3
        assert len(instants) == 4


async def test_percent_never_decreases_and_reaches_100_only_at_the_end(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 10, on="n1", stop=lambda number: number / 2)
        running = cluster.start_drain(cluster.new_drain("n1"))
        await cluster.wait_until(
            lambda: cluster.progress_reports[-1:] != [] and cluster.progress_reports[-1].percent >= 50
        )
        for number in range(10):
            cluster.put(a_pod(f"late-{number}", on="n1"))
        assert (await running).is_drained
        percents = [it.percent for it in cluster.progress_reports]
        assert percents == sorted(percents)
        assert percents.count(100) == 1
        assert cluster.progress_reports[-1].total == 20


# Blockers


async def test_blocking_pdb_is_named_with_its_numbers_while_other_pods_leave(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=0))
        cluster.put(a_workload("StatefulSet", "cart", replicas=2))
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods(app="cart"))) == 2)
        await cluster.run_pods("web", 5, on="n1")
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: len(cluster.pods(on="n1")) == 2)
        active = drain.progress.blockers[0]
        assert active.blocker.object == "PodDisruptionBudget shop/cart"
        assert active.blocker.reason == "PodDisruptionBudget shop/cart needs 2 healthy pods and has 2"
        assert active.blocker.workload == "StatefulSet shop/cart"
        await clock.sleep(10 * MINUTE)
        assert not running.done()
        assert drain.progress.blockers[0].since == active.since
        evictions = len(cluster.evicted_pods())
        await clock.sleep(10 * MINUTE)
        assert len(cluster.evicted_pods()) - evictions <= 30
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=1))
        cluster.api.remove("statefulsets", "cart", SHOP)
        assert (await asyncio.wait_for(running, 120)).is_drained


async def test_max_unavailable_of_one_holds_over_three_drains(clock: Clock) -> None:
    """No more than one pod is unavailable at any revision, and it does not cost many requests."""
    async with a_drain_cluster(clock, "n1", "n2", "n3", "n4") as cluster:
        await cluster.cordon("n4")
        cluster.put(a_workload("Deployment", "cart", replicas=9, ready=3))
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods())) == 9)
        await cluster.cordon("n1", "n2", "n3")
        cluster.cluster.api.put(_schedulable(cluster.api.get("nodes", "n4")))
        from_revision = cluster.api.revision
        async with asyncio.TaskGroup() as group:
            drains = [group.create_task(cluster.drain(node)) for node in ("n1", "n2", "n3")]
        assert [it.result().result for it in drains] == [OutcomeResult.DRAINED] * 3
        assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {"n4"}
        for revision in range(from_revision, cluster.api.revision + 1):
            pods = cluster.api.objects("pods", revision=revision)
            assert sum(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods) >= 8
        assert len(cluster.evicted_pods()) <= 5 * 9


def _schedulable(node: RawObject) -> RawObject:
    spec = {key: value for key, value in node["spec"].items() if key not in ("unschedulable", "taints")}
    return {**node, "spec": spec}


async def test_pods_behind_a_pdb_leave_at_once_when_it_allows_disruptions(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        cluster.put(a_workload("StatefulSet", "cart", replicas=8, podManagementPolicy="Parallel"))
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=0))
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods())) == 8)
        await cluster.cordon("n1")
        running = cluster.start_drain(cluster.new_drain("n1"))
        await clock.sleep(5 * MINUTE)
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=8))
        took = await cluster.wait_until(running.done)
        assert running.result().is_drained
        assert took < 35
        assert not cluster.pods(on="n1")


async def test_pods_behind_a_pdb_follow_each_other_with_few_requests(clock: Clock) -> None:
    """Retrying each pod every five seconds would take twice as long and four times the requests."""
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.cordon("n2")
        cluster.put(a_workload("Deployment", "cart", replicas=10, ready=3))
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods(on="n1"))) == 10)
        cluster.api.put(_schedulable(cluster.api.get("nodes", "n2")))
        await cluster.cordon("n1")
        began = clock.monotonic()
        assert (await cluster.drain("n1")).is_drained
        assert clock.monotonic() - began < 10 * 3.2
        assert len(cluster.transport.requests) <= 3 * 10


async def test_evictions_are_retried_with_backoff_when_pdbs_cannot_be_watched(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        cluster.put(a_workload("StatefulSet", "cart", replicas=4, ready=2))
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods())) == 4)
        await cluster.cordon("n1")
        refusal = cluster.transport.faults.fail_before_effect(path="/poddisruptionbudgets", response=403, times=None)
        assert (await asyncio.wait_for(cluster.drain("n1"), 120)).is_drained
        assert refusal.hits == 1


async def test_deleted_pdb_unblocks_the_drain(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 3, on="n1")
        cluster.put(a_pdb("cart", app="cart", minAvailable=3))
        running = cluster.start_drain(cluster.new_drain("n1"))
        await clock.sleep(10 * MINUTE)
        cluster.api.remove("poddisruptionbudgets", "cart", SHOP)
        assert await cluster.wait_until(running.done) < 3


async def test_pdb_watch_is_reopened_after_it_broke(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 3, on="n1")
        cluster.put(a_pdb("cart", app="cart", minAvailable=3))
        broken = cluster.transport.faults.break_stream(path="/poddisruptionbudgets", after_lines=1, times=3)
        running = cluster.start_drain(cluster.new_drain("n1"))
        await clock.sleep(10 * MINUTE)
        assert broken.hits == 3
        cluster.put(a_pdb("cart", app="cart", minAvailable=0))
        assert await cluster.wait_until(running.done) < 3


async def test_pod_with_several_pdbs_is_reported_and_the_others_leave(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 1, on="n1")
        await cluster.run_pods("web", 3, on="n1")
        cluster.put(a_pdb("one", app="cart", minAvailable=0), a_pdb("two", app="cart", minAvailable=0))
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: cluster.pod_names(on="n1") == ["cart-00"])
        assert kinds(drain) == {BlockerKind.SEVERAL_DISRUPTION_BUDGETS: 1}
        cluster.api.remove("poddisruptionbudgets", "two", SHOP)
        assert (await asyncio.wait_for(running, 120)).is_drained


async def test_eviction_denied_by_a_webhook_is_retried_until_it_is_allowed(clock: Clock) -> None:
    """As KubeVirt does while it moves a virtual machine."""
    message = 'admission webhook "virt.example" denied the request: Eviction triggered evacuation of VMI "shop/vm"'
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("vm", 1, on="n1")
        refusal = cluster.transport.faults.fail_before_effect(
            method="POST", path="/eviction", times=4, response=_status(429, message)
        )
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: refusal.hits == 2)
        assert kinds(drain) == {BlockerKind.MIGRATION: 1}
        assert all(it.blocker.is_progress for it in drain.progress.blockers)
        assert (await asyncio.wait_for(running, 120)).is_drained


async def test_terminating_namespace_is_awaited(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        cause = {"reason": "NamespaceTerminating", "message": "namespace shop is being terminated"}
        refusal = _status(403, 'pods "web-00" is forbidden: unable to create new content', cause)
        cluster.transport.faults.fail_before_effect(method="POST", path="/eviction", times=None, response=refusal)
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await clock.sleep(MINUTE)
        assert kinds(drain) == {BlockerKind.NAMESPACE: 2}
        for name in cluster.pod_names():
            await cluster.cluster.client("namespaces").delete(PODS, name, namespace=SHOP)
        assert (await asyncio.wait_for(running, 60)).is_drained


async def test_finalizer_is_named_and_the_drain_ends_when_it_is_removed(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1", grace=5, meta={"finalizers": ["example.dev/hold"]})
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: kinds(drain) == {BlockerKind.FINALIZER: 1})
        assert [it.state for it in drain.progress.pods] == [PodDrainState.OVERDUE]
        await clock.sleep(5 * MINUTE)
        pod = cluster.api.get("pods", "web-00", SHOP)
        pod["metadata"]["finalizers"] = []
        cluster.api.put(pod)
        cluster.api.remove("pods", "web-00", SHOP)
        assert (await asyncio.wait_for(running, 10)).is_drained


async def test_dead_kubelet_is_reported_and_skip_wait_for_delete_gives_up_its_pods(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 3, on="n1", grace=10)
        cluster.cluster.kubelets.kill("n1")
        await clock.sleep(2 * MINUTE)
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: kinds(drain) == {BlockerKind.KUBELET: 3})
        assert "node n1 is not ready" in drain.progress.blockers[0].blocker.remedy
        before = len(cluster.transport.requests)
        await clock.sleep(10 * MINUTE)
        assert not running.done()
        assert len(cluster.transport.requests) - before < 40
        drain.set_policy(replace(NMO, filters=replace(NMO.filters, skip_wait_for_delete=MINUTE)))
        outcome = await asyncio.wait_for(running, 5)
        assert (outcome.result, outcome.progress.gone) == (OutcomeResult.DRAINED, 3)


# Recreated and late pods


async def test_pod_recreated_under_its_name_on_another_node_is_not_evicted(clock: Clock) -> None:
    """B01."""
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.cordon("n2")
        cluster.put(a_workload("StatefulSet", "cart", replicas=1))
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=0))
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods(on="n1"))) == 1)
        cluster.api.put(_schedulable(cluster.api.get("nodes", "n2")))
        await cluster.cordon("n1")
        running = cluster.start_drain(cluster.new_drain("n1"))
        await clock.sleep(12 * SECOND)
        await cluster.cluster.client("person").delete(PODS, "cart-0", namespace=SHOP)
        assert (await asyncio.wait_for(running, 60)).is_drained
        evictions = len(cluster.evicted_pods())
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await clock.sleep(5 * MINUTE)
        assert len(cluster.evicted_pods()) == evictions
        replacement = cluster.pods(on="n2")[0]
        assert is_ready(replacement)


async def test_late_request_does_not_evict_a_new_pod_of_the_same_name(clock: Clock) -> None:
    """D2: the server refuses it by the uid, which counts as gone."""
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("cart", 1, on="n1")
        cluster.transport.faults.delay(5 * SECOND, path="/eviction", times=1)
        running = cluster.start_drain(cluster.new_drain("n1"))
        await clock.sleep(SECOND)
        cluster.api.remove("pods", "cart-00", SHOP)
        await cluster.run_pods("cart", 1, on="n2")
        assert (await asyncio.wait_for(running, 30)).is_drained
        await clock.sleep(MINUTE)
        assert len(cluster.evicted_pods()) == 1
        assert [is_ready(pod) for pod in cluster.pods(on="n2")] == [True]


async def test_pods_that_keep_returning_are_reported_and_not_evicted_for_ever(clock: Clock) -> None:
    """D12."""
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        pinned: RawObject = {"nodeSelector": {"kubernetes.io/hostname": "n1"}, "tolerations": [{"operator": "Exists"}]}
        cluster.put(a_workload("Deployment", "agent", replicas=2, **pinned))
        await cluster.run_pods("web", 2, on="n1")
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods(app="agent"))) == 2)
        await cluster.cordon("n1")
        outcome = await asyncio.wait_for(cluster.drain("n1"), 120)
        assert outcome.is_drained
        assert len(outcome.progress.returning) == 2
        assert "these pods were recreated on the node" in outcome.message
        agents = [name for name in cluster.evicted_pods() if name.startswith("agent")]
        assert len(agents) <= 4
        assert len(agents) == len(set(agents))


async def test_pod_created_during_the_drain_is_evicted(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 2, on="n1", stop=3)
        running = cluster.start_drain(cluster.new_drain("n1"))
        await clock.sleep(2 * SECOND)
        cluster.put(a_pod("late", on="n1", stop=10))
        outcome = await running
        assert (outcome.result, outcome.progress.gone) == (OutcomeResult.DRAINED, 3)
        assert cluster.pod_names() == []


async def test_finished_pods_are_deleted_and_static_pods_stay(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        done = a_pod("done", on="n1")
        done["status"] = {"phase": "Succeeded"}
        static = a_pod("static", on="n1", meta={"annotations": {"kubernetes.io/config.mirror": "x"}})
        static["status"] = {"phase": "Running"}
        cluster.cluster.pause("kubelets")
        cluster.put(done, static)
        assert (await cluster.drain("n1", DrainPolicy())).is_drained
        assert cluster.pod_names() == ["static"]


async def test_drain_ends_when_its_node_is_deleted(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 3, on="n1", stop=600, grace=600)
        running = cluster.start_drain(cluster.new_drain("n1"))
        await clock.sleep(5 * SECOND)
        await cluster.cluster.kubelets.remove("n1")
        if cluster.api.has("nodes", "n1"):
            cluster.api.remove("nodes", "n1")
        assert (await asyncio.wait_for(running, 300)).is_drained
        assert cluster.pod_names(on="n1") == []


# Policy


async def test_refusal_of_the_policy_is_reported_before_any_eviction(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(a_workload("Deployment", "cart", replicas=2))
        await cluster.run_pods("bare", 1, on="n1")
        await cluster.wait_until(lambda: len(cluster.pods(on="n1")) == 3)
        outcome = await cluster.drain("n1", DrainPolicy())
        assert outcome.result is OutcomeResult.REFUSED
        assert outcome.problems == (
            "cannot delete Pods that declare no controller (use --force to override): shop/bare-00",
        )
        assert cluster.evicted_pods() == []


async def test_daemon_set_pods_stay_and_each_daemon_set_is_read_once(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        daemon_set = a_workload("DaemonSet", "agent", replicas=1)
        del daemon_set["spec"]["replicas"]
        cluster.put(daemon_set)
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods(app="agent"))) == 1)
        await cluster.run_pods("web", 2, on="n1")
        outcome = await cluster.drain("n1")
        assert outcome.is_drained
        assert outcome.progress.warning.startswith("ignoring DaemonSet-managed Pods: shop/agent-")
        assert [name[:5] for name in cluster.pod_names()] == ["agent"]
        assert len(cluster.transport.sent_requests(path="/daemonsets/")) == 1


async def test_daemon_set_that_cannot_be_read_blocks_only_its_own_pod(clock: Clock) -> None:
    """B04."""
    async with a_drain_cluster(clock, "n1") as cluster:
        daemon_set = a_workload("DaemonSet", "agent", replicas=1)
        del daemon_set["spec"]["replicas"]
        cluster.put(daemon_set)
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods(app="agent"))) == 1)
        await cluster.run_pods("web", 3, on="n1")
        cluster.transport.faults.fail_before_effect(path="/daemonsets/", response=500, times=12)
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: len(cluster.pods(on="n1")) == 1)
        assert not running.done()
        assert kinds(drain) == {BlockerKind.API: 1}
        assert (await asyncio.wait_for(running, 120)).is_drained


async def test_pods_leave_in_the_order_of_rules_and_priorities(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 2, on="n1", stop=2)
        await cluster.run_pods("vital", 2, on="n1", stop=2, priority=1000)
        await cluster.run_pods("store", 2, on="n1", stop=2)
        rules = (DrainRule(name="stores", pods=parse("app=store"), order=10),)
        policy = replace(NMO, rules=rules, order=DrainOrder(by_priority=True))
        drain = cluster.new_drain("n1", policy)
        running = cluster.start_drain(drain)
        await clock.sleep(SECOND)
        queued = [it.message for it in drain.progress.pods if it.state is PodDrainState.QUEUED]
        assert queued == ["waiting for earlier pods to leave: order 0"] * 4
        assert (await running).is_drained
        assert [name[:3] for name in cluster.evicted_pods()] == ["web", "web", "vit", "vit", "sto", "sto"]
        deleted = [it for it in cluster.api.history if it.after is None and "/pods/" in it.path]
        assert [it.path.rpartition("/")[2][:3] for it in deleted] == ["web", "web", "vit", "vit", "sto", "sto"]


async def test_drain_rule_keeps_pods_or_waits_for_their_completion(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("kept", 1, on="n1")
        await cluster.run_pods("batch", 1, on="n1", behaviour={"run-seconds": "300"}, restartPolicy="Never")
        await cluster.run_pods("web", 1, on="n1")
        rules = (
            DrainRule(name="a", pods=parse("app=kept"), behavior=Behavior.SKIP),
            DrainRule(name="b", pods=parse("app=batch"), behavior=Behavior.WAIT_COMPLETED),
        )
        drain = cluster.new_drain("n1", replace(NMO, rules=rules))
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: not cluster.pod_names(app="web"))
        assert [it.state for it in drain.progress.pods] == [PodDrainState.FINISHING]
        await clock.sleep(2 * MINUTE)
        assert not running.done()
        outcome = await asyncio.wait_for(running, 300)
        assert (outcome.result, outcome.progress.gone) == (OutcomeResult.DRAINED, 2)
        assert cluster.evicted_pods() == ["web-00"]
        assert sorted(cluster.pod_names()) == ["batch-00", "kept-00"]


async def test_wait_completed_timeout_starts_with_the_drain(clock: Clock) -> None:
    """No end is shown before the drain starts. A successor does not restart the timeout."""
    rule = DrainRule(
        name="b", pods=parse("app=batch"), behavior=Behavior.WAIT_COMPLETED, wait_completed_timeout=5 * MINUTE
    )
    policy = replace(NMO, rules=(rule,))
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("batch", 1, on="n1")
        drain = cluster.new_drain("n1", policy, waiting=True)
        running = cluster.start_drain(drain)
        await clock.sleep(6 * MINUTE)
        (waiting,) = drain.progress.blockers
        assert "evicted" not in waiting.blocker.reason
        drain.begin()
        await clock.sleep(MINUTE)
        (limited,) = drain.progress.blockers
        assert limited.blocker.reason.endswith(f"at {clock.now() + 4 * MINUTE:%Y-%m-%d %H:%M:%S} UTC if it has not")
        drain.stop(hands_over=True)
        checkpoint = (await running).progress.checkpoint
        assert cluster.evicted_pods() == []
        began = clock.monotonic()
        assert (await cluster.drain("n1", policy, checkpoint=checkpoint)).is_drained
        assert 4 * 60 <= clock.monotonic() - began <= 4 * 60 + 2
        assert cluster.evicted_pods() == ["batch-00"]


async def test_drain_rule_selects_pods_by_namespace_labels(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        namespace = cluster.api.get("namespaces", SHOP)
        namespace["metadata"]["labels"] = {"tier": "calm"}
        cluster.put(namespace)
        keep = DrainRule(name="calm", namespace_selector=parse("tier=calm"), behavior=Behavior.SKIP)
        assert (await cluster.drain("n1", replace(NMO, rules=(keep,)))).is_drained
        assert len(cluster.pod_names(on="n1")) == 2
        assert len(cluster.transport.sent_requests(path="/namespaces/shop")) == 1


async def test_blocked_pod_is_deleted_and_hanging_pod_force_deleted_on_time(clock: Clock) -> None:
    policy = replace(
        NMO, eviction_timeout=10 * MINUTE, deletion_timeout=5 * MINUTE, force_delete=True, timeout=30 * MINUTE
    )
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 1, on="n1", stop=1, grace=60)
        cluster.put(a_pdb("cart", app="cart", minAvailable=1))
        await cluster.run_pods("hang", 1, on="n1", behaviour={"hang": "true"}, grace=20)
        requested: list[tuple[str, str]] = []
        drain = cluster.new_drain("n1", policy, on_pod_requested=lambda pod, step: requested.append((pod.name, step)))
        running = cluster.start_drain(drain)
        began = clock.now()
        assert (await running).is_drained
        assert len(cluster.evicted_pods()) > 10
        # Each pod is reported once per step, although the request is retried.
        assert requested == [
            ("cart-00", "evict"),
            ("hang-00", "evict"),
            ("hang-00", "force-delete"),
            ("cart-00", "delete"),
        ]
        gone = {it.path.rpartition("/")[2]: it.written_at - began for it in cluster.api.history if it.after is None}
        assert timedelta(minutes=5) <= gone["hang-00"] < timedelta(minutes=5, seconds=2)
        assert timedelta(minutes=10) <= gone["cart-00"] < timedelta(minutes=10, seconds=3)


async def test_drain_times_out_without_deletions_when_the_policy_allows_none(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 1, on="n1")
        cluster.put(a_pdb("cart", app="cart", minAvailable=1))
        await cluster.run_pods("hang", 1, on="n1", behaviour={"hang": "true"}, grace=20)
        began = clock.monotonic()
        outcome = await cluster.drain("n1", replace(NMO, timeout=15 * MINUTE))
        assert clock.monotonic() - began == pytest.approx(900, abs=0.1)
        assert outcome.result is OutcomeResult.TIMED_OUT
        assert "not drained within 15m0s, 2 pods left: " in outcome.message
        assert "PodDisruptionBudget shop/cart needs 1 healthy pods" in outcome.message
        assert cluster.transport.sent_requests(method="DELETE") == []


async def test_pod_is_deleted_early_enough_for_its_grace_period_before_the_timeout(clock: Clock) -> None:
    policy = replace(NMO, eviction_timeout=9 * MINUTE, timeout=10 * MINUTE)
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 1, on="n1", stop=299, grace=300)
        cluster.put(a_pdb("cart", app="cart", minAvailable=1))
        assert (await cluster.drain("n1", policy)).is_drained


async def test_grace_period_of_the_policy_overrides_that_of_the_pod(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 2, on="n1", stop=100, grace=100)
        began = clock.monotonic()
        assert (await cluster.drain("n1", replace(NMO, grace_period=5 * SECOND))).is_drained
        assert clock.monotonic() - began < 8


@pytest.mark.parametrize("how", ["disabled", "absent"])
async def test_pods_are_deleted_despite_their_pdb_when_eviction_is_disabled_or_absent(clock: Clock, how: str) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 3, on="n1")
        cluster.put(a_pdb("cart", app="cart", minAvailable=3))
        if how == "absent":
            nothing = _answer(200, {"kind": "APIResourceList", "resources": [{"name": "pods", "kind": "Pod"}]})
            cluster.transport.faults.fail_before_effect(
                method="GET", where=lambda it: it.path == "/api/v1", response=nothing
            )
        policy = replace(NMO, disable_eviction=how == "disabled")
        assert (await asyncio.wait_for(cluster.drain("n1", policy), 10)).is_drained
        assert cluster.evicted_pods() == []
        assert len(cluster.transport.sent_requests(method="DELETE")) == 3


async def test_old_server_gets_evictions_of_policy_v1beta1(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 1, on="n1")
        eviction = {"name": "pods/eviction", "kind": "Eviction", "group": "policy", "version": "v1beta1"}
        old = _answer(200, {"kind": "APIResourceList", "resources": [eviction]})
        cluster.transport.faults.fail_before_effect(method="GET", where=lambda it: it.path == "/api/v1", response=old)
        running = cluster.start_drain(cluster.new_drain("n1"))
        await cluster.wait_until(lambda: bool(cluster.evicted_pods()))
        assert b'"policy/v1beta1"' in (cluster.transport.sent_requests(path="/eviction")[0].body or b"")
        running.cancel()


# Cancellation, crashes and shared limits


async def test_stopped_drain_sends_no_more_evictions(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 20, on="n1", stop=30)
        cluster.transport.faults.delay(SECOND, method="POST", path="/eviction", times=None)
        drain = cluster.new_drain("n1", replace(NMO, parallel=4))
        running = cluster.start_drain(drain)
        await clock.sleep(2.5 * SECOND)
        drain.stop()
        evictions = len(cluster.evicted_pods())
        outcome = await asyncio.wait_for(running, 1.5)
        assert outcome.result is OutcomeResult.CANCELLED
        assert outcome.progress.leaving == evictions == 12
        await clock.sleep(MINUTE)
        assert len(cluster.evicted_pods()) == evictions


async def test_cancelled_drain_leaves_no_task_behind(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 5, on="n1")
        cluster.transport.faults.hang(method="POST", path="/eviction", times=None)
        before = asyncio.all_tasks()
        running = cluster.start_drain(cluster.new_drain("n1"))
        await clock.sleep(SECOND)
        running.cancel()
        await asyncio.wait([running], timeout=0.001)
        assert asyncio.all_tasks() <= before


async def test_set_policy_takes_effect_at_once(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 1, on="n1")
        cluster.put(a_pdb("cart", app="cart", minAvailable=1))
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await clock.sleep(20 * MINUTE)
        assert not running.done()
        drain.set_policy(replace(NMO, eviction_timeout=10 * MINUTE))
        assert (await asyncio.wait_for(running, 3)).is_drained


async def test_resumed_drain_continues_the_escalation_of_its_predecessor(clock: Clock) -> None:
    policy = replace(NMO, eviction_timeout=10 * MINUTE)
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 1, on="n1")
        await cluster.run_pods("web", 3, on="n1")
        cluster.put(a_pdb("cart", app="cart", minAvailable=1))
        began = clock.monotonic()
        first = cluster.start_drain(cluster.new_drain("n1", policy))
        await clock.sleep(6 * MINUTE)
        first.cancel()
        checkpoint = cluster.progress_reports[-1].checkpoint
        assert (checkpoint.gone, checkpoint.percent) == (3, 75)
        await clock.sleep(MINUTE)
        outcome = await cluster.drain("n1", policy, checkpoint=checkpoint)
        assert outcome.is_drained
        assert clock.monotonic() - began == pytest.approx(602, abs=2)
        assert outcome.progress.gone == 4
        percents = [it.percent for it in cluster.progress_reports]
        assert percents == sorted(percents)


@pytest.mark.parametrize("crash", range(1, 10))
async def test_drain_that_crashed_after_any_request_is_finished_by_its_successor(clock: Clock, crash: int) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 5, on="n1", stop=2)
        first = cluster.start_drain(cluster.new_drain("n1", replace(NMO, parallel=1)))
        await cluster.wait_until(lambda: len(cluster.transport.requests) >= crash or first.done())
        first.cancel()
        await asyncio.wait([first])
        checkpoint = cluster.progress_reports[-1].checkpoint if cluster.progress_reports else None
        outcome = await asyncio.wait_for(cluster.drain("n1", checkpoint=checkpoint), 60)
        assert outcome.is_drained
        assert cluster.pod_names() == []
        assert len(cluster.evicted_pods()) <= 6


async def test_drain_stops_with_leadership_lost(clock: Clock) -> None:
    def may_write() -> None:
        if clock.monotonic() > deposed_at:
            raise LeadershipLost("somebody else leads")

    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 5, on="n1")
        cluster.put(a_pdb("web", app="web", minAvailable=4))
        deposed_at = clock.monotonic() + 2
        before = asyncio.all_tasks()
        with pytest.raises(LeadershipLost):
            await Drainer(cluster.client.with_fence(may_write), "n1", NMO).run()
        more = asyncio.all_tasks() - before
        assert [task for task in more if not task.get_name().startswith("sandbox ")] == []  # tasks of the sandbox
        assert len(cluster.pod_names()) == 4


async def test_max_in_flight_limits_all_drains_of_a_process_together(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as cluster:
        for node in ("n1", "n2", "n3"):
            await cluster.run_pods(f"on-{node}", 4, on=node, stop=0)
        cluster.transport.faults.delay(SECOND, method="POST", path="/eviction", times=None)
        eviction_client = EvictionClient(cluster.client, max_in_flight=2)
        drains = [
            cluster.start_drain(cluster.new_drain(node, eviction_client=eviction_client)) for node in ("n1", "n2", "n3")
        ]
        await asyncio.wait(drains)
        instants = Counter(it.sent_at for it in cluster.transport.requests if "/eviction" in it.request.path)
        assert max(instants.values()) == 2
        assert [it.path for it in cluster.transport.sent_requests(method="GET")].count("/api/v1") == 1


async def test_queued_request_is_not_sent_after_a_stop(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 5, on="n1", stop=30)
        cluster.transport.faults.delay(SECOND, method="POST", path="/eviction", times=None)
        drain = cluster.new_drain("n1", eviction_client=EvictionClient(cluster.client, max_in_flight=1))
        running = cluster.start_drain(drain)
        await clock.sleep(1.5 * SECOND)
        drain.stop()
        outcome = await asyncio.wait_for(running, 2)
        assert (outcome.result, len(cluster.evicted_pods()), outcome.progress.leaving) == (
            OutcomeResult.CANCELLED,
            2,
            2,
        )


# Faults between the drain and the API server


STEPS = {
    "evictions fail": lambda cluster: cluster.transport.faults.fail_before_effect(
        path="/eviction", response=500, times=5
    ),
    "evictions are throttled": lambda cluster: cluster.transport.faults.fail_before_effect(
        path="/eviction", response=429, retry_after=2, times=5
    ),
    "evictions work but nobody hears": lambda cluster: cluster.transport.faults.fail_after_effect(
        path="/eviction", times=5
    ),
    "no answer": lambda cluster: cluster.transport.faults.hang(path="/eviction", times=2),
    "no answer but an effect": lambda cluster: cluster.transport.faults.hang(
        path="/eviction", takes_effect=True, times=2
    ),
    "discovery fails": lambda cluster: cluster.transport.faults.fail_before_effect(
        method="GET", where=lambda it: it.path == "/api/v1", response=503, times=6
    ),
    "the list fails": lambda cluster: cluster.transport.faults.fail_before_effect(
        method="GET", where=lambda it: it.path == "/api/v1/pods" and ("limit", "500") in it.query, response=500, times=6
    ),
    "the watch cannot begin": lambda cluster: cluster.transport.faults.fail_before_effect(
        method="GET", where=lambda it: ("watch", "true") in it.query, response=503, times=3
    ),
    "the watch breaks": lambda cluster: cluster.transport.faults.break_stream(path="/pods", after_lines=8, times=1),
    "events are repeated": lambda cluster: cluster.transport.faults.duplicate(path="/pods", times=None),
    "events are late": lambda cluster: cluster.transport.faults.delay_event(
        timedelta(seconds=3), path="/pods", skip=5, times=5
    ),
    "events are swapped": lambda cluster: cluster.transport.faults.reorder(path="/pods", skip=5, times=2),
}


@pytest.mark.parametrize("trouble", STEPS)
async def test_fault_delays_a_drain_but_does_not_end_it(clock: Clock, trouble: str) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 5, on="n1", grace=20)
        rule = STEPS[trouble](cluster)
        outcome = await asyncio.wait_for(cluster.drain("n1"), 600)
        assert outcome.is_drained
        assert cluster.pod_names(on="n1") == []
        assert rule.hits
        assert len(cluster.transport.requests) < 60


@pytest.mark.parametrize("lost", range(20))
async def test_lost_watch_event_delays_a_drain_but_does_not_mislead_it(clock: Clock, lost: int) -> None:
    """The first six lines are the initial list, its end included."""
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 5, on="n1", grace=20)
        cluster.transport.faults.drop(path="/pods", skip=lost, times=1)
        outcome = await asyncio.wait_for(cluster.drain("n1"), 900)
        assert outcome.is_drained
        assert cluster.pod_names(on="n1") == []


async def test_hanging_request_does_not_delay_the_end_once_its_pod_is_gone(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 3, on="n1", stop=1)
        cluster.transport.faults.hang(path="/eviction", takes_effect=True, times=1)
        assert (await asyncio.wait_for(cluster.drain("n1"), 3)).is_drained


async def test_pod_with_a_missed_watch_event_is_found_by_the_last_list(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1", stop=2)
        running = cluster.start_drain(cluster.new_drain("n1"))
        await clock.sleep(SECOND)
        loss = cluster.transport.faults.drop(path="/pods", where=lambda it: ("watch", "true") in it.query, times=4)
        cluster.put(a_pod("missed", on="n1"))
        await cluster.wait_until(lambda: loss.hits >= 1)
        cluster.transport.faults.clear()
        assert (await asyncio.wait_for(running, 120)).is_drained
        assert cluster.pod_names() == []


def isolated_clock(cluster: DrainCluster) -> tuple[VirtualClock, Client]:
    """Return a client for the drain with its own clock, and that clock."""
    clock = VirtualClock(cluster.clock.now() - timedelta(seconds=cluster.clock.monotonic()))
    return clock, Client(cluster.transport, clock=clock, random=cluster.client.random)


@pytest.mark.parametrize("by", [3 * HOUR, -3 * HOUR], ids=str)
async def test_drain_keeps_backoff_and_timeout_when_the_wall_clock_jumps(clock: Clock, by: timedelta) -> None:
    """The PodDisruptionBudget cannot be watched here, so the eviction is retried with backoff."""
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        cluster.put(a_pdb("web", app="web", minAvailable=1))
        cluster.transport.faults.fail_before_effect(path="/poddisruptionbudgets", response=403, times=None)
        wall, client = isolated_clock(cluster)
        running = cluster.start_drain(drain := Drainer(client, "n1", replace(NMO, timeout=HOUR)))
        await cluster.wait_until(lambda: kinds(drain) == {BlockerKind.DISRUPTION_BUDGET: 1})
        for step in (by, -by):
            wall.move_wall_clock(step)
            evictions = len(cluster.evicted_pods())
            await clock.sleep(2 * MINUTE)
            assert 2 <= len(cluster.evicted_pods()) - evictions <= 30
            assert (running.done(), drain.progress.deadline) == (False, drain.progress.started + HOUR)
        cluster.api.remove("poddisruptionbudgets", "web", SHOP)
        assert (await asyncio.wait_for(running, 60)).is_drained


@pytest.mark.parametrize("by", [3 * HOUR, -3 * HOUR], ids=str)
async def test_failed_list_is_retried_although_the_wall_clock_jumped(clock: Clock, by: timedelta) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        rule = cluster.transport.faults.fail_before_effect(
            where=lambda it: ("limit", "500") in it.query, response=500, times=None
        )
        wall, client = isolated_clock(cluster)
        running = cluster.start_drain(Drainer(client, "n1", NMO))
        wall.move_wall_clock(by)
        await clock.sleep(2 * MINUTE)
        assert 8 <= rule.hits <= 40
        wall.move_wall_clock(-by)
        cluster.transport.faults.remove(rule)
        assert (await asyncio.wait_for(running, 60)).is_drained


async def test_timeout_that_passes_during_a_decision_ends_the_drain(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        cluster.put(a_pdb("web", app="web", minAvailable=1))
        wall, client = isolated_clock(cluster)
        running = cluster.start_drain(drain := Drainer(client, "n1", replace(NMO, timeout=50 * SECOND)))
        await cluster.wait_until(lambda: kinds(drain) == {BlockerKind.DISRUPTION_BUDGET: 1})
        act = drain._act

        def act_slowly(plan: DrainDecision) -> None:
            wall.move_wall_clock(SECOND / 500)
            act(plan)

        await clock.sleep(drain.progress.started + 50 * SECOND - SECOND / 1000 - wall.now())
        monkeypatch.setattr(drain, "_act", act_slowly)
        drain.set_policy(replace(NMO, timeout=50 * SECOND))
        assert (await asyncio.wait_for(running, 3)).result is OutcomeResult.TIMED_OUT


async def test_start_time_in_a_checkpoint_is_not_moved_when_the_wall_clock_is_corrected(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        cluster.put(a_pdb("web", app="web", minAvailable=1))
        wall, client = isolated_clock(cluster)
        wall.move_wall_clock(HOUR)  # from the beginning
        began = clock.now()
        cluster.start_drain(drain := Drainer(client, "n1", NMO, checkpoint=Checkpoint(started=began)))
        await cluster.wait_until(lambda: kinds(drain) == {BlockerKind.DISRUPTION_BUDGET: 1})
        wall.move_wall_clock(-HOUR)
        await clock.sleep(2 * MINUTE)
        (active,) = drain.progress.blockers
        assert drain.progress.started == began
        assert began <= active.since <= began + SECOND


async def test_unreachable_api_server_is_awaited_with_backoff(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 20, on="n1")
        drain = cluster.new_drain("n1")
        cluster.transport.cut()
        running = cluster.start_drain(drain)
        await clock.sleep(10 * MINUTE)
        assert drain.progress.stale_reason
        assert len(cluster.transport.requests) < 60
        cluster.transport.mend()
        assert (await asyncio.wait_for(running, 60)).is_drained


async def test_missing_permission_is_reported_and_retried_with_backoff(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 20, on="n1")
        cluster.transport.faults.fail_before_effect(path="/eviction", response=403, times=None)
        drain = cluster.new_drain("n1")
        running = cluster.start_drain(drain)
        await clock.sleep(10 * MINUTE)
        assert kinds(drain) == {BlockerKind.PERMISSION: 20}
        assert len(cluster.transport.requests) < 100
        cluster.transport.faults.clear()
        assert (await asyncio.wait_for(running, 60)).is_drained


async def test_each_eviction_request_has_the_uid_of_one_pod(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        uids = {pod["metadata"]["uid"].encode() for pod in cluster.pods()}
        assert (await cluster.drain("n1")).is_drained
        bodies = [it.body or b"" for it in cluster.transport.sent_requests(path="/eviction")]
        assert len(bodies) == 2
        assert all(any(b'"preconditions":{"uid":"' + uid in body for uid in uids) for body in bodies)


# Waiting and keep_running drains


async def test_waiting_drain_observes_pods_and_evicts_none(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 3, on="n1")
        drain = cluster.new_drain("n1", replace(NMO, timeout=MINUTE), waiting=True)
        running = cluster.start_drain(drain)
        await clock.sleep(5 * MINUTE)
        assert [(pod.state, pod.turn_since) for pod in drain.progress.pods] == [(PodDrainState.QUEUED, None)] * 3
        assert (drain.progress.total, drain.progress.percent, drain.progress.deadline) == (3, 0, None)
        assert cluster.evicted_pods() == []
        report_count = len(cluster.progress_reports)
        await clock.sleep(5 * MINUTE)
        assert len(cluster.progress_reports) == report_count
        drain.begin()
        assert (await asyncio.wait_for(running, 30)).is_drained
        assert drain.progress.started >= clock.now() - 30 * SECOND


async def test_empty_node_is_not_drained_before_the_drain_begins(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        drain = cluster.new_drain("n1", waiting=True)
        running = cluster.start_drain(drain)
        await clock.sleep(MINUTE)
        assert not running.done()
        drain.begin()
        assert (await asyncio.wait_for(running, 30)).is_drained


async def test_keep_running_drain_evicts_pods_that_come_later(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        drain = cluster.new_drain("n1", replace(NMO, timeout=MINUTE), keep_running=True)
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: drain.outcome is not None)
        assert drain.progress.percent == 100
        report_count, request_count = len(cluster.progress_reports), len(cluster.transport.requests)
        await clock.sleep(60 * MINUTE)
        assert (len(cluster.progress_reports), len(cluster.transport.requests) - request_count < 20) == (
            report_count,
            True,
        )
        cluster.put(a_pod("late", on="n1", stop=5))
        await cluster.wait_until(lambda: drain.outcome is None)
        assert drain.progress.percent < 100
        await cluster.wait_until(lambda: drain.outcome is not None)
        assert (cluster.pod_names(on="n1"), running.done()) == ([], False)


async def test_late_pod_has_the_full_timeout(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        drain = cluster.new_drain("n1", replace(NMO, timeout=MINUTE), keep_running=True)
        running = cluster.start_drain(drain)
        await clock.sleep(10 * MINUTE)
        cluster.put(a_pdb("web", app="web", maxUnavailable=0))
        await cluster.run_pods("web", 1, on="n1")
        await clock.sleep(50 * SECOND)
        assert not running.done()
        assert (await asyncio.wait_for(running, 30)).result is OutcomeResult.TIMED_OUT


async def test_keep_running_drain_does_not_evict_returning_pods_for_ever(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(a_workload("Deployment", "web", replicas=1, nodeName="n1"))
        await cluster.wait_until(lambda: [is_ready(pod) for pod in cluster.pods(on="n1")] == [True])
        drain = cluster.new_drain("n1", keep_running=True)
        cluster.start_drain(drain)
        await cluster.wait_until(lambda: drain.outcome is not None)
        evictions = len(cluster.evicted_pods())
        assert len(drain.progress.returning) == 1
        await clock.sleep(60 * MINUTE)
        assert len(cluster.evicted_pods()) == evictions


async def test_drain_without_a_node_name_is_refused(clock: Clock) -> None:
    """Its field selector would match all pods that are not scheduled yet."""
    with pytest.raises(ValueError, match="name of a node"):
        Drainer(Cluster(clock).client(DRAINER), "", NMO)


def _answer(code: int, body: RawObject) -> Response:
    return Response(code, {"content-type": "application/json"}, msgspec.json.encode(body))


def _status(code: int, message: str, *causes: RawObject) -> Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message, "details": {"causes": causes}}
    return _answer(code, body)
