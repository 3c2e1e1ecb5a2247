"""How the real server prints what is wrong: its internal types, with Go's names, and every field that says nothing.

    shown({"key": "a"}, "core.Taint")           # {"Key": "a", "Value": "", "Effect": "", "TimeAdded": None}

`difference` is how it shows what an update may not change: a unified diff of two such texts.
"""

import difflib
import functools
import json
from typing import Any, NamedTuple

from haulout_sandbox.apiserver.fields import Unsorted, escaped
from haulout_sandbox.apiserver.gotypes import facts
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.names import METADATA_FIELDS

_ZEROS: dict[str, Any] = {
    "string": "",
    "types.UID": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "intstr.IntOrString": 0,
    "resource.Quantity": "0",
    "meta.v1.Time": None,
}
_OWN_JSON = {"meta.v1.LabelSelector": ("matchLabels", "matchExpressions"), "meta.v1.ObjectMeta": METADATA_FIELDS}
_MOVED = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")  # into the security context


class _Field(NamedTuple):
    name: str
    in_json: str
    type: str


def shown(value: Any, kind: str) -> Any:
    """Return a value as Go prints it if it is of the internal type `kind`."""
    if kind.startswith("*"):
        return None if value is None else shown(value, kind[1:])
    if kind.startswith("[]"):
        return None if value is None else [shown(item, kind[2:]) for item in value]
    if kind.startswith("map["):
        inner = kind.partition("]")[2]
        return None if value is None else {name: shown(item, inner) for name, item in value.items()}
    if kind in _OWN_JSON:
        return Unsorted((name, value[name]) for name in _OWN_JSON[kind] if value and value.get(name))
    if kind in _ZEROS:
        return _ZEROS[kind] if value is None else value
    told = facts().internal[kind]
    return shown(value, told) if isinstance(told, str) else _struct(value or {}, kind)


def difference(old: JsonObject, new: JsonObject, kind: str) -> str:
    """Return what differs between two values of an internal type."""
    before, after = (_lines(shown(each, kind)) for each in (old, new))
    return "".join(list(difflib.unified_diff(before, after, n=3))[2:])  # Go's leaves out the names of what it compares


def _struct(value: JsonObject, kind: str) -> Unsorted:
    if kind == "core.PodSpec":
        moved = {name: value[name] for name in _MOVED if name in value}
        value = value | {"securityContext": (value.get("securityContext") or {}) | moved}
    result = Unsorted()
    for field in _fields(kind):
        if field.name == "*":
            result |= shown(value.get("metadata") or {}, field.type)
        else:
            result[field.name] = shown(value.get(field.in_json), field.type)
    return result


@functools.cache
def _fields(kind: str) -> tuple[_Field, ...]:
    return tuple(_Field(*text.split(" ")) for text in facts().internal[kind])


def _lines(value: Any) -> list[str]:
    text = escaped(json.dumps(_sorted(value), indent=1, ensure_ascii=False))
    # As Go's difflib splits: the last line has an end, too.
    return [f"{line}\n" for line in text.split("\n")]


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        names = value if isinstance(value, Unsorted) else sorted(value)
        return {name: _sorted(value[name]) for name in names}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
