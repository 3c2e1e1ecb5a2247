"""The scale subresource: desired and current replicas, in the same form for every scalable kind.

`Kind.scale_paths` says where a kind has these fields. A Scale is a view that is computed from the object. Writing a
Scale copies its replicas, and its resourceVersion, into the object, which is then updated as usual. Server-side apply
of a Scale is not supported.
"""

from collections.abc import Callable
from typing import Any

from haulout_sandbox.apiserver import field_errors, status
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind, ScalePaths
from haulout_sandbox.apiserver.tables.printers import format_selector

SCALE_SUBRESOURCE = "scale"
SCALE = Kind(group="autoscaling", version="v1", plural="scales", kind="Scale", always_present=("spec", "status"))

Change = Callable[[JsonObject], JsonObject]

_METADATA_FIELDS = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the Scale of an object; refuse for a custom resource without the number of desired replicas."""
    paths = _scale_paths(kind)
    desired = _value_at(obj, paths.replicas)
    if desired is None and kind.is_custom:
        message = f'Internal error occurred: the spec replicas field "{paths.replicas}" does not exist'
        causes = [{"message": message.partition(": ")[2]}]
        raise status.StatusError(status.failure_status(500, "InternalError", message, {"causes": causes}))
    return _new_scale(paths, obj, desired)


def apply_scale_change(kind: Kind, obj: JsonObject, change: Change) -> JsonObject:
    """Return `obj` after `change` of its Scale; refuse an invalid Scale."""
    paths, metadata = _scale_paths(kind), obj["metadata"]
    scale = change(_new_scale(paths, obj, _value_at(obj, paths.replicas)))
    _validate(kind, metadata["name"], scale, paths)
    # An absent number means zero, except in a custom resource, where validation has refused it.
    updated = _set_at(obj, paths.replicas.strip(".").split("."), (scale.get("spec") or {}).get("replicas", 0))
    metadata = dict(metadata)
    if version := scale["metadata"].get("resourceVersion"):
        metadata["resourceVersion"] = version
    return updated | {"metadata": metadata}


def _scale_paths(kind: Kind) -> ScalePaths:
    if kind.scale_paths is None:
        raise status.StatusError(status.generic_status(404))
    return kind.scale_paths


def _new_scale(paths: ScalePaths, obj: JsonObject, desired: int | None) -> JsonObject:
    meta = obj["metadata"]
    scale_status: JsonObject = {"replicas": _value_at(obj, paths.status_replicas) or 0}
    if selector := _selector_text(_value_at(obj, paths.selector) if paths.selector else None):
        scale_status["selector"] = selector
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {name: meta[name] for name in _METADATA_FIELDS if name in meta},
        "spec": {"replicas": desired} if desired else {},
        "status": scale_status,
    }


def _selector_text(value: Any) -> str:
    """Return a selector as text; a custom resource already has it as text."""
    return value if isinstance(value, str) else format_selector(value)


def _validate(kind: Kind, name: str, scale: JsonObject, paths: ScalePaths) -> None:
    desired = (scale.get("spec") or {}).get("replicas")
    if desired is None and kind.is_custom:
        raise status.bad_request(f'the spec replicas field "{paths.replicas}" cannot be empty')
    if desired is not None and desired < 0 and not kind.is_custom:
        cause = field_errors.invalid("spec.replicas", desired, "must be greater than or equal to 0")
        raise status.invalid(SCALE.group, SCALE.kind, name, [cause])


# Simple field paths


def _value_at(obj: JsonObject, path: str) -> Any:
    value: Any = obj
    for name in path.strip(".").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _set_at(obj: JsonObject, path: list[str], value: Any) -> JsonObject:
    first, *rest = path
    return obj | {first: _set_at(obj.get(first) or {}, rest, value) if rest else value}
