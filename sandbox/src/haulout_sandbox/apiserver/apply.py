"""Server-side apply: merges an applied configuration into an object and remembers who applied which field.

An apply adds and changes what it says. It removes what its manager applied before and does not say any more, unless
another applier has it too. To change a field that another applier owns is a conflict, unless forced.

`metadata.managedFields` has one entry for each manager that applied something, in the form of the real server. Only
appliers own fields: other writes leave the entries as they are, and their changes never conflict.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.shapes import ANY, DEDUCED, Shape
from haulout_sandbox.apiserver.status import Refused, bad_request, failure

APPLY_PATCH = "application/apply-patch+yaml"

Path = tuple[str, ...]
"""The way to a field, as `managedFields` writes it: `f:name` a key, `k:{"name":"c"}` and `v:"x"` items of a list."""

_ITSELF = "."
_ABSENT: Any = object()
_IDENTITY = ("name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion")
_NOBODYS = {("f:apiVersion",), ("f:kind",), ("f:metadata",)} | {("f:metadata", f"f:{it}") for it in _IDENTITY}


def apply(
    current: JsonObject | None,
    applied: JsonObject,
    *,
    shape: Shape,
    manager: str,
    now: str,
    force: bool = False,
    subresource: str = "",
) -> JsonObject:
    """Return what `applied` makes of `current` (None: of nothing), managed fields included."""
    if applied["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    live = current or {}
    entries: list[JsonObject] = list(live.get("metadata", {}).get("managedFields") or ())
    mine = next((it for it in entries if _is_of(it, manager, subresource)), None)
    others = [(it, _owned(it)) for it in entries if it is not mine]
    result: JsonObject = _merged(live, applied, shape)
    given = _leaves(applied, shape)
    changed = {path for path in given if _at(live, path, shape) != _at(result, path, shape)}
    if not force:
        _check_conflicts(others, changed)
    others = [(it, fields - changed) for it, fields in others]
    before = _owned(mine) if mine else set()
    theirs = set().union(*(fields for _, fields in others))
    for path in sorted(before - given, key=len):
        if not any(other[: len(path)] == path for other in theirs | given):
            result = _without(result, path, shape)
    kept = [_with_fields(it, fields) for it, fields in others if fields]
    if given:
        unchanged = mine and given == before and _content(result) == _content(live)
        kept.append(mine if mine and unchanged else _entry(applied, given, manager, now, subresource))
    meta = {name: value for name, value in result["metadata"].items() if name != "managedFields"}
    return result | {"metadata": meta | ({"managedFields": kept} if kept else {})}


def _is_of(entry: JsonObject, manager: str, subresource: str) -> bool:
    return (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (
        manager,
        "Apply",
        subresource,
    )


def _check_conflicts(others: list[tuple[JsonObject, set[Path]]], changed: set[Path]) -> None:
    found = [(_who(entry), _text(path)) for entry, fields in others for path in sorted(fields & changed)]
    if not found:
        return
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path} for who, path in found
    ]
    said = ", ".join(f"conflict with {who}: {path}" for who, path in found)
    count = f"{len(found)} conflict{'s' if len(found) > 1 else ''}"
    raise Refused(failure(409, "Conflict", f"Apply failed with {count}: {said}", {"causes": causes}))


def _who(entry: JsonObject) -> str:
    subresource = entry.get("subresource")
    return f'"{entry.get("manager", "")}"' + (f' with subresource "{subresource}"' if subresource else "")


def _content(obj: JsonObject) -> JsonObject:
    meta = {name: value for name, value in obj.get("metadata", {}).items() if name != "managedFields"}
    return obj | {"metadata": meta}


# Fields of a value


def _leaves(applied: JsonObject, shape: Shape) -> set[Path]:
    """Return every field and list item that an applied configuration sets."""
    return set(_fields(applied, shape, ())) - _NOBODYS


def _fields(value: Any, shape: Shape, path: Path) -> Iterator[Path]:
    if isinstance(value, dict) and value and not shape.atomic:
        for name, item in value.items():
            yield from _fields(item, _field(shape, name), (*path, f"f:{name}"))
    elif isinstance(value, list) and not shape.atomic and shape.kind == "list":
        for item in value:
            below = (*path, _element(item, shape))
            yield below
            if shape.map_keys:
                yield from _fields(item, shape.items or ANY, below)
    else:
        yield path


def _element(item: Any, shape: Shape) -> str:
    """Return the path element of a list's item."""
    if not shape.map_keys:
        return f"v:{_json(item)}"
    items = shape.items or ANY
    keys = {key: item.get(key, items.default(key)) for key in shape.map_keys} if isinstance(item, dict) else {}
    keys = {key: value for key, value in keys.items() if value is not None}
    if not keys:
        wanted = ", ".join(shape.map_keys)
        raise Refused(
            failure(500, "", f"failed to create typed patch object: a list item has none of its keys {wanted}")
        )
    return f"k:{_json(keys)}"


