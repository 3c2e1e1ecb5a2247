"""CustomResourceDefinitions: from an object that describes kinds to the kinds that are served.

    crd = defaulted(crd)
    if causes := problems(crd): raise status.invalid(…, causes)
    crd |= {"status": accepted(crd, others, now=now)}         # it has its names
    crd |= {"status": established(crd, now=now)}              # and then it is served
    for each in served(crd): …                                # a Kind, its Schema, its columns

All are functions of what they are given; who stores and who routes is elsewhere (`definitions`). Conversion between
versions is by name only (strategy None): the server changes `apiVersion` and prunes. Conversion webhooks are not
called.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

from haulout_sandbox.apiserver import crd_problems, jsonpath, structural
from haulout_sandbox.apiserver.kinds import JsonObject, Kind, Rules, ScalePaths
from haulout_sandbox.apiserver.printers import Column
from haulout_sandbox.apiserver.schema import Schema
from haulout_sandbox.apiserver.shapes import Shape, from_schema, misfit, shape_of
from haulout_sandbox.apiserver.status import bad_request

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"  # the finalizer that keeps a definition until it has no objects
problems = crd_problems.problems
status_problems = crd_problems.status_problems

_NOT_ACCEPTED = "not all names are accepted"
_READING = ("delete", "deletecollection", "get", "list")
_VERBS = (*_READING, "patch", "create", "update", "watch")
_TERMINATING = {  # reason of the condition: its status, what it says
    "InstanceDeletionPending": (
        "True",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    ),
    "InstanceDeletionInProgress": ("True", "CustomResource deletion is in progress"),
    "InstanceDeletionCompleted": ("False", "removed all instances"),
    "NeverEstablished": ("False", "resource was never established"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Served:
    """One version of a custom resource, as the server serves it."""

    kind: Kind
    schema: Schema
    storage: bool  # objects are kept in this version
    scale: JsonObject | None  # specReplicasPath, statusReplicasPath, labelSelectorPath
    columns: tuple[Column, ...]  # for tables, with `jsonpath.find`
    selectable: tuple[str, ...]  # fields that selectors may name, besides those of the metadata: `spec.nodeName`
    deprecation: str  # the Warning that every answer carries; empty if none

    @cached_property
    def shape(self) -> Shape:
        """Return what merging must know about it."""
        return from_schema(self.schema.node.raw)


def check_types(crd: JsonObject) -> None:
    """Refuse what has values of the wrong types: the rest of the server takes it for a definition from here on."""
    shape = shape_of("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    if shape and (path := misfit(crd, shape)):
        kind = "CustomResourceDefinition"
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {path}: wrong type')


def defaulted(crd: JsonObject) -> JsonObject:
    """Return the definition with what the server fills in: names, conversion, the stored version."""
    spec = dict(crd.get("spec") or {})
    names = dict(spec.get("names") or {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec["names"] = names
    spec["conversion"] = spec.get("conversion") or {"strategy": "None"}
    status = dict(crd.get("status") or {})
    storage = next((it["name"] for it in spec.get("versions") or () if it.get("storage") and it.get("name")), None)
    stored = status.get("storedVersions") or []
    if storage and storage not in stored:
        status["storedVersions"] = [*stored, storage]
    return crd | {"spec": spec, "status": status}


def warnings(crd: JsonObject, old: JsonObject | None) -> list[str]:
    """Return what the server warns of about a definition: formats that it does not check, unless `old` had them."""
    fresh = set(_unchecked_formats(crd)) - set(_unchecked_formats(old) if old else ())
    return [f'unrecognized format "{name}"' for name in sorted(fresh)]


def _unchecked_formats(crd: JsonObject) -> Iterator[str]:
    for version in crd["spec"]["versions"]:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        for node in structural.nodes(structural.compiled(schema)):
            if node.raw.get("format") and not node.format:
                yield node.raw["format"]


def accepted(crd: JsonObject, others: Iterable[JsonObject], *, now: str) -> JsonObject:
    """Return the status once it is clear which names it gets beside those of `others`."""
    status, names = crd.get("status") or {}, crd["spec"]["names"]
    have: JsonObject = status.get("acceptedNames") or {"plural": "", "kind": ""}
    if have == names:
        return dict(status)
    resources, kinds = _taken(crd, others)
    got, conflict = dict(have), ("", "")
    for name in ("plural", "singular", "shortNames", "kind", "listKind"):
        wanted, used = names.get(name) or [], kinds if name in ("kind", "listKind") else resources
        taken = [it for it in _listed(wanted) if it in used and it not in _listed(have.get(name) or [])]
        if taken:
            said = [f'"{it}" is already in use' for it in taken]
            conflict = (f"{name[0].upper()}{name[1:]}Conflict", said[0] if len(said) == 1 else f"[{', '.join(said)}]")
        elif wanted:
            got[name] = wanted
        else:
            got.pop(name, None)
    got |= {"categories": names["categories"]} if names.get("categories") else {}
    conditions = status.get("conditions") or []
    for condition in _naming_conditions(conflict, established=holds(crd, "Established")):
        conditions = _with(conditions, condition, now)
    return status | {"conditions": conditions, "acceptedNames": got}


def established(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the status once it is served, which takes its names."""
    status: JsonObject = crd["status"]
    if not holds(crd, "NamesAccepted") or holds(crd, "Established"):
        return dict(status)
    condition = _condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    return status | {"conditions": _with(status["conditions"], condition, now)}


