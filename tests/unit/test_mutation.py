"""Mutation testing with `make mutants`."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from mutation import equivalents
from mutation.mutants import mutants_of
from mutation.trial import SourceCopy, TrialResult


def changes(body: str) -> set[tuple[str, str]]:
    return {(item.before, item.after) for item in mutants_of(f"def f(a, b):\n    {body}\n")}


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
def test_mutations_that_tests_should_detect_are_generated(body: str, before: str, after: str) -> None:
    assert (before, after) in changes(body)


@pytest.mark.parametrize("body", ["log.info('x %s', 1)", "'''Text.'''", "return f'{a + 1}'", "raise"])
def test_logs_docstrings_and_messages_are_not_mutated(body: str) -> None:
    assert changes(body) == set()


def test_module_constants_are_not_mutated() -> None:
    assert mutants_of("LIMIT = 5\nNAMES = [it for it in (1, 2) if it]\n") == []


def test_mutant_differs_in_one_place_and_is_valid_python() -> None:
    source = "def f(ä, b):\n    if ä < b and ä:  # größer\n        return 'é' if b else ä\n    return None\n"
    found = mutants_of(source)
    assert found
    for mutant in found:
        ast.parse(mutant.source)
        assert mutant.source != source
        assert mutant.source.count("\n") == source.count("\n")


def test_name_of_a_mutant_is_unique_and_independent_of_lines() -> None:
    source = "class A:\n    def f(self, a):\n        return a < 1 or a < 1\n"
    names = [item.name for item in mutants_of(source)]
    assert {"A.f: a < 1 -> a <= 1", "A.f: a < 1 -> a <= 1 #2"} <= set(names)
    assert len(set(names)) == len(names)
    assert [item.name for item in mutants_of(f"import x\n\n\n{source}")] == names


def test_stale_equivalent_mutants_are_found() -> None:
    named = {"a.py": {"f: a < 1 -> a <= 1": "it is never 1", "g: 1 -> 2": "it is cut"}, "b.py": {"h: 1 -> 2": "so"}}
    assert equivalents.stale_entries(named, {"a.py": {"f: a < 1 -> a <= 1"}}) == ["a.py g: 1 -> 2", "b.py h: 1 -> 2"]


def test_each_equivalent_mutant_has_a_reason() -> None:
    assert all(why for names in equivalents.read().values() for why in names.values())


@pytest.mark.parametrize(("test", "result"), [("test_f", TrialResult.KILLED), ("test_gone", TrialResult.BROKEN)])
def test_mutant_with_an_import_error_is_killed_and_a_missing_test_is_broken(
    tmp_path: Path, test: str, result: TrialResult
) -> None:
    source = "def f(a):\n    return a + 1\n\n\nassert f(1) == 2\n"
    (tmp_path / "src" / "haulout").mkdir(parents=True)
    (tmp_path / "src" / "haulout" / "__init__.py").touch()  # else the installed package goes first
    (tmp_path / "src" / "haulout" / "m.py").write_text(source)
    (tmp_path / "test_m.py").write_text("from haulout.m import f\n\n\ndef test_f():\n    assert f\n")
    broken, harmless = (next(item for item in mutants_of(source) if item.before == text) for text in ("a + 1", "1"))
    mutant = broken if result is TrialResult.KILLED else replace(harmless, source=source)
    tried = SourceCopy(tmp_path, tmp_path / "copy").run("m.py", mutant, {f"test_m.py::{test}": 0.0}, max_seconds=1)
    assert tried.result is result
