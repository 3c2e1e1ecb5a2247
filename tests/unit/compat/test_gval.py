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


def test_every_expression_gives_what_gval_gives() -> None:
    assert len(GO) > 600
    ours = {(row["expr"], row["value"]): outcome(row["expr"], float(row["value"])) for row in GO}
    assert ours == {(row["expr"], row["value"]): row.get("output") for row in GO}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("value >", "expected a value at character 8, found the end"),
        ("value = 5", "expected a number, a name, a text or an operator at character 7, found = 5"),
        ("(value", "expected ) at character 7, found the end"),
        ("value 5", "expected an operator or the end at character 7, found 5"),
        ("'abc' == value", "expected one character in single quotes"),
        ('value =~ "("', "expected a regular expression"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(GvalError) as caught:
        gval.parse(text)
    assert told in str(caught.value)


def test_a_result_that_is_no_truth_is_told() -> None:
    with pytest.raises(GvalError, match="expected true, false or a number"):
        gval.parse('"abc"').is_true(1)


def test_names_without_a_value_are_known() -> None:
    assert gval.parse("value > 1 && (values < 2 || val > values)").unknown_names == ("values", "val")
    assert gval.parse("value > 1").unknown_names == ()


def test_equal_texts_are_equal_calculations() -> None:
    assert gval.parse("value > 1") == gval.parse("value > 1") != gval.parse("value > 2")


@pytest.mark.parametrize("text", ["(" * 1000, "-" * 1000 + "1", "+".join(["1"] * 1000), "1" * 20_000, "1 ? " * 200])
def test_size_and_depth_have_an_end(text: str) -> None:
    with pytest.raises(GvalError, match="expected"):
        gval.parse(text)


@given(st.text(alphabet="value 0159.+-*/%<>=!&|^~?:()[],\"in'e"), st.floats())
def test_any_text_is_calculated_or_refused(text: str, value: float) -> None:
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
def test_any_calculation_ends_in_an_answer_or_a_reason(text: str, value: float) -> None:
    outcome(text, value)
