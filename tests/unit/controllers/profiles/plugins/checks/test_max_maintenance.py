"""The check maxMaintenance: the maximum of nodes in maintenance."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.objects import RawObject
from haulout.budget.limits import parse_amount
from haulout.controllers.profiles.plugin import PROFILE_LABEL, CheckResult, SlotClaim, State
from haulout.controllers.profiles.plugins.checks.max_maintenance import MaxMaintenance, NodeScope
from haulout.controllers.profiles.view import topics
from support.builders.objects import a_node
from support.fakes.cluster_view import MINUTE, NOW, FakeClusterView, a_profile_entry, in_maintenance

ZONE = "topology.kubernetes.io/zone"
HOUR = timedelta(hours=1)
IN = State.IN_MAINTENANCE


def down(name: str, **labels: str) -> RawObject:
    return in_maintenance(a_node(name, labels=labels))


def evaluate(check: MaxMaintenance, *nodes: RawObject, own: dict[str, str] | None = None, **known: Any) -> CheckResult:
    return check.evaluate(FakeClusterView(a_node("n1", labels=own), *nodes, **known).plugin_context())


def test_check_passes_below_the_limit_only() -> None:
    """C10, I13."""
    assert evaluate(MaxMaintenance(max=1)).passed
    assert evaluate(MaxMaintenance(max=2), down("n2")).passed
    result = evaluate(MaxMaintenance(max=1), down("n2"))
    assert result.passed is False
    assert result.info == {"scope": "the whole cluster", "maintained": 1, "max": 1}
    assert result.reason == "1 of at most 1 nodes in maintenance in the whole cluster: n2"


def test_other_states_do_not_count() -> None:
    """C11."""
    assert evaluate(MaxMaintenance(max=1), a_node("n2", labels={"cloud.sap/maintenance-state": State.REQUIRED})).passed


def test_node_itself_counts_if_it_is_in_maintenance() -> None:
    assert MaxMaintenance(max=1).evaluate(FakeClusterView(down("n1")).plugin_context()).passed is False


def test_only_nodes_with_the_profile_label_count() -> None:
    """I13: nodes count whatever profile is in maintenance; a node without the label never counts."""
    check = MaxMaintenance(max=1, profile="os")
    assert evaluate(check, down("n2"), down("n3", **{PROFILE_LABEL: "other"})).passed
    assert evaluate(check, down("n2", **{PROFILE_LABEL: "other--os"})).passed is False
    assert evaluate(MaxMaintenance(max=1, profile="default"), down("n2")).passed


@pytest.mark.parametrize(
    "check",
    [
        MaxMaintenance(max=1, group_by=(ZONE,)),
        MaxMaintenance(max=1, group_label=ZONE),
        MaxMaintenance(max=1, group_by=(ZONE,), group_label=ZONE),
    ],
)
def test_only_nodes_of_the_same_group_count(check: MaxMaintenance) -> None:
    """I13: a node without the label, or with an empty one, is compared with the whole cluster."""
    assert evaluate(check, down("n2", **{ZONE: "a"}), own={ZONE: "a"}).passed is False
    assert evaluate(check, down("n2", **{ZONE: "b"}), own={ZONE: "a"}).passed
    assert evaluate(check, down("n2"), own={ZONE: "a"}).passed
    assert evaluate(check, down("n2", **{ZONE: "b"})).passed is False
    assert evaluate(check, down("n2", **{ZONE: "b"}), own={ZONE: ""}).passed is False


def test_scope_names_the_compared_labels() -> None:
    check = MaxMaintenance(max=1, group_by=("rack", ZONE, "none"))
    assert evaluate(check, own={ZONE: "a", "rack": "7"}).info["scope"] == f"rack=7,{ZONE}=a"


@pytest.mark.parametrize(
    ("age", "passed"), [(MINUTE, False), (HOUR - timedelta(microseconds=1), False), (HOUR, True), (2 * HOUR, True)]
)
@pytest.mark.parametrize("profile", ["", "os"])
def test_skip_after_ignores_nodes_in_maintenance_for_long(age: timedelta, profile: str, *, passed: bool) -> None:
    """I13."""
    check = MaxMaintenance(max=1, profile=profile, skip_after=HOUR)
    entries = {"n2": {"os": a_profile_entry(IN, since=NOW - age), "old": a_profile_entry(IN, since=NOW - 50 * HOUR)}}
    result = evaluate(check, down("n2", **{PROFILE_LABEL: "os"}), entries=entries)
    assert result.passed is passed
    assert result.requeue_at == (None if passed else NOW - age + HOUR)


def test_node_with_unknown_age_is_skipped_only_without_other_entries() -> None:
    """W24: without an entry of the profile, other entries count; without any entry the node is skipped."""
    check = MaxMaintenance(max=1, profile="os", skip_after=HOUR)
    node = down("n2", **{PROFILE_LABEL: "os"})
    assert evaluate(check, node).passed
    assert evaluate(check, node, entries={"n2": {"os": a_profile_entry(IN, since=None)}}).passed
    assert evaluate(check, node, entries={"n2": {"other": a_profile_entry(IN, since=NOW)}}).passed is False
    assert evaluate(check, node, problems={"n2": "garbage"}).passed is False


@pytest.mark.parametrize(
    ("share", "nodes", "limit"),
    [("20%", 10, 2), ("20%", 14, 2), ("20%", 15, 3), ("20%", 3, 1), ("1%", 99, 1), ("100%", 7, 7), ("33 %", 6, 1)],
)
def test_percentage_is_rounded_down_and_at_least_one(share: str, nodes: int, limit: int) -> None:
    cluster = FakeClusterView(*(a_node(f"n{number}") for number in range(1, nodes + 1)))
    assert MaxMaintenance(max=share).evaluate(cluster.plugin_context()).info["max"] == limit


def test_percentage_refers_to_the_nodes_in_scope() -> None:
    zones = {f"n{number}": "a" if number <= 10 else "b" for number in range(1, 31)}
    cluster = FakeClusterView(*(a_node(name, labels={ZONE: zone}) for name, zone in zones.items()))
    check = MaxMaintenance(max="20%", group_by=(ZONE,), limits={f"{ZONE}=b": "50%"})
    assert check.evaluate(cluster.plugin_context("n1")).info["max"] == 2
    assert check.evaluate(cluster.plugin_context("n11")).info["max"] == 10


def test_limits_override_the_maximum_of_a_group() -> None:
    check = MaxMaintenance(max=5, group_by=(ZONE,), limits={f"{ZONE}=a": "1"})
    assert evaluate(check, down("n2", **{ZONE: "a"}), own={ZONE: "a"}).info["max"] == 1
    assert evaluate(check, own={ZONE: "b"}).info["max"] == 5


def test_invalid_options_are_reported() -> None:
    check = MaxMaintenance(max="0%", group_by=(ZONE,), limits={"rack=1": "1", ZONE: "2", f"{ZONE}=a": "many"})
    assert dict(check.problems()) == {
        "max": "found 0%, expected a number other than 0, or a share from 1% to 100%",
        "limits.rack=1": "rack is not in groupBy, so there is no such group",
        f"limits.{ZONE}": f"expected the labels of a group, such as {ZONE}=eu-1a",
        f"limits.{ZONE}=a": "found many, expected a number other than 0, or a share from 1% to 100%",
    }
    assert [key for key, _ in MaxMaintenance(max=0).problems()] == ["max"]
    assert [key for key, _ in MaxMaintenance(max=-1, group_label="rack").warnings()] == ["max", "groupLabel"]
    assert not list(MaxMaintenance(max="100%").problems())


@pytest.mark.parametrize(
    ("written", "limit"), [("5", 5), ("1.9", 1), ("-1", -1), ("007", 7), (" 20 % ", "20%"), ("5%", "5%"), (3, 3)]
)
def test_parse_amount_accepts_numbers_and_percentages(written: int | str, limit: int | str) -> None:
    assert parse_amount(written) == limit


@pytest.mark.parametrize("written", ["", "0", "0.9", "101%", "0%", "%", "-5%", "five", "1e3", "9" * 20])
def test_parse_amount_refuses_invalid_limits(written: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        parse_amount(written)


# Slots


def claimed(check: MaxMaintenance, cluster: FakeClusterView) -> SlotClaim:
    (claim,) = check.claims(cluster.plugin_context())
    assert isinstance(claim, SlotClaim)
    return claim


def test_equal_scopes_are_equal_whatever_the_limits() -> None:
    cluster = FakeClusterView(a_node("n1", labels={ZONE: "a", "rack": "7"}))
    one = claimed(MaxMaintenance(max=1, group_by=(ZONE, "rack")), cluster)
    other = claimed(MaxMaintenance(max="50%", group_by=(ZONE,), group_label="rack"), cluster)
    assert one.scope == other.scope
    assert hash(one) == hash(SlotClaim(limit=1, scope=other.scope))


def test_nothing_is_claimed_at_the_limit() -> None:
    assert MaxMaintenance(max=1).claims(FakeClusterView(a_node("n1"), down("n2")).plugin_context()) == ()


def test_node_with_a_slot_counts_before_its_label_and_data_are_updated() -> None:
    check = MaxMaintenance(max=1, skip_after=HOUR)
    long_ago = {"n2": {"os": a_profile_entry(State.REQUIRED, since=NOW - 9 * HOUR)}}
    assert evaluate(check, a_node("n2"), slots=["n2"], entries=long_ago).passed is False


def test_own_slot_of_the_node_does_not_count() -> None:
    assert evaluate(MaxMaintenance(max=1), slots=["n1"]).passed


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=12), st.integers(1, 5))
def test_scope_of_a_claim_counts_the_same_nodes_as_the_check(nodes: list[tuple[str, bool]], limit: int) -> None:
    """So the slot ledger decides like the check."""
    made = [a_node(f"n{number}", labels={ZONE: zone}) for number, (zone, _) in enumerate(nodes, start=1)]
    cluster = FakeClusterView(
        *(in_maintenance(item) if is_down else item for item, (_, is_down) in zip(made, nodes, strict=True))
    )
    check = MaxMaintenance(max=limit, group_by=(ZONE,))
    context = cluster.plugin_context()
    result = check.evaluate(context)
    scope = NodeScope(labels=((ZONE, nodes[0][0]),))
    counted = [item for item in cluster.nodes_in(IN) if scope.counts(item, NOW)]
    assert result.info["maintained"] == len(counted)
    assert result.passed is (len(counted) < limit)
    assert [claim.scope for claim in check.claims(context) if isinstance(claim, SlotClaim)] == (
        [scope] if result.passed else []
    )


def test_topics_cover_all_changes_that_affect_the_result() -> None:
    assert MaxMaintenance(max=1).topics("n1") == (topics.MAINTENANCE_ROOM,)
    assert MaxMaintenance(max="5%", profile="os", group_by=(ZONE,)).topics("n1") == (
        topics.MAINTENANCE_ROOM,
        topics.NODE_COUNT,
        topics.label(PROFILE_LABEL),
        topics.label(ZONE),
    )
