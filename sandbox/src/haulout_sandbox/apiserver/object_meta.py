"""The metadata of custom resources: the one part of them that has a built-in type."""

from typing import Any

from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.decoding import Fitted, fitted_metadata
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata
from haulout_sandbox.apiserver.validation.common import Causes

_STANDARD_FINALIZERS = {"orphan", "foregroundDeletion", "kubernetes"}


def coerced(sent: Any) -> Fitted:
    """Return metadata as far as it is known, without what is empty; raises `Misfit`."""
    meta, unknown = fitted_metadata(sent)
    return Fitted({name: value for name, value in meta.items() if value not in (None, "", [], {})}, unknown)


def new_causes(meta: JsonObject) -> Causes:
    """Return what is wrong with the metadata of a new object, as causes of an Invalid."""
    return metadata.of_new(meta, namespaced="namespace" in meta)


def change_causes(meta: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with a change of metadata."""
    return metadata.of_update(meta, old)


def finalizer_warnings(meta: JsonObject, old: JsonObject | None) -> list[str]:
    """Return what the server warns of about finalizers that are new."""
    fresh = set(meta.get("finalizers") or ()) - set((old or {}).get("finalizers") or ())
    rule = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    bare = sorted(name for name in fresh - _STANDARD_FINALIZERS if "/" not in name)
    return [f"metadata.finalizers: {fields.quoted(name)}: {rule}" for name in bare]


def drop_repeated_owners(meta: JsonObject) -> None:
    """Keep only the first of equal owner references."""
    owners = meta.get("ownerReferences") or []
    if owners:
        meta["ownerReferences"] = [owner for at, owner in enumerate(owners) if owner not in owners[:at]]
