"""The metadata of custom resources: the one part of them that has a Go type.

`coerced` does what decoding into that type does: it drops what the type does not know, names that, and refuses values
of the wrong type in the words of Go's JSON decoder. `new_causes` and `change_causes` say what is wrong with the values.
Follows `apiextensions-apiserver/pkg/apiserver/schema/objectmeta` of Kubernetes 1.36.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, rules
from haulout_sandbox.apiserver.validation.common import Causes

_STRUCTS: Mapping[str, Mapping[str, str]] = {
    "ObjectMeta": {
        "name": "string",
        "generateName": "string",
        "namespace": "string",
        "selfLink": "string",
        "uid": "types.UID",
        "resourceVersion": "string",
        "generation": "int64",
        "creationTimestamp": "time",
        "deletionTimestamp": "time",
        "deletionGracePeriodSeconds": "int64",
        "labels": "map[string]string",
        "annotations": "map[string]string",
        "ownerReferences": "[]v1.OwnerReference",
        "finalizers": "[]string",
        "managedFields": "[]v1.ManagedFieldsEntry",
    },
    "OwnerReference": {
        "apiVersion": "string",
        "kind": "string",
        "name": "string",
        "uid": "types.UID",
        "controller": "bool",
        "blockOwnerDeletion": "bool",
    },
    "ManagedFieldsEntry": {
        "manager": "string",
        "operation": "v1.ManagedFieldsOperationType",
        "apiVersion": "string",
        "time": "time",
        "fieldsType": "string",
        "fieldsV1": "any",
        "subresource": "string",
    },
}
_ALWAYS_SHOWN = {"OwnerReference": ("apiVersion", "kind", "name", "uid")}
_SHOWN_IF_ZERO = {"int64", "bool", "any"}
_LAYOUT = "2006-01-02T15:04:05Z07:00"
_STANDARD_FINALIZERS = {"orphan", "foregroundDeletion", "kubernetes"}
_REPEATED_OWNERS = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed"
)


class Malformed(ValueError):
    """A value that is not of the type it must have."""


def coerced(sent: Any) -> tuple[JsonObject, list[str]]:
    """Return metadata as its type shows it, and the paths of what the type does not know."""
    if sent is None:
        return {}, []
    if not isinstance(sent, dict):
        raise Malformed(f"json: cannot unmarshal {_json_type(sent)} into Go value of type v1.ObjectMeta")
    unknown: list[str] = []
    return _struct(sent, _Place("ObjectMeta", (), "metadata"), unknown), unknown


def new_causes(meta: JsonObject) -> Causes:
    """Return what is wrong with the metadata of a new object, as causes of an Invalid."""
    return metadata.of_any(meta, namespaced="namespace" in meta, name_rule=rules.subdomain)


def change_causes(meta: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with a change of metadata; the server looks for that twice, and says so twice."""
    return metadata.of_any(meta, namespaced="namespace" in meta) + metadata.of_any_update(meta, old) * 2


def finalizer_warnings(meta: JsonObject, old: JsonObject | None) -> list[str]:
    """Return what the server warns of about finalizers that are new."""
    said = []
    fresh = set(meta.get("finalizers") or ()) - set((old or {}).get("finalizers") or ())
    for name in sorted(fresh - _STANDARD_FINALIZERS):
        if "/" in name:
            continue
        including = " including a path (/)" if "." in name else ""
        rule = f"prefer a domain-qualified finalizer name{including} to avoid accidental conflicts"
        said.append(f"metadata.finalizers: {fields.quoted(name)}: {rule} with other finalizer writers")
    return said


def drop_repeated_owners(meta: JsonObject) -> list[str]:
    """Keep only the first of equal owner references; return what the server warns of about that."""
    owners, kept = meta.get("ownerReferences") or [], []
    for owner in owners:
        if owner not in kept:
            kept.append(owner)
    if len(kept) == len(owners):
        return []
    meta["ownerReferences"] = kept
    uids = ", ".join(it["uid"] for at, it in enumerate(owners) if it in owners[:at])
    return [f"{_REPEATED_OWNERS}: {uids}"]


# What decoding into a Go type does


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value is: in which Go type, by which fields, and by which path of the object."""

    struct: str
    way: tuple[str, ...]
    path: str

    @property
    def said(self) -> str:
        return f"Go struct field {'.'.join((self.struct, *self.way))}"


def _struct(value: JsonObject, place: _Place, unknown: list[str]) -> JsonObject:
    types, always = _STRUCTS[place.struct], _ALWAYS_SHOWN.get(place.struct, ())
    found: JsonObject = {}
    for name in sorted(value):
        if name not in types:
            unknown.append(f"{place.path}.{name}")
        elif value[name] is not None:
            below = _Place(place.struct, (*place.way, name), f"{place.path}.{name}")
            found[name] = _typed(value[name], types[name], below, unknown)
    kept = {name: it for name, it in found.items() if it or types[name] in _SHOWN_IF_ZERO or name in always}
    return dict.fromkeys(always, "") | kept


def _typed(value: Any, kind: str, place: _Place, unknown: list[str]) -> Any:
    if kind == "any":
        return value
    if kind.startswith("map"):
        pairs = value if isinstance(value, dict) else _wrong(value, place, kind)
        return {key: _text(item, place, "string") for key, item in pairs.items()}
    if not kind.startswith("[]"):
        decode = _SCALARS.get(kind) or _text
        return decode(value, place, kind)
    items = value if isinstance(value, list) else _wrong(value, place, kind)
    if kind == "[]string":
        return [_text(item, place, "string") for item in items]
    return [_item(item, kind, place, at, unknown) for at, item in enumerate(items)]


def _item(value: Any, kind: str, place: _Place, at: int, unknown: list[str]) -> JsonObject:
    if not isinstance(value, dict | None):
        _wrong(value, place, kind.removeprefix("[]"))
    inside = _Place(kind.rpartition(".")[2], place.way, f"{place.path}[{at}]")
    return _struct(value or {}, inside, unknown)


def _text(value: Any, place: _Place, kind: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _wrong(value, place, kind)


def _flag(value: Any, place: _Place, kind: str) -> bool:
    return value if isinstance(value, bool) else _wrong(value, place, kind)


def _whole(value: Any, place: _Place, kind: str) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise Malformed(f"json: cannot unmarshal number {fields.plain(value)} into {place.said} of type {kind}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        _wrong(value, place, kind)
    return int(value)


def _time(value: Any, place: _Place, _: str) -> str:
    text = _text(value, place, "string")
    try:
        at = datetime.fromisoformat(text) if "T" in text else None
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise Malformed(f'parsing time "{text}" as "{_LAYOUT}": cannot parse "{text}" as "2006"')
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_SCALARS: Mapping[str, Callable[[Any, _Place, str], Any]] = {"int64": _whole, "bool": _flag, "time": _time}


def _wrong(value: Any, place: _Place, kind: str) -> NoReturn:
    raise Malformed(f"json: cannot unmarshal {_json_type(value)} into {place.said} of type {kind}")


def _json_type(value: Any) -> str:
    for kind, word in ((bool, "bool"), (int | float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return word
    return "object"