def marked(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the definition as its deletion begins."""
    finalizers = crd["metadata"].get("finalizers") or []
    meta = {"deletionTimestamp": now, "finalizers": [*finalizers, *({CLEANUP} - set(finalizers))]}
    return terminating(crd | {"metadata": crd["metadata"] | meta}, "InstanceDeletionPending", now=now)


def terminating(crd: JsonObject, reason: str, *, now: str) -> JsonObject:
    """Return the definition with how far its deletion is."""
    condition = _condition("Terminating", _TERMINATING[reason][0], reason, _TERMINATING[reason][1])
    status = crd.get("status") or {}
    return crd | {"status": status | {"conditions": _with(status.get("conditions") or [], condition, now)}}


def holds(crd: JsonObject, kind: str) -> bool:
    """Tell whether a condition of the definition is true."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any((it["type"], it["status"]) == (kind, "True") for it in conditions)


def served(crd: JsonObject) -> list[Served]:
    """Return the versions that are served, in the order of the definition."""
    found = versions(crd)
    return [found[version["name"]] for version in crd["spec"]["versions"] if version.get("served")]


def versions(crd: JsonObject, rules: Mapping[str, Rules] | None = None) -> dict[str, Served]:
    """Return all versions by their names, also those that are only stored."""
    rules = rules or {}
    return {it["name"]: _version(crd, it, rules.get(it["name"])) for it in crd["spec"]["versions"]}


def _version(crd: JsonObject, version: JsonObject, rules: Rules | None) -> Served:
    spec, subresources = crd["spec"], version.get("subresources") or {}
    names = {**spec["names"], **((crd.get("status") or {}).get("acceptedNames") or {})}
    namespaced = spec["scope"] == "Namespaced"
    scale = subresources.get("scale")
    selectable = tuple(it["jsonPath"].removeprefix(".") for it in version.get("selectableFields") or ())
    kind = Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=namespaced,
        short_names=tuple(names.get("shortNames") or ()),
        singular=names.get("singular") or "",
        list_kind=names.get("listKind") or "",
        categories=tuple(names.get("categories") or ()),
        verbs=(*_READING, "watch") if holds(crd, "Terminating") else _VERBS,
        storage_version_hash=_storage_version_hash(spec),
        custom=True,
        rules=rules,
        has_status=subresources.get("status") is not None,
        scale=_scale_paths(scale),
        counts_generations=True,
        put_needs_version=True,
        fields=("metadata.name", *(("metadata.namespace",) if namespaced else ()), *selectable),
    )
    return Served(
        kind=kind,
        schema=Schema((version.get("schema") or {}).get("openAPIV3Schema") or {}, scale=scale),
        storage=bool(version.get("storage")),
        scale=scale,
        columns=tuple(takewhile(_can_be_found, map(Column.of, version.get("additionalPrinterColumns") or ()))),
        selectable=selectable,
        deprecation=_deprecation(spec, version),
    )


