"""What rules of custom resources can say, and what comes of it when they fail."""

import contextlib
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from haulout_sandbox.apiserver import cel, structural
from haulout_sandbox.apiserver.cel import CelError, CelSyntaxError, Maybe
from haulout_sandbox.apiserver.cel_values import MapList, SetList
from support.definitions import INTEGER, STRING, an_object

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
    return cel.compiled(expression).evaluate({"self": SELF, "oldSelf": {"replicas": 4}} | variables)


@pytest.mark.parametrize(
    "expression",
    [
        "self.least <= self.replicas && self.replicas >= oldSelf.replicas",
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9",
        "-7 / 2 == -3 && -7 % 2 == -1 && 7 - 10 == -3",
        "7.0 / 2.0 == 3.5 && 1 == 1.0 && 2 > 1.5 && 1u == 1",
        "'a' + 'b' == \"ab\" && r'\\n'.size() == 2 && '\\n\\u00e4'.size() == 2 && b'ab' == bytes('ab')",
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
        "cel.bind(x, self.least + 1, x * x == 4)",
        "self.name.startsWith('cart') && self.name.endsWith('0') && self.name.contains('-')",
        "self.name.matches('^[a-z]+-[0-9]$') && matches('a', 'a') && !'a\\n'.matches('^a$')",
        "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a'.find('x') == ''",
        "'abc'.charAt(1) == 'b' && 'abcb'.indexOf('b') == 1 && 'abcb'.lastIndexOf('b') == 3 && 'a'.indexOf('x') == -1",
        "'aBä'.lowerAscii() == 'abä' && 'aBä'.upperAscii() == 'ABä' && ' a '.trim() == 'a'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
        "'abcd'.substring(1) == 'bcd' && 'abcd'.substring(1, 3) == 'bc' && 'aab'.replace('a', 'x', 1) == 'xab'",
        "'%s has %d of %.1f%%'.format(['a', 3, 2.5]) == 'a has 3 of 2.5%' && '%s'.format([[1, true]]) == '[1, true]'",
        "[1, 2].isSorted() && [1, 2].sum() == 3 && [3, 1].min() == 1 && [3, 1].max() == 3",
        "[1, 1].lastIndexOf(1) == 1 && [1, 1].indexOf(1) == 0 && [1].indexOf(2) == -1",
        "[2, 1].sort() == [1, 2] && [1, 2].reverse() == [2, 1] && [1, 1].distinct() == [1]",
        "[[1], [2]].flatten() == [1, 2] && [[[1]]].flatten(2) == [1]",
        "lists.range(3) == [0, 1, 2] && [1, 2, 3].slice(1, 2) == [2]",
        "sets.contains([1, 2], [1]) && sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1], [1, 2])",
        "int('5') == 5 && int(5.9) == 5 && double('1.5') == 1.5 && string(5) == '5' && bool('true') && uint(1) == 1u",
        "string(1.0) == '1' && string(true) == 'true' && string(b'a') == 'a' && string(duration('1m')) == '60s'",
        "type(1) == int && type('a') == string && type([]) == list && type(null) == null_type && dyn(1) == 1",
        "duration('1h30m') == self.span && self.span > duration('1h') && self.span.getMinutes() == 90",
        "self.when + duration('2h') > self.when && self.when - self.when == duration('0s')",
        "timestamp('2024-02-29T22:30:05.007Z') == self.when && timestamp('2024-02-29T23:30:05.007+01:00') == self.when",
        "self.when.getFullYear() == 2024 && self.when.getMonth() == 1 && self.when.getDate() == 29",
        "self.when.getDayOfMonth() == 28 && self.when.getDayOfWeek() == 4 && self.when.getDayOfYear() == 59",
        "self.when.getHours() == 22 && self.when.getHours('+02:00') == 0 && self.when.getHours('Europe/Berlin') == 23",
        "self.when.getMilliseconds() == 7 && self.when.getSeconds() == 5",
        "self.?other.orValue(3) == 3 && self.?least.orValue(3) == 1 && !self.?a.b.c.hasValue()",
        "optional.of(1).value() == 1 && optional.none().or(optional.of(2)).orValue(0) == 2",
        "self.?least.optMap(x, x + 1).orValue(0) == 2 && [1][?5].orValue(7) == 7",
        "self.?least.optFlatMap(x, optional.none()).orValue(9) == 9 && !optional.ofNonZeroValue(0).hasValue()",
        "true // what follows is not read",
        "null == null && self != null",
    ],
)
def test_this_is_true(expression: str) -> None:
    assert value_of(expression) is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("self.other == 1", "no such key: other"),
        ("[1][5] == 1", "index out of bounds: 5"),
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("dyn(1) + 1.0 == 2.0", "no such overload"),
        ("dyn(1) < 'a'", "no such overload"),
        ("dyn(1) && true", "no such overload"),
        ("dyn('a').size() > dyn('a')", "no such overload"),
        ("int('x') == 1", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("duration('x') == duration('1s')", 'time: invalid duration "x"'),
        ("'abc'.substring(2, 1) == ''", "invalid substring range. start: 2, end: 1"),
        ("'abc'.charAt(9) == ''", "index out of range: 9"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("[].min() == 1", "min called on empty list"),
        ("self.name.other == 1", "no such key: other"),
    ],
)
def test_an_evaluation_fails_in_cels_words(expression: str, message: str) -> None:
    with pytest.raises(CelError) as failed:
        value_of(expression)
    assert str(failed.value) == message


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
    ("expression", "shown"),
    [
        ("other == 1", "1:1: undeclared reference to 'other' (in container '')\n | other == 1\n | ^"),
        ("self.nope()", "1:10: undeclared reference to 'nope' (in container '')\n | self.nope()\n | .........^"),
        ("has(self)", "1:1: invalid argument to has() macro\n | has(self)\n | ^"),
        ("true &&\n  # ", "2:3: Syntax error: token recognition error at: '#'\n |   # \n | ..^"),
        ("(true", "1:6: Syntax error: mismatched input '<EOF>'\n | (true\n | .....^"),
    ],
)
def test_what_is_wrong_without_any_object_is_told_with_its_place(expression: str, shown: str) -> None:
    with pytest.raises(CelSyntaxError) as wrong:
        cel.compiled(expression)
    assert cel.explained(wrong.value, expression) == f"ERROR: <input>:{shown}"


