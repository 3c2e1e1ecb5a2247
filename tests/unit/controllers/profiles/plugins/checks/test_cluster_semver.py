"""The check clusterSemver: whether a node has a lower version than the newest one."""

import pytest

from haulout.controllers.profiles.plugin import PROFILE_LABEL, CheckResult
from haulout.controllers.profiles.plugins.checks.cluster_semver import ClusterSemver
from haulout.controllers.profiles.view import topics
from support.builders.objects import NodeObject, a_node
from support.fakes.cluster_view import FakeClusterView

KEY = "example.com/version"


def at(name: str, version: str, **labels: str) -> NodeObject:
    return a_node(name, labels={KEY: version, **labels})


def evaluate(own: str, *others: str) -> CheckResult:
    nodes = [at(f"n{number}", version) for number, version in enumerate(others, start=2)]
    return ClusterSemver(key=KEY).evaluate(FakeClusterView(at("n1", own), *nodes).plugin_context())


@pytest.mark.parametrize(
    ("own", "others", "passed", "highest"),
    [
        ("2.0.0", ("1.0.0",), False, "2.0.0"),
        ("1.0.0", ("2.0.0",), True, "2.0.0"),
        ("1.0.0", ("2.0.0-rc.1", "1.5.0"), True, "2.0.0-rc.1"),
        ("1.0.0", ("1.0.0+other",), False, "1.0.0"),
        ("1.0.0-rc.1", ("1.0.0",), True, "1.0.0"),
        ("1.0.0", ("v2.0.0", "newest", "2.0"), False, "1.0.0"),
        ("0.0.9", (), True, "0.1.0"),
        ("0.1.0", (), False, "0.1.0"),
    ],
)
def test_node_passes_if_its_version_is_lower_than_the_highest(
    own: str, others: tuple[str, ...], highest: str, *, passed: bool
) -> None:
    """C27; values of other nodes that are no versions do not count, and the highest is at least 0.1.0."""
    result = evaluate(own, *others)
    assert result.passed is passed
    assert result.info == {"own": own, "max": highest}


def test_label_without_a_semantic_version_is_an_error() -> None:
    """C29."""
    result = evaluate("latest", "1.0.0")
    assert result.passed is None
    why = "'latest' is no semantic version such as 1.4.0 or 2.0.0-rc.1"
    assert result.error == f"label {KEY} of node n1: {why}"


def test_missing_label_is_unknown() -> None:
    """C29, where the check does not pass and says why."""
    result = ClusterSemver(key=KEY).evaluate(FakeClusterView(a_node("n1"), at("n2", "1.0.0")).plugin_context())
    assert (result.passed, result.error) == (None, "")
    assert result.reason == f"node n1 has no label {KEY}, so there is no version to compare"


def test_profile_scoped_ignores_nodes_without_the_profile() -> None:
    """C28: unlabelled nodes never count, not even for the default profile."""
    check = ClusterSemver(key=KEY, profile_scoped=True)
    cluster = FakeClusterView(at("n1", "1.0.0"), at("n2", "2.0.0"), at("n3", "1.5.0", **{PROFILE_LABEL: "a--os"}))
    assert check.evaluate(cluster.plugin_context(profile="os")).info["max"] == "1.5.0"
    assert check.evaluate(cluster.plugin_context(profile="default")).passed is False
    assert check.evaluate(cluster.plugin_context(profile="none")).passed is False
    assert check.topics("n1") == (topics.label(KEY), topics.label(PROFILE_LABEL))
