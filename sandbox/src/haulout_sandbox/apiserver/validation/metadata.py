"""Metadata of all kinds: names, labels, annotations, owners, finalizers, and what may not change.

The real server looks twice, and lists twice what it finds: once for all kinds alike, when only what cannot be part of a
URL is no name, and once for the kind. `apimachinery/pkg/api/validation/objectmeta.go` of Kubernetes 1.36.
"""

from typing import Any

from haulout_sandbox.apiserver.fields import Unsorted, forbidden, invalid, required, too_long
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import rules
from haulout_sandbox.apiserver.validation.common import IMMUTABLE, NEGATIVE, Causes, labels
from haulout_sandbox.apiserver.validation.rules import Problems, Rule

_MOST_ANNOTATIONS_BYTES = 256 * 1024
_REFERENCE = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_FIXED: dict[str, Any] = dict.fromkeys(("name", "namespace", "uid"), "") | dict.fromkeys(
    ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
)


def of_any(meta: JsonObject, *, namespaced: bool, name_rule: Rule = rules.path_segment) -> Causes:
    """Return what is wrong with the metadata of an object of whatever kind."""
    causes: Causes = []
    if base := meta.get("generateName"):
        causes += [invalid("metadata.generateName", base, problem) for problem in _of_prefix(base, name_rule)]
    name = meta.get("name", "")
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif problems := name_rule(name):
        causes += [invalid("metadata.name", name, problem) for problem in problems]
    if namespaced:
        causes += _namespace(meta.get("namespace", ""))
    elif meta.get("namespace"):
        causes.append(forbidden("metadata.namespace", "not allowed on this type"))
    if meta.get("generation", 0) < 0:
        causes.append(invalid("metadata.generation", meta["generation"], NEGATIVE))
    causes += _shared(meta, finalized=True)
    return causes


def of_new(meta: JsonObject, *, namespaced: bool, name_rule: Rule = rules.path_segment) -> Causes:
    """Return what is wrong with the metadata of an object, as most kinds look at it."""
    return of_any(meta, namespaced=namespaced, name_rule=name_rule) + _bare_finalizers(meta)


def of_update(new: JsonObject, old: JsonObject) -> Causes:
    """Return which changes of the metadata are not allowed, as most kinds look at it."""
    return of_any_update(new, old) + _bare_finalizers(new)


def of_any_update(new: JsonObject, old: JsonObject) -> Causes:
    """Return which changes of the metadata no kind allows, and once more what is wrong with it."""
    if new == old:
        return []  # it was right
    causes: Causes = []
    if "deletionTimestamp" in old:
        causes += _no_new_finalizers(new.get("finalizers") or [], old.get("finalizers") or [])
    if not new.get("resourceVersion"):
        causes.append(invalid("metadata.resourceVersion", "", "must be specified for an update"))
    if new.get("generation", 0) < old.get("generation", 0):
        causes.append(invalid("metadata.generation", new.get("generation", 0), "must not be decremented"))
    for name, zero in _FIXED.items():
        if new.get(name, zero) != old.get(name, zero):
            causes.append(invalid(f"metadata.{name}", new.get(name, zero), IMMUTABLE))
    causes += _shared(new, finalized=False)
    return causes


def annotations(found: JsonObject | None, path: str) -> Causes:
    """Return what is wrong with annotations: their keys, and their size."""
    if not found:
        return []
    causes: Causes = []
    size = 0
    for key, value in sorted(found.items()):
        size += len(key) + len(value)
        if problems := rules.qualified_name(key.lower()):
            causes += [invalid(path, key, problem) for problem in problems]
    # Counted in characters it is never too much: only then the bytes are worth counting.
    if size * 4 > _MOST_ANNOTATIONS_BYTES:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in found.items())
        if size > _MOST_ANNOTATIONS_BYTES:
            causes.append(too_long(path, _MOST_ANNOTATIONS_BYTES))
    return causes


