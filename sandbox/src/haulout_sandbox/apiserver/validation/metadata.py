"""Metadata of all kinds: names, labels, annotations, owners, finalizers, and what may not change."""

from collections.abc import Callable
from typing import Any

from haulout_sandbox.apiserver.fields import forbidden, invalid, required, too_long
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.names import dns_label_problems, qualified_problems, subdomain_problems
from haulout_sandbox.apiserver.validation.common import Causes, labels, named, needed, unchanged

_MOST_ANNOTATIONS_BYTES = 256 * 1024
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_FIXED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def of_new(meta: JsonObject, *, namespaced: bool, name_rule: Callable[[str], list[str]] = subdomain_problems) -> Causes:
    """Return what is wrong with the metadata of a new object."""
    causes = named("metadata.name", meta.get("name", ""), name_rule)
    if namespaced:
        causes += named("metadata.namespace", meta.get("namespace", ""), dns_label_problems)
    elif meta.get("namespace"):
        causes.append(forbidden("metadata.namespace", "not allowed on this type"))
    return causes + _content(meta)


def of_update(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with metadata, or may not be changed in it."""
    if new == old:
        return []  # it was right
    causes = unchanged(new, old, "metadata", *_FIXED)
    if not new.get("resourceVersion"):
        causes.append(required("metadata.resourceVersion", "must be specified for an update"))
    fresh = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
    if fresh and "deletionTimestamp" in old:
        detail = f"no finalizers can be added to an object that is being deleted: {', '.join(sorted(fresh))}"
        causes.append(forbidden("metadata.finalizers", detail))
    return causes + _content(new)


def unqualified_finalizers(meta: JsonObject) -> Causes:
    """Return which finalizers do not tell whose they are, which only custom resources may have."""
    path, names = "metadata.finalizers", meta.get("finalizers") or ()
    detail = "must be of the form example.com/name"
    return [invalid(path, it, detail) for it in names if "/" not in it and it not in _STANDARD_FINALIZERS]


def _content(meta: JsonObject) -> Causes:
    causes = labels(meta.get("labels"), "metadata.labels")
    if found := meta.get("annotations"):
        causes += _annotations(found)
    if found := meta.get("ownerReferences"):
        causes += _owners(found)
    for name in meta.get("finalizers") or ():
        causes += [invalid("metadata.finalizers", name, problem) for problem in qualified_problems(name)]
    return causes


def _annotations(found: dict[str, str]) -> Causes:
    path, size = "metadata.annotations", 0
    causes: Causes = []
    for key, value in found.items():
        size += len(key) + len(value)
        causes += [invalid(path, key, problem) for problem in qualified_problems(key.lower())]
    # Counted in characters it is never too much: only then the bytes are worth counting.
    if size * 4 > _MOST_ANNOTATIONS_BYTES:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in found.items())
        if size > _MOST_ANNOTATIONS_BYTES:
            causes.append(too_long(path, _MOST_ANNOTATIONS_BYTES))
    return causes


def _owners(references: list[Any]) -> Causes:
    path = "metadata.ownerReferences"
    causes = [cause for each in references for cause in needed(each, path, "apiVersion", "kind", "name", "uid")]
    if len([each for each in references if each.get("controller") is True]) > 1:
        causes.append(invalid(path, references, "only one reference can have controller set to true"))
    return causes
