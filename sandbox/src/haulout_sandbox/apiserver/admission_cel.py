"""CEL expressions about a change: what they may use, and what goes wrong with them, in the real server's words.

Objects are untyped here: that an expression has the wrong type shows when it is evaluated, not when it is written.
There is no `authorizer`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from haulout_sandbox.apiserver import cel, structural
from haulout_sandbox.apiserver.cel import CelError, CelSyntaxError, Program
from haulout_sandbox.apiserver.cel_syntax import Call, Name, Select, parse
from haulout_sandbox.apiserver.changes import Change, admission_request
from haulout_sandbox.apiserver.kinds import JsonObject

Scope = Mapping[str, Any]

_UNTYPED = ("object", "oldObject", "params")
_TEXTS = ("subResource", "requestSubResource", "name", "namespace", "operation")
_KIND, _RESOURCE = ("group", "version", "kind"), ("group", "version", "resource")
_NAMESPACE_META = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "uid",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "resourceVersion",
    "finalizers",
)


class ExpressionError(Exception):
    """An expression has no value."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of a webhook or a policy; a wrong one fails when it is evaluated."""

    source: str
    variables: tuple[str, ...] = ()  # what the policy calls `variables`
    params: bool = False

    def evaluate(self, scope: Scope) -> Any:
        """Return the value; raises `ExpressionError`."""
        try:
            return self.program().evaluate(scope)
        except CelSyntaxError as error:
            raise ExpressionError(f"compilation error: {failed_compilation(error, self.source)}") from None
        except CelError as error:
            raise ExpressionError(f"expression '{self.source}' resulted in error: {error}") from None

    @property
    def has_no_type(self) -> bool:
        """Tell whether it is plainly a part of an object, of which nobody knows what it will be."""
        tree = parse(self.source)
        while isinstance(tree, Select | Call):
            if isinstance(tree, Select) and not tree.tests:
                tree = tree.operand
            elif isinstance(tree, Call) and tree.function == "_[_]":
                tree = tree.arguments[0]
            else:
                return False
        return isinstance(tree, Name) and tree.name in _UNTYPED

    def program(self) -> Program:
        """Return the compiled expression; raises `CelSyntaxError`."""
        return _compiled(self.source, self.variables, self.params)


def failed_compilation(error: CelSyntaxError, source: str) -> str:
    """Return how the server tells of an expression that is wrong."""
    return f"compilation failed: {cel.explained(error, source)}"


def scope_of(change: Change, seen: Change, *, namespace: JsonObject | None = None, params: Any = None) -> JsonObject:
    """Return what expressions see of a change; `variables` are added by whoever has some."""
    request = admission_request(change, seen)
    request = {name: value for name, value in request.items() if name not in ("object", "oldObject")}
    return {
        "object": seen.obj,
        "oldObject": seen.old,
        "request": request,
        "namespaceObject": None if namespace is None else _shown(namespace),
        "params": params,
        "variables": {},
    }


class Variables(dict[str, Any]):
    """The variables of a policy, each evaluated when it is first used."""

    def __init__(self, expressions: Mapping[str, Expression], scope: JsonObject) -> None:
        super().__init__()
        self._expressions = expressions
        self._scope = scope | {"variables": self}

    def get(self, name: Any, default: Any = None) -> Any:
        """Return the value of a variable; raises `CelError` if it has none."""
        if name not in self._expressions:
            return default
        if not super().__contains__(name):
            try:
                self[name] = self._expressions[name].program().evaluate(self._scope)
            except (CelError, CelSyntaxError) as error:
                raise CelError(f'composited variable "{name}" fails to evaluate: {error}') from None
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._expressions


def _shown(namespace: JsonObject) -> JsonObject:
    """Return of a namespace what policies may see."""
    meta = {name: value for name, value in namespace["metadata"].items() if name in _NAMESPACE_META}
    sections = {name: namespace[name] for name in ("spec", "status") if name in namespace}
    return {"metadata": meta} | sections


@lru_cache(maxsize=1024)
def _compiled(source: str, variables: tuple[str, ...], params: bool) -> Program:  # noqa: FBT001 - a part of the key
    known: dict[str, structural.Node | None] = {
        "object": None,
        "oldObject": None,
        "request": _REQUEST,
        "namespaceObject": None,
    }
    if params:
        known["params"] = None
    if variables:
        known["variables"] = structural.compiled(_fields(variables, lambda _: _ANYTHING))
    return cel.compiled(source, known)


_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}


def _fields(names: Sequence[str], of: Callable[[str], JsonObject]) -> JsonObject:
    return {"type": "object", "properties": {name: of(name) for name in names}}


def _text(_: str) -> JsonObject:
    return {"type": "string"}


_REQUEST = structural.compiled(
    {
        "type": "object",
        "properties": {
            **{name: _text(name) for name in _TEXTS},
            **{name: _fields(_KIND, _text) for name in ("kind", "requestKind")},
            **{name: _fields(_RESOURCE, _text) for name in ("resource", "requestResource")},
            "dryRun": {"type": "boolean"},
            "options": _ANYTHING,
            "userInfo": {
                "type": "object",
                "properties": {
                    "username": _text(""),
                    "uid": _text(""),
                    "groups": {"type": "array", "items": _text("")},
                    "extra": {"type": "object", "additionalProperties": {"type": "array", "items": _text("")}},
                },
            },
        },
    }
)
