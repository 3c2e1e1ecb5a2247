"""CEL, the Common Expression Language, as the rules of custom resources use it (`x-kubernetes-validations`).

    rule = compiled("self.minReplicas <= self.replicas")
    rule.evaluate({"self": {"minReplicas": 1, "replicas": 3}})      # True

The libraries for Python know neither optionals nor the functions that Kubernetes adds, word errors differently and
bring 13 to 50 MB, so this is our own: `cel_syntax` parses, `cel_functions` has the functions, and here a tree becomes
nested Python functions, made once and called for every object. Types are checked while evaluating, not before; names,
functions and, where a schema tells them, fields are checked before.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from haulout_sandbox.apiserver import cel_functions, cel_values
from haulout_sandbox.apiserver.cel_syntax import (
    Call,
    CelSyntaxError,
    Expression,
    Fold,
    ListOf,
    Literal,
    MapOf,
    Name,
    Select,
    parse,
)
from haulout_sandbox.apiserver.cel_values import CelError, Maybe, Type, equal, less, no_overload, type_name
from haulout_sandbox.apiserver.structural import Node, with_resource_meta

Scope = Mapping[str, Any]
_Code = Callable[[Scope], Any]
_TYPES = ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type")
_SCALARS = {"string": "string", "integer": "int", "number": "double", "boolean": "bool"}
_MISSING = object()
_KEYWORDS = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
    }
    | {"loop", "package", "namespace", "return", "var", "void", "while"}
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_UNESCAPES = {escape: text for text, escape in _ESCAPES.items()}
_ESCAPE = re.compile("|".join(_UNESCAPES))
_STRICT: dict[str, Callable[..., Any]] = {
    "_+_": cel_values.added,
    "_-_": cel_values.subtracted,
    "_*_": cel_values.multiplied,
    "_/_": cel_values.divided,
    "_%_": cel_values.remainder,
    "-_": cel_values.negated,
    "_==_": equal,
    "_!=_": lambda one, other: not equal(one, other),
    "_<_": less,
    "_>_": lambda one, other: less(other, one),
    "_<=_": lambda one, other: less(one, other) or equal(one, other),
    "_>=_": lambda one, other: less(other, one) or equal(one, other),
    "@in": lambda item, items: cel_values.contains(items, item),
    "!_": lambda value: not _boolean(value),
}

__all__ = ["CelError", "CelSyntaxError", "Maybe", "Program", "compiled", "escaped", "explained"]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """An expression, ready to be evaluated."""

    names: frozenset[str]  # the variables it reads
    code: Callable[[Scope], Any]

    def evaluate(self, variables: Scope) -> Any:
        """Return the value; raise `CelError` if there is none."""
        return self.code(variables)


def compiled(source: str, variables: Mapping[str, Node | None] | None = None) -> Program:
    """Return the program; raise `CelSyntaxError` for what can be known to be wrong without an object.

    `variables` are the names it may use, each with its schema if that is known: `self` and `oldSelf` if not given.
    """
    known = {"self": None, "oldSelf": None} if variables is None else dict(variables)
    compiler = _Compiler(known)
    code = compiler.code(parse(source), known)
    return Program(frozenset(compiler.used), code)


def explained(error: CelSyntaxError, source: str) -> str:
    """Return the error as CEL's compiler shows it: with the line, and a mark below."""
    before = source[: error.at]
    line, column = before.count("\n"), len(before) - (before.rfind("\n") + 1)
    shown = source.split("\n")[line] if source else ""
    return f"ERROR: <input>:{line + 1}:{column + 1}: {error.message}\n | {shown}\n | {'.' * column}^"


