"""What is wrong with a value, by its schema."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

from haulout.core import duration
from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.cel.functions import instant, pattern
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.schema_nodes import Node

_LONGEST_SHOWN = 100
_INTEGERS = {"int32": range(-(1 << 31), 1 << 31), "int64": range(-(1 << 63), 1 << 63)}
_FORMATS: dict[str, Callable[[str], Any]] = {
    "date-time": instant,
    "date": date.fromisoformat,
    "duration": duration.parse,
}


def causes(node: Node, value: Any, path: str = "") -> list[JsonObject]:
    """Return what is wrong with `value`, as causes of an Invalid."""
    return list(_problems(node, value, path))


def _problems(node: Node, value: Any, path: str) -> Iterator[JsonObject]:
    if value is None:
        if node.types and not node.nullable:
            yield fields.invalid(path, value, f"must be of type {' or '.join(node.types)}")
        return
    if node.types and not any(_is_of(kind, value) for kind in node.types):
        yield fields.invalid(path, value, f"must be of type {' or '.join(node.types)}")
        return
    if node.enum and not any(_same(value, each) for each in node.enum):
        yield fields.not_supported(path, value, [each if isinstance(each, str) else str(each) for each in node.enum])
    match value:
        case str():
            yield from _of_text(node, value, path)
        case int() | float() if not isinstance(value, bool):
            yield from _of_number(node, value, path)
        case list():
            yield from _of_list(node, value, path)
        case dict():
            yield from _of_object(node, value, path)
    yield from _of_branches(node, value, path)


def _is_of(kind: str, value: Any) -> bool:
    match kind:
        case "integer":
            return not isinstance(value, bool) and (isinstance(value, int) or _is_whole(value))
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


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _of_text(node: Node, value: str, path: str) -> Iterator[JsonObject]:
    yield from _of_size(path, value, node.min_length, node.max_length, "characters")
    if node.pattern and not pattern(node.pattern).search(value):
        yield fields.invalid(path, value, f"should match {node.pattern}")
    if (parse := _FORMATS.get(node.format)) is not None:
        try:
            parse(value)
        except ValueError:
            yield fields.invalid(path, value, f"must be a {node.format}")


def _of_number(node: Node, value: float, path: str) -> Iterator[JsonObject]:
    if "integer" in node.types and int(value) not in _INTEGERS.get(node.format, _INTEGERS["int64"]):
        yield fields.invalid(path, value, f"must be an {node.format or 'int64'}")
    least, most = node.minimum, node.maximum
    if least is not None and (value < least or (node.exclusive_minimum and value == least)):
        than = "greater than" if node.exclusive_minimum else "at least"
        yield fields.invalid(path, value, f"must be {than} {least:g}")
    if most is not None and (value > most or (node.exclusive_maximum and value == most)):
        than = "less than" if node.exclusive_maximum else "at most"
        yield fields.invalid(path, value, f"must be {than} {most:g}")
    if node.multiple_of and not (value / node.multiple_of).is_integer():
        yield fields.invalid(path, value, f"must be a multiple of {node.multiple_of:g}")


def _of_list(node: Node, value: list[Any], path: str) -> Iterator[JsonObject]:
    yield from _of_size(path, value, node.min_items, node.max_items, "items")
    if node.items is not None:
        for at, item in enumerate(value):
            yield from _problems(node.items, item, f"{path}[{at}]")
    if node.list_type in ("set", "map"):
        keys = [node.keys_of(item) if node.list_type == "map" and isinstance(item, dict) else item for item in value]
        for at, key in enumerate(keys):
            if key in keys[:at]:
                yield fields.duplicate(f"{path}[{at}]", key)


def _of_object(node: Node, value: JsonObject, path: str) -> Iterator[JsonObject]:
    yield from _of_size(path, value, node.min_properties, node.max_properties, "properties")
    for name in node.required:
        if name not in value:
            yield fields.required(fields.child(path, name))
    for name in sorted(value):
        if (below := node.below(name)) is not None:
            yield from _problems(below, value[name], fields.child(path, name))


def _of_size(
    path: str, value: str | list[Any] | JsonObject, least: int | None, most: int | None, what: str
) -> Iterator[JsonObject]:
    shown = value if isinstance(value, str) and len(value) <= _LONGEST_SHOWN else fields.OMIT
    if least is not None and len(value) < least:
        yield fields.invalid(path, shown, f"must have at least {least} {what}")
    if most is not None and len(value) > most:
        yield fields.invalid(path, shown, f"must have at most {most} {what}")


def _of_branches(node: Node, value: Any, path: str) -> Iterator[JsonObject]:
    for branch in node.all_of:
        yield from _problems(branch, value, path)
    if node.any_of and all(causes(branch, value, path) for branch in node.any_of):
        yield fields.invalid(path, value, "must match one of the schemas in anyOf")
    if node.one_of and sum(not causes(branch, value, path) for branch in node.one_of) != 1:
        yield fields.invalid(path, value, "must match exactly one of the schemas in oneOf")
    if node.negated is not None and not causes(node.negated, value, path):
        yield fields.invalid(path, value, "must not match the schema in not")
