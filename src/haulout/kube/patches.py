"""Changes to objects, by key and with the precondition they rest on.

We never write a whole object or a whole list that others write too: a patch says which key becomes what, and carries
what must still be true for it to make sense (a JSON patch with `test`, a merge patch with the resourceVersion). If that
no longer holds the server refuses it, and we look again.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

Json = Any


class Patch(msgspec.Struct, frozen=True):
    """A change, as it goes over the wire."""

    content_type: str
    body: bytes


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a JSON patch (RFC 6902)."""

    op: str
    path: str
    value: Json = msgspec.UNSET


def pointer(*parts: str | int) -> str:
    """Return the JSON pointer for `parts`: `pointer("metadata", "labels", "a/b")` is `/metadata/labels/a~1b`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def require(path: str, value: Json) -> Operation:
    """Refuse the whole patch unless `path` has this value now."""
    return Operation("test", path, value)


def add(path: str, value: Json) -> Operation:
    """Set a key, new or not; insert into a list (`/-` appends)."""
    return Operation("add", path, value)


def replace(path: str, value: Json) -> Operation:
    """Change what must already be there."""
    return Operation("replace", path, value)


def remove(path: str) -> Operation:
    """Take away what must be there."""
    return Operation("remove", path)


def json_patch(*operations: Operation) -> Patch:
    """Return a JSON patch: all operations in order, or none."""
    return Patch("application/json-patch+json", msgspec.json.encode(operations))


def merge_patch(change: Mapping[str, Json]) -> Patch:
    """Return a merge patch (RFC 7386): keys are set, `None` deletes, lists are replaced whole."""
    return Patch("application/merge-patch+json", msgspec.json.encode(change))


def strategic_patch(change: Mapping[str, Json]) -> Patch:
    """Return a strategic merge patch: like a merge patch, but lists merge by the keys that Kubernetes defines."""
    return Patch("application/strategic-merge-patch+json", msgspec.json.encode(change))


def node_patch(change: Mapping[str, Json]) -> Patch:
    """Return what a merge patch of a node would do, in the form that costs the API server least.

    It applies a strategic patch to a node without writing it as JSON and reading that again, which of a node with its
    many images takes a third of the time. Of all that is changed of nodes only finalizers would be merged.
    """
    has_finalizers = "finalizers" in change.get("metadata", {})
    return merge_patch(change) if has_finalizers else strategic_patch(change)


def apply_patch(wanted: Mapping[str, Json]) -> Patch:
    """Return a server-side apply: these fields are ours and have these values. JSON is valid YAML."""
    return Patch("application/apply-patch+yaml", msgspec.json.encode(wanted))


def difference(old: Json, new: Json) -> Json:
    """Return what a merge patch must say to make `new` of `old`; two objects that are equal give an empty one."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    change = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            change[key] = value
        elif old[key] != value:
            change[key] = difference(old[key], value)
    return change
