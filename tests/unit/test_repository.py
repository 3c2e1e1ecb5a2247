"""Rules about the code that no linter knows."""

import ast
from pathlib import Path

from support.file_order import LONGEST_FILES

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


def test_results_of_create_task_are_not_discarded() -> None:
    """Event loops keep only weak references to tasks: a discarded one may be collected. Task groups keep theirs."""
    discarded = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src", "sandbox")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Expr) and _makes_a_task_on_a_loop(node.value)
    ]
    assert discarded == []


def _makes_a_task_on_a_loop(call: ast.expr) -> bool:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "create_task"):
        return False
    return "loop" in ast.unparse(call.func.value)


def test_longest_test_files_exist() -> None:
    """A renamed file would start late and delay the end of the test run."""
    assert [item for item in LONGEST_FILES if not (TESTS / item).is_file()] == []
