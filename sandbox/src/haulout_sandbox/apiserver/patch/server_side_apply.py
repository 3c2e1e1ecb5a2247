"""Server-side apply: merges an applied configuration into an object and tracks field ownership.

An apply adds and changes the fields of its configuration. It removes fields that its manager applied before and no
longer sends, unless another applier owns them too. Changing a field that another applier owns is a conflict, unless
forced.

`metadata.managedFields` has one entry per manager that applied, in the format of the real server. Only appliers own
fields here: other writes leave the entries unchanged and never conflict.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.patch.merge_schema import ANY, DEDUCED, MergeSchema
from haulout_sandbox.apiserver.status import StatusError, bad_request, failure_status

APPLY_PATCH = "application/apply-patch+yaml"

Path = tuple[str, ...]
"""The way to a field, as `managedFields` writes it: `f:name` a key, `k:{"name":"c"}` and `v:"x"` items of a list."""

_SELF = "."
_ABSENT: Any = object()
_IDENTITY = ("name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion")
_UNOWNED = {("f:apiVersion",), ("f:kind",), ("f:metadata",)} | {("f:metadata", f"f:{it}") for it in _IDENTITY}


def apply(
    current: JsonObject | None,
    applied: JsonObject,
    *,
    schema: MergeSchema,
    manager: str,
    now: str,
    force: bool = False,
    subresource: str = "",
) -> JsonObject:
    """Return `current` (None: nothing) with `applied` merged into it, managed fields included."""
    if applied["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    live = current or {}
    entries: list[JsonObject] = list(live.get("metadata", {}).get("managedFields") or ())
    own_entry = next((entry for entry in entries if _is_entry_of(entry, manager, subresource)), None)
    others = [(entry, _owned_paths(entry)) for entry in entries if entry is not own_entry]
    result: JsonObject = _merge(live, applied, schema)
    applied_paths = _applied_paths(applied, schema)
    changed = {path for path in applied_paths if _value_at(live, path, schema) != _value_at(result, path, schema)}
    if not force:
        _check_conflicts(others, changed)
    others = [(entry, fields - changed) for entry, fields in others]
    previous_paths = _owned_paths(own_entry) if own_entry else set()
    other_paths = set().union(*(fields for _, fields in others))
    for path in sorted(previous_paths - applied_paths, key=len):
        if not any(other[: len(path)] == path for other in other_paths | applied_paths):
            result = _remove_path(result, path, schema)
    new_entries = [_with_fields(entry, fields) for entry, fields in others if fields]
    if applied_paths:
        unchanged = (
            own_entry
            and applied_paths == previous_paths
            and _without_managed_fields(result) == _without_managed_fields(live)
        )
        new_entries.append(
            own_entry if own_entry and unchanged else _new_entry(applied, applied_paths, manager, now, subresource)
        )
    meta = {name: value for name, value in result["metadata"].items() if name != "managedFields"}
    return result | {"metadata": meta | ({"managedFields": new_entries} if new_entries else {})}


def _is_entry_of(entry: JsonObject, manager: str, subresource: str) -> bool:
    return (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (
        manager,
        "Apply",
        subresource,
    )


def _check_conflicts(others: list[tuple[JsonObject, set[Path]]], changed: set[Path]) -> None:
    conflicts = [
        (_manager_text(entry), _format_path(path)) for entry, fields in others for path in sorted(fields & changed)
    ]
    if not conflicts:
        return
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, path in conflicts
    ]
    conflict_texts = ", ".join(f"conflict with {manager}: {path}" for manager, path in conflicts)
    count = f"{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
    raise StatusError(
        failure_status(409, "Conflict", f"Apply failed with {count}: {conflict_texts}", {"causes": causes})
    )


def _manager_text(entry: JsonObject) -> str:
    subresource = entry.get("subresource")
    return f'"{entry.get("manager", "")}"' + (f' with subresource "{subresource}"' if subresource else "")


def _without_managed_fields(obj: JsonObject) -> JsonObject:
    meta = {name: value for name, value in obj.get("metadata", {}).items() if name != "managedFields"}
    return obj | {"metadata": meta}


# Fields of a value


def _applied_paths(applied: JsonObject, schema: MergeSchema) -> set[Path]:
    """Return the path of every field and list item that an applied configuration sets."""
    return set(_iter_paths(applied, schema, ())) - _UNOWNED


def _iter_paths(value: Any, schema: MergeSchema, path: Path) -> Iterator[Path]:
    if isinstance(value, dict) and value and not schema.is_atomic:
        for name, item in value.items():
            yield from _iter_paths(item, _field_schema(schema, name), (*path, f"f:{name}"))
    elif isinstance(value, list) and not schema.is_atomic and schema.kind == "list":
        for item in value:
            item_path = (*path, _path_element(item, schema))
            yield item_path
            if schema.map_keys:
                yield from _iter_paths(item, schema.items or ANY, item_path)
    else:
        yield path


def _path_element(item: Any, schema: MergeSchema) -> str:
    """Return the path element of a list item."""
    if not schema.map_keys:
        return f"v:{_json(item)}"
    items = schema.items or ANY
    keys = {key: item.get(key, items.default(key)) for key in schema.map_keys} if isinstance(item, dict) else {}
    keys = {key: value for key, value in keys.items() if value is not None}
    if not keys:
        key_names = ", ".join(schema.map_keys)
        raise StatusError(
            failure_status(
                500, "", f"failed to create typed patch object: a list item has none of its keys {key_names}"
            )
        )
    return f"k:{_json(keys)}"


def _merge(live: Any, applied: Any, schema: MergeSchema) -> Any:
    if schema.is_atomic:
        return applied
    if isinstance(live, dict) and isinstance(applied, dict):
        return live | {
            element: _merge(live[element], item, _field_schema(schema, element)) if element in live else item
            for element, item in applied.items()
        }
    if schema.kind == "list" and isinstance(live, list) and isinstance(applied, list):
        items = {_path_element(item, schema): item for item in live}
        for item in applied:
            element = _path_element(item, schema)
            items[element] = _merge(items[element], item, schema.items or ANY) if element in items else item
        return list(items.values())
    return applied


def _value_at(value: Any, path: Path, schema: MergeSchema) -> Any:
    for name in path:
        if isinstance(value, list):
            value = next((item for item in value if _path_element(item, schema) == name), _ABSENT)
            schema = schema.items or ANY
        else:
            value = value.get(name[2:], _ABSENT) if isinstance(value, dict) else _ABSENT
            schema = _field_schema(schema, name[2:])
    # The existence of an item is a field of its own, separate from the fields inside it.
    return None if path and path[-1].startswith("k:") and value is not _ABSENT else value


def _remove_path(value: Any, path: Path, schema: MergeSchema) -> Any:
    """Return `value` without the field at `path`, and without parents that become empty."""
    first, *rest = path
    if isinstance(value, list):
        items = schema.items or ANY
        remaining = [
            _remove_path(item, tuple(rest), items) if rest and _path_element(item, schema) == first else item
            for item in value
            if rest or _path_element(item, schema) != first
        ]
        return [item for item in remaining if item != {}]
    name = first[2:]
    if not isinstance(value, dict) or name not in value:
        return value
    inner = _remove_path(value[name], tuple(rest), _field_schema(schema, name)) if rest else {}
    others = {key: item for key, item in value.items() if key != name}
    return others if inner in ({}, []) else value | {name: inner}


def _field_schema(schema: MergeSchema, name: str) -> MergeSchema:
    return schema.field(name) or DEDUCED


# Encoding of managed fields


def _new_entry(applied: JsonObject, fields: set[Path], manager: str, now: str, subresource: str) -> JsonObject:
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
            node[_SELF] = {}
    return entry | {"fieldsV1": encoded}


def _owned_paths(entry: JsonObject) -> set[Path]:
    """Return the paths that an entry owns if it is an applier's; other entries own nothing."""
    return set(_decode_fields_v1(entry.get("fieldsV1"), ())) if entry.get("operation") == "Apply" else set()


def _decode_fields_v1(node: Any, path: Path) -> Iterator[Path]:
    if not isinstance(node, dict) or not node:
        yield path
        return
    for name, below in node.items():
        yield from (path,) if name == _SELF else _decode_fields_v1(below, (*path, name))


def _format_path(path: Path) -> str:
    """Return a path as messages show it: `.spec.containers[name="web"].image`."""
    return "".join(f".{name[2:]}" if name.startswith("f:") else f"[{_format_item(name)}]" for name in path)


def _format_item(name: str) -> str:
    decoded = msgspec.json.decode(name[2:])
    if name.startswith("k:"):
        return ",".join(f"{key}={_json(value)}" for key, value in decoded.items())
    return f"={_json(decoded)}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
