"""Label selectors: parse and match, in both notations of Kubernetes.

The notations are equivalent: text (`app=cart,tier in (web,api),!canary`, as for `kubectl -l`), and an object
(`matchLabels`, `matchExpressions`), as in API objects. A selector without requirements matches everything. Where
Kubernetes treats a missing selector as matching nothing, the caller must handle that.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Labels = Mapping[str, str]

_COMMA = re.compile(r",(?![^(]*\))")  # except between parentheses
_KEY = r"(?P<key>[^\s!=<>(),]+)"
_EXISTS = re.compile(rf"(?P<absent>!?)\s*{_KEY}")
_COMPARES = re.compile(rf"{_KEY}\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[^\s!=<>(),]*)")
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
# The rules of staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go: qualifiedNameFmt (63 characters) and
# DNS-1123 subdomain (253 characters).
_NAME = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn", ">": "Gt", "<": "Lt"}
_NEEDS_VALUES = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}


class SelectorError(ValueError):
    """A selector is invalid. `path` is the position of the problem within the selector."""

    def __init__(self, problem: str, *, path: str = "") -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}" if path else problem)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on labels: `tier in (web,api)`, or one entry of matchExpressions."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Return whether the labels fulfil this requirement. NotIn matches objects without the label, too."""
        found = labels.get(self.key)
        match self.operator:
            case "In":
                return found is not None and found in self.values
            case "NotIn":
                return found is None or found not in self.values
            case "Exists":
                return found is not None
            case "DoesNotExist":
                return found is None
        return _compares(found, self.operator, self.values[0])

    def __str__(self) -> str:
        match self.operator:
            case "In" | "NotIn" if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator == 'In' else '!='}{self.values[0]}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case "Exists" | "DoesNotExist":
                return self.key if self.operator == "Exists" else f"!{self.key}"
        return f"{self.key}{'>' if self.operator == 'Gt' else '<'}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all be fulfilled. Without any, it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        """Return the text form, which `parse` accepts."""
        return ",".join(map(str, self.requirements))


EVERYTHING = Selector()


def parse(text: str) -> Selector:
    """Parse the text form. Raise `SelectorError` where kubectl would reject it."""
    if not text.strip():
        return EVERYTHING
    return Selector(tuple(_requirement(part.strip()) for part in _COMMA.split(text)))


def from_label_selector(selector: Mapping[str, Any]) -> Selector:
    """Parse a LabelSelector object. Raise `SelectorError` where the API server would reject it."""
    for key in selector:
        if key not in ("matchLabels", "matchExpressions"):
            raise SelectorError("unknown, expected matchLabels or matchExpressions", path=str(key))
    labels, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if not isinstance(labels, Mapping):
        raise SelectorError(f"found {labels!r}, expected labels and their values", path="matchLabels")
    if not isinstance(expressions, list):
        raise SelectorError(f"found {expressions!r}, expected a list", path="matchExpressions")
    requirements = tuple(_validated(key, "In", (value,), path=f"matchLabels.{key}") for key, value in labels.items())
    return Selector(
        requirements
        + tuple(_expression(expression, f"matchExpressions[{n}]") for n, expression in enumerate(expressions))
    )


def is_qualified_name(key: Any) -> bool:
    """Return whether `key` is valid as the key of a label or annotation: `name`, or `example.com/name`."""
    if not isinstance(key, str):
        return False
    prefix, slash, name = key.rpartition("/")
    return bool(_NAME.fullmatch(name)) and (not slash or bool(_PREFIX.fullmatch(prefix)))


def is_label_value(value: Any) -> bool:
    return isinstance(value, str) and (not value or bool(_NAME.fullmatch(value)))


def _requirement(text: str) -> Requirement:
    if found := _EXISTS.fullmatch(text):
        return _validated(found["key"], "DoesNotExist" if found["absent"] else "Exists", ())
    if found := _SET.fullmatch(text):
        values = tuple(value.strip() for value in found["values"].split(","))
        return _validated(found["key"], _OPERATORS[found["operator"]], values)
    if found := _COMPARES.fullmatch(text):
        return _validated(found["key"], _OPERATORS[found["operator"]], (found["value"],))
    raise SelectorError(f"found {text!r}, expected such as app=cart, app!=cart, app in (cart,shop), app or !app")


def _expression(expression: Any, path: str) -> Requirement:
    if not isinstance(expression, Mapping):
        raise SelectorError(f"found {expression!r}, expected key, operator and values", path=path)
    operator, values = expression.get("operator"), expression.get("values") or ()
    if not isinstance(operator, str) or operator not in _NEEDS_VALUES:
        raise SelectorError(f"found {operator!r}, expected In, NotIn, Exists or DoesNotExist", path=f"{path}.operator")
    if not isinstance(values, (list, tuple)) or bool(values) is not _NEEDS_VALUES[operator]:
        expected = "a list of values" if _NEEDS_VALUES[operator] else "none"
        raise SelectorError(f"found {values!r}, expected {expected} for {operator}", path=f"{path}.values")
    return _validated(expression.get("key"), operator, tuple(values), path=path)


def _validated(key: Any, operator: str, values: tuple[Any, ...], *, path: str = "") -> Requirement:
    if not is_qualified_name(key):
        raise SelectorError(f"found {key!r}, expected the name of a label", path=path)
    for value in values:
        if not is_label_value(value):
            raise SelectorError(f"found {value!r}, expected the value of a label", path=path)
        if operator in ("Gt", "Lt") and not value.isdecimal():
            raise SelectorError(f"found {value!r}, expected a whole number to compare {key} with", path=path)
    return Requirement(key, operator, values)


def _compares(found: str | None, operator: str, bound: str) -> bool:
    # As upstream: a label that is no number fulfils neither Gt nor Lt.
    if found is None or not found.isdecimal():
        return False
    return int(found) > int(bound) if operator == "Gt" else int(found) < int(bound)
