"""CustomResourceDefinitions: validation, defaults, status, and the versions that they serve.

    crds.validate(crd)                                                  # refuses an invalid definition
    crd = with_defaults(crd)
    crd |= {"status": accepted_status(crd, now=now)}                    # NamesAccepted
    crd |= {"status": established_status(crd, now=now)}                 # Established: it is served
    for each in served_versions(crd): …                                 # a Kind, its Schema, its columns

All are pure functions; `crd_controller` stores and routes. Complete validation of a definition is left to the real
server: this module only refuses definitions that cannot be served. Conversion between versions has the strategy None:
the server changes `apiVersion` and prunes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from haulout_sandbox.apiserver import field_errors, status
from haulout_sandbox.apiserver.apiextensions.schema import Schema
from haulout_sandbox.apiserver.kinds.kind import CustomResource, JsonObject, Kind, ScalePaths, without_nulls
from haulout_sandbox.apiserver.tables.printers import PrinterColumn

CLEANUP_FINALIZER = (
    "customresourcecleanup.apiextensions.k8s.io"  # the finalizer that keeps a definition until it has no instances
)

_READ_VERBS = ("delete", "deletecollection", "get", "list")
_VERBS = (*_READ_VERBS, "patch", "create", "update", "watch")


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedVersion:
    """One version of a custom resource, as the server serves it."""

    kind: Kind
    schema: Schema
    is_storage: bool  # objects are stored in this version
    columns: tuple[PrinterColumn, ...]  # columns of tables, read with `jsonpath.find`


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


def validate(crd: JsonObject) -> None:
    """Refuse an invalid definition; all other code relies on it being valid."""
    if causes := validation_causes(crd):
        name = crd["metadata"].get("name", "")
        raise status.invalid("apiextensions.k8s.io", "CustomResourceDefinition", name, causes)


def validation_causes(crd: JsonObject) -> list[JsonObject]:
    """Return why a definition cannot be served, as causes of an Invalid error."""
    try:
        spec = _spec(crd)
    except msgspec.ValidationError as error:
        return [field_errors.invalid("spec", field_errors.OMITTED, str(error))]
    causes, name = [], crd["metadata"].get("name", "")
    if name != f"{spec.names.plural}.{spec.group}":
        causes.append(
            field_errors.invalid("metadata.name", name, "must be spec.names.plural and spec.group, with a dot")
        )
    if sum(version.storage for version in spec.versions) != 1:
        causes.append(
            field_errors.invalid(
                "spec.versions", field_errors.OMITTED, "exactly one version must be the storage version"
            )
        )
    for index, version in enumerate(spec.versions):
        try:
            Schema(version.schema.schema)
        except msgspec.ValidationError as error:
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            causes.append(field_errors.invalid(path, field_errors.OMITTED, str(error)))
    return causes


def _spec(crd: JsonObject) -> _Spec:
    return msgspec.convert(without_nulls(crd.get("spec") or {}), _Spec)


def with_defaults(crd: JsonObject) -> JsonObject:
    """Return the definition with the server's defaults: names, conversion, stored versions."""
    spec = dict(crd.get("spec") or {})
    names = dict(spec.get("names") or {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec["names"] = names
    spec["conversion"] = spec.get("conversion") or {"strategy": "None"}
    status = dict(crd.get("status") or {})
    storage = next(
        (version["name"] for version in spec.get("versions") or () if version.get("storage") and version.get("name")),
        None,
    )
    stored = status.get("storedVersions") or []
    if storage and storage not in stored:
        status["storedVersions"] = [*stored, storage]
    return crd | {"spec": spec, "status": status}


# Status of a definition


def accepted_status(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the status with names accepted. They cannot conflict: no two definitions share a group here."""
    status, names = crd.get("status") or {}, crd["spec"]["names"]
    if status.get("acceptedNames") == names:
        return dict(status)
    conditions = _with_condition(status, now, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
    status = status | {"conditions": conditions, "acceptedNames": names}
    if not is_condition_true(crd, "Established"):
        message = "the initial names have been accepted"
        status |= {"conditions": _with_condition(status, now, "Established", "False", "Installing", message)}
    return status


def established_status(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the status with the Established condition; names must be accepted."""
    status: JsonObject = crd["status"]
    if not is_condition_true(crd, "NamesAccepted") or is_condition_true(crd, "Established"):
        return dict(status)
    message = "the initial names have been accepted"
    return status | {"conditions": _with_condition(status, now, "Established", "True", "InitialNamesAccepted", message)}


def begin_deletion(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the definition with the fields that the start of its deletion sets."""
    finalizers = crd["metadata"].get("finalizers") or []
    metadata = {"deletionTimestamp": now, "finalizers": [*finalizers, *({CLEANUP_FINALIZER} - set(finalizers))]}
    return with_terminating_condition(
        crd | {"metadata": crd["metadata"] | metadata}, "InstanceDeletionPending", now=now
    )


def with_terminating_condition(crd: JsonObject, reason: str, *, now: str) -> JsonObject:
    """Return the definition with the progress of its deletion in the Terminating condition."""
    status = crd.get("status") or {}
    is_done = reason == "InstanceDeletionCompleted"
    message = "removed all objects" if is_done else "the objects of this definition are being deleted"
    conditions = _with_condition(status, now, "Terminating", "False" if is_done else "True", reason, message)
    return crd | {"status": status | {"conditions": conditions}}


def is_condition_true(crd: JsonObject, condition_type: str) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any((condition["type"], condition["status"]) == (condition_type, "True") for condition in conditions)


def _with_condition(
    status: JsonObject, now: str, condition_type: str, value: str, reason: str, message: str
) -> list[JsonObject]:
    """Return the conditions with one added or changed; lastTransitionTime changes only with the status."""
    conditions = status.get("conditions") or []
    old = next((condition for condition in conditions if condition["type"] == condition_type), None)
    since = old["lastTransitionTime"] if old and old["status"] == value else now
    new = {"type": condition_type, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
    return [new if condition is old else condition for condition in conditions] if old else [*conditions, new]


# Served versions


def served_versions(crd: JsonObject) -> list[ServedVersion]:
    """Return the served versions in the order of the definition."""
    versions_by_name = all_versions(crd)
    return [versions_by_name[version["name"]] for version in crd["spec"]["versions"] if version.get("served")]


def all_versions(
    crd: JsonObject, custom_versions: Mapping[str, CustomResource] | None = None
) -> dict[str, ServedVersion]:
    """Return all versions by name, including those that are only stored."""
    spec, custom_versions = _spec(crd), custom_versions or {}
    verbs = (*_READ_VERBS, "watch") if is_condition_true(crd, "Terminating") else _VERBS
    return {
        version.name: _served_version(spec, version, verbs=verbs, custom_version=custom_versions.get(version.name))
        for version in spec.versions
    }


def _served_version(
    spec: _Spec, version: _Version, *, verbs: tuple[str, ...], custom_version: CustomResource | None
) -> ServedVersion:
    names, namespaced, scale = spec.names, spec.scope == "Namespaced", version.subresources.scale
    selectable = tuple(field.json_path.removeprefix(".") for field in version.selectable_fields)
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
        is_custom=True,
        custom_resource=custom_version,
        has_status=version.subresources.status is not None,
        scale_paths=_scale_paths(scale) if scale else None,
        has_generation=True,
        requires_version_on_update=True,
        selectable_fields=("metadata.name", *(("metadata.namespace",) if namespaced else ()), *selectable),
    )
    return ServedVersion(
        kind=kind,
        schema=Schema(version.schema.schema),
        is_storage=version.storage,
        columns=tuple(map(PrinterColumn.of, version.additional_printer_columns)),
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
