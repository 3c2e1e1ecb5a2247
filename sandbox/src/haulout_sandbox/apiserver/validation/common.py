"""What validations of many kinds have in common: numbers, selectors, values that may not change.

All functions return causes of an Invalid, in the real server's order and words. Paths are built only where something is
wrong: most objects are right, and a path costs more than a look.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from haulout.core.quantity import Quantity, parse
from haulout_sandbox.apiserver.fields import forbidden, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import rules
from haulout_sandbox.apiserver.validation.rules import Rule

Causes = list[JsonObject]

IMMUTABLE = "field is immutable"
NEGATIVE = "must be greater than or equal to 0"
_ZERO = Quantity.of(0)
_ALL = 100


def by_rule(path: str, text: str, rule: Rule) -> Causes:
    """Return what a rule finds wrong with a text."""
    return [invalid(path, text, problem) for problem in rule(text)]


def required_by_rule(path: str, text: str, rule: Rule) -> Causes:
    """Say that a text is missing, or what a rule finds wrong with it."""
    return by_rule(path, text, rule) if text else [required(path)]


def not_negative(part: JsonObject, path: str, *names: str) -> Causes:
    """Return which of these numbers are below zero."""
    return [
        invalid(f"{path}.{name}" if path else name, part[name], NEGATIVE) for name in names if part.get(name, 0) < 0
    ]


def at_most(part: JsonObject, path: str, limit: str, *names: str, said: str = "") -> Causes:
    """Return which of these numbers are greater than the one named `limit`."""
    most = part.get(limit, 0)
    detail = f"cannot be greater than {said or f'{path}.{limit}'}"
    return [invalid(f"{path}.{name}", found, detail) for name in names if (found := part.get(name, 0)) > most]


def one_of(path: str, value: Any, supported: Collection[str], *, needed: bool = False) -> Causes:
    """Say that a value is none of those allowed, or (`needed`) that there is none."""
    if value in supported:
        return []
    return [required(path) if needed and not value else not_supported(path, value, supported)]


def unchanged(path: str, new: Any, old: Any, *, shown: Any = None) -> Causes:
    """Say that a value is not the one it was; `shown` is how it is printed."""
    return [] if same(new, old) else [invalid(path, new if shown is None else shown, IMMUTABLE)]


def same(new: Any, old: Any) -> bool:
    """Compare as the server does: an empty list or map is the same as none."""
    return bool(new == old) or _filled(new) == _filled(old)


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        found = {name: _filled(item) for name, item in value.items()}
        return {name: item for name, item in found.items() if item is not None} or None
    return ([_filled(item) for item in value] or None) if isinstance(value, list) else value


# Numbers and parts


def int_or_percent(path: str, value: int | str) -> Causes:
    """Return what is wrong with a number of things, or a part of them."""
    if isinstance(value, str):
        return [invalid(path, value, problem) for problem in rules.percent(value)]
    return [invalid(path, value, NEGATIVE)] if value < 0 else []


def at_most_all(path: str, value: int | str) -> Causes:
    """Say that a part is more than the whole."""
    return [invalid(path, value, "must not be greater than 100%")] if (_percent(value) or 0) > _ALL else []


def amount(value: int | str) -> int:
    """Return the number, or the percentage."""
    found = _percent(value)
    if found is not None:
        return found
    return value if isinstance(value, int) else int(value) if value.lstrip("-").isdecimal() else 0


def _percent(value: int | str) -> int | None:
    return int(value[:-1]) if isinstance(value, str) and not rules.percent(value) else None


def port_or_name(path: str, value: int | str) -> Causes:
    """Return what is wrong with a port, or with the name of one."""
    problems = rules.port_number(value) if isinstance(value, int) else rules.port_name(value)
    return [invalid(path, value, problem) for problem in problems]


def number_of(value: Any) -> Quantity:
    """Return a quantity; decoding has made sure that it is one."""
    return _number(str(value))


@lru_cache(4096)
def _number(text: str) -> Quantity:
    return parse(text)


def not_negative_quantity(path: str, value: Any) -> Causes:
    """Say that an amount is below zero."""
    amount_ = number_of(value)
    return [invalid(path, str(amount_), NEGATIVE)] if amount_ < _ZERO else []


# Labels and selectors


def labels(found: Mapping[str, str] | None, path: str) -> Causes:
    """Return what is wrong with labels."""
    causes: Causes = []
    for key, value in sorted((found or {}).items()):
        if problems := rules.qualified_name(key):
            causes += [invalid(path, key, problem) for problem in problems]
        if problems := rules.label_value(value):
            causes += [invalid(path, value, problem) for problem in problems]
    return causes


def label_selector(selector: JsonObject | None, path: str) -> Causes:
    """Return what is wrong with a selector."""
    if not selector:
        return []
    causes = labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for at, each in enumerate(selector.get("matchExpressions") or ()):
        causes += _requirement(each, f"{path}.matchExpressions[{at}]")
    return causes


def _requirement(each: JsonObject, path: str) -> Causes:
    causes: Causes = []
    operator, values = each.get("operator", ""), each.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            causes.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden(f"{path}.values", detail))
    else:
        causes.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    causes += by_rule(f"{path}.key", each.get("key", ""), rules.qualified_name)
    for at, value in enumerate(values):
        causes += by_rule(f"{path}.values[{at}]", value, rules.label_value)
    return causes


def is_selector(selector: JsonObject | None) -> bool:
    """Tell whether a selector can be understood at all."""
    return not label_selector(selector, "")


def selects(selector: JsonObject | None, chosen: Mapping[str, str] | None) -> bool:
    """Tell whether a selector matches labels; none matches nothing, an empty one everything."""
    if selector is None:
        return False
    have = chosen or {}
    if any(have.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(each, have) for each in selector.get("matchExpressions") or ())


def _meets(each: JsonObject, have: Mapping[str, str]) -> bool:
    key, values = each.get("key", ""), each.get("values") or ()
    match each.get("operator"):
        case "In":
            return have.get(key) in values
        case "NotIn":
            return have.get(key) not in values
        case "Exists":
            return key in have
        case _:
            return key not in have


def is_empty(selector: JsonObject | None) -> bool:
    """Tell whether a selector has no requirement."""
    return not selector or not (selector.get("matchLabels") or selector.get("matchExpressions"))


def enumerated(items: Iterable[JsonObject] | None, path: str) -> Iterable[tuple[str, JsonObject]]:
    """Yield the items of a list with their paths."""
    return ((f"{path}[{at}]", item) for at, item in enumerate(items or ()))
