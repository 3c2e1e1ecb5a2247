"""`make mutants` changes what it should, and nothing else."""

import ast

import pytest

from mutation.changes import mutants_of


def changes(body: str) -> set[tuple[str, str]]:
    return {(it.before, it.after) for it in mutants_of(f"def f(a, b):\n    {body}\n")}


@pytest.mark.parametrize(
    ("body", "before", "after"),
    [
        ("return a < b", "a < b", "a <= b"),
        ("return a is None", "a is None", "a is not None"),
        ("return a in b", "a in b", "a not in b"),
        ("return a and b", "a and b", "((a) or (b))"),
        ("return not a", "not a", "bool(a)"),
        ("return a if b else 1", "b", "(not (b))"),
        ("return [it for it in a if it.b]", "it.b", "(not (it.b))"),
        ("return a + b", "a + b", "a - b"),
        ("return min(a, b)", "min", "max"),
        ("return 1", "1", "2"),
        ("return True", "True", "False"),
        ("a.go(b)", "a.go(b)", "pass"),
        ("raise ValueError(a)", "raise ValueError(a)", "pass"),
        ("a += b", "a += b", "pass"),
    ],
)
def test_a_change_that_a_test_should_notice_is_made(body: str, before: str, after: str) -> None:
    assert (before, after) in changes(body)


@pytest.mark.parametrize("body", ["log.info('x %s', 1)", "'''Text.'''", "return f'{a + 1}'", "raise"])
def test_what_no_test_should_depend_on_is_left_alone(body: str) -> None:
    assert changes(body) == set()


def test_module_constants_are_left_alone() -> None:
    assert mutants_of("LIMIT = 5\nNAMES = [it for it in (1, 2) if it]\n") == []


def test_a_mutant_differs_in_one_place_and_can_be_read() -> None:
    source = "def f(ä, b):\n    if ä < b and ä:  # größer\n        return 'é' if b else ä\n    return None\n"
    found = mutants_of(source)
    assert found
    for mutant in found:
        ast.parse(mutant.source)
        assert mutant.source != source
        assert mutant.source.count("\n") == source.count("\n")
