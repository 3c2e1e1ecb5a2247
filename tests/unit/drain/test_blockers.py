"""Blockers of a pod, derived from the response of the API server."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Pod
from haulout.drain.blockers import BlockerKind, overdue_blocker, refusal_blocker
from haulout.errors import ApiError, Cause, Forbidden, ServerFailure, TooManyRequests, Unreachable

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."


def a_pod(**metadata: Any) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-5d9", "uid": "u", "controller": True}
    named = {"name": "cart-0", "namespace": "shop", "uid": "uid-1", "ownerReferences": [owner]}
    return msgspec.convert({"metadata": named | metadata, "spec": {"nodeName": "n1"}}, Pod)


def by_budget(text: str) -> TooManyRequests:
    cause = Cause("DisruptionBudget", "", text)
    return TooManyRequests(VIOLATES, code=429, reason="TooManyRequests", causes=[cause])


@pytest.mark.parametrize(
    ("message", "reason", "advice"),
    [
        (
            "The disruption budget cart needs 2 healthy pods and has 2 currently",
            "PodDisruptionBudget shop/cart needs 2 healthy pods and has 2",
            "run more replicas, or relax the PodDisruptionBudget",
        ),
        (
            "The disruption budget cart needs 3 healthy pods and has 1 currently",
            "PodDisruptionBudget shop/cart needs 3 healthy pods and has 1",
            "find out why pods of this workload are not ready",
        ),
        (
            "The disruption budget cart is still being processed by the server.",
            "PodDisruptionBudget shop/cart is still being processed by the server",
            "",
        ),
        (
            "The disruption budget cart does not allow evicting pods currently because it failed sync: no scale",
            "PodDisruptionBudget shop/cart does not allow evicting pods currently because it failed sync: no scale",
            "",
        ),
    ],
)
def test_pdb_refusal_names_the_budget_with_its_numbers(message: str, reason: str, advice: str) -> None:
    blocker = refusal_blocker(a_pod(), by_budget(message))
    assert (blocker.kind, blocker.object) == (BlockerKind.DISRUPTION_BUDGET, "PodDisruptionBudget shop/cart")
    assert (blocker.reason, blocker.remedy) == (reason, advice)
    assert blocker.workload == "ReplicaSet shop/cart-5d9"


def test_unknown_pdb_message_is_shown_as_it_is() -> None:
    blocker = refusal_blocker(a_pod(), by_budget("Come back\ntomorrow"))
    assert (blocker.kind, blocker.reason) == (BlockerKind.DISRUPTION_BUDGET, "Come back tomorrow")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            ServerFailure("This pod has more than one PodDisruptionBudget, which the eviction …", code=500),
            BlockerKind.SEVERAL_DISRUPTION_BUDGETS,
            "more than one PodDisruptionBudget selects the pod",
        ),
        (ServerFailure("etcdserver: request timed out", code=500), BlockerKind.API, "etcdserver: request timed out"),
        (TooManyRequests("the server is overloaded", code=429), BlockerKind.THROTTLING, "the API server is throttling"),
        (
            Forbidden('pods "cart-0" is forbidden: User "x" cannot create', code=403),
            BlockerKind.PERMISSION,
            "not allowed",
        ),
        (
            Forbidden("shop is being terminated", code=403, causes=[Cause("NamespaceTerminating", "", "")]),
            BlockerKind.NAMESPACE,
            "namespace shop is being deleted",
        ),
        (
            Forbidden('admission webhook "guard.example.dev" denied the request: not today', code=403),
            BlockerKind.WEBHOOK,
            "webhook guard.example.dev denies the eviction: not today",
        ),
        (
            TooManyRequests('admission webhook "guard.example.dev" denied the request: ', code=429),
            BlockerKind.WEBHOOK,
            "webhook guard.example.dev denies the eviction: no reason given",
        ),
        (
            TooManyRequests(
                'admission webhook "virt" denied the request: Evacuation in progress: VMI "shop/vm"', code=429
            ),
            BlockerKind.MIGRATION,
            'Evacuation in progress: VMI "shop/vm"',
        ),
        (ApiError("teapot", code=418), BlockerKind.API, "teapot"),
        (Unreachable("no answer within 30 s", sent=True), BlockerKind.API, "no answer within 30 s"),
    ],
)
def test_refusal_blocker_classifies_each_eviction_error(error: Any, kind: BlockerKind, words: str) -> None:
    blocker = refusal_blocker(a_pod(), error)
    assert blocker.kind is kind
    assert words in blocker.reason
    assert blocker.pod == "shop/cart-0"


def test_running_migration_counts_as_progress() -> None:
    moving = refusal_blocker(
        a_pod(), TooManyRequests('admission webhook "v" denied the request: Evacuation in progress', code=429)
    )
    assert moving.is_progress
    assert not refusal_blocker(
        a_pod(), by_budget("The disruption budget cart needs 2 healthy pods and has 2 currently")
    ).is_progress


@pytest.mark.parametrize("overdue_seconds", [-30, 0, 14])
def test_terminating_pod_within_its_grace_period_is_no_blocker(overdue_seconds: int) -> None:
    ends = NOW - timedelta(seconds=overdue_seconds)
    assert overdue_blocker(a_pod(deletionTimestamp=ends.isoformat()), node_ready=True, now=NOW) is None


def test_pod_without_deletion_timestamp_is_not_overdue() -> None:
    assert overdue_blocker(a_pod(), node_ready=True, now=NOW) is None


def test_overdue_blocker_names_finalizers() -> None:
    pod = a_pod(deletionTimestamp="2026-01-05T08:59:00Z", finalizers=["example.dev/keep"])
    blocker = overdue_blocker(pod, node_ready=False, now=NOW)
    assert blocker is not None
    assert blocker.kind is BlockerKind.FINALIZER
    assert blocker.reason == "its grace period ended at 08:59:00 UTC, but finalizers keep the pod: example.dev/keep"


@pytest.mark.parametrize(("node_ready", "advice"), [(True, "check the kubelet"), (False, "node n1 is not ready")])
def test_overdue_blocker_names_a_kubelet_that_does_not_answer(*, node_ready: bool, advice: str) -> None:
    blocker = overdue_blocker(a_pod(deletionTimestamp="2026-01-05T08:59:00Z"), node_ready=node_ready, now=NOW)
    assert blocker is not None
    assert (blocker.kind, blocker.object) == (BlockerKind.KUBELET, "Node n1")
    assert advice in blocker.remedy


def test_blocker_is_formatted_as_one_line() -> None:
    message = "The disruption budget cart needs 2 healthy pods and has 2 currently"
    assert str(refusal_blocker(a_pod(), by_budget(message))) == (
        "shop/cart-0: PodDisruptionBudget shop/cart needs 2 healthy pods and has 2; "
        "run more replicas, or relax the PodDisruptionBudget"
    )
