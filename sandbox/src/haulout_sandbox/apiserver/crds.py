"""CustomResourceDefinitions: from an object that describes kinds to the kinds that are served.

    crds.check(crd)                                           # refuses what is no definition
    crd = defaulted(crd)
    crd |= {"status": accepted(crd, now=now)}                 # it has its names
    crd |= {"status": established(crd, now=now)}              # and then it is served
    for each in served(crd): …                                # a Kind, its Schema, its columns

All are functions of what they are given; who stores and who routes is elsewhere (`definitions`). Whether a definition
is right in every detail is for the real server to say: here only that is refused with which nothing can be served.
Conversion between versions is by name only (strategy None): the server changes `apiVersion` and prunes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

from haulout_sandbox.apiserver import fields, status
from haulout_sandbox.apiserver.kinds import JsonObject, Kind, Rules, ScalePaths, without_nulls
from haulout_sandbox.apiserver.printers import Column
from haulout_sandbox.apiserver.schema import Schema
from haulout_sandbox.apiserver.shapes import Shape, from_schema

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"  # the finalizer that keeps a definition until it has no objects

_READING = ("delete", "deletecollection", "get", "list")
_VERBS = (*_READING, "patch", "create", "update", "watch")


@dataclass(frozen=True, eq=False, kw_only=True)
class Served:
    """One version of a custom resource, as the server serves it."""

    kind: Kind
    schema: Schema
    storage: bool  # objects are kept in this version
    columns: tuple[Column, ...]  # for tables, with `jsonpath.find`

    @cached_property
    def shape(self) -> Shape:
        """Return what merging must know about it."""
        return from_schema(self.schema.raw)


class _Names(msgspec.Struct, frozen=True, rename="camel"):
    plural: str
    kind: str
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class _Validation(msgspec.Struct, frozen=True, rename={"schema": "openAPIV3Schema"}):
    schema: JsonObject


class _Scale(msgspec.Struct, frozen=True, rename="camel"):
    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


class _Subresources(msgspec.Struct, frozen=True):
    status: JsonObject | None = None
    scale: _Scale | None = None


class _SelectableField(msgspec.Struct, frozen=True, rename="camel"):
    json_path: str


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    schema: _Validation
    served: bool = False
    storage: bool = False
    subresources: _Subresources = _Subresources()
    additional_printer_columns: tuple[JsonObject, ...] = ()
    selectable_fields: tuple[_SelectableField, ...] = ()


class _Spec(msgspec.Struct, frozen=True):
    group: str
    scope: Literal["Cluster", "Namespaced"]
    names: _Names
    versions: tuple[_Version, ...]


def check(crd: JsonObject) -> None:
    """Refuse what is no definition: the rest of the server takes it for one from here on."""
    if causes := problems(crd):
        name = crd["metadata"].get("name", "")
        raise status.invalid("apiextensions.k8s.io", "CustomResourceDefinition", name, causes)


def problems(crd: JsonObject) -> list[JsonObject]:
    """Return why nothing can be served that is defined so, as causes of an Invalid."""
    try:
        spec = _spec(crd)
    except msgspec.ValidationError as error:
        return [fields.invalid("spec", fields.OMIT, str(error))]
    found, name = [], crd["metadata"].get("name", "")
    if name != f"{spec.names.plural}.{spec.group}":
        found.append(fields.invalid("metadata.name", name, "must be spec.names.plural and spec.group, with a dot"))
    if sum(version.storage for version in spec.versions) != 1:
        found.append(fields.invalid("spec.versions", fields.OMIT, "exactly one version must be the storage version"))
    for at, version in enumerate(spec.versions):
        try:
            Schema(version.schema.schema)
        except msgspec.ValidationError as error:
            path = f"spec.versions[{at}].schema.openAPIV3Schema"
            found.append(fields.invalid(path, fields.OMIT, str(error)))
    return found


def _spec(crd: JsonObject) -> _Spec:
    return msgspec.convert(without_nulls(crd.get("spec") or {}), _Spec)


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


# How far a definition is


def accepted(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the status once it has its names, which nobody else can have: groups are not shared."""
    status, names = crd.get("status") or {}, crd["spec"]["names"]
    if status.get("acceptedNames") == names:
        return dict(status)
    conditions = _with(status, now, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
    status = status | {"conditions": conditions, "acceptedNames": names}
    if not holds(crd, "Established"):
        message = "the initial names have been accepted"
        status |= {"conditions": _with(status, now, "Established", "False", "Installing", message)}
    return status


def established(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the status once it is served, which takes its names."""
    status: JsonObject = crd["status"]
    if not holds(crd, "NamesAccepted") or holds(crd, "Established"):
        return dict(status)
    message = "the initial names have been accepted"
    return status | {"conditions": _with(status, now, "Established", "True", "InitialNamesAccepted", message)}


def marked(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the definition as its deletion begins."""
    finalizers = crd["metadata"].get("finalizers") or []
    meta = {"deletionTimestamp": now, "finalizers": [*finalizers, *({CLEANUP} - set(finalizers))]}
    return terminating(crd | {"metadata": crd["metadata"] | meta}, "InstanceDeletionPending", now=now)


def terminating(crd: JsonObject, reason: str, *, now: str) -> JsonObject:
    """Return the definition with how far its deletion is."""
    status = crd.get("status") or {}
    is_done = reason == "InstanceDeletionCompleted"
    message = "removed all objects" if is_done else "the objects of this definition are being deleted"
    conditions = _with(status, now, "Terminating", "False" if is_done else "True", reason, message)
    return crd | {"status": status | {"conditions": conditions}}


def holds(crd: JsonObject, kind: str) -> bool:
    """Tell whether a condition of the definition is true."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any((it["type"], it["status"]) == (kind, "True") for it in conditions)


def _with(status: JsonObject, now: str, kind: str, value: str, reason: str, message: str) -> list[JsonObject]:
    """Return the conditions with one more, or changed; its time is that of the last change of its status."""
    conditions = status.get("conditions") or []
    old = next((it for it in conditions if it["type"] == kind), None)
    since = old["lastTransitionTime"] if old and old["status"] == value else now
    new = {"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
    return [new if it is old else it for it in conditions] if old else [*conditions, new]


# What is served


def served(crd: JsonObject) -> list[Served]:
    """Return the versions that are served, in the order of the definition."""
    found = versions(crd)
    return [found[version["name"]] for version in crd["spec"]["versions"] if version.get("served")]


def versions(crd: JsonObject, rules: Mapping[str, Rules] | None = None) -> dict[str, Served]:
    """Return all versions by their names, also those that are only stored."""
    spec, rules = _spec(crd), rules or {}
    verbs = (*_READING, "watch") if holds(crd, "Terminating") else _VERBS
    return {it.name: _version(spec, it, verbs=verbs, rules=rules.get(it.name)) for it in spec.versions}


def _version(spec: _Spec, version: _Version, *, verbs: tuple[str, ...], rules: Rules | None) -> Served:
    names, namespaced, scale = spec.names, spec.scope == "Namespaced", version.subresources.scale
    selectable = tuple(it.json_path.removeprefix(".") for it in version.selectable_fields)
    kind = Kind(
        group=spec.group,
        version=version.name,
        plural=names.plural,
        kind=names.kind,
        namespaced=namespaced,
        short_names=names.short_names,
        singular=names.singular,
        list_kind=names.list_kind,
        categories=names.categories,
        verbs=verbs,
        custom=True,
        rules=rules,
        has_status=version.subresources.status is not None,
        scale=_scale_paths(scale) if scale else None,
        counts_generations=True,
        put_needs_version=True,
        fields=("metadata.name", *(("metadata.namespace",) if namespaced else ()), *selectable),
    )
    return Served(
        kind=kind,
        schema=Schema(version.schema.schema),
        storage=version.storage,
        columns=tuple(map(Column.of, version.additional_printer_columns)),
    )


def _scale_paths(scale: _Scale) -> ScalePaths:
    return ScalePaths(
        replicas=scale.spec_replicas_path,
        status_replicas=scale.status_replicas_path,
        selector=scale.label_selector_path,
    )


def version_order(name: str) -> tuple[Any, ...]:
    """Return a key that sorts versions as Kubernetes does: v2, v1, v1beta2, v1beta1, v1alpha1, then others by name."""
    head, _, rest = name.removeprefix("v").partition("beta" if "beta" in name else "alpha")
    stage = 1 if "beta" in name else 2 if "alpha" in name else 0
    if not name.startswith("v") or not head.isdecimal() or (stage and not rest.isdecimal()):
        return (3, 0, 0, name)
    return (stage, -int(head), -int(rest or 0), name)
