"""How many nodes are let through in a time."""

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


def taken_lease(name: str = "mc-lease-0", *, since: datetime = NOW, seconds: int | None = 600, times: int = 3) -> Lease:
    spec: dict[str, Any] = {"renewTime": since.isoformat(), "leaseTransitions": times}
    return a_lease(name, **spec | ({} if seconds is None else {"leaseDurationSeconds": seconds}))


def the_cluster(*leases: Lease) -> FakeClusterView:
    return FakeClusterView(a_node("n1"), a_node("n2"), leases=leases)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_nobody_passes_while_the_lease_is_taken(node: str) -> None:
    """C12."""
    result = CHECK.evaluate(the_cluster(taken_lease(since=NOW - MINUTE)).plugin_context(node))
    assert result.passed is False
    assert result.info == {"availableInSec": [540.0]}
    assert result.reason == ("1 lease of mc-lease taken, the next is free in 9m0s, at 2024-05-01 10:09:00 UTC")


def test_a_blocked_node_does_not_take_a_lease() -> None:
    """C15."""
    assert CHECK.claims(the_cluster(taken_lease()).plugin_context()) == ()


def test_a_lease_whose_time_is_over_is_taken_at_the_version_that_was_seen() -> None:
    """C13."""
    context = the_cluster(taken_lease(since=NOW - 11 * MINUTE)).plugin_context("n2")
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


def test_a_lease_that_is_not_there_is_free_and_gets_created() -> None:
    """W07: what was not seen yet is created, and whoever comes second is refused by the server."""
    (claim,) = CHECK.claims(the_cluster().plugin_context())
    assert isinstance(claim, LeaseClaim)
    assert (claim.resource_version, claim.transitions) == ("", 0)
    assert CHECK.evaluate(the_cluster().plugin_context()).passed


def test_as_many_nodes_pass_as_there_are_leases() -> None:
    """C14."""
    context = the_cluster(taken_lease()).plugin_context()
    assert PAIR.evaluate(context).passed
    (claim,) = PAIR.claims(context)
    assert isinstance(claim, LeaseClaim)
    assert claim.name == "mc-lease-1"
    blocked = PAIR.evaluate(the_cluster(taken_lease(), taken_lease("mc-lease-1", since=NOW - MINUTE)).plugin_context())
    assert blocked.info == {"availableInSec": [600.0, 540.0]}
    assert blocked.requeue_at == NOW + 9 * MINUTE + timedelta(microseconds=1)


def test_it_passes_at_the_very_instant_it_names_and_not_before() -> None:
    cluster = the_cluster(taken_lease())
    requeue_at = CHECK.evaluate(cluster.plugin_context()).requeue_at
    assert requeue_at is not None
    assert CHECK.evaluate(cluster.plugin_context(now=requeue_at)).passed
    assert CHECK.evaluate(cluster.plugin_context(now=requeue_at - timedelta(microseconds=1))).passed is False


def test_the_duration_in_the_lease_counts_not_that_in_the_file() -> None:
    assert CHECK.evaluate(the_cluster(taken_lease(since=NOW - 2 * MINUTE, seconds=60)).plugin_context()).passed
    assert (
        CHECK.evaluate(the_cluster(taken_lease(since=NOW - 20 * MINUTE, seconds=3600)).plugin_context()).passed is False
    )


def test_a_lease_without_times_is_understood() -> None:
    """W24."""
    assert CHECK.evaluate(the_cluster(a_lease("mc-lease-0")).plugin_context()).passed
    assert CHECK.evaluate(the_cluster(taken_lease(seconds=None)).plugin_context()).info == {"availableInSec": [600.0]}
    (claim,) = CHECK.claims(the_cluster(a_lease("mc-lease-0")).plugin_context())
    assert isinstance(claim, LeaseClaim)
    assert (claim.resource_version, claim.transitions) == ("7", 0)


def test_a_lease_that_lasts_for_ever_does_no_harm() -> None:
    assert CHECK.evaluate(the_cluster(taken_lease(seconds=2**31 - 1)).plugin_context()).passed is False
    far = taken_lease(since=NOW.replace(year=9999), seconds=2**31 - 1)
    assert CHECK.evaluate(the_cluster(far).plugin_context()).passed is False


def test_one_is_the_default_and_none_never_passes() -> None:
    """I18."""
    assert CHECK.parallel == 1
    none = Stagger(duration=MINUTE, lease_name="x", lease_namespace="y", parallel=0)
    context = the_cluster().plugin_context()
    assert none.evaluate(context).passed is False
    assert none.claims(context) == ()
    assert [key for key, _ in none.warnings()] == ["parallel"]


def test_a_number_of_leases_that_nobody_can_mean_is_told_and_bounded() -> None:
    many = Stagger(duration=MINUTE, lease_name="x", lease_namespace="y", parallel=2**31)
    assert [key for key, _ in many.warnings()] == ["parallel"]
    assert len(many.topics("n1")) == 1000


def test_a_change_of_any_of_its_leases_wakes_the_node() -> None:
    assert PAIR.topics("n1") == tuple(topics.lease("kube-system", f"mc-lease-{number}") for number in (0, 1))
