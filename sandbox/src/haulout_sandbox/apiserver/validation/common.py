"""Validation shared by many kinds: numbers, labels, selectors, immutable fields.

All functions return causes of an Invalid error, none if the value is valid.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from haulout.core.quantity import Quantity, parse
from haulout.kube.selectors import SelectorError, from_label_selector
from haulout_sandbox.apiserver.field_errors import child_path, forbidden, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.object_names import label_value_problems, qualified_name_problems

Causes = list[JsonObject]

_IMMUTABLE = "field is immutable"
_NEGATIVE = "must be greater than or equal to 0"
_MAX_PERCENT = 100
_ZERO = Quantity.of(0)


def required_name(path: str, name: str, problems: Callable[[str], list[str]]) -> Causes:
    return [invalid(path, name, problem) for problem in problems(name)] if name else [required(path)]


def required_fields(part: JsonObject, path: str, *names: str) -> Causes:
    """Return an error for each of these fields that is empty."""
    return [required(child_path(path, name)) for name in names if not part.get(name)]


def non_negative(part: JsonObject, path: str, *names: str) -> Causes:
    """Return an error for each of these numbers that is negative."""
    return [invalid(child_path(path, name), part[name], _NEGATIVE) for name in names if (part.get(name) or 0) < 0]


def one_of(part: JsonObject, path: str, name: str, supported: Collection[str]) -> Causes:
    value = part.get(name, "")
    return [] if value in supported else [not_supported(child_path(path, name), value, supported)]


def immutable_fields(new: JsonObject, old: JsonObject, path: str, *names: str) -> Causes:
    """Return an error for each of these fields that has changed."""
    return [
        invalid(child_path(path, name), new.get(name), _IMMUTABLE)
        for name in names
        if not is_semantically_equal(new.get(name), old.get(name))
    ]


def mutable_fields(new: JsonObject, old: JsonObject, path: str, *names: str) -> Causes:
    """Return an error if fields other than these have changed."""
    immutable = [name for name in sorted(new.keys() | old.keys()) if name not in names]
    changed = [name for name in immutable if not is_semantically_equal(new.get(name), old.get(name))]
    if not changed:
        return []
    return [forbidden(path, f"only {', '.join(names)} may be changed, not {', '.join(changed)}")]


def is_semantically_equal(new: Any, old: Any) -> bool:
    """Compare as the server does: an empty list or map equals an absent one."""
    return bool(new == old) or _without_empty(new) == _without_empty(old)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {name: _without_empty(item) for name, item in value.items()}
        return {name: item for name, item in fields.items() if item is not None} or None
    return ([_without_empty(item) for item in value] or None) if isinstance(value, list) else value


def enumerate_items(part: JsonObject, path: str, name: str) -> Iterable[tuple[str, JsonObject]]:
    """Yield the items of a list with their paths."""
    return ((f"{child_path(path, name)}[{index}]", item) for index, item in enumerate(part.get(name) or ()))


# Numbers


def validate_int_or_percent(part: JsonObject, path: str, name: str) -> Causes:
    """Return what is wrong with a number or percentage, if present."""
    value = part.get(name)
    if value is None:
        return []
    if isinstance(value, int):
        return non_negative(part, path, name)
    if not (value.endswith("%") and value[:-1].isdecimal()):
        return [invalid(child_path(path, name), value, "must be a number, or a percentage such as 25%")]
    return (
        [invalid(child_path(path, name), value, "must not be greater than 100%")]
        if int(value[:-1]) > _MAX_PERCENT
        else []
    )


def is_zero(value: int | str | None) -> bool:
    """Return whether a number or percentage is zero."""
    return value is None or str(value).removesuffix("%") == "0"


@lru_cache(4096)
def parse_quantity(value: str | float) -> Quantity:
    """Return a quantity that decoding has already validated."""
    return parse(str(value))


def non_negative_quantities(amounts: Mapping[str, Any] | None, path: str) -> Causes:
    """Return an error for each negative quantity."""
    return [
        invalid(f"{path}[{name}]", value, _NEGATIVE)
        for name, value in (amounts or {}).items()
        if parse_quantity(value) < _ZERO
    ]


# Labels and selectors


def validate_labels(labels: Mapping[str, str] | None, path: str) -> Causes:
    causes: Causes = []
    for key, value in (labels or {}).items():
        causes += [invalid(path, key, problem) for problem in qualified_name_problems(key)]
        causes += [invalid(path, value, problem) for problem in label_value_problems(value)]
    return causes


def validate_label_selector(selector: JsonObject | None, path: str) -> Causes:
    """Return what is wrong with a selector; it may be absent."""
    try:
        from_label_selector(selector or {})
    except SelectorError as error:
        return [invalid(child_path(path, error.path), selector, error.problem)]
    return []


def validate_template_selector(spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with the selector of a workload, which must match its pod template."""
    selector = spec.get("selector") or {}
    if not (selector.get("matchLabels") or selector.get("matchExpressions")):
        return [required(f"{path}.selector", "it must have at least one requirement")]
    if causes := validate_label_selector(selector, f"{path}.selector"):
        return causes
    template_labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if from_label_selector(selector).matches(template_labels):
        return []
    return [invalid(f"{path}.template.metadata.labels", template_labels, "`selector` does not match template `labels`")]
