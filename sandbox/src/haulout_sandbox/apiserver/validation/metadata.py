"""Validation of metadata: names, labels, annotations, owners, finalizers, and immutable fields."""

from collections.abc import Callable
from typing import Any

from haulout_sandbox.apiserver.field_errors import forbidden, invalid, required, too_long
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.object_names import (
    dns1123_label_problems,
    dns1123_subdomain_problems,
    qualified_name_problems,
)
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    immutable_fields,
    required_fields,
    required_name,
    validate_labels,
)

_MAX_ANNOTATIONS_BYTES = 256 * 1024
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_create(
    meta: JsonObject, *, namespaced: bool, name_rule: Callable[[str], list[str]] = dns1123_subdomain_problems
) -> Causes:
    causes = required_name("metadata.name", meta.get("name", ""), name_rule)
    if namespaced:
        causes += required_name("metadata.namespace", meta.get("namespace", ""), dns1123_label_problems)
    elif meta.get("namespace"):
        causes.append(forbidden("metadata.namespace", "not allowed on this type"))
    return causes + _validate_content(meta)


def validate_update(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with the metadata, and which changes are forbidden."""
    if new == old:
        return []  # it was validated when it was written
    causes = immutable_fields(new, old, "metadata", *_IMMUTABLE)
    if not new.get("resourceVersion"):
        causes.append(required("metadata.resourceVersion", "must be specified for an update"))
    added = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
    if added and "deletionTimestamp" in old:
        detail = f"no finalizers can be added to an object that is being deleted: {', '.join(sorted(added))}"
        causes.append(forbidden("metadata.finalizers", detail))
    return causes + _validate_content(new)


def unqualified_finalizers(meta: JsonObject) -> Causes:
    """Return an error for each finalizer without a domain; only custom resources may have such finalizers."""
    path, names = "metadata.finalizers", meta.get("finalizers") or ()
    detail = "must be of the form example.com/name"
    return [invalid(path, name, detail) for name in names if "/" not in name and name not in _STANDARD_FINALIZERS]


def _validate_content(meta: JsonObject) -> Causes:
    causes = validate_labels(meta.get("labels"), "metadata.labels")
    if found := meta.get("annotations"):
        causes += _validate_annotations(found)
    if found := meta.get("ownerReferences"):
        causes += _validate_owner_references(found)
    for name in meta.get("finalizers") or ():
        causes += [invalid("metadata.finalizers", name, problem) for problem in qualified_name_problems(name)]
    return causes


def _validate_annotations(annotations: dict[str, str]) -> Causes:
    path, size = "metadata.annotations", 0
    causes: Causes = []
    for key, value in annotations.items():
        size += len(key) + len(value)
        causes += [invalid(path, key, problem) for problem in qualified_name_problems(key.lower())]
    # A character has at most four bytes: count the bytes only if their upper bound exceeds the limit.
    if size * 4 > _MAX_ANNOTATIONS_BYTES:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        if size > _MAX_ANNOTATIONS_BYTES:
            causes.append(too_long(path, _MAX_ANNOTATIONS_BYTES))
    return causes


def _validate_owner_references(references: list[Any]) -> Causes:
    path = "metadata.ownerReferences"
    causes = [
        cause
        for reference in references
        for cause in required_fields(reference, path, "apiVersion", "kind", "name", "uid")
    ]
    if len([reference for reference in references if reference.get("controller") is True]) > 1:
        causes.append(invalid(path, references, "only one reference can have controller set to true"))
    return causes
