"""Remedies: the check results that would make a chain pass."""

from hypothesis import given
from hypothesis import strategies as st

from haulout.compat import booleans
from haulout.controllers.profiles.explain.remedies import RequiredResult, remedies

NAMES = ("a", "b", "c", "d")
EXPRESSIONS = st.recursive(
    st.sampled_from(NAMES),
    lambda inner: st.one_of(
        inner.map("!({})".format),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} && {two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} || {two[1]})"),
    ),
    max_leaves=8,
)
VALUES = st.fixed_dictionaries({name: st.sampled_from((True, False, None)) for name in NAMES})


def test_each_of_several_alternatives_is_a_remedy() -> None:
    chain = booleans.parse("window && (approved || urgent)")
    values = {"window": True, "approved": False, "urgent": False}
    assert remedies(chain.evaluate, values) == ((RequiredResult("approved", True),), (RequiredResult("urgent", True),))


def test_several_changes_form_one_remedy() -> None:
    chain = booleans.parse("a && b && !c")
    values = {"a": False, "b": None, "c": True}
    assert remedies(chain.evaluate, values) == (
        (RequiredResult("a", True), RequiredResult("b", True), RequiredResult("c", False)),
    )


def test_passing_chain_needs_no_remedy() -> None:
    assert remedies(booleans.parse("a").evaluate, {"a": True}) == ()


def test_contradictory_chain_has_no_remedy() -> None:
    assert remedies(booleans.parse("a && !a").evaluate, {"a": True}) == ()


def test_remedies_of_a_very_long_chain_are_skipped() -> None:
    names = [f"n{number}" for number in range(40)]
    chain = booleans.parse(" && ".join(names))
    assert remedies(chain.evaluate, dict.fromkeys(names, False)) == ()


@given(EXPRESSIONS, VALUES)
def test_each_remedy_is_sufficient_and_minimal(text: str, values: dict[str, bool | None]) -> None:
    chain = booleans.parse(text)
    for remedy in remedies(chain.evaluate, values):
        assert chain.evaluate({**values, **{change.name: change.passed for change in remedy}}) is True
        for left_out in remedy:
            fewer = {change.name: change.passed for change in remedy if change is not left_out}
            assert chain.evaluate({**values, **fewer}) is not True


@given(EXPRESSIONS, VALUES)
def test_failing_chain_that_can_pass_has_a_remedy(text: str, values: dict[str, bool | None]) -> None:
    chain = booleans.parse(text)
    known = {name: bool(value) for name, value in values.items()}
    can_pass = any(
        chain.evaluate({name: bool(number >> at & 1) for at, name in enumerate(NAMES)})
        for number in range(2 ** len(NAMES))
    )
    if can_pass and not chain.evaluate(known):
        assert remedies(chain.evaluate, known)
