"""What is wrong with one field: the causes of an Invalid.

A path is a plain text (`spec.rules[0].name`); the empty one, of the object itself, is printed as `<nil>`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.status import field_error, quoted

__all__ = ["OMIT", "as_json", "child", "plain", "quoted"]

OMIT: Any = object()  # a bad value that is not shown


def child(path: str, name: str) -> str:
    """Return the path of a field below `path`."""
    return f"{path}.{name}" if path and name else path or name


def required(path: str, detail: str = "") -> JsonObject:
    """Say that a field is missing."""
    return _cause("FieldValueRequired", path, "Required value", detail)


def forbidden(path: str, detail: str) -> JsonObject:
    """Say that a field may not be there."""
    return _cause("FieldValueForbidden", path, "Forbidden", detail)


def invalid(path: str, value: Any, detail: str) -> JsonObject:
    """Say that a value is wrong."""
    return _cause("FieldValueInvalid", path, _shown("Invalid value", value), detail)


def duplicate(path: str, value: Any) -> JsonObject:
    """Say that a value is there twice."""
    return _cause("FieldValueDuplicate", path, _shown("Duplicate value", value), "")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> JsonObject:
    """Say that a value is none of those allowed."""
    detail = f"supported values: {', '.join(quoted(each) for each in supported)}"
    return _cause("FieldValueNotSupported", path, _shown("Unsupported value", value), detail)


def too_long(path: str, limit: int) -> JsonObject:
    """Say that a text is too long."""
    return _cause("FieldValueTooLong", path, "Too long", f"may not be more than {limit} bytes")


def not_found(path: str, value: Any) -> JsonObject:
    """Say that a value names nothing."""
    return _cause("FieldValueNotFound", path, _shown("Not found", value), "")


def plain(value: Any) -> str:
    """Return a scalar as people read it."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    """Return `value` as JSON, names sorted."""
    return msgspec.json.encode(value, order="sorted").decode()


def _cause(reason: str, path: str, said: str, detail: str) -> JsonObject:
    return field_error(reason, path or "<nil>", f"{said}: {detail}" if detail else said)


def _shown(said: str, value: Any) -> str:
    return said if value is OMIT else f"{said}: {msgspec.json.encode(value).decode()}"
