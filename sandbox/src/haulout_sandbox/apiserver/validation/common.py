"""What the checks of many kinds have in common: numbers, labels, selectors, values that may not change.

All functions return causes of an Invalid, none if all is well.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from haulout.core.quantity import Quantity, parse
from haulout.kube.selectors import SelectorError, from_object
from haulout_sandbox.apiserver.fields import child, forbidden, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.names import label_value_problems, qualified_problems

Causes = list[JsonObject]

_IMMUTABLE = "field is immutable"
_NEGATIVE = "must be greater than or equal to 0"
_ALL = 100
_ZERO = Quantity.of(0)


def named(path: str, name: str, problems: Callable[[str], list[str]]) -> Causes:
    """Return what is wrong with a name that must be there."""
    return [invalid(path, name, problem) for problem in problems(name)] if name else [required(path)]


def needed(part: JsonObject, path: str, *names: str) -> Causes:
    """Return which of these fields say nothing."""
    return [required(child(path, name)) for name in names if not part.get(name)]


def not_negative(part: JsonObject, path: str, *names: str) -> Causes:
    """Return which of these numbers are below zero."""
    return [invalid(child(path, name), part[name], _NEGATIVE) for name in names if (part.get(name) or 0) < 0]


def one_of(part: JsonObject, path: str, name: str, supported: Collection[str]) -> Causes:
    """Say that a value is none of those allowed."""
    value = part.get(name, "")
    return [] if value in supported else [not_supported(child(path, name), value, supported)]


def unchanged(new: JsonObject, old: JsonObject, path: str, *names: str) -> Causes:
    """Return which of these values are not what they were."""
    return [invalid(child(path, it), new.get(it), _IMMUTABLE) for it in names if not same(new.get(it), old.get(it))]


def only_changed(new: JsonObject, old: JsonObject, path: str, *names: str) -> Causes:
    """Say that something other than these values is not what it was."""
    fixed = [name for name in sorted(new.keys() | old.keys()) if name not in names]
    changed = [name for name in fixed if not same(new.get(name), old.get(name))]
    if not changed:
        return []
    return [forbidden(path, f"only {', '.join(names)} may be changed, not {', '.join(changed)}")]


def same(new: Any, old: Any) -> bool:
    """Compare as the server does: an empty list or map is the same as none."""
    return bool(new == old) or _filled(new) == _filled(old)


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        found = {name: _filled(item) for name, item in value.items()}
        return {name: item for name, item in found.items() if item is not None} or None
    return ([_filled(item) for item in value] or None) if isinstance(value, list) else value


def enumerated(part: JsonObject, path: str, name: str) -> Iterable[tuple[str, JsonObject]]:
    """Yield the items of a list with their paths."""
    return ((f"{child(path, name)}[{at}]", item) for at, item in enumerate(part.get(name) or ()))


# Numbers


def int_or_percent(part: JsonObject, path: str, name: str) -> Causes:
    """Return what is wrong with a number of things, or a share of them, if it is there."""
    value = part.get(name)
    if value is None:
        return []
    if isinstance(value, int):
        return not_negative(part, path, name)
    if not (value.endswith("%") and value[:-1].isdecimal()):
        return [invalid(child(path, name), value, "must be a number, or a percentage such as 25%")]
    return [invalid(child(path, name), value, "must not be greater than 100%")] if int(value[:-1]) > _ALL else []


def is_zero(value: int | str | None) -> bool:
    """Tell whether a number or a percentage is none at all."""
    return value is None or str(value).removesuffix("%") == "0"


@lru_cache(4096)
def number_of(value: str | float) -> Quantity:
    """Return a quantity; decoding has made sure that it is one."""
    return parse(str(value))


def quantities(found: Mapping[str, Any] | None, path: str) -> Causes:
    """Return which amounts are below zero."""
    return [
        invalid(f"{path}[{name}]", value, _NEGATIVE)
        for name, value in (found or {}).items()
        if number_of(value) < _ZERO
    ]


# Labels and selectors


def labels(found: Mapping[str, str] | None, path: str) -> Causes:
    """Return what is wrong with labels."""
    causes: Causes = []
    for key, value in (found or {}).items():
        causes += [invalid(path, key, problem) for problem in qualified_problems(key)]
        causes += [invalid(path, value, problem) for problem in label_value_problems(value)]
    return causes


def label_selector(selector: JsonObject | None, path: str) -> Causes:
    """Return what is wrong with a selector; there may be none."""
    try:
        from_object(selector or {})
    except SelectorError as problem:
        return [invalid(child(path, problem.path), selector, problem.problem)]
    return []


def template_selector(spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with the selector of a workload, which must select its pods."""
    selector = spec.get("selector") or {}
    if not (selector.get("matchLabels") or selector.get("matchExpressions")):
        return [required(f"{path}.selector", "it must have at least one requirement")]
    if causes := label_selector(selector, f"{path}.selector"):
        return causes
    own = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if from_object(selector).matches(own):
        return []
    return [invalid(f"{path}.template.metadata.labels", own, "`selector` does not match template `labels`")]
