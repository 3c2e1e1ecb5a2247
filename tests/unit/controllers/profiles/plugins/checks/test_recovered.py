"""The check recovered."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.api.workloads import EvictedWorkload
from haulout.controllers.profiles.plugin import CheckResult
from haulout.controllers.profiles.plugins.checks.recovered import Recovered
from haulout.controllers.profiles.view import topics
from support.builders.objects import NodeObject, a_node, a_pod
from support.fakes.cluster_view import MINUTE, NOW, FakeClusterView

CHECK = Recovered(ready_for=5 * MINUTE)


def node(status: str = "True", *, since: datetime | None = NOW - 10 * MINUTE, **more: Any) -> NodeObject:
    condition = {"type": "Ready", "status": status, "message": "kubelet says so"}
    condition |= {"lastTransitionTime": since.isoformat()} if since else {}
    return a_node("n1", **more).with_status(conditions=[condition])


def agents(name: str = "agent", **template: Any) -> RawObject:
    metadata = {"name": name, "namespace": "ops", "uid": f"uid-of-{name}"}
    return {"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": metadata} | {
        "spec": {"template": {"spec": template}}
    }


def only_on(name: str) -> RawObject:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def agent(*, ready: bool = True, of: str = "agent") -> RawObject:
    return a_pod(f"ops/{of}-x", on="n1", owner=f"DaemonSet/{of}").running(ready=ready)


def evaluate(of: RawObject, check: Recovered = CHECK, now: datetime = NOW, **known: Any) -> CheckResult:
    return check.evaluate(FakeClusterView(of, **known).plugin_context(now=now))


# The node


def test_node_ready_for_long_enough_has_recovered() -> None:
    result = evaluate(node())
    assert result.passed
    assert result.reason == "node n1 has recovered"


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_unready_node_has_not_recovered(status: str) -> None:
    assert evaluate(node(status)).reason == "node n1 is not Ready (kubelet says so)"


def test_check_passes_exactly_at_its_requeue_time() -> None:
    result = evaluate(node(since=NOW - MINUTE))
    assert result.passed is False
    assert result.reason == "node n1 must stay Ready for 4m0s more, until 2024-05-01 10:04:00 UTC"
    assert result.info == {"remaining_seconds": 240.0}
    assert result.requeue_at == NOW + 4 * MINUTE
    assert evaluate(node(since=NOW - MINUTE), now=result.requeue_at).passed
    assert evaluate(node(since=NOW - MINUTE), now=result.requeue_at - timedelta(microseconds=1)).passed is False


def test_node_without_a_ready_condition_is_unknown() -> None:
    assert evaluate(a_node("n1")).passed is None
    assert evaluate(node(since=None)).passed is None
    assert evaluate(node(since=None), Recovered()).passed


# Its DaemonSets


@pytest.mark.parametrize("pods", [[], [agent(ready=False)], [agent(of="other")]])
def test_each_daemon_set_must_have_a_ready_pod(pods: list[RawObject]) -> None:
    result = evaluate(node(), daemon_sets=[agents()], pods=pods)
    assert result.passed is False
    assert result.reason == "no pod is ready on node n1 of DaemonSet ops/agent"
    assert result.info == {"daemonSets": ["ops/agent"]}
    assert evaluate(node(), Recovered(daemon_sets=False), daemon_sets=[agents()], pods=pods).passed


def test_terminating_pod_does_not_count_but_another_one_does() -> None:
    going = agent()
    going = {**going, "metadata": {**going["metadata"], "name": "old", "deletionTimestamp": "2024-05-01T10:00:00Z"}}
    assert evaluate(node(), daemon_sets=[agents()], pods=[going]).passed is False
    assert evaluate(node(), daemon_sets=[agents()], pods=[going, agent()]).passed


@pytest.mark.parametrize(
    "daemon_set",
    [
        agents(nodeSelector={"gpu": "yes"}),
        agents(nodeName="n2"),
        agents(affinity=only_on("n2")),
    ],
)
def test_daemon_set_that_does_not_select_the_node_is_ignored(daemon_set: RawObject) -> None:
    assert evaluate(node(), daemon_sets=[daemon_set]).passed


def test_taints_are_considered_like_in_the_daemon_set_controller() -> None:
    assert evaluate(node().tainted("gpu"), daemon_sets=[agents()]).passed
    assert evaluate(node().tainted("gpu"), daemon_sets=[agents(tolerations=[{"operator": "Exists"}])]).passed is False
    assert evaluate(node().cordoned(), daemon_sets=[agents()]).passed is False
    assert evaluate(node().tainted("node.kubernetes.io/not-ready", "NoExecute"), daemon_sets=[agents()]).passed is False
    no_network = node().tainted("node.kubernetes.io/network-unavailable")
    assert evaluate(no_network, daemon_sets=[agents()]).passed
    assert evaluate(no_network, daemon_sets=[agents(hostNetwork=True)]).passed is False


def test_terminating_daemon_set_is_ignored() -> None:
    going = agents()
    going["metadata"]["deletionTimestamp"] = "2024-05-01T10:00:00Z"
    assert evaluate(node(), daemon_sets=[going]).passed


# What was evicted


@pytest.mark.parametrize(
    ("wanted", "available", "before", "passed"),
    [(3, 3, 3, True), (3, 2, 3, False), (3, 2, 2, True), (1, 1, 3, True), (0, 0, 3, True), (3, 1, 2, False)],
)
def test_evicted_workloads_must_be_as_available_as_before(
    wanted: int, available: int, before: int, *, passed: bool
) -> None:
    """Workloads that were degraded before, or scaled down meanwhile, are not awaited."""
    cart = EvictedWorkload(name="Deployment shop/cart", desired=wanted, available=available, available_before=before)
    check = Recovered(workloads=True)
    result = evaluate(node(), check, evicted={"n1": [cart]})
    assert result.passed is passed
    assert evaluate(node(), Recovered(), evicted={"n1": [cart]}).passed
    if not passed:
        short = f"Deployment shop/cart ({available} of {min(wanted, before)})"
        assert result.reason == f"evicted from node n1 and not fully available again: {short}"


def test_topics_cover_all_changes_that_affect_the_result() -> None:
    assert Recovered().topics("n1") == (topics.pods("n1"), topics.DAEMON_SETS)
    assert Recovered(daemon_sets=False, workloads=True).topics("n1") == (topics.pods("n1"), topics.evicted("n1"))