class _Compiler:
    def __init__(self, variables: Mapping[str, Node | None]) -> None:
        self._visible = frozenset(variables)  # those that no macro's variable hides
        self.used: set[str] = set()

    def code(self, tree: Expression, known: Mapping[str, Node | None]) -> _Code:
        match tree:
            case Literal(value=value):
                return lambda _: value
            case Name():
                return self._name(tree, known)
            case Select():
                return self._select(tree, known)
            case Call():
                return self._call(tree, known)
            case Fold():
                return self._fold(tree, known)
            case ListOf() | MapOf():
                return self._collection(tree, known)

    def _collection(self, tree: ListOf | MapOf, known: Mapping[str, Node | None]) -> _Code:
        if isinstance(tree, ListOf):
            codes = [self.code(item, known) for item in tree.items]
            return lambda scope: [code(scope) for code in codes]
        pairs = [(self.code(key, known), self.code(value, known)) for key, value in tree.entries]
        return lambda scope: {key(scope): value(scope) for key, value in pairs}

    def _name(self, tree: Name, known: Mapping[str, Node | None]) -> _Code:
        name = tree.name
        if name in known:
            self.used |= self._visible & {name}
            return lambda scope: scope[name]
        if name in _TYPES:
            found = Type(name)
            return lambda _: found
        raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')", tree.at)

    def _select(self, tree: Select, known: Mapping[str, Node | None]) -> _Code:
        operand, name = self.code(tree.operand, known), tree.field
        _check_field(tree, _node_of(tree.operand, known))
        if tree.tests:
            return lambda scope: _has(operand(scope), name)
        if tree.optional:
            return lambda scope: _maybe_indexed(operand(scope), name)
        return lambda scope: _indexed(operand(scope), name)

    def _call(self, tree: Call, known: Mapping[str, Node | None]) -> _Code:
        name, target = tree.function, tree.target
        if isinstance(target, Name) and target.name in cel_functions.NAMESPACES and target.name not in known:
            name, target = f"{target.name}.{name}", None
        arguments = tree.arguments if target is None else (target, *tree.arguments)
        codes = [self.code(each, known) for each in arguments]
        if name in _LAZY:
            return _LAZY[name](*codes)
        function = _STRICT.get(name) or cel_functions.find(name, member=target is not None, count=len(codes))
        if function is None and cel_functions.exists(name):
            raise CelSyntaxError(f"found no matching overload for '{name}'", tree.at)
        if function is None:
            raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')", tree.at)
        return lambda scope: function(*[code(scope) for code in codes])

    def _fold(self, tree: Fold, known: Mapping[str, Node | None]) -> _Code:
        target = self.code(tree.target, known)
        of = _node_of(tree.target, known)
        bound = of if tree.macro == "bind" or of is None else of.items
        inner = {**known, tree.variable: bound}
        visible, self._visible = self._visible, self._visible - {tree.variable}
        bodies = [self.code(body, inner) for body in tree.bodies]
        self._visible = visible
        fold = _FOLDS[tree.macro]

        def run(scope: Scope) -> Any:
            def with_item(item: Any) -> Scope:
                return {**scope, tree.variable: item}

            return fold(target(scope), with_item, *bodies)

        return run


# What is known of types


def _node_of(tree: Expression, known: Mapping[str, Node | None]) -> Node | None:
    """Return the schema of what `tree` yields, as far as it is plain to see."""
    found = _plain_node_of(tree, known)
    return with_resource_meta(found) if found is not None and found.embedded else found


def _plain_node_of(tree: Expression, known: Mapping[str, Node | None]) -> Node | None:
    match tree:
        case Name(name=name):
            return known.get(name)
        case Select(operand=operand, field=field, optional=False, tests=False):
            of = _node_of(operand, known)
            return None if of is None else of.below(_unescaped(field))
        case Call(function="_[_]", arguments=(operand, _)):
            of = _node_of(operand, known)
            return None if of is None else of.items or of.additional
    return None


def escaped(name: str) -> str:
    """Return a property's name as expressions write it: only letters, digits and single underscores, and no keyword."""
    if name in _KEYWORDS:
        return f"__{name}__"
    for text, escape in _ESCAPES.items():
        name = name.replace(text, escape)
    return name


def _unescaped(name: str) -> str:
    if name.startswith("__") and name.endswith("__") and name.strip("_") in _KEYWORDS:
        return name.strip("_")
    return _ESCAPE.sub(lambda found: _UNESCAPES.get(found[0], found[0]), name)


def _check_field(tree: Select, of: Node | None) -> None:
    if of is not None and of.type in _SCALARS and not of.raw.get("format"):
        raise CelSyntaxError(f"type '{_SCALARS[of.type]}' does not support field selection", tree.at)
    if of is None or of.type != "object" or of.additional is not None or of.allows_more:
        return
    if _unescaped(tree.field) not in of.properties:
        raise CelSyntaxError(f"undefined field '{tree.field}'", tree.at)