def _can_be_found(column: Column) -> bool:
    """Tell whether the path of a column is one; the server shows the columns before the first that is not."""
    try:
        return bool(jsonpath.compiled(column.json_path))
    except jsonpath.JsonPathError:
        return False


def _storage_version_hash(spec: JsonObject) -> str:
    """Return what tells clients of discovery that objects are stored in another version than before."""
    stored = next((it["name"] for it in spec["versions"] if it.get("storage") and it.get("served")), "")
    text = f"{spec['group']}/{stored}/{spec['names']['kind']}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode() if stored else ""


def _scale_paths(scale: JsonObject | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(
        replicas=scale["specReplicasPath"],
        status_replicas=scale["statusReplicasPath"],
        selector=scale.get("labelSelectorPath") or "",
    )


def _deprecation(spec: JsonObject, version: JsonObject) -> str:
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    kind = spec["names"]["kind"]
    said = f"{spec['group']}/{version['name']} {kind} is deprecated"
    better = [
        it["name"]
        for it in spec["versions"]
        if it.get("served") and not it.get("deprecated") and version_order(it["name"]) < version_order(version["name"])
    ]
    if not better:
        return said
    return f"{said}; use {spec['group']}/{min(better, key=version_order)} {kind}"


def version_order(name: str) -> tuple[Any, ...]:
    """Return a key that sorts versions as Kubernetes does: v2, v1, v1beta2, v1beta1, v1alpha1, then others by name."""
    head, _, rest = name.removeprefix("v").partition("beta" if "beta" in name else "alpha")
    stage = 1 if "beta" in name else 2 if "alpha" in name else 0
    if not name.startswith("v") or not head.isdecimal() or (stage and not rest.isdecimal()):
        return (3, 0, 0, name)
    return (stage, -int(head), -int(rest or 0), name)


def _taken(crd: JsonObject, others: Iterable[JsonObject]) -> tuple[set[str], set[str]]:
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        if other["spec"]["group"] != crd["spec"]["group"] or other["metadata"]["name"] == crd["metadata"]["name"]:
            continue
        names = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ())}
        kinds |= {names.get("kind", ""), names.get("listKind", "")}
    return resources, kinds


def _listed(names: str | list[str]) -> list[str]:
    return names if isinstance(names, list) else [names]


def _naming_conditions(conflict: tuple[str, str], *, established: bool) -> list[JsonObject]:
    reason, message = conflict
    if not reason:
        names = _condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
        installing = ("Installing", "the initial names have been accepted")
    else:
        names = _condition("NamesAccepted", "False", reason, message)
        installing = ("NotAccepted", _NOT_ACCEPTED)
    return [names] if established else [names, _condition("Established", "False", *installing)]


def _condition(kind: str, status: str, reason: str, message: str) -> JsonObject:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _with(conditions: list[JsonObject], new: JsonObject, now: str) -> list[JsonObject]:
    """Return the conditions with `new` in its place; its time is that of the last change of its status."""
    old = next((it for it in conditions if it["type"] == new["type"]), None)
    since = old["lastTransitionTime"] if old and old["status"] == new["status"] else now
    new = {"type": new["type"], "status": new["status"], "lastTransitionTime": since} | new
    return [new if it is old else it for it in conditions] if old else [*conditions, new]
