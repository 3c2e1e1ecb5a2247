"""Compilation of a CEL syntax tree into a Python function."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from haulout_sandbox.apiserver.cel import functions
from haulout_sandbox.apiserver.cel.parser import (
    Call,
    CelSyntaxError,
    Expression,
    ListLiteral,
    Literal,
    Macro,
    MapLiteral,
    Name,
    Select,
    parse,
)
from haulout_sandbox.apiserver.cel.values import (
    MISSING,
    OPERATORS,
    TYPES,
    CelError,
    index,
    lookup,
    no_overload,
    require_boolean,
)

Scope = Mapping[str, Any]
_Code = Callable[[Scope], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A compiled expression."""

    variable_names: frozenset[str]  # the variables that the expression reads
    code: _Code

    def evaluate(self, variables: Scope) -> Any:
        """Return the value; raise `CelError` if evaluation fails."""
        try:
            return self.code(variables)
        except OverflowError as error:
            raise CelError(str(error)) from None


@lru_cache(maxsize=1024)
def compile_expression(source: str, variables: tuple[str, ...]) -> Program:
    """Return the program; raise `CelSyntaxError` for invalid syntax, an unknown variable or an unknown function."""
    compiler = _Compiler()
    code = compiler.code(parse(source), frozenset(variables))
    return Program(frozenset(compiler.variables), code)


class _Compiler:
    def __init__(self) -> None:
        self.variables: set[str] = set()  # names that no macro binds

    def code(self, tree: Expression, known: frozenset[str]) -> _Code:
        match tree:
            case Literal(value=value):
                return lambda _: value
            case Name(name=name):
                return self._name(name, known)
            case Select():
                return self._select(tree, known)
            case Call():
                return self._call(tree, known)
            case Macro():
                return self._macro(tree, known)
            case ListLiteral() | MapLiteral():
                return self._collection(tree, known)

    def _select(self, tree: Select, known: frozenset[str]) -> _Code:
        operand, field = self.code(tree.operand, known), tree.field
        if tree.is_presence_test:
            return lambda scope: lookup(operand(scope), field) is not MISSING
        return lambda scope: index(operand(scope), field)

    def _collection(self, tree: ListLiteral | MapLiteral, known: frozenset[str]) -> _Code:
        if isinstance(tree, ListLiteral):
            codes = [self.code(item, known) for item in tree.items]
            return lambda scope: [code(scope) for code in codes]
        pairs = [(self.code(key, known), self.code(value, known)) for key, value in tree.entries]
        return lambda scope: {key(scope): value(scope) for key, value in pairs}

    def _name(self, name: str, known: frozenset[str]) -> _Code:
        if name in known:
            self.variables.add(name)
            return lambda scope: scope[name]
        if name in TYPES:
            return lambda _: TYPES[name]
        raise CelSyntaxError(f"unknown name {name!r}")

    def _call(self, tree: Call, known: frozenset[str]) -> _Code:
        codes = [self.code(argument, known) for argument in tree.arguments]
        if tree.function in _LAZY_OPERATORS:
            return _LAZY_OPERATORS[tree.function](*codes)
        function = OPERATORS.get(tree.function) or functions.find(tree.function, len(codes))
        if function is None:
            raise CelSyntaxError(f"unknown function {tree.function!r} of {len(codes)} values")
        return lambda scope: function(*[code(scope) for code in codes])

    def _macro(self, tree: Macro, known: frozenset[str]) -> _Code:
        target, variable, run = self.code(tree.target, known), tree.variable, _MACROS[tree.name]
        inner = _Compiler()
        bodies = [inner.code(body, known | {variable}) for body in tree.bodies]
        self.variables |= inner.variables - {variable}

        def evaluate(scope: Scope) -> Any:
            items = target(scope)
            if not isinstance(items, list | dict):
                raise no_overload()
            return run(((item, {**scope, variable: item}) for item in items), *bodies)

        return evaluate


# Operators that may skip operands: an error counts only if no other operand determines the result.


def _short_circuit(values: Iterable[tuple[_Code, Scope]], *, result: bool) -> bool:
    first_error: CelError | None = None
    for code, scope in values:
        try:
            if require_boolean(code(scope)) is result:
                return result
        except CelError as error:
            first_error = first_error or error
    if first_error:
        raise first_error
    return not result


def _conditional(condition: _Code, first: _Code, second: _Code) -> _Code:
    return lambda scope: first(scope) if require_boolean(condition(scope)) else second(scope)


_LAZY_OPERATORS: dict[str, Callable[..., _Code]] = {
    "_&&_": lambda one, other: lambda scope: _short_circuit(((one, scope), (other, scope)), result=False),
    "_||_": lambda one, other: lambda scope: _short_circuit(((one, scope), (other, scope)), result=True),
    "_?_:_": _conditional,
}

# Macros: each gets the items, with the variables bound for the bodies.

_Items = Iterable[tuple[Any, Scope]]


def _all(items: _Items, body: _Code) -> bool:
    return _short_circuit(((body, scope) for _, scope in items), result=False)


def _exists(items: _Items, body: _Code) -> bool:
    return _short_circuit(((body, scope) for _, scope in items), result=True)


def _exists_one(items: _Items, body: _Code) -> bool:
    return sum(require_boolean(body(scope)) for _, scope in items) == 1


def _filter(items: _Items, body: _Code) -> list[Any]:
    return [item for item, scope in items if require_boolean(body(scope))]


def _map(items: _Items, *bodies: _Code) -> list[Any]:
    *conditions, body = bodies
    return [body(scope) for _, scope in items if all(require_boolean(condition(scope)) for condition in conditions)]


_MACROS: dict[str, Callable[..., Any]] = {
    "all": _all,
    "exists": _exists,
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
}
