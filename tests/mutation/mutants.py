"""The mutations of a module, each a single change. Pure.

Excluded is what no test should depend on: log lines, messages, module constants (limits and intervals for tuning),
annotations, and code that runs only for a type checker.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGGERS = ("log", "logger", "_logger")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one change.

    `name` identifies it in its module, and does not change when lines move: `Class.function: before -> after`.
    """

    line: int
    before: str
    after: str
    source: str  # of the whole module
    name: str


def mutants_of(source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of their lines."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return list(_numbered(sorted(finder.found, key=lambda mutant: mutant.line)))


def _numbered(mutants: list[Mutant]) -> Iterator[Mutant]:
    """Add a number to each name that an earlier mutant has."""
    numbers: Counter[str] = Counter()
    for mutant in mutants:
        numbers[mutant.name] += 1
        number = numbers[mutant.name]
        yield mutant if number == 1 else replace(mutant, name=f"{mutant.name} #{number}")


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.found: list[Mutant] = []
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line.encode()))
        self._bytes = source.encode()
        self._depth = 0
        self._scope: list[str] = []

    # Where nothing is changed

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and self._depth:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._depth:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._depth += 1
        self._visit_body(node)
        self._depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that `ast` calls

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_body(node)

    def _visit_body(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    # Statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _is_log(node.value):
            return
        if isinstance(node.value, (ast.Call, ast.Await)):
            self._add(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self._add(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "continue")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass")
        self.visit(node.value)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
        for child in (node.test, *node.body):
            self.visit(child)

    # Expressions

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            new = _COMPARISONS[type(node.ops[0])]
            self._add(node, f"{self._text(node.left)} {new} {self._text(node.comparators[0])}")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        operator = " or " if isinstance(node.op, ast.And) else " and "
        self._add(node, "(" + operator.join(f"({self._text(value)})" for value in node.values) + ")")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"bool({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        swapped = {ast.Add: "-", ast.Sub: "+"}.get(type(node.op))
        if swapped and not _is_text(node.left) and not _is_text(node.right):
            self._add(node, f"{self._text(node.left)} {swapped} {self._text(node.right)}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            self._add(node.func, _CALLS[node.func.id])
        if not _is_log(node):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts alone."""

    # How it is noted

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, (ast.Compare, ast.UnaryOp)):
            self._add(test, f"(not ({self._text(test)}))")

    def _add(self, node: ast.expr | ast.stmt, new: str) -> None:
        if not self._depth:
            return
        start, end = self._span(node)
        source = (self._bytes[:start] + new.encode() + self._bytes[end:]).decode()
        try:
            ast.parse(source)
        except SyntaxError:  # such as a walrus that lost its brackets
            return
        before = self._bytes[start:end].decode()
        name = " ".join(f"{'.'.join(self._scope)}: {before} -> {new}".split())
        self.found.append(Mutant(node.lineno, before, new, source, name))

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._bytes[start:end].decode()

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        if node.end_lineno is None or node.end_col_offset is None:
            raise ValueError("a node without an end")
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_log(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in _LOGGERS


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