@pytest.mark.parametrize(
    "expression", ["1 +", "self.all(1, true)", "size()", "a b", "'x", "self.", "cel.bind(1, 2, 3)", "["]
)
def test_half_an_expression_is_none(expression: str) -> None:
    with pytest.raises(CelSyntaxError):
        cel.compiled(expression)


def test_an_expression_can_be_too_deep() -> None:
    with pytest.raises(CelSyntaxError, match="recursion limit"):
        cel.compiled("(" * 100_000)


def test_a_function_that_is_not_there_is_refused_before_it_is_called() -> None:
    with pytest.raises(CelSyntaxError, match="undeclared reference to 'quantity'"):
        cel.compiled("false && quantity('1k').sign() == 1")


def test_fields_that_the_schema_has_not_are_found_before_any_object_is() -> None:
    node = structural.compiled(
        an_object({"a.b": INTEGER}, name=STRING, list={"type": "array", "items": an_object(x=INTEGER)}, map=MAP)
    )
    known = {"self": node, "oldSelf": node}
    cel.compiled("self.name == '' && self.list[0].x == 1 && self.list.all(i, i.x > 0)", known)
    cel.compiled("self.map.any == '' && self.a__dot__b > 0", known)
    for wrong, message in (
        ("self.nam == ''", "undefined field 'nam'"),
        ("has(self.nam)", "undefined field 'nam'"),
        ("self.list[0].y == 1", "undefined field 'y'"),
        ("self.list.all(i, i.y > 0)", "undefined field 'y'"),
        ("cel.bind(l, self.list, l[0].y > 0)", "undefined field 'y'"),
        ("self.name.x == ''", "type 'string' does not support field selection"),
    ):
        with pytest.raises(CelSyntaxError, match=message):
            cel.compiled(wrong, known)


MAP = {"type": "object", "additionalProperties": STRING}


def test_a_program_knows_which_variables_it_reads() -> None:
    assert cel.compiled("self.all(oldSelf, oldSelf > 1)").names == {"self"}
    assert cel.compiled("self > 1 || oldSelf > 1").names == {"self", "oldSelf"}


def test_optional_variables_are_optional() -> None:
    rule = "!oldSelf.hasValue() || oldSelf.value() == self"
    assert value_of(rule, self="a", oldSelf=Maybe()) is True
    assert value_of(rule, self="a", oldSelf=Maybe("a")) is True
    assert value_of(rule, self="a", oldSelf=Maybe("b")) is False


def test_lists_that_are_sets_or_maps_are_equal_whatever_their_order_and_add_up_without_duplicates() -> None:
    assert value_of("self == oldSelf", self=SetList(["a", "b"]), oldSelf=SetList(["b", "a"])) is True
    assert value_of("self + oldSelf", self=SetList(["a", "b"]), oldSelf=["b", "c"]) == ["a", "b", "c"]
    one, other = MapList([{"k": 1, "v": 1}, {"k": 2, "v": 2}]), MapList([{"k": 2, "v": 2}, {"k": 1, "v": 1}])
    one.keys = other.keys = ("k",)
    assert value_of("self == oldSelf", self=one, oldSelf=other) is True
    assert value_of("self + oldSelf", self=one, oldSelf=[{"k": 2, "v": 3}])[1] == {"k": 2, "v": 3}
    assert value_of("self == oldSelf", self=["a", "b"], oldSelf=["b", "a"]) is False


@given(some.integers(-(2**63), 2**63 - 1), some.integers(-(2**63), 2**63 - 1).filter(bool))
def test_division_and_remainder_are_gos(one: int, other: int) -> None:
    if abs(one) == 2**63 and other == -1:
        return
    quotient = value_of("self / oldSelf", self=one, oldSelf=other)
    assert quotient == math.trunc(abs(one) // abs(other)) * (1 if (one < 0) == (other < 0) else -1)
    assert quotient * other + value_of("self % oldSelf", self=one, oldSelf=other) == one


@given(some.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(CelSyntaxError):
        cel.compiled(text)