def finalizer_name(text: str, path: str) -> Causes:
    """Return what is wrong with the name of a finalizer."""
    return [invalid(path, text, problem) for problem in rules.qualified_name(text)]


def bare_finalizer(name: str, path: str) -> Causes:
    """Say that a finalizer does not tell whose it is."""
    if "/" in name or name in _STANDARD_FINALIZERS:
        return []
    return [invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")]


def _bare_finalizers(meta: JsonObject) -> Causes:
    found = enumerate(meta.get("finalizers") or ())
    return [cause for at, name in found for cause in bare_finalizer(name, f"metadata.finalizers[{at}]")]


def template(meta: JsonObject, path: str) -> Causes:
    """Return what is wrong with the metadata of a claim's template, which may have labels and annotations only."""
    causes = annotations(meta.get("annotations"), f"{path}.annotations")
    causes += labels(meta.get("labels"), f"{path}.labels")
    causes += [forbidden(f"{path}.{name}", "cannot be set") for name in meta if name not in ("annotations", "labels")]
    return causes


def _of_prefix(base: str, name_rule: Rule) -> Problems:
    # A dash at its end will not be at the end of the name.
    return name_rule(f"{base[:-2]}a" if len(base) > 1 and base.endswith("-") else base)


def _namespace(namespace: str) -> Causes:
    if not namespace:
        return [required("metadata.namespace")]
    return [invalid("metadata.namespace", namespace, problem) for problem in rules.dns_label(namespace)]


def _shared(meta: JsonObject, *, finalized: bool) -> Causes:
    causes: Causes = []
    if meta.get("labels"):
        causes += labels(meta["labels"], "metadata.labels")
    if meta.get("annotations"):
        causes += annotations(meta["annotations"], "metadata.annotations")
    if meta.get("ownerReferences"):
        causes += _owners(meta["ownerReferences"])
    if finalized and meta.get("finalizers"):
        causes += _finalizers(meta["finalizers"])
    return causes


def _owners(references: list[JsonObject]) -> Causes:
    causes: Causes = []
    first = ""
    for each in references:
        causes += _owner(each)
        if each.get("controller") is True:
            this = f"{each.get('kind', '')}/{each.get('name', '')}"
            if first:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {first} and {this}'
                )
                causes.append(invalid("metadata.ownerReferences", [_reference(it) for it in references], detail))
            first = first or this
    return causes


def _reference(each: JsonObject) -> Unsorted:
    whole = dict.fromkeys(_REFERENCE[:4], "") | each
    return Unsorted((name, whole[name]) for name in _REFERENCE if name in whole)


def _owner(each: JsonObject) -> Causes:
    path = "metadata.ownerReferences"
    version = each.get("apiVersion", "")
    causes: Causes = []
    if not version.rpartition("/")[2]:
        causes.append(invalid(f"{path}.apiVersion", version, "version must not be empty"))
    causes += [
        invalid(f"{path}.{name}", each.get(name, ""), "must not be empty")
        for name in ("kind", "name", "uid")
        if not each.get(name)
    ]
    if (version, each.get("kind")) == ("v1", "Event"):
        causes.append(invalid(path, _reference(each), "/v1, Kind=Event is disallowed from being an owner"))
    return causes


def _finalizers(names: list[str]) -> Causes:
    path = "metadata.finalizers"
    causes = [cause for name in names for cause in finalizer_name(name, path)]
    if "orphan" in names and "foregroundDeletion" in names:
        causes.append(invalid(path, names, "finalizer orphan and foregroundDeletion cannot be both set"))
    return causes


def _no_new_finalizers(new: list[str], old: list[str]) -> Causes:
    fresh = sorted(set(new) - set(old))
    if not fresh:
        return []
    listed = ", ".join(f'"{name}"' for name in fresh)
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    return [forbidden("metadata.finalizers", detail)]