# Access


def _has(operand: Any, name: str) -> bool:
    if isinstance(operand, Maybe):
        return bool(operand.items) and _has(operand.items[0], name)
    return name in operand if isinstance(operand, dict) else _looked_up(operand, name) is not _MISSING


def _indexed(operand: Any, key: Any) -> Any:
    if isinstance(operand, Maybe):
        return _maybe_indexed(operand, key)
    found = _looked_up(operand, key)
    if found is _MISSING:
        raise CelError(f"{'index out of bounds' if isinstance(operand, list) else 'no such key'}: {key}")
    return found


def _maybe_indexed(operand: Any, key: Any) -> Maybe:
    if isinstance(operand, Maybe):
        return _maybe_indexed(operand.items[0], key) if operand.items else operand
    found = _looked_up(operand, key)
    return Maybe() if found is _MISSING else Maybe(found)


_STRICT |= {"_[_]": _indexed, "_[?_]": _maybe_indexed}


def _looked_up(operand: Any, key: Any) -> Any:
    if isinstance(operand, dict):
        return operand.get(key, _MISSING)
    if not isinstance(operand, list):
        return _MISSING  # as CEL has it: what is no map has no keys
    if not isinstance(key, int) or isinstance(key, bool):
        raise CelError(f"unsupported index type '{type_name(key)}' in list")
    return operand[key] if 0 <= key < len(operand) else _MISSING


# What does not need all its operands. An error counts only if no operand settles the matter.


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise no_overload()
    return value


def _settled(values: Any, by: bool) -> bool:  # noqa: FBT001 - the value itself
    problem: CelError | None = None
    for code, scope in values:
        try:
            if _boolean(code(scope)) is by:
                return by
        except CelError as error:
            problem = problem or error
    if problem:
        raise problem
    return not by


def _chosen(condition: _Code, first: _Code, second: _Code) -> _Code:
    return lambda scope: first(scope) if _boolean(condition(scope)) else second(scope)


_LAZY: dict[str, Callable[..., _Code]] = {
    "_&&_": lambda one, other: lambda scope: _settled(((one, scope), (other, scope)), by=False),
    "_||_": lambda one, other: lambda scope: _settled(((one, scope), (other, scope)), by=True),
    "_?_:_": _chosen,
}


# Macros

_WithItem = Callable[[Any], Scope]


def _items(target: Any) -> list[Any]:
    if not isinstance(target, list | dict):
        raise no_overload()
    return list(target)


def _all(target: Any, with_item: _WithItem, body: _Code) -> bool:
    return _settled(((body, with_item(item)) for item in _items(target)), by=False)


def _exists(target: Any, with_item: _WithItem, body: _Code) -> bool:
    return _settled(((body, with_item(item)) for item in _items(target)), by=True)


def _exists_one(target: Any, with_item: _WithItem, body: _Code) -> bool:
    return sum(_boolean(body(with_item(item))) for item in _items(target)) == 1


def _filter(target: Any, with_item: _WithItem, body: _Code) -> list[Any]:
    return [item for item in _items(target) if _boolean(body(with_item(item)))]


def _map(target: Any, with_item: _WithItem, *bodies: _Code) -> list[Any]:
    *conditions, body = bodies
    scopes = (with_item(item) for item in _items(target))
    return [body(scope) for scope in scopes if all(_boolean(condition(scope)) for condition in conditions)]


def _opt_map(target: Any, with_item: _WithItem, body: _Code) -> Maybe:
    return _opt_flat_map(target, with_item, lambda scope: Maybe(body(scope)))


def _opt_flat_map(target: Any, with_item: _WithItem, body: _Code) -> Maybe:
    if not isinstance(target, Maybe):
        raise no_overload()
    found = body(with_item(target.items[0])) if target.items else target
    if not isinstance(found, Maybe):
        raise no_overload()
    return found


def _bind(target: Any, with_item: _WithItem, body: _Code) -> Any:
    return body(with_item(target))


_FOLDS: dict[str, Callable[..., Any]] = {
    "all": _all,
    "exists": _exists,
    "exists_one": _exists_one,
    "existsOne": _exists_one,
    "filter": _filter,
    "map": _map,
    "optMap": _opt_map,
    "optFlatMap": _opt_flat_map,
    "bind": _bind,
}
