"""Checks that compare labels, annotations and conditions, and that count nodes."""

import pytest

from haulout.controllers.profiles.plugin import Check
from haulout.controllers.profiles.plugins.checks.any_label import AnyLabel
from haulout.controllers.profiles.plugins.checks.condition import Condition
from haulout.controllers.profiles.plugins.checks.has_annotation import HasAnnotation
from haulout.controllers.profiles.plugins.checks.has_label import HasLabel
from haulout.controllers.profiles.plugins.checks.node_count import NodeCount
from haulout.controllers.profiles.view import topics
from support.builders.objects import a_node
from support.fakes.cluster_view import FakeClusterView


@pytest.mark.parametrize(
    ("key", "value", "passed"),
    [
        *(("mark", "", True), ("mark", "yes", True), ("mark", "no", False)),
        *(("other", "", False), ("empty", "", True), ("empty", "yes", False)),
    ],
)
def test_label_or_annotation_matches_by_presence_or_value(key: str, value: str, *, passed: bool) -> None:
    """I02, I11."""
    marks = {"mark": "yes", "empty": ""}
    labelled = FakeClusterView(a_node("n1", labels=marks)).plugin_context()
    annotated = FakeClusterView(a_node("n1").annotated(marks)).plugin_context()
    assert HasLabel(key=key, value=value).evaluate(labelled).passed is passed
    assert HasAnnotation(key=key, value=value).evaluate(annotated).passed is passed
    assert HasLabel(key=key, value=value).evaluate(annotated).passed is False
    assert HasAnnotation(key=key, value=value).evaluate(labelled).passed is False


@pytest.mark.parametrize("check", [HasLabel(key="mark"), HasAnnotation(key="mark")])
def test_missing_label_or_annotation_is_reported_as_reason(check: Check) -> None:
    absent = check.evaluate(FakeClusterView(a_node("n1")).plugin_context())
    assert absent.reason.startswith("node n1 has no ")
    assert absent.info == {"reason": absent.reason}


def test_different_value_is_reported_as_reason_but_not_as_info() -> None:
    result = HasLabel(key="mark", value="yes").evaluate(
        FakeClusterView(a_node("n1", labels={"mark": "no"})).plugin_context()
    )
    assert result.reason == "label mark of node n1 is 'no', not 'yes'"
    assert result.info == {}


@pytest.mark.parametrize(
    ("key", "value", "passed"),
    [("mark", "yes", True), ("mark", "", True), ("mark", "no", False), ("other", "", False)],
)
def test_any_node_with_the_label_is_enough(key: str, value: str, *, passed: bool) -> None:
    """C37."""
    cluster = FakeClusterView(a_node("n1"), a_node("n2", labels={"mark": "yes"}))
    check = AnyLabel(key=key, value=value)
    assert check.evaluate(cluster.plugin_context("n1")).passed is passed
    assert check.topics("n1") == (topics.label(key),)


def test_node_itself_counts_for_any_label() -> None:
    assert AnyLabel(key="mark").evaluate(FakeClusterView(a_node("n1", labels={"mark": ""})).plugin_context()).passed


@pytest.mark.parametrize(
    ("kind", "status", "passed"),
    [("Ready", "True", True), ("Ready", "Unknown", False), ("Ready", "true", False), ("DiskPressure", "False", False)],
)
def test_condition_must_exist_with_the_exact_status(kind: str, status: str, *, passed: bool) -> None:
    """I04."""
    result = Condition(condition=kind, status=status).evaluate(FakeClusterView(a_node("n1").ready()).plugin_context())
    assert result.passed is passed
    expected = {"current": "True", "expected": status} if kind == "Ready" else {"reason": result.reason}
    assert result.info == expected


def test_first_condition_of_a_type_counts() -> None:
    both = [{"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"}]
    cluster = FakeClusterView(a_node("n1").with_status(conditions=both))
    assert Condition(condition="Ready", status="False").evaluate(cluster.plugin_context()).passed


def test_status_changed_by_yaml_is_a_warning() -> None:
    assert list(Condition(condition="Ready", status="true").warnings()) == [
        ("status", "found true, which no condition ever is; expected 'True', in quotes")
    ]
    assert not list(Condition(condition="Ready", status="Unknown").warnings())


@pytest.mark.parametrize(("count", "passed"), [(1, True), (3, False)])
def test_node_count_requires_the_minimum(count: int, *, passed: bool) -> None:
    """C26, I14."""
    context = FakeClusterView(a_node("n1")).plugin_context()
    result = NodeCount(count=count).evaluate(context)
    assert result.passed is passed
    assert result.info == {"current": 1, "expected": count}
    assert NodeCount(count=count).claims(context) == ()
    assert NodeCount(count=count).topics("n1") == (topics.NODE_COUNT,)
