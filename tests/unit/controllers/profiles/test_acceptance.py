"""Every acceptance case of the contract is tested: a test names its cases in its docstring, or one in its name.

`grep -rni c07 tests` finds where.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[3]
_CASE = re.compile(r"\b[CNPISKXUE]\d\d\b")
_NAMED = re.compile(r"^test_([cnpiskxue]\d\d)_")


def _numbered(letter: str, last: int) -> Iterator[str]:
    yield from (f"{letter}{number:02}" for number in range(1, last + 1))


CASES = (
    *_numbered("C", 40),  # the controller
    *_numbered("N", 2),  # the filter of labels
    *_numbered("P", 27),  # chains, schedules and the registry
    *_numbered("I", 20),  # plugins
    *_numbered("S", 12),  # states
    *_numbered("K", 2),  # the cache of information, weekdays
    *_numbered("X", 6),  # end to end
    *_numbered("U", 6),  # Kubernikus
    *_numbered("E", 10),  # ESX
)
# What no test of the SAP maintenance-controller covers, in the words of the contract.
UNCOVERED = (
    "env interpolation forms other than `${X}`",
    "reload while running",
    "broken configuration",
    "oneshot inside the controller",
    "two profiles becoming eligible in one reconcile",
    "same `next` twice",
    "retry signal in enter and trigger through the whole controller",
    "patch failure",
    "profile removal while in maintenance",
    "drain against a disruption budget",
    "force deletion deadline",
    "default profile redefinition",
    "time zone of the initial Transition",
    "ESX running `EnterMaintenanceMode_Task`",
    "alarm labelling",
    "Kubernikus VM deletion",
)


@cache
def docstrings() -> str:
    """Return the docstrings of all tests, one per line."""
    found = []
    for file in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(file.read_text())
        functions = [item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
        tests = [item for item in functions if item.name.startswith("test_")]
        found += [ast.get_docstring(item) or "" for item in tests]
        found += [name[1].upper() for item in tests if (name := _NAMED.match(item.name))]
    return "\n".join(" ".join(item.split()) for item in found)


@pytest.mark.parametrize("case", CASES)
def test_acceptance_case_is_tested(case: str) -> None:
    assert case in set(_CASE.findall(docstrings())), f"no test has {case} in its docstring"


@pytest.mark.parametrize("case", UNCOVERED)
def test_previously_uncovered_case_is_tested(case: str) -> None:
    uncovered_lines = [item for item in docstrings().splitlines() if "12.9:" in item]
    assert any(case in item for item in uncovered_lines), f"no test says `12.9: {case}`"


def test_tests_name_only_existing_cases() -> None:
    assert set(_CASE.findall(docstrings())) <= set(CASES)
