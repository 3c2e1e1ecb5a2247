"""Rules about the code that no linter knows."""

import ast
from pathlib import Path

from support.file_order import LONGEST_FILES

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


def test_no_task_is_made_that_nobody_holds() -> None:
    """A loop forgets its tasks: one whose result is thrown away may vanish half-way. Task groups keep theirs."""
    thrown_away = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src", "sandbox")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Expr) and _makes_a_task_on_a_loop(node.value)
    ]
    assert thrown_away == []


def _makes_a_task_on_a_loop(call: ast.expr) -> bool:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "create_task"):
        return False
    return "loop" in ast.unparse(call.func.value)


def test_the_files_that_are_begun_first_are_there() -> None:
    """One that is renamed would be begun whenever, and be waited for in the end."""
    assert [item for item in LONGEST_FILES if not (TESTS / item).is_file()] == []