def _merged(live: Any, applied: Any, shape: Shape) -> Any:
    """Return `live` with all that `applied` says."""
    if shape.atomic:
        return applied
    if isinstance(live, dict) and isinstance(applied, dict):
        return live | {
            name: _merged(live[name], item, _field(shape, name)) if name in live else item
            for name, item in applied.items()
        }
    if shape.kind == "list" and isinstance(live, list) and isinstance(applied, list):
        known = {_element(item, shape): item for item in live}
        for item in applied:
            name = _element(item, shape)
            known[name] = _merged(known[name], item, shape.items or ANY) if name in known else item
        return list(known.values())
    return applied


def _at(value: Any, path: Path, shape: Shape) -> Any:
    for name in path:
        if isinstance(value, list):
            value = next((item for item in value if _element(item, shape) == name), _ABSENT)
            shape = shape.items or ANY
        else:
            value = value.get(name[2:], _ABSENT) if isinstance(value, dict) else _ABSENT
            shape = _field(shape, name[2:])
    # Whether an item is there is a field of its own; what it holds are others.
    return None if path and path[-1].startswith("k:") and value is not _ABSENT else value


def _without(value: Any, path: Path, shape: Shape) -> Any:
    """Return `value` without the field at `path`, and without what is empty then."""
    first, *rest = path
    if isinstance(value, list):
        items = shape.items or ANY
        kept = [
            _without(item, tuple(rest), items) if rest and _element(item, shape) == first else item
            for item in value
            if rest or _element(item, shape) != first
        ]
        return [item for item in kept if item != {}]
    name = first[2:]
    if not isinstance(value, dict) or name not in value:
        return value
    below = _without(value[name], tuple(rest), _field(shape, name)) if rest else {}
    left = {key: item for key, item in value.items() if key != name}
    return left if below in ({}, []) else value | {name: below}


def _field(shape: Shape, name: str) -> Shape:
    return shape.field(name) or DEDUCED


# Managed fields on the wire


def _entry(applied: JsonObject, fields: set[Path], manager: str, now: str, subresource: str) -> JsonObject:
    entry = {"manager": manager, "operation": "Apply", "apiVersion": applied["apiVersion"], "time": now}
    entry |= {"subresource": subresource} if subresource else {}
    return _with_fields(entry | {"fieldsType": "FieldsV1"}, fields)


def _with_fields(entry: JsonObject, fields: set[Path]) -> JsonObject:
    encoded: JsonObject = {}
    for path in sorted(fields):
        node = encoded
        for name in path:
            node = node.setdefault(name, {})
        if path[-1].startswith("k:"):
            node[_ITSELF] = {}
    return entry | {"fieldsV1": encoded}


def _owned(entry: JsonObject) -> set[Path]:
    """Return what an applier owns; anybody else owns nothing."""
    return set(_decoded(entry.get("fieldsV1"), ())) if entry.get("operation") == "Apply" else set()


def _decoded(node: Any, path: Path) -> Iterator[Path]:
    if not isinstance(node, dict) or not node:
        yield path
        return
    for name, below in node.items():
        yield from (path,) if name == _ITSELF else _decoded(below, (*path, name))


def _text(path: Path) -> str:
    """Return a path as messages show it: `.spec.containers[name="web"].image`."""
    return "".join(f".{name[2:]}" if name.startswith("f:") else f"[{_item_text(name)}]" for name in path)


def _item_text(name: str) -> str:
    held = msgspec.json.decode(name[2:])
    if name.startswith("k:"):
        return ",".join(f"{key}={_json(value)}" for key, value in held.items())
    return f"={_json(held)}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
