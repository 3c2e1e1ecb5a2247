"""The check stagger: the number of nodes that pass per duration."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from haulout.api.objects import Lease
from haulout.controllers.profiles.plugin import LeaseClaim
from haulout.controllers.profiles.plugins.checks.stagger import Stagger
from haulout.controllers.profiles.view import topics
from support.builders.objects import a_node
from support.fakes.cluster_view import MINUTE, NOW, FakeClusterView, a_lease

CHECK = Stagger(duration=10 * MINUTE, lease_name="mc-lease", lease_namespace="kube-system")
PAIR = Stagger(duration=10 * MINUTE, lease_name="mc-lease", lease_namespace="kube-system", parallel=2)


def a_held_lease(
    name: str = "mc-lease-0", *, since: datetime = NOW, seconds: int | None = 600, times: int = 3
) -> Lease:
    spec: dict[str, Any] = {"renewTime": since.isoformat(), "leaseTransitions": times}
    return a_lease(name, **spec | ({} if seconds is None else {"leaseDurationSeconds": seconds}))


def the_cluster(*leases: Lease) -> FakeClusterView:
    return FakeClusterView(a_node("n1"), a_node("n2"), leases=leases)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_no_node_passes_while_the_lease_is_held(node: str) -> None:
    """C12."""
    result = CHECK.evaluate(the_cluster(a_held_lease(since=NOW - MINUTE)).plugin_context(node))
    assert result.passed is False
    assert result.info == {"availableInSec": [540.0]}
    assert result.reason == ("1 lease of mc-lease taken, the next is free in 9m0s, at 2024-05-01 10:09:00 UTC")


def test_blocked_node_claims_no_lease() -> None:
    """C15."""
    assert CHECK.claims(the_cluster(a_held_lease()).plugin_context()) == ()


def test_expired_lease_is_claimed_at_the_observed_version() -> None:
    """C13."""
    context = the_cluster(a_held_lease(since=NOW - 11 * MINUTE)).plugin_context("n2")
    assert CHECK.evaluate(context).passed
    assert CHECK.claims(context) == (
        LeaseClaim(
            namespace="kube-system",
            name="mc-lease-0",
            resource_version="7",
            holder="n2",
            duration=10 * MINUTE,
            transitions=4,
        ),
    )


def test_missing_lease_is_free_and_created() -> None:
    """W07: a lease missing in the cache is created, and the API server refuses the second creation."""
    (claim,) = CHECK.claims(the_cluster().plugin_context())
    assert isinstance(claim, LeaseClaim)
    assert (claim.resource_version, claim.transitions) == ("", 0)
    assert CHECK.evaluate(the_cluster().plugin_context()).passed


def test_as_many_nodes_pass_as_there_are_leases() -> None:
    """C14."""
    context = the_cluster(a_held_lease()).plugin_context()
    assert PAIR.evaluate(context).passed
    (claim,) = PAIR.claims(context)
    assert isinstance(claim, LeaseClaim)
    assert claim.name == "mc-lease-1"
    blocked = PAIR.evaluate(
        the_cluster(a_held_lease(), a_held_lease("mc-lease-1", since=NOW - MINUTE)).plugin_context()
    )
    assert blocked.info == {"availableInSec": [600.0, 540.0]}
    assert blocked.requeue_at == NOW + 9 * MINUTE + timedelta(microseconds=1)


def test_check_passes_exactly_at_its_requeue_time() -> None:
    cluster = the_cluster(a_held_lease())
    requeue_at = CHECK.evaluate(cluster.plugin_context()).requeue_at
    assert requeue_at is not None
    assert CHECK.evaluate(cluster.plugin_context(now=requeue_at)).passed
    assert CHECK.evaluate(cluster.plugin_context(now=requeue_at - timedelta(microseconds=1))).passed is False


def test_duration_of_the_lease_takes_precedence_over_the_option() -> None:
    assert CHECK.evaluate(the_cluster(a_held_lease(since=NOW - 2 * MINUTE, seconds=60)).plugin_context()).passed
    assert (
        CHECK.evaluate(the_cluster(a_held_lease(since=NOW - 20 * MINUTE, seconds=3600)).plugin_context()).passed
        is False
    )


def test_lease_without_times_is_supported() -> None:
    """W24."""
    assert CHECK.evaluate(the_cluster(a_lease("mc-lease-0")).plugin_context()).passed
    assert CHECK.evaluate(the_cluster(a_held_lease(seconds=None)).plugin_context()).info == {"availableInSec": [600.0]}
    (claim,) = CHECK.claims(the_cluster(a_lease("mc-lease-0")).plugin_context())
    assert isinstance(claim, LeaseClaim)
    assert (claim.resource_version, claim.transitions) == ("7", 0)


def test_lease_with_an_extreme_duration_does_no_harm() -> None:
    assert CHECK.evaluate(the_cluster(a_held_lease(seconds=2**31 - 1)).plugin_context()).passed is False
    far = a_held_lease(since=NOW.replace(year=9999), seconds=2**31 - 1)
    assert CHECK.evaluate(the_cluster(far).plugin_context()).passed is False


def test_parallel_is_one_by_default_and_zero_never_passes() -> None:
    """I18."""
    assert CHECK.parallel == 1
    none = Stagger(duration=MINUTE, lease_name="x", lease_namespace="y", parallel=0)
    context = the_cluster().plugin_context()
    assert none.evaluate(context).passed is False
    assert none.claims(context) == ()
    assert [key for key, _ in none.warnings()] == ["parallel"]


def test_excessive_parallel_is_a_warning_and_bounded() -> None:
    many = Stagger(duration=MINUTE, lease_name="x", lease_namespace="y", parallel=2**31)
    assert [key for key, _ in many.warnings()] == ["parallel"]
    assert len(many.topics("n1")) == 1000


def test_topics_are_its_leases() -> None:
    assert PAIR.topics("n1") == tuple(topics.lease("kube-system", f"mc-lease-{number}") for number in (0, 1))
