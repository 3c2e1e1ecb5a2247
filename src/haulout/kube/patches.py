"""Patches: minimal changes to objects, with preconditions.

Haulout never writes a whole object, or a whole list that others write too. A patch sets single keys, and carries the
precondition that it relies on (a JSON patch with `test`, a merge patch with the resourceVersion). If the precondition
fails, the server rejects the patch, and the caller reads and decides again.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

Json = Any


class Patch(msgspec.Struct, frozen=True):
    """A patch body with its content type."""

    content_type: str
    body: bytes


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation of a JSON patch (RFC 6902)."""

    op: str
    path: str
    # Not None: null is a value that a patch can set or test, and a `remove` must have no value.
    value: Json = msgspec.UNSET


def pointer(*parts: str | int) -> str:
    """Return the JSON pointer for `parts`: `pointer("metadata", "labels", "a/b")` is `/metadata/labels/a~1b`."""
    # `~` first (RFC 6901, section 3), or the `~` of `~1` would be escaped again.
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def require(path: str, value: Json) -> Operation:
    """Return a `test` operation: the whole patch fails unless `path` has this value."""
    return Operation("test", path, value)


def add(path: str, value: Json) -> Operation:
    """Return an operation that sets a key, new or not, or inserts into a list (`/-` appends)."""
    return Operation("add", path, value)


def replace(path: str, value: Json) -> Operation:
    """Return an operation that changes a value that must exist."""
    return Operation("replace", path, value)


def remove(path: str) -> Operation:
    """Return an operation that removes a value that must exist."""
    return Operation("remove", path)


def json_patch(*operations: Operation) -> Patch:
    """Return a JSON patch: the server applies all operations in order, or none."""
    return Patch("application/json-patch+json", msgspec.json.encode(operations))


def merge_patch(change: Mapping[str, Json]) -> Patch:
    """Return a merge patch (RFC 7386): keys are set, `None` deletes, lists are replaced as a whole."""
    return Patch("application/merge-patch+json", msgspec.json.encode(change))


def strategic_patch(change: Mapping[str, Json]) -> Patch:
    """Return a strategic merge patch: like a merge patch, but lists merge by the keys that Kubernetes defines."""
    return Patch("application/strategic-merge-patch+json", msgspec.json.encode(change))


def node_patch(change: Mapping[str, Json]) -> Patch:
    """Return a patch of a node with the effect of a merge patch, of the type that is cheapest for the API server.

    For a merge patch the server encodes the node to JSON and decodes it again, which takes a third of the time for a
    node with many images. It applies a strategic patch without that. Of the fields of nodes that Haulout changes, the
    results differ only for finalizers, because a strategic patch merges them.
    """
    # In staging/src/k8s.io/apiserver/pkg/endpoints/handlers/patch.go, a merge patch is a jsonPatcher, and a strategic
    # one an smpPatcher.
    has_finalizers = "finalizers" in change.get("metadata", {})
    return merge_patch(change) if has_finalizers else strategic_patch(change)


def apply_patch(wanted: Mapping[str, Json]) -> Patch:
    """Return a server-side apply patch: we own these fields with these values. JSON is valid YAML."""
    return Patch("application/apply-patch+yaml", msgspec.json.encode(wanted))


def difference(old: Json, new: Json) -> Json:
    """Return the merge patch body that changes `old` into `new`; empty if they are equal."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    change = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            change[key] = value
        elif old[key] != value:
            change[key] = difference(old[key], value)
    return change
