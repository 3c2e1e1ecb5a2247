"""What a custom resource's schema promises: to refuse, to fill in, and to prune."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from haulout_sandbox.apiserver import JsonObject
from haulout_sandbox.apiserver.apiextensions.schema import Schema
from support.builders.crds import (
    DEFAULT_CRD,
    RULE_CRD,
    VALUE_CRD,
    a_validation_rule,
    object_schema,
    schema_of,
    with_rules,
)

VALUE = Schema(schema_of(VALUE_CRD))
DEFAULT = Schema(schema_of(DEFAULT_CRD))
RULE = Schema(schema_of(RULE_CRD))


def an_obj(name: str = "o", **parts: Any) -> JsonObject:
    return {"apiVersion": "test.haulout.dev/v1", "kind": "Any", "metadata": {"name": name}, **parts}


def invalid_fields(
    schema: Schema, obj: JsonObject, old: JsonObject | None = None, *, subresource: str = ""
) -> list[str]:
    """Return the fields that the server refuses."""
    return [cause["field"] for cause in schema.validation_causes(obj, old, subresource=subresource)]


# Values


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"whole": "a"}, "must be of type integer"),
        ({"whole": 1.5}, "must be of type integer"),
        ({"whole": 1 << 63}, "must be an int64"),
        ({"whole32": 10**10}, "must be an int32"),
        ({"text": 1.5}, "must be of type string"),
        ({"text": None}, "must be of type string"),
        ({"whole32": True}, "must be of type integer"),
        ({"flag": "yes"}, "must be of type boolean"),
        ({"number": "1"}, "must be of type number"),
        ({"few": {}}, "must be of type array"),
        ({"counts": []}, "must be of type object"),
        ({"either": True}, "must be of type integer or string"),
        ({"choice": "a"}, 'supported values: "b", "c"'),
        ({"choiceOfNumbers": 3}, 'supported values: "1", "2"'),
        ({"short": "abcd"}, "must have at most 3 characters"),
        ({"long": "ab"}, "must have at least 3 characters"),
        ({"shaped": "A"}, "should match ^[a-z]+$"),
        ({"shaped": "a\n"}, "should match ^[a-z]+$"),
        ({"ranged": 0}, "must be at least 1"),
        ({"ranged": 11}, "must be at most 10"),
        ({"between": 1.5}, "must be less than 1.5"),
        ({"between": 0}, "must be greater than 0"),
        ({"fives": 7}, "must be a multiple of 5"),
        ({"few": []}, "must have at least 1 items"),
        ({"few": ["a", "b", "c"]}, "must have at most 2 items"),
        ({"counts": {}}, "must have at least 1 properties"),
        ({"when": "soon"}, "must be a date-time"),
        ({"day": "2024-13-01"}, "must be a date"),
        ({"span": "3 days"}, "must be a duration"),
        ({"allOf": 7}, "must be a multiple of 2"),
        ({"negated": "bad"}, "must not match the schema in not"),
        ({"anyOf": {}}, "must match one of the schemas in anyOf"),
        ({"anyOf": {"y": 1}}, "must match one of the schemas in anyOf"),
        ({"oneOf": {"x": "a", "y": 1}}, "must match exactly one of the schemas in oneOf"),
        ({"oneOf": {}}, "must match exactly one of the schemas in oneOf"),
    ],
)
def test_a_wrong_value_is_refused(spec: JsonObject, message: str) -> None:
    (cause,) = VALUE.validation_causes(an_obj(spec=spec))
    assert cause["field"] == f"spec.{next(iter(spec))}"
    assert cause["message"].endswith(message)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"few": ["a", 1]}, "few[1]"),
        ({"counts": {"a": 0}}, "counts.a"),
        ({"nested": {"a": "x"}}, "nested.b"),
        ({"set": ["a", "b", "a"]}, "set[2]"),
        ({"named": [{"name": "a"}, {"name": "a"}]}, "named[1]"),
        ({"ports": [{"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "TCP"}]}, "ports[1]"),
    ],
)
def test_what_is_wrong_inside_is_named(spec: JsonObject, field: str) -> None:
    assert invalid_fields(VALUE, an_obj(spec=spec)) == [f"spec.{field}"]


def test_all_errors_are_reported_at_once() -> None:
    found = VALUE.validation_causes(an_obj(spec={"whole": "x", "choice": "z", "nested": {}}))
    assert [(cause["field"], cause["reason"]) for cause in found] == [
        ("spec.choice", "FieldValueNotSupported"),
        ("spec.nested.a", "FieldValueRequired"),
        ("spec.nested.b", "FieldValueRequired"),
        ("spec.whole", "FieldValueInvalid"),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {"whole": 1.0, "number": 1, "either": "a", "percent": "5%", "nullable": None, "free": {"a": [{"b": None}]}},
        {"when": "2024-01-01T00:00:00.5+02:00", "day": "2024-01-01", "span": "3h", "long": "äöü"},
        {"set": ["a", "b"], "named": [{"name": "a"}, {"name": "b"}], "ports": [{"port": 1, "protocol": "UDP"}]},
        {"anyOf": {"x": "a"}, "oneOf": {"y": 1}, "allOf": 6, "negated": "good"},
    ],
)
def test_right_values_pass(spec: JsonObject) -> None:
    assert invalid_fields(VALUE, an_obj(spec=spec)) == []


def test_what_was_wrong_before_and_is_unchanged_is_let_pass() -> None:
    """A schema may become stricter; objects that were there before can still be changed elsewhere."""
    old = an_obj(spec={"choice": "z", "named": [{"name": "a", "value": "x"}]})
    assert invalid_fields(VALUE, an_obj(spec=old["spec"] | {"whole": 1}), old) == []
    assert invalid_fields(VALUE, an_obj(spec={"choice": "y"}), old) == ["spec.choice"]


def test_a_write_to_the_status_is_held_to_the_statuss_part() -> None:
    obj = an_obj(spec={"min": "wrong"}, status={"phase": "C", "n": "x"})
    assert invalid_fields(RULE, obj, an_obj(spec={}), subresource="status") == ["status.n", "status.phase"]
    assert invalid_fields(RULE, an_obj(status={}), an_obj(), subresource="status") == ["status.phase"]


# Rules


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        ({"min": 1, "max": 2}, []),
        ({"min": 3, "max": 2}, ["spec: Invalid value: min exceeds max"]),
        ({"step": "2h", "limit": "90m"}, ["spec: Invalid value: step exceeds limit"]),
        ({"labels": {"a": "xyz"}}, ["spec.labels.a: Invalid value: \"xyz\": failed rule: self < 'm'"]),
        (
            {"options": {"b": "x"}},
            ["spec.options: Invalid value: the rule self.a != 'boom' cannot be evaluated: no such key: a"],
        ),
    ],
)
def test_rules_are_kept(spec: JsonObject, messages: list[str]) -> None:
    assert [f"{cause['field']}: {cause['message']}" for cause in RULE.validation_causes(an_obj(spec=spec))] == messages


def test_rules_see_the_name() -> None:
    assert [cause["message"] for cause in RULE.validation_causes(an_obj("x"))] == ["Invalid value: x is no name"]


def test_rules_wait_until_the_object_is_well_formed() -> None:
    assert invalid_fields(RULE, an_obj("x", spec={"min": "a"})) == ["spec.min"]


def test_rules_about_changes_need_a_before() -> None:
    old = an_obj(spec={"name": "abc", "parts": [{"name": "a", "size": 2}]})
    same = an_obj(spec={"name": "abc", "parts": [{"name": "b", "size": 0}, {"name": "a", "size": 2}]})
    assert invalid_fields(RULE, same, old) == []
    changed = an_obj(spec={"name": "abd", "parts": [{"name": "b", "size": 0}, {"name": "a", "size": 1}]})
    assert [
        (cause["field"], cause["message"].rpartition(": ")[2]) for cause in RULE.validation_causes(changed, old)
    ] == [
        ("spec.name", "name is immutable"),
        ("spec.parts[1]", "parts do not shrink"),
    ]


def test_a_rule_lets_pass_what_is_unchanged() -> None:
    old = an_obj(spec={"labels": {"a": "xyz"}})
    assert invalid_fields(RULE, an_obj(spec=old["spec"] | {"min": 1}), old) == []
    assert invalid_fields(RULE, an_obj(spec={"labels": {"a": "xyzz"}}), old) == ["spec.labels.a"]


def test_rules_see_times_and_numbers_as_such() -> None:
    properties = object_schema(
        start={"type": "string", "format": "date-time"},
        end={"type": "string", "format": "date-time"},
        number={"type": "number"},
    )
    rules = (a_validation_rule("self.start < self.end"), a_validation_rule("self.number < 1.5"))
    schema = Schema(object_schema(spec=with_rules(properties, *rules)))
    end = "2024-01-01T00:00:00Z"
    assert invalid_fields(schema, an_obj(spec={"start": "2024-01-01T00:59:59+01:00", "end": end, "number": 1})) == []
    assert len(invalid_fields(schema, an_obj(spec={"start": "2024-12-31T23:59:59Z", "end": end, "number": 2}))) == 2


# Filling in and pruning


def test_defaults_are_filled_in_where_there_is_an_object_to_hold_them() -> None:
    base = {"mode": "auto", "count": 3, "nested": {"a": "x"}}
    assert DEFAULT.apply_defaults({}) == {}
    assert DEFAULT.apply_defaults({"spec": {}}) == {"spec": base}
    spec = {"nested": {"deep": {}}, "list": [{}, {"p": "UDP"}], "map": {"a": {}}, "texts": {"x": None}}
    assert DEFAULT.apply_defaults({"spec": spec})["spec"] == base | {
        "nested": {"a": "x", "deep": {"b": 1}},
        "list": [{"p": "TCP"}, {"p": "UDP"}],
        "map": {"a": {"d": True}},
        "texts": {"x": "d"},
    }


def test_a_null_gets_the_default_unless_it_is_allowed() -> None:
    obj, _ = DEFAULT.prune({"spec": {"mode": None, "count": None, "nulls": {"n": None, "m": None}}})
    assert obj == {"spec": {"mode": None, "count": None, "nulls": {"m": None}}}
    assert DEFAULT.apply_defaults(obj)["spec"] == {
        "mode": "auto",
        "count": None,
        "nulls": {"m": None},
        "nested": {"a": "x"},
    }


def test_unknown_fields_are_pruned_and_named() -> None:
    template = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "spec": {"a": "b", "c": 1}}
    obj = an_obj(spec={"items": [{"a": "x", "b": 1}], "free": {"any": {"thing": 1}}, "template": template}, more=1)
    kept, unknown = DEFAULT.prune(obj)
    assert unknown == ["more", "spec.items[0].b", "spec.template.spec.c"]
    free = {"any": {"thing": 1}}
    assert kept == an_obj(spec={"items": [{"a": "x"}], "free": free, "template": template | {"spec": {"a": "b"}}})


def test_known_parts_of_a_free_object_are_pruned_all_the_same() -> None:
    kept, unknown = VALUE.prune({"spec": {"free": {"any": {"thing": 1}, "known": {"a": "x", "b": 1}}}})
    assert kept == {"spec": {"free": {"any": {"thing": 1}, "known": {"a": "x"}}}}
    assert unknown == ["spec.free.known.b"]


JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-5, 20) | some.floats(allow_nan=False) | some.text(max_size=4),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from(["a", "b", "x", "name"]), inner),
    max_leaves=8,
)
SPEC = some.dictionaries(some.sampled_from(sorted(schema_of(VALUE_CRD)["properties"]["spec"]["properties"])), JSON)


@given(SPEC)
def test_any_object_gets_an_answer_and_stays_untouched(spec: JsonObject) -> None:
    obj = an_obj(spec=spec)
    before = copy.deepcopy(obj)
    kept, _ = VALUE.prune(obj)
    filled = VALUE.apply_defaults(kept)
    for cause in VALUE.validation_causes(filled, obj):
        assert cause["reason"]
        assert cause["message"]
    assert obj == before
    assert VALUE.prune(filled) == (filled, [])
    assert VALUE.apply_defaults(filled) == filled
