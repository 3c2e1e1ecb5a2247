"""How many nodes are let through in a time."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from haulout.kube.objects import Lease
from haulout.profiles import topics
from haulout.profiles.plugin import LeaseClaim
from haulout.profiles.plugins.checks.stagger import Stagger
from support.builders import a_node
from support.scenes import MINUTE, NOW, Cluster, a_lease

CHECK = Stagger(duration=10 * MINUTE, lease_name="mc-lease", lease_namespace="kube-system")
PAIR = Stagger(duration=10 * MINUTE, lease_name="mc-lease", lease_namespace="kube-system", parallel=2)


def taken(name: str = "mc-lease-0", *, since: datetime = NOW, seconds: int | None = 600, times: int = 3) -> Lease:
    spec: dict[str, Any] = {"renewTime": since.isoformat(), "leaseTransitions": times}
    return a_lease(name, **spec | ({} if seconds is None else {"leaseDurationSeconds": seconds}))


def the_cluster(*leases: Lease) -> Cluster:
    return Cluster(a_node("n1"), a_node("n2"), leases=leases)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_nobody_passes_while_the_lease_is_taken(node: str) -> None:
    """C12."""
    verdict = CHECK.look(the_cluster(taken(since=NOW - MINUTE)).scene(node))
    assert verdict.passed is False
    assert verdict.info == {"availableInSec": [540.0]}
    assert verdict.reason == ("1 lease of mc-lease taken, the next is free in 9m0s, at 2024-05-01 10:09:00 UTC")


def test_a_blocked_node_does_not_take_a_lease() -> None:
    """C15."""
    assert CHECK.claims(the_cluster(taken()).scene()) == ()


def test_a_lease_whose_time_is_over_is_taken_at_the_version_that_was_seen() -> None:
    """C13."""
    scene = the_cluster(taken(since=NOW - 11 * MINUTE)).scene("n2")
    assert CHECK.look(scene).passed
    assert CHECK.claims(scene) == (
        LeaseClaim(
            namespace="kube-system",
            name="mc-lease-0",
            version="7",
            holder="n2",
            duration=10 * MINUTE,
            transitions=4,
        ),
    )


def test_a_lease_that_is_not_there_is_free_and_gets_created() -> None:
    """W07: what was not seen yet is created, and whoever comes second is refused by the server."""
    (claim,) = CHECK.claims(the_cluster().scene())
    assert isinstance(claim, LeaseClaim)
    assert (claim.version, claim.transitions) == ("", 0)
    assert CHECK.look(the_cluster().scene()).passed


def test_as_many_nodes_pass_as_there_are_leases() -> None:
    """C14."""
    scene = the_cluster(taken()).scene()
    assert PAIR.look(scene).passed
    (claim,) = PAIR.claims(scene)
    assert isinstance(claim, LeaseClaim)
    assert claim.name == "mc-lease-1"
    blocked = PAIR.look(the_cluster(taken(), taken("mc-lease-1", since=NOW - MINUTE)).scene())
    assert blocked.info == {"availableInSec": [600.0, 540.0]}
    assert blocked.wakes_at == NOW + 9 * MINUTE + timedelta(microseconds=1)


def test_it_passes_at_the_very_instant_it_names_and_not_before() -> None:
    cluster = the_cluster(taken())
    wakes_at = CHECK.look(cluster.scene()).wakes_at
    assert wakes_at is not None
    assert CHECK.look(cluster.scene(now=wakes_at)).passed
    assert CHECK.look(cluster.scene(now=wakes_at - timedelta(microseconds=1))).passed is False


def test_the_duration_in_the_lease_counts_not_that_in_the_file() -> None:
    assert CHECK.look(the_cluster(taken(since=NOW - 2 * MINUTE, seconds=60)).scene()).passed
    assert CHECK.look(the_cluster(taken(since=NOW - 20 * MINUTE, seconds=3600)).scene()).passed is False


def test_a_lease_without_times_is_understood() -> None:
    """W24."""
    assert CHECK.look(the_cluster(a_lease("mc-lease-0")).scene()).passed
    assert CHECK.look(the_cluster(taken(seconds=None)).scene()).info == {"availableInSec": [600.0]}
    (claim,) = CHECK.claims(the_cluster(a_lease("mc-lease-0")).scene())
    assert isinstance(claim, LeaseClaim)
    assert (claim.version, claim.transitions) == ("7", 0)


def test_a_lease_that_lasts_for_ever_does_no_harm() -> None:
    assert CHECK.look(the_cluster(taken(seconds=2**31 - 1)).scene()).passed is False
    far = taken(since=NOW.replace(year=9999), seconds=2**31 - 1)
    assert CHECK.look(the_cluster(far).scene()).passed is False


def test_one_is_the_default_and_none_never_passes() -> None:
    """I18."""
    assert CHECK.parallel == 1
    none = Stagger(duration=MINUTE, lease_name="x", lease_namespace="y", parallel=0)
    scene = the_cluster().scene()
    assert none.look(scene).passed is False
    assert none.claims(scene) == ()
    assert [key for key, _ in none.warnings()] == ["parallel"]


def test_a_number_of_leases_that_nobody_can_mean_is_told_and_bounded() -> None:
    many = Stagger(duration=MINUTE, lease_name="x", lease_namespace="y", parallel=2**31)
    assert [key for key, _ in many.warnings()] == ["parallel"]
    assert len(many.topics("n1")) == 1000


def test_a_change_of_any_of_its_leases_wakes_the_node() -> None:
    assert PAIR.topics("n1") == tuple(topics.lease("kube-system", f"mc-lease-{number}") for number in (0, 1))
