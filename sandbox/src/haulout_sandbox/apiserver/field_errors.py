"""Field errors: the causes of an Invalid error.

A field path is plain text (`spec.rules[0].name`); the empty path, of the object itself, is printed as `<nil>`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.status import quote, status_cause

OMITTED: Any = object()  # a bad value that the message does not show


def child_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def required(path: str, detail: str = "") -> JsonObject:
    return _field_cause("FieldValueRequired", path, "Required value", detail)


def forbidden(path: str, detail: str) -> JsonObject:
    return _field_cause("FieldValueForbidden", path, "Forbidden", detail)


def invalid(path: str, value: Any, detail: str) -> JsonObject:
    return _field_cause("FieldValueInvalid", path, _with_value("Invalid value", value), detail)


def duplicate(path: str, value: Any) -> JsonObject:
    return _field_cause("FieldValueDuplicate", path, _with_value("Duplicate value", value), "")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> JsonObject:
    detail = f"supported values: {', '.join(quote(each) for each in supported)}"
    return _field_cause("FieldValueNotSupported", path, _with_value("Unsupported value", value), detail)


def too_long(path: str, limit: int) -> JsonObject:
    return _field_cause("FieldValueTooLong", path, "Too long", f"may not be more than {limit} bytes")


def not_found(path: str, value: Any) -> JsonObject:
    return _field_cause("FieldValueNotFound", path, _with_value("Not found", value), "")


def _field_cause(reason: str, path: str, message: str, detail: str) -> JsonObject:
    return status_cause(reason, path or "<nil>", f"{message}: {detail}" if detail else message)


def _with_value(message: str, value: Any) -> str:
    return message if value is OMITTED else f"{message}: {msgspec.json.encode(value).decode()}"
