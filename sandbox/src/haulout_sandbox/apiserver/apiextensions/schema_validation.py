"""Validation of a value against its schema."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

from haulout.core import duration
from haulout_sandbox.apiserver import field_errors
from haulout_sandbox.apiserver.apiextensions.schema_nodes import Node, compile_pattern, parse_timestamp
from haulout_sandbox.apiserver.kinds.kind import JsonObject

_MAX_SHOWN_LENGTH = 100
_INTEGERS = {"int32": range(-(1 << 31), 1 << 31), "int64": range(-(1 << 63), 1 << 63)}
_FORMATS: dict[str, Callable[[str], Any]] = {
    "date-time": parse_timestamp,
    "date": date.fromisoformat,
    "duration": duration.parse,
}


def value_causes(node: Node, value: Any, path: str = "") -> list[JsonObject]:
    """Return what is invalid in `value`, as causes of an Invalid error."""
    return list(_iter_causes(node, value, path))


def _iter_causes(node: Node, value: Any, path: str) -> Iterator[JsonObject]:
    if value is None:
        if node.types and not node.nullable:
            yield field_errors.invalid(path, value, f"must be of type {' or '.join(node.types)}")
        return
    if node.types and not any(_has_type(kind, value) for kind in node.types):
        yield field_errors.invalid(path, value, f"must be of type {' or '.join(node.types)}")
        return
    if node.enum and not any(_is_equal(value, each) for each in node.enum):
        yield field_errors.not_supported(
            path, value, [each if isinstance(each, str) else str(each) for each in node.enum]
        )
    match value:
        case str():
            yield from _string_causes(node, value, path)
        case int() | float() if not isinstance(value, bool):
            yield from _number_causes(node, value, path)
        case list():
            yield from _list_causes(node, value, path)
        case dict():
            yield from _object_causes(node, value, path)
    yield from _combinator_causes(node, value, path)


def _has_type(kind: str, value: Any) -> bool:
    match kind:
        case "integer":
            return not isinstance(value, bool) and (isinstance(value, int) or _is_integral(value))
        case "number":
            return not isinstance(value, bool) and isinstance(value, int | float)
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _is_integral(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _is_equal(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _string_causes(node: Node, value: str, path: str) -> Iterator[JsonObject]:
    yield from _size_causes(path, value, node.min_length, node.max_length, "characters")
    if node.pattern and not compile_pattern(node.pattern).search(value):
        yield field_errors.invalid(path, value, f"should match {node.pattern}")
    if (parse := _FORMATS.get(node.format)) is not None:
        try:
            parse(value)
        except ValueError:
            yield field_errors.invalid(path, value, f"must be a {node.format}")


def _number_causes(node: Node, value: float, path: str) -> Iterator[JsonObject]:
    if "integer" in node.types and int(value) not in _INTEGERS.get(node.format, _INTEGERS["int64"]):
        yield field_errors.invalid(path, value, f"must be an {node.format or 'int64'}")
    minimum, maximum = node.minimum, node.maximum
    if minimum is not None and (value < minimum or (node.exclusive_minimum and value == minimum)):
        comparison = "greater than" if node.exclusive_minimum else "at least"
        yield field_errors.invalid(path, value, f"must be {comparison} {minimum:g}")
    if maximum is not None and (value > maximum or (node.exclusive_maximum and value == maximum)):
        comparison = "less than" if node.exclusive_maximum else "at most"
        yield field_errors.invalid(path, value, f"must be {comparison} {maximum:g}")
    if node.multiple_of and not (value / node.multiple_of).is_integer():
        yield field_errors.invalid(path, value, f"must be a multiple of {node.multiple_of:g}")


def _list_causes(node: Node, value: list[Any], path: str) -> Iterator[JsonObject]:
    yield from _size_causes(path, value, node.min_items, node.max_items, "items")
    if node.items is not None:
        for index, item in enumerate(value):
            yield from _iter_causes(node.items, item, f"{path}[{index}]")
    if node.list_type in ("set", "map"):
        keys = [node.item_key(item) if node.list_type == "map" and isinstance(item, dict) else item for item in value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                yield field_errors.duplicate(f"{path}[{index}]", key)


def _object_causes(node: Node, value: JsonObject, path: str) -> Iterator[JsonObject]:
    yield from _size_causes(path, value, node.min_properties, node.max_properties, "properties")
    for name in node.required:
        if name not in value:
            yield field_errors.required(field_errors.child_path(path, name))
    for name in sorted(value):
        if (property_node := node.property_node(name)) is not None:
            yield from _iter_causes(property_node, value[name], field_errors.child_path(path, name))


def _size_causes(
    path: str, value: str | list[Any] | JsonObject, minimum: int | None, maximum: int | None, unit: str
) -> Iterator[JsonObject]:
    shown = value if isinstance(value, str) and len(value) <= _MAX_SHOWN_LENGTH else field_errors.OMITTED
    if minimum is not None and len(value) < minimum:
        yield field_errors.invalid(path, shown, f"must have at least {minimum} {unit}")
    if maximum is not None and len(value) > maximum:
        yield field_errors.invalid(path, shown, f"must have at most {maximum} {unit}")


def _combinator_causes(node: Node, value: Any, path: str) -> Iterator[JsonObject]:
    for branch in node.all_of:
        yield from _iter_causes(branch, value, path)
    if node.any_of and all(value_causes(branch, value, path) for branch in node.any_of):
        yield field_errors.invalid(path, value, "must match one of the schemas in anyOf")
    if node.one_of and sum(not value_causes(branch, value, path) for branch in node.one_of) != 1:
        yield field_errors.invalid(path, value, "must match exactly one of the schemas in oneOf")
    if node.not_schema is not None and not value_causes(node.not_schema, value, path):
        yield field_errors.invalid(path, value, "must not match the schema in not")
