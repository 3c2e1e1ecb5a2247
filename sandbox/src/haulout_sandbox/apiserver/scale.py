"""The scale subresource: how many replicas there should be and are, in the same words for every kind that has some.

A kind says where its numbers lie (`Kind.scale`); a Scale is a view of the object, made when asked for. Writing one
moves its number, and the resourceVersion it names, into the object, which is then updated as by anybody else. A Scale
cannot be applied.
"""

from collections.abc import Callable
from typing import Any

from haulout_sandbox.apiserver import fields, status
from haulout_sandbox.apiserver.kinds import JsonObject, Kind, ScalePaths
from haulout_sandbox.apiserver.printers import selector_text

SCALE_SUBRESOURCE = "scale"
SCALE = Kind(group="autoscaling", version="v1", plural="scales", kind="Scale", sections=("spec", "status"))

Change = Callable[[JsonObject], JsonObject]

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the Scale of an object; a custom resource that does not say how many it wants has none."""
    paths = _paths(kind)
    wanted = _at(obj, paths.replicas)
    if wanted is None and kind.custom:
        said = f'Internal error occurred: the spec replicas field "{paths.replicas}" does not exist'
        causes = [{"message": said.partition(": ")[2]}]
        raise status.Refused(status.failure(500, "InternalError", said, {"causes": causes}))
    return _view(paths, obj, wanted)


def scaled(kind: Kind, obj: JsonObject, change: Change) -> JsonObject:
    """Return `obj` as it is after `change` of its Scale; refuses a Scale that makes no sense."""
    paths, meta = _paths(kind), obj["metadata"]
    scale = change(_view(paths, obj, _at(obj, paths.replicas)))
    _check(kind, meta["name"], scale, paths)
    # An absent number is zero, but not in a custom resource, which has been checked for it.
    new = _with(obj, paths.replicas.strip(".").split("."), (scale.get("spec") or {}).get("replicas", 0))
    meta = dict(meta)
    if version := scale["metadata"].get("resourceVersion"):
        meta["resourceVersion"] = version
    return new | {"metadata": meta}


def _paths(kind: Kind) -> ScalePaths:
    if kind.scale is None:
        raise status.Refused(status.generic(404))
    return kind.scale


def _view(paths: ScalePaths, obj: JsonObject, wanted: int | None) -> JsonObject:
    meta = obj["metadata"]
    state: JsonObject = {"replicas": _at(obj, paths.status_replicas) or 0}
    if selects := _selector(_at(obj, paths.selector) if paths.selector else None):
        state["selector"] = selects
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {name: meta[name] for name in _SHOWN if name in meta},
        "spec": {"replicas": wanted} if wanted else {},
        "status": state,
    }


def _selector(value: Any) -> str:
    """Return a selector as text: a custom resource has it so."""
    return value if isinstance(value, str) else selector_text(value)


def _check(kind: Kind, name: str, scale: JsonObject, paths: ScalePaths) -> None:
    wanted = (scale.get("spec") or {}).get("replicas")
    if wanted is None and kind.custom:
        raise status.bad_request(f'the spec replicas field "{paths.replicas}" cannot be empty')
    if wanted is not None and wanted < 0 and not kind.custom:
        cause = fields.invalid("spec.replicas", wanted, "must be greater than or equal to 0")
        raise status.invalid(SCALE.group, SCALE.kind, name, [cause])


# Paths that only name fields


def _at(obj: JsonObject, path: str) -> Any:
    value: Any = obj
    for name in path.strip(".").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _with(obj: JsonObject, path: list[str], value: Any) -> JsonObject:
    first, *rest = path
    return obj | {first: _with(obj.get(first) or {}, rest, value) if rest else value}
