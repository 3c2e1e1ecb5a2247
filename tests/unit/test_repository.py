"""Rules about the code that no linter knows."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def test_no_task_is_made_that_nobody_holds() -> None:
    """A loop forgets its tasks: one whose result is thrown away may vanish half-way. Task groups keep theirs."""
    thrown_away = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Expr) and _makes_a_task_on_a_loop(node.value)
    ]
    assert thrown_away == []


def _makes_a_task_on_a_loop(call: ast.expr) -> bool:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "create_task"):
        return False
    return "loop" in ast.unparse(call.func.value)
