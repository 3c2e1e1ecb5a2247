"""How the API server words what is wrong with one field: the causes of an Invalid, as `field.Error` prints them.

A path is a plain text (`spec.rules[0].name`); the empty one is printed as Go prints no path at all: `<nil>`.
"""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from haulout_sandbox.apiserver import quoting
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.status import field_error

quoted = quoting.quoted
OMIT: Any = object()  # a bad value that is not shown

_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e6  # Go's %v writes others with an exponent
_MOST_WHOLE = 1e21  # Go's encoding/json writes whole numbers below without one


class Unsorted(dict[str, Any]):
    """An object of the server's own, which Go prints in the order of its fields."""


def child(path: str, name: str) -> str:
    """Return the path of a field below `path`."""
    return f"{path}.{name}" if path else name


def required(path: str, detail: str = "") -> JsonObject:
    """Say that a field is missing."""
    return _cause("FieldValueRequired", path, "Required value", detail)


def forbidden(path: str, detail: str) -> JsonObject:
    """Say that a field may not be there."""
    return _cause("FieldValueForbidden", path, "Forbidden", detail)


def invalid(path: str, value: Any, detail: str) -> JsonObject:
    """Say that a value is wrong."""
    return _cause("FieldValueInvalid", path, _shown("Invalid value", value), detail)


def type_invalid(path: str, value: Any, detail: str) -> JsonObject:
    """Say that a value has the wrong type, or not the right format."""
    return _cause("FieldValueTypeInvalid", path, _shown("Invalid value", value), detail)


def duplicate(path: str, value: Any) -> JsonObject:
    """Say that a value is there twice."""
    return _cause("FieldValueDuplicate", path, _shown("Duplicate value", value), "")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> JsonObject:
    """Say that a value is none of those allowed."""
    listed = ", ".join(quoted(each) for each in supported)
    detail = f"supported values: {listed}" if listed else ""
    return _cause("FieldValueNotSupported", path, _shown("Unsupported value", value), detail)


def too_long(path: str, limit: int) -> JsonObject:
    """Say that a text is too long."""
    detail = f"may not be more than {limit} {'byte' if limit == 1 else 'bytes'}"
    return _cause("FieldValueTooLong", path, "Too long", detail)


def not_found(path: str, value: Any) -> JsonObject:
    """Say that a value names nothing."""
    return _cause("FieldValueNotFound", path, _shown("Not found", value), "")


def too_many(path: str, count: int, limit: int) -> JsonObject:
    """Say that a list or an object has too many members."""
    detail = f"must have at most {limit} {'item' if limit == 1 else 'items'}"
    return _cause("FieldValueTooMany", path, _shown("Too many", count), detail)


def plain(value: Any) -> str:
    """Return a scalar as Go's %v prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _float(value) if isinstance(value, float) else str(value)


def as_json(value: Any) -> str:
    """Return `value` as Go's encoding/json writes it: names sorted, whole numbers without a point, HTML-safe."""
    return escaped(msgspec.json.encode(_ordered(value)).decode())


def escaped(text: str) -> str:
    """Return JSON that is safe inside of HTML, as Go writes it."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _cause(reason: str, path: str, said: str, detail: str) -> JsonObject:
    return field_error(reason, path or "<nil>", f"{said}: {detail}" if detail else said)


def _shown(said: str, value: Any) -> str:
    if value is OMIT:
        return said
    if isinstance(value, str):
        return f"{said}: {quoted(value)}"
    return f"{said}: {plain(value) if isinstance(value, bool | int | float) else as_json(value)}"


def _float(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    if value and not _LEAST_PLAIN <= abs(value) < _MOST_PLAIN:
        return _exponential(value)
    return repr(value).removesuffix(".0")


def _exponential(value: float) -> str:
    """Return the shortest such text that means `value`."""
    texts = (f"{value:.{places}e}" for places in range(18))
    return next(text for text in texts if float(text) == value)


def _ordered(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _MOST_WHOLE else value
    if isinstance(value, dict):
        names = value if isinstance(value, Unsorted) else sorted(value)
        return {name: _ordered(value[name]) for name in names}
    return [_ordered(item) for item in value] if isinstance(value, list) else value
