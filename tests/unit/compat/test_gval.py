"""The expressions of prometheusInstant, compared with gval 1.2.4."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.compat import gval
from haulout.compat.gval import GvalError

GO: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "go_expressions.json").read_text())


def outcome(text: str, value: float) -> str | None:
    try:
        return "true" if gval.parse(text).is_true(value) else "false"
    except GvalError:
        return None


def test_expressions_evaluate_as_in_gval() -> None:
    assert len(GO) > 600
    ours = {(row["expr"], row["value"]): outcome(row["expr"], float(row["value"])) for row in GO}
    assert ours == {(row["expr"], row["value"]): row.get("output") for row in GO}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("value >", "expected a value at character 8, found the end"),
        ("value = 5", "expected a number, a name, a text or an operator at character 7, found = 5"),
        ("(value", "expected ) at character 7, found the end"),
        ("value 5", "expected an operator or the end at character 7, found 5"),
        ("'abc' == value", "expected one character in single quotes"),
        ('value =~ "("', "expected a regular expression"),
    ],
)
def test_syntax_error_is_reported_with_its_position(text: str, message: str) -> None:
    with pytest.raises(GvalError) as caught:
        gval.parse(text)
    assert message in str(caught.value)


def test_result_that_is_no_boolean_or_number_is_an_error() -> None:
    with pytest.raises(GvalError, match="expected true, false or a number"):
        gval.parse('"abc"').is_true(1)


def test_unknown_names_are_listed() -> None:
    assert gval.parse("value > 1 && (values < 2 || val > values)").unknown_names == ("values", "val")
    assert gval.parse("value > 1").unknown_names == ()


def test_equal_texts_parse_to_equal_expressions() -> None:
    assert gval.parse("value > 1") == gval.parse("value > 1") != gval.parse("value > 2")


@pytest.mark.parametrize("text", ["(" * 1000, "-" * 1000 + "1", "+".join(["1"] * 1000), "1" * 20_000, "1 ? " * 200])
def test_size_and_depth_are_limited(text: str) -> None:
    with pytest.raises(GvalError, match="expected"):
        gval.parse(text)


@given(st.text(alphabet="value 0159.+-*/%<>=!&|^~?:()[],\"in'e"), st.floats())
def test_any_text_is_evaluated_or_raises_gval_error(text: str, value: float) -> None:
    outcome(text, value)


@given(
    st.recursive(
        st.sampled_from(["value", "1", "0", "2.5", '"a"', "true", "[1]", "1e300"]),
        lambda inner: st.tuples(
            inner,
            st.sampled_from(
                ["+", "-", "*", "/", "%", "**", "<<", ">>", "&", "|", "^", "==", "<", ">", "&&", "||", "??", "in", "=~"]
            ),
            inner,
        ).map(lambda parts: f"({' '.join(parts)})"),
        max_leaves=12,
    ),
    st.floats(),
)
def test_any_expression_is_evaluated_or_raises_gval_error(text: str, value: float) -> None:
    outcome(text, value)
