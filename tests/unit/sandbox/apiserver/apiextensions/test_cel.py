"""Validation rules of definitions: what is evaluated, what fails, and what is left to the real server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from haulout_sandbox.apiserver.apiextensions.cel import CelError, compile_rule

SELF: dict[str, Any] = {"name": "cart", "replicas": 5, "least": 1, "on": True, "from": 1, "nested": {"empty": None}}


def value_of(rule: str) -> Any:
    evaluate = compile_rule(rule)
    assert evaluate is not None, rule
    return evaluate({"self": SELF, "oldSelf": {"replicas": 4}})


@pytest.mark.parametrize(
    "rule",
    [
        "self.least <= self.replicas && self.replicas > oldSelf.replicas",
        "self.least < 2 && self.replicas >= 4.5 && self.name == 'cart' && self.name != \"shop\"",
        "has(self.name) && !has(self.other) && has(self.nested.empty) && !has(self.name.other)",
        "!has(self.other) ||\n self.other == 1",
        "!self.on == false && (self.on || self.other == 1)",
        "self.nested.empty == null && self.least != true",
        "self.name != 'a && !b || c'",
        "self.from < 2 && has(self.from) && self.name != 'a.from'",
    ],
)
def test_supported_rules_are_evaluated(rule: str) -> None:
    assert value_of(rule) is True


@pytest.mark.parametrize(
    "rule", ["self.other == 1", "self.name.other == 1", "self.name < 1", "self.name && true", "!self"]
)
def test_an_evaluation_fails(rule: str) -> None:
    with pytest.raises(CelError):
        value_of(rule)


@pytest.mark.parametrize("settled", ["false && {}", "{} && false", "!(true || {})", "!({} || true)"])
def test_an_error_counts_only_if_the_other_side_does_not_settle_the_result(settled: str) -> None:
    assert value_of(settled.replace("{}", "self.other == 1")) is False
    unsettled = settled.replace("true", "x").replace("false", "true").replace("x", "false")
    with pytest.raises(CelError):
        value_of(unsettled.replace("{}", "self.other == 1"))


@pytest.mark.parametrize(
    "rule",
    [
        "self.all(x, x > 1)",
        "size(self) < 4",
        "self.on ? 1 < 2 : false",
        "self.least + 1 == 2",
        "1 < self.least < 3",
        "has(self)",
        "other == 1",
        "self ==",
        "(" * 100_000,
    ],
)
def test_a_rule_with_other_parts_is_not_evaluated(rule: str) -> None:
    assert compile_rule(rule) is None


@given(some.text())
def test_no_text_breaks_the_compiler(text: str) -> None:
    compile_rule(text)
