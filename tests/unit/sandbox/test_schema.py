"""What a custom resource's schema promises: to refuse in the real server's words, to fill in, and to prune."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from haulout_sandbox.apiserver import JsonObject, formats, status
from haulout_sandbox.apiserver.schema import Schema
from support.definitions import (
    DEFAULTS,
    INTEGER,
    NODE_MAINTENANCE,
    RULES,
    STRING,
    VALUES,
    a_rule,
    an_object,
    schema_of,
    with_rules,
)

VALUE = Schema(schema_of(VALUES))
DEFAULT = Schema(schema_of(DEFAULTS))
RULE = Schema(schema_of(RULES))
ONE_OF = '<nil>: Invalid value: "": "spec.oneOf" must validate one and only one schema (oneOf).'
UNCHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation"
)


def an_obj(name: str = "o", **parts: Any) -> JsonObject:
    return {"apiVersion": "test.haulout.dev/v1", "kind": "Any", "metadata": {"name": name}, **parts}


def said(schema: Schema, obj: JsonObject, old: JsonObject | None = None, *, subresource: str = "") -> list[str]:
    """Return what the server says of an object, one line a cause."""
    return [f"{it['field']}: {it['message']}" for it in schema.errors(obj, old, subresource=subresource)]


def of_values(**spec: Any) -> list[str]:
    return said(VALUE, an_obj(spec=spec))


# Values


def test_a_refusal_reads_as_the_real_servers() -> None:
    schema = Schema(schema_of(NODE_MAINTENANCE))
    causes = schema.errors(an_obj("x", spec={}))
    refused = status.invalid("nodemaintenance.medik8s.io", "NodeMaintenance", "x", causes)
    assert refused.status["message"] == (
        'NodeMaintenance.nodemaintenance.medik8s.io "x" is invalid: spec.nodeName: Required value'
    )
    assert refused.status["details"]["causes"] == [
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.nodeName"}
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"whole": "a"}, 'whole: Invalid value: "string": spec.whole in body must be of type integer: "string"'),
        ({"text": 1.5}, 'text: Invalid value: "number": spec.text in body must be of type string: "number"'),
        ({"whole32": True}, 'whole32: Invalid value: "": spec.whole32 in body must be of type int32: ""'),
        ({"text": None}, 'text: Invalid value: "null": spec.text in body must be of type string: "null"'),
        (
            {"either": True},
            'either: Invalid value: "boolean": spec.either in body must be of type integer,string: "boolean"',
        ),
        ({"choice": "a"}, 'choice: Unsupported value: "a": supported values: "b", "c"'),
        ({"choiceOfNumbers": 3}, 'choiceOfNumbers: Unsupported value: 3: supported values: "1", "2"'),
        ({"short": "abcd"}, "short: Too long: may not be more than 3 bytes"),
        ({"long": "ab"}, 'long: Invalid value: "ab": spec.long in body should be at least 3 chars long'),
        ({"shaped": "A\t"}, "shaped: Invalid value: \"A\\t\": spec.shaped in body should match '^[a-z]+$'"),
        ({"shaped": "a\n"}, "shaped: Invalid value: \"a\\n\": spec.shaped in body should match '^[a-z]+$'"),
        ({"ranged": 0}, "ranged: Invalid value: 0: spec.ranged in body should be greater than or equal to 1"),
        ({"ranged": 11}, "ranged: Invalid value: 11: spec.ranged in body should be less than or equal to 10"),
        ({"between": 1.5}, "between: Invalid value: 1.5: spec.between in body should be less than 1.5"),
        ({"fives": 7}, "fives: Invalid value: 7: spec.fives in body should be a multiple of 5"),
        ({"few": []}, "few: Invalid value: 0: spec.few in body should have at least 1 items"),
        ({"few": ["a", "b", "c"]}, "few: Too many: 3: must have at most 2 items"),
        ({"single": ["a", "b"]}, "single: Too many: 2: must have at most 1 item"),
        ({"few": ["a", 1]}, 'few[1]: Invalid value: "integer": spec.few[1] in body must be of type string: "integer"'),
        ({"counts": {}}, "counts: Invalid value: 0: spec.counts in body should have at least 1 properties"),
        (
            {"counts": {"a": 0}},
            "counts.a: Invalid value: 0: spec.counts.a in body should be greater than or equal to 1",
        ),
        ({"when": "soon"}, 'when: Invalid value: "soon": spec.when in body must be of type date-time: "soon"'),
        ({"when": 5}, 'when: Invalid value: "int64": spec.when in body must be of type date-time: "int64"'),
        ({"set": ["a", "b", "a", "a"]}, 'set[2]: Duplicate value: "a"'),
        ({"named": [{"name": "a"}, {"name": "a"}]}, 'named[1]: Duplicate value: {"name":"a"}'),
        ({"template": {"kind": "Pod"}}, "template.apiVersion: Required value"),
        ({"template": {"apiVersion": "v1", "kind": ""}}, 'template.kind: Invalid value: "": must not be empty'),
        (
            {"template": {"apiVersion": "a/b/c", "kind": "X"}},
            'template.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        ),
    ],
)
def test_a_wrong_value_is_refused(spec: JsonObject, message: str) -> None:
    assert of_values(**spec) == [f"spec.{message}"]


def test_the_branches_of_a_composition_that_came_closest_are_shown() -> None:
    assert of_values(anyOf={}) == [
        '<nil>: Invalid value: "": "spec.anyOf" must validate at least one schema (anyOf)',
        "spec.anyOf.x: Required value",
    ]
    assert of_values(anyOf={"y": 1}) == [
        '<nil>: Invalid value: "": "spec.anyOf" must validate at least one schema (anyOf)',
        "spec.anyOf.y: Invalid value: 1: spec.anyOf.y in body should be greater than or equal to 5",
    ]
    assert of_values(oneOf={"x": "a", "y": 1}) == [f"{ONE_OF} Found 2 valid alternatives"]
    assert of_values(oneOf={}) == [f"{ONE_OF} Found none valid", "spec.oneOf.x: Required value"]
    assert of_values(allOf=7) == [
        "spec.allOf: Invalid value: 7: spec.allOf in body should be a multiple of 2",
        '<nil>: Invalid value: "": "spec.allOf" must validate all the schemas (allOf)',
    ]
    assert of_values(negated="bad") == ['<nil>: Invalid value: "": "spec.negated" must not validate the schema (not)']


def test_a_broken_number_is_wrong_in_two_ways() -> None:
    assert of_values(whole=1.5) == [
        'spec.whole: Invalid value: "number": spec.whole in body must be of type integer: "number"',
        '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.whole',
    ]
    assert of_values(whole32=10**10) == [
        '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.whole32'
    ]


def test_everything_wrong_is_told_at_once() -> None:
    found = VALUE.errors(an_obj(spec={"whole": "x", "choice": "z", "short": "abcd", "nested": {}}))
    assert [(it["field"], it["reason"]) for it in found] == [
        ("spec.choice", "FieldValueNotSupported"),
        ("spec.nested.a", "FieldValueRequired"),
        ("spec.nested.b", "FieldValueRequired"),
        ("spec.short", "FieldValueTooLong"),
        ("spec.whole", "FieldValueTypeInvalid"),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {"whole": 1.0, "number": 1, "either": "a", "percent": "5%", "nullable": None, "free": {"a": [{"b": None}]}},
        {
            "when": "2024-01-01T00:00:00.5+02:00",
            "day": "2024-01-01",
            "span": "3 days",
            "uri": "/a",
            "mail": "A <a@b.c>",
        },
        {"host": "a.b-c.com", "ipv4": "1.2.3.4", "ipv6": "::1", "cidr": "10.0.0.0/8", "mac": "aa:bb:cc:dd:ee:ff"},
        {"bytes": "YQ==", "label": "a-b", "uuid": "123e4567-e89b-12d3-a456-426614174000", "long": "äöü"},
        {"set": ["a", "b"], "named": [{"name": "a"}, {"name": "b"}], "ports": [{"port": 1, "protocol": "UDP"}]},
        {"anyOf": {"x": "a"}, "oneOf": {"y": 1}, "allOf": 6, "negated": "good"},
    ],
)
def test_right_values_pass(spec: JsonObject) -> None:
    assert of_values(**spec) == []


def test_what_was_wrong_before_and_is_unchanged_is_let_pass() -> None:
    """A schema may become stricter; objects that were there before can still be changed elsewhere."""
    old = an_obj(spec={"choice": "z", "named": [{"name": "a", "value": "x"}]})
    assert said(VALUE, an_obj(spec=old["spec"] | {"whole": 1}), old) == []
    assert said(VALUE, an_obj(spec={"choice": "y"}), old) == [
        'spec.choice: Unsupported value: "y": supported values: "b", "c"'
    ]


def test_replicas_must_be_a_count() -> None:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = Schema(an_object(spec=an_object(replicas=INTEGER)), scale=scale)
    assert said(schema, an_obj(spec={"replicas": 2})) == []
    assert said(schema, an_obj(spec={"replicas": -1})) == [
        ".spec.replicas: Invalid value: -1: should be a non-negative integer"
    ]


# The status


def test_a_write_to_the_status_is_held_to_the_statuss_part() -> None:
    obj = an_obj(spec={"min": "wrong"}, status={"phase": "C", "n": "x"})
    assert said(RULE, obj, an_obj(spec={}), subresource="status") == [
        'status.n: Invalid value: "string": n in body must be of type integer: "string"',
        'status.phase: Unsupported value: "C": supported values: "A", "B"',
        UNCHECKED,
    ]
    assert said(RULE, an_obj(status={}), an_obj(), subresource="status")[0] == "status.phase: Required value"


# Rules


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        ({"min": 1, "max": 2}, []),
        ({"min": 3, "max": 2}, ["spec.min: Invalid value: min exceeds max"]),
        ({"name": "bcd"}, ["spec.name: Forbidden: failed rule: self.startsWith('a')"]),
        (
            {"hosts": ["b.org"]},
            [
                "spec.hosts: Invalid value: first host: b.org",
                "spec.hosts: Invalid value: failed rule: self.exists(h, h == 'a.com')",
            ],
        ),
        ({"grace": "2h"}, ["spec: Invalid value: at most 1h"]),
        (
            {"either": 0},
            ["spec.either: Invalid value: 0: failed rule: type(self) == string ? self.endsWith('%') : self > 0"],
        ),
        ({"once": "a"}, ['spec.once: Duplicate value: "a"']),
        ({"labels": {"a": "abcd"}}, ['spec.labels[a]: Invalid value: "abcd": failed rule: self.size() < 4']),
        (
            {"options": {"b": "x"}},
            ["spec.options: Invalid value: \"object\": no such key: a evaluating rule: self.a != 'boom'"],
        ),
        ({"odd-name": {"a.b": 1}}, ["spec.odd-name: Invalid value: failed rule: self.a__dot__b > 1"]),
    ],
)
def test_rules_are_kept(spec: JsonObject, messages: list[str]) -> None:
    assert said(RULE, an_obj(spec=spec)) == messages


def test_rules_see_the_name() -> None:
    assert said(RULE, an_obj("x")) == ["<nil>: Invalid value: names begin with o"]


def test_rules_wait_until_the_object_is_well_formed() -> None:
    assert said(RULE, an_obj("x", spec={"min": "a"})) == [
        'spec.min: Invalid value: "string": spec.min in body must be of type integer: "string"',
        UNCHECKED,
    ]


def test_rules_about_changes_need_a_before() -> None:
    old = an_obj(spec={"name": "abc", "parts": [{"name": "a", "size": 2}], "once": "ab"})
    same = an_obj(spec={"name": "abc", "parts": [{"name": "b", "size": 0}, {"name": "a", "size": 2}], "once": "ab"})
    assert said(RULE, same, old) == []
    changed = an_obj(spec={"name": "abd", "parts": [{"name": "b", "size": 0}, {"name": "a", "size": 1}], "once": "cd"})
    assert said(RULE, changed, old) == [
        'spec.name: Invalid value: "abd": name is immutable',
        'spec.once: Invalid value: "cd": can be set once',
        "spec.parts[1].size: Invalid value: parts do not shrink",
    ]


def test_a_rule_lets_pass_what_is_unchanged() -> None:
    old = an_obj(spec={"labels": {"a": "abcdef"}})
    assert said(RULE, an_obj(spec=old["spec"] | {"min": 1}), old) == []
    assert said(RULE, an_obj(spec={"labels": {"a": "abcdefg"}}), old) != []


def test_rules_see_times_sets_and_maps_as_such() -> None:
    schema = Schema(
        an_object(
            spec=with_rules(
                an_object(
                    at={"type": "string", "format": "date-time"},
                    set={"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
                    number={"type": "number"},
                    inner=an_object(x=STRING) | {"x-kubernetes-embedded-resource": True},
                ),
                a_rule("self.at < timestamp('2024-01-01T00:00:00Z')"),
                a_rule("self.set == ['b', 'a'] && self.number + 0.5 == 1.5 && self.inner.metadata.name == 'n'"),
            )
        )
    )
    inner = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}}
    spec = {"at": "2023-12-31T23:59:59Z", "set": ["a", "b"], "number": 1, "inner": inner}
    assert said(schema, an_obj(spec=spec)) == []
    assert len(said(schema, an_obj(spec=spec | {"at": "2024-12-31T23:59:59Z", "number": 2}))) == 2


# Filling in and pruning


def test_defaults_are_filled_in_where_there_is_an_object_to_hold_them() -> None:
    base = {"mode": "auto", "count": 3, "nested": {"a": "x"}}
    assert DEFAULT.defaulted({}) == {}
    assert DEFAULT.defaulted({"spec": {}}) == {"spec": base}
    spec = {"nested": {"deep": {}}, "list": [{}, {"p": "UDP"}], "map": {"a": {}}, "texts": {"x": None}}
    assert DEFAULT.defaulted({"spec": spec})["spec"] == base | {
        "nested": {"a": "x", "deep": {"b": 1}},
        "list": [{"p": "TCP"}, {"p": "UDP"}],
        "map": {"a": {"d": True}},
        "texts": {"x": "d"},
    }


def test_a_null_gets_the_default_unless_it_is_allowed() -> None:
    obj, _ = DEFAULT.pruned({"spec": {"mode": None, "count": None, "nulls": {"n": None, "m": None}}})
    assert obj == {"spec": {"mode": None, "count": None, "nulls": {"m": None}}}
    assert DEFAULT.defaulted(obj)["spec"] == {"mode": "auto", "count": None, "nulls": {"m": None}, "nested": {"a": "x"}}


def test_what_the_schema_does_not_know_is_pruned_and_named() -> None:
    template = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n", "odd": 1}, "spec": {"a": "b", "c": 1}}
    obj = an_obj(spec={"items": [{"a": "x", "b": 1}], "free": {"any": {"thing": 1}}, "template": template}, more=1)
    kept, unknown = DEFAULT.pruned(obj)
    assert unknown == ["more", "spec.items[0].b", "spec.template.spec.c", "spec.template.metadata.odd"]
    assert kept == an_obj(
        spec={
            "items": [{"a": "x"}],
            "free": {"any": {"thing": 1}},
            "template": template | {"metadata": {"name": "n"}, "spec": {"a": "b"}},
        }
    )


def test_known_parts_of_a_free_object_are_pruned_all_the_same() -> None:
    kept, unknown = VALUE.pruned({"spec": {"free": {"any": {"thing": 1}, "known": {"a": "x", "b": 1}}}})
    assert kept == {"spec": {"free": {"any": {"thing": 1}, "known": {"a": "x"}}}}
    assert unknown == ["spec.free.known.b"]


JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-5, 20) | some.floats(allow_nan=False) | some.text(max_size=4),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from(["a", "b", "x", "name"]), inner),
    max_leaves=8,
)
SPEC = some.dictionaries(some.sampled_from(sorted(schema_of(VALUES)["properties"]["spec"]["properties"])), JSON)


@given(SPEC)
def test_any_object_gets_an_answer_and_stays_untouched(spec: JsonObject) -> None:
    obj = an_obj(spec=spec)
    before = copy.deepcopy(obj)
    kept, _ = VALUE.pruned(obj)
    filled = VALUE.defaulted(kept)
    for cause in VALUE.errors(filled, obj):
        assert cause["reason"]
        assert cause["message"]
    assert obj == before
    assert VALUE.pruned(filled) == (filled, [])
    assert VALUE.defaulted(filled) == filled


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("[", "missing closing ]: `[`"),
        ("^(a", "missing closing ): `^(a`"),
        ("a)", "unexpected ): `a)`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("a**", "invalid nested repetition operator: `**`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
    ],
)
def test_a_pattern_is_refused_in_gos_words(pattern: str, problem: str) -> None:
    with pytest.raises(formats.PatternError) as wrong:
        formats.pattern(pattern)
    assert str(wrong.value) == problem


@pytest.mark.parametrize(
    ("pattern", "matches", "does_not"),
    [
        (r"^\d+$", "12", "\u0661"),
        (r"^[[:alpha:]_]+\z", "ab_", "ab1"),
        (r"^\p{L}+$", "äb", "1"),
        (r"^[]a]$", "]", "b"),
        (r"^(?P<n>a)|[$]$", "$", "b"),
        (r"^[a[]$", "[", "b"),
    ],
)
def test_a_pattern_means_what_it_means_to_go(pattern: str, matches: str, does_not: str) -> None:
    assert formats.pattern(pattern).search(matches)
    assert not formats.pattern(pattern).search(does_not)
