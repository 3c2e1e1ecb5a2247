"""Expressions over the names of checks, and chains of other names."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.compat import booleans
from haulout.compat.booleans import BooleanError


def problem(text: str) -> str:
    with pytest.raises(BooleanError) as caught:
        booleans.parse(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("a", "a"),
        ("!a", "not a"),
        ("!!a", "a"),
        ("a && b", "a and b"),
        ("a || b && c", "a or (b and c)"),
        ("a && b || c", "(a and b) or c"),
        ("!a && b", "(not a) and b"),
        ("!(a && b)", "not (a and b)"),
        ("(a || b) && !c", "(a or b) and not c"),
        ("a && !(b || c)", "a and not (b or c)"),
        ("a&&b", "a and b"),
        ("a||!b&&c", "a or (not b and c)"),
        ("a\n  && b\t|| c\n", "(a and b) or c"),
    ],
)
def test_expression_evaluates_as_in_python(text: str, python: str) -> None:
    expression = booleans.parse(text)
    for values in itertools.product([False, True], repeat=3):
        named = dict(zip("abc", values, strict=True))
        assert expression.evaluate(named) is eval(python, {}, named)  # noqa: S307 - the texts are the parameters above


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("a", None),
        ("!a", None),
        ("a && t", None),
        ("a && f", False),
        ("f && a", False),
        ("a || t", True),
        ("a || f", None),
        ("!(a && f)", True),
        ("a || !a", None),
    ],
)
def test_unknown_operand_makes_the_result_unknown_only_if_it_decides(text: str, outcome: object) -> None:
    assert booleans.parse(text).evaluate({"a": None, "t": True, "f": False}) is outcome


def test_names_are_in_text_order_with_repetitions() -> None:
    text = "instance && !(instance || other)"
    assert booleans.parse(text).names == ("instance", "instance", "other")
    assert str(booleans.parse(text)) == text


def test_names_may_have_hyphens_dots_and_letters_of_any_language() -> None:
    assert booleans.parse("reboot-ok && v1.2 || prüfung").names == ("reboot-ok", "v1.2", "prüfung")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a name, ! or (, found the end at character 1"),
        ("  ", "expected a name, ! or (, found the end at character 3"),
        ("a &&", "expected a name, ! or (, found the end at character 5"),
        ("&& a", "expected a name, ! or (, found && at character 1"),
        ("a b", "expected && or ||, found b at character 3"),
        ("a & b", "expected &&, found a single & at character 3"),
        ("a | b", "expected ||, found a single | at character 3"),
        ("(a", "expected &&, || or the ) of the ( at character 1, found the end at character 3"),
        ("a)", "expected && or ||, found ) at character 2"),
        ("a == b", "expected && or ||, found == at character 3"),
        ("a && true", "expected a name, found true, which is reserved at character 6"),
        ("()", "expected a name, ! or (, found ) at character 2"),
        ("a !b", "expected && or ||, found ! at character 3"),
    ],
)
def test_syntax_error_is_reported_with_its_position(text: str, message: str) -> None:
    assert problem(text) == message


def test_nesting_depth_is_limited_but_length_is_not() -> None:
    assert "parentheses inside each other" in problem("(" * 10_000)
    assert booleans.parse(" && ".join(["a"] * 10_000)).evaluate({"a": True})
    assert booleans.parse("!" * 10_001 + "a").evaluate({"a": False})


def test_parse_names_returns_names_in_order() -> None:
    assert booleans.parse_names("") == ()
    assert booleans.parse_names("a && b&&a") == ("a", "b", "a")
    assert booleans.parse_names(" with-hyphen ") == ("with-hyphen",)


@pytest.mark.parametrize("text", ["a &&", "&& a", "a && && b", "  "])
def test_parse_names_rejects_an_empty_name(text: str) -> None:
    with pytest.raises(BooleanError, match="expected a name, found none"):
        booleans.parse_names(text)


@given(st.text(alphabet="ab &|!()-\n"))
def test_any_text_is_parsed_or_raises_boolean_error(text: str) -> None:
    try:
        expression = booleans.parse(text)
    except BooleanError:
        return
    assert isinstance(expression.evaluate(dict.fromkeys(expression.names, True)), bool)
