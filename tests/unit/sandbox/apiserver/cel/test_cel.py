"""What rules about objects can say, and what comes of it when they fail."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from haulout_sandbox.apiserver import cel
from haulout_sandbox.apiserver.cel import CelError, CelSyntaxError

NAMES = ("self", "oldSelf")
SELF: dict[str, Any] = {
    "replicas": 5,
    "least": 1,
    "name": "cart-0",
    "items": [{"n": "x", "size": 2}, {"n": "y", "size": 1}],
    "labels": {"app": "shop"},
    "when": datetime(2024, 2, 29, 22, 30, 5, 7000, tzinfo=UTC),
    "span": timedelta(minutes=90),
}


def value_of(expression: str, **variables: Any) -> Any:
    return cel.compile_expression(expression, NAMES).evaluate({"self": SELF, "oldSelf": {"replicas": 4}} | variables)


@pytest.mark.parametrize(
    "expression",
    [
        "self.least <= self.replicas && self.replicas >= oldSelf.replicas",
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9",
        "-7 / 2 == -3 && -7 % 2 == -1 && 7 - 10 == -3",
        "7.0 / 2.0 == 3.5 && 1 == 1.0 && 2 > 1.5 && !(1 == true)",
        "'a' + 'b' == \"ab\" && r'\\n'.size() == 2 && '\\n\\u00e4'.size() == 2",
        "'''a'b''' == 'a\\'b' && 'x' < 'y'",
        "[1, 2] + [3] == [1, 2, 3] && {'a': 1}.a == 1 && {'a': 1}['a'] == 1 && [1, 2,][1] == 2",
        "0x10 == 16 && 1e3 == 1000.0 && .5 < 1.0",
        "!(1 == 2) && !!true && 1 != 2",
        "self.replicas == 5 ? true : 1 / 0 == 0",
        "'app' in self.labels && 1 in [1, 2] && !(3 in [1, 2])",
        "has(self.name) && !has(self.other)",
        "has(self.other) || self.name == 'cart-0'",
        "size(self.items) == 2 && self.items.size() == 2 && size({}) == 0",
        "self.items.all(i, i.size > 0) && self.items.exists(i, i.n == 'x') && self.items.exists_one(i, i.size == 2)",
        "self.items.map(i, i.n) == ['x', 'y'] && self.items.map(i, i.size > 1, i.n) == ['x']",
        "self.items.filter(i, i.n != 'x')[0].n == 'y' && self.labels.all(k, k == 'app')",
        "self.name.startsWith('cart') && self.name.endsWith('0') && self.name.contains('-')",
        "self.name.matches('^[a-z]+-[0-9]$') && matches('a', 'a') && !'a\\n'.matches('^a$')",
        "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a'.find('x') == ''",
        "'abc'.charAt(1) == 'b' && 'abcb'.indexOf('b') == 1 && 'abcb'.lastIndexOf('b') == 3 && 'a'.indexOf('x') == -1",
        "'aBä'.lowerAscii() == 'abä' && 'aBä'.upperAscii() == 'ABä' && ' a '.trim() == 'a'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && ['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
        "'abcd'.substring(1) == 'bcd' && 'abcd'.substring(1, 3) == 'bc' && 'aab'.replace('a', 'x') == 'xxb'",
        "'%s has %d of %.1f%%'.format(['a', 3, 2.5]) == 'a has 3 of 2.5%' && '%s'.format([[1, true]]) == '[1, true]'",
        "[1, 2].isSorted() && [1, 2].sum() == 3 && [3, 1].min() == 1 && [3, 1].max() == 3",
        "[2, 1].sort() == [1, 2] && [1, 2].reverse() == [2, 1] && [1, 1].distinct() == [1] && [1, 1].indexOf(1) == 0",
        "int('5') == 5 && int(5.9) == 5 && double('1.5') == 1.5 && string(5) == '5' && bool('true')",
        "string(1.0) == '1' && string(true) == 'true' && string(duration('1m')) == '60s'",
        "type(1) == int && type('a') == string && type([]) == list && type(null) == null_type && dyn(1) == 1",
        "duration('1h30m') == self.span && self.span > duration('1h') && self.span.getMinutes() == 90",
        "self.when + duration('2h') > self.when && self.when - self.when == duration('0s')",
        "timestamp('2024-02-29T22:30:05.007Z') == self.when && timestamp('2024-02-29T23:30:05.007+01:00') == self.when",
        "self.when.getFullYear() == 2024 && self.when.getMonth() == 1 && self.when.getDate() == 29",
        "self.when.getDayOfMonth() == 28 && self.when.getDayOfWeek() == 4 && self.when.getDayOfYear() == 59",
        "self.when.getHours() == 22 && self.when.getHours('+02:00') == 0 && self.when.getHours('Europe/Berlin') == 23",
        "quantity('1.5Gi').isGreaterThan(quantity('1500M')) && quantity('100m').compareTo(quantity('0.1')) == 0",
        "quantity('1k').add(quantity('24')) == quantity('1024') && quantity('1k').asInteger() == 1000",
        "isQuantity('5Mi') && !isQuantity('five') && quantity('-1').sign() == -1",
        "true // what follows is not read",
        "null == null && self != null",
    ],
)
def test_this_is_true(expression: str) -> None:
    assert value_of(expression) is True


@pytest.mark.parametrize(
    "expression",
    [
        "self.other == 1",
        "self.name.other == 1",
        "[1][5] == 1",
        "1 / 0 == 1",
        "1 % 0 == 1",
        "1 + 1.0 == 2.0",
        "1 < 'a'",
        "1 && true",
        "'a'.all(x, true)",
        "int('x') == 1",
        "duration('x') == duration('1s')",
        "timestamp('soon') == timestamp(0)",
        "quantity('five') == quantity('5')",
        "self.when + duration('90000000h') > self.when",
        "'abc'.substring(2, 1) == ''",
        "'abc'.charAt(9) == ''",
        "'a'.matches('(')",
        "'%d'.format([])  == ''",
        "[].min() == 1",
    ],
)
def test_an_evaluation_fails(expression: str) -> None:
    with pytest.raises(CelError):
        value_of(expression)


@pytest.mark.parametrize("settled", ["false && {}", "{} && false", "!(true || {})", "!({} || true)"])
def test_an_error_counts_only_if_the_other_side_does_not_settle_it(settled: str) -> None:
    assert value_of(settled.replace("{}", "1 / 0 == 1")) is False
    with pytest.raises(CelError):
        value_of(
            settled.replace("{}", "1 / 0 == 1").replace("true", "x").replace("false", "true").replace("x", "false")
        )


def test_one_item_settles_what_another_fails() -> None:
    assert value_of("[0, 1].exists(i, 1 / i == 1)") is True
    assert value_of("[0, 1].all(i, 1 / i == 2)") is False


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("other == 1", "unknown name 'other'"),
        ("self.nope()", "unknown function 'nope' of 1 values"),
        ("has(self)", r"the argument of has\(\) must be a field"),
        ("true && #", "unexpected '#' at position 9"),
        ("(true", "unexpected end"),
        ("(" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_wrong_without_any_object_is_told(expression: str, message: str) -> None:
    with pytest.raises(CelSyntaxError, match=message):
        cel.compile_expression(expression, NAMES)


@pytest.mark.parametrize("expression", ["1 +", "self.all(1, true)", "size()", "a b", "'x", "self.", "["])
def test_half_an_expression_is_none(expression: str) -> None:
    with pytest.raises(CelSyntaxError):
        cel.compile_expression(expression, NAMES)


def test_a_program_knows_which_variables_it_reads() -> None:
    assert cel.compile_expression("self.all(oldSelf, oldSelf > 1)", NAMES).variable_names == {"self"}
    assert cel.compile_expression("self > 1 || oldSelf > 1", NAMES).variable_names == {"self", "oldSelf"}


@given(some.integers(-(2**63), 2**63 - 1), some.integers(-(2**63), 2**63 - 1).filter(bool))
def test_whole_numbers_are_divided_towards_zero(one: int, other: int) -> None:
    quotient = value_of("self / oldSelf", self=one, oldSelf=other)
    assert quotient == abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    assert quotient * other + value_of("self % oldSelf", self=one, oldSelf=other) == one


@given(some.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(CelSyntaxError):
        cel.compile_expression(text, NAMES)
