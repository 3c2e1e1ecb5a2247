"""The drain policy for one pod."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Pod
from haulout.drain.drain_order import OrderKey, order_key_of
from haulout.drain.escalation import EscalationLimits
from haulout.drain.pod_filters import PodFilters
from haulout.drain.policy import DEFAULT_RULE, Behavior, DrainOrder, DrainPolicy, DrainRule
from haulout.kube.selectors import parse

MINUTE = timedelta(minutes=1)


def a_pod(*, app: str = "cart", namespace: str = "shop", kind: str = "ReplicaSet", **spec: Any) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": app, "uid": "u", "controller": True}
    meta = {"name": app, "namespace": namespace, "labels": {"app": app}, "ownerReferences": [owner]}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


RULES = (
    DrainRule(name="b", pods=parse("app=cart"), order=2),
    DrainRule(name="a", namespaces=("shop",), pods=parse("app in (cart,web)"), order=1),
    DrainRule(name="c", namespace_selector=parse("tier=batch"), behavior=Behavior.WAIT_COMPLETED),
)


@pytest.mark.parametrize(
    ("pod", "labels", "rule"),
    [
        (a_pod(), {}, "a"),
        (a_pod(namespace="other"), {}, "b"),
        (a_pod(app="web", namespace="other"), {}, ""),
        (a_pod(app="web", namespace="other"), {"tier": "batch"}, "c"),
    ],
)
def test_first_matching_rule_by_name_applies(pod: Pod, labels: dict[str, str], rule: str) -> None:
    assert DrainPolicy(rules=RULES).rule_for(pod, labels).name == rule


def test_namespaces_are_needed_only_if_a_rule_selects_namespaces() -> None:
    assert DrainPolicy(rules=RULES).needs_namespaces
    assert not DrainPolicy(rules=RULES[:2]).needs_namespaces


def test_rule_overrides_the_policy() -> None:
    policy = DrainPolicy(
        filters=PodFilters(force=True),
        force_delete=True,
        grace_period=MINUTE,
        eviction_timeout=2 * MINUTE,
        deletion_timeout=3 * MINUTE,
    )
    own = DrainRule(name="a", grace_period=4 * MINUTE, eviction_timeout=5 * MINUTE, deletion_timeout=6 * MINUTE)
    assert policy.limits_for(a_pod(), DEFAULT_RULE) == EscalationLimits(
        grace=MINUTE, grace_override=MINUTE, eviction_timeout=2 * MINUTE, deletion_timeout=3 * MINUTE
    )
    assert policy.limits_for(a_pod(), own) == EscalationLimits(
        grace=4 * MINUTE, grace_override=4 * MINUTE, eviction_timeout=5 * MINUTE, deletion_timeout=6 * MINUTE
    )


def test_limits_without_permission_to_delete_have_no_timeouts() -> None:
    policy = DrainPolicy(eviction_timeout=MINUTE, deletion_timeout=MINUTE)
    limits = policy.limits_for(a_pod(terminationGracePeriodSeconds=90), DEFAULT_RULE)
    assert limits == EscalationLimits(grace=1.5 * MINUTE)


def test_like_nmo_forces_all_pods_except_those_of_daemon_sets() -> None:
    filters = PodFilters(force=True, ignore_daemonsets=True, delete_emptydir_data=True)
    assert DrainPolicy.like_nmo() == DrainPolicy(filters=filters)
    assert list(DrainPolicy.like_nmo().problems()) == []


def test_like_smc_deletes_only_with_both_timeouts() -> None:
    calm, harsh = DrainPolicy.like_smc(), DrainPolicy.like_smc(eviction_timeout=MINUTE, deletion_timeout=2 * MINUTE)
    assert [*calm.problems(), *harsh.problems()] == []
    assert calm.limits_for(a_pod(), DEFAULT_RULE) == EscalationLimits(grace=MINUTE / 2)
    limits = harsh.limits_for(a_pod(), DEFAULT_RULE)
    assert (limits.eviction_timeout, limits.deletion_timeout) == (MINUTE, 2 * MINUTE)


def test_parallel_must_be_at_least_one() -> None:
    assert list(DrainPolicy(parallel=0).problems()) == [("parallel", "found 0, expected a number from 1 to 500")]


# Waves

STORAGE = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
ALL = DrainOrder(by_priority=True, storage_last=True, daemon_sets_last=True)


@pytest.mark.parametrize(
    ("order", "names"),
    [
        (DrainOrder(), ["agent", "plain", "store", "vital", "last"]),
        (DrainOrder(by_priority=True), ["plain", "store", "agent", "vital", "last"]),
        (DrainOrder(storage_last=True), ["agent", "plain", "vital", "store", "last"]),
        (DrainOrder(daemon_sets_last=True), ["plain", "store", "vital", "last", "agent"]),
        (ALL, ["plain", "vital", "store", "last", "agent"]),
    ],
)
def test_pods_are_sorted_by_the_requested_order(order: DrainOrder, names: list[str]) -> None:
    pods = [
        a_pod(app="agent", kind="DaemonSet", priority=5),
        a_pod(app="last"),
        a_pod(app="plain"),
        a_pod(app="store", volumes=STORAGE),
        a_pod(app="vital", priority=1000),
    ]
    policy = DrainPolicy(rules=(DrainRule(name="last", pods=parse("app=last"), order=7),), order=order)
    places = {pod.name: order_key_of(pod, policy.rule_for(pod, {}), order) for pod in pods}
    assert sorted(places, key=lambda name: places[name]) == names


def test_wait_completed_delays_only_higher_orders() -> None:
    waits = order_key_of(a_pod(), DrainRule(name="w", behavior=Behavior.WAIT_COMPLETED), ALL)
    beside = order_key_of(a_pod(volumes=STORAGE, priority=2_000_000_000), DEFAULT_RULE, ALL)
    after = order_key_of(a_pod(), DrainRule(name="x", order=1), ALL)
    before = order_key_of(a_pod(), DrainRule(name="x", order=-1), ALL)
    assert before < beside < waits < after


def test_daemon_set_pods_leave_after_all_orders_and_in_order_among_themselves() -> None:
    highest = order_key_of(a_pod(), DrainRule(name="x", order=2**31 - 1), ALL)
    orders = (-(2**31), None, 2**31 - 1)
    daemons = [order_key_of(a_pod(kind="DaemonSet"), DrainRule(name="d", order=order), ALL) for order in orders]
    assert [highest, *daemons] == sorted([*reversed(daemons), highest])
    assert str(daemons[1]) == "pods of DaemonSets"
    assert str(daemons[2]) == "order 2147483647, pods of DaemonSets"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (OrderKey(0), "order 0"),
        (OrderKey(3, 1, 10), "order 3, pods with storage, priority 10"),
        (OrderKey(0, 2), "pods of DaemonSets"),
        (order_key_of(a_pod(), DrainRule(name="w", behavior=Behavior.WAIT_COMPLETED), ALL), "order 0"),
    ],
)
def test_order_key_is_formatted_as_text(place: OrderKey, words: str) -> None:
    assert str(place) == words


def test_policies_are_values() -> None:
    assert replace(DrainPolicy.like_nmo(), parallel=3) == replace(DrainPolicy.like_nmo(), parallel=3)
    assert hash(DrainPolicy(rules=RULES)) == hash(DrainPolicy(rules=RULES))
