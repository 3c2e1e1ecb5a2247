"""What a request sends: an object to be stored, a patch, or something to be done."""

from haulout_sandbox.apiserver import bodies, options, status
from haulout_sandbox.apiserver.apply import APPLY_PATCH
from haulout_sandbox.apiserver.calls import Call
from haulout_sandbox.apiserver.custom_versions import version_of
from haulout_sandbox.apiserver.decoding import Misfit, fitted_as, received
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.patches import JSON_PATCH, MERGE_PATCH, patched
from haulout_sandbox.apiserver.shapes import shape_of
from haulout_sandbox.apiserver.status import Refused, bad_request
from haulout_sandbox.apiserver.strategic import STRATEGIC_MERGE_PATCH, strategic_merge

_PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)


def body_of(call: Call, *, kind: str, expect: str | None = "") -> JsonObject:
    """Return what is asked for; `expect` is the API version it may name, the target's by default, None for any."""
    version = call.target.kind.api_version if expect == "" else expect
    options.check_write(call.request)
    body = bodies.from_request(
        call.request.body or b"", call.request.content_type, api_version=version or "policy/v1", kind=kind
    )
    _check_type(body, version)
    try:
        fitting = fitted_as(version or "policy/v1", kind, body).obj
    except Misfit as misfit:
        raise bad_request(f"the body is no {kind}: {misfit}") from None
    return fitting | {"metadata": dict(fitting.get("metadata") or {})}


def object_of(call: Call, *, content_type: str = "") -> JsonObject:
    """Return the object to be stored, as far as its kind knows what it has."""
    request, kind, version = call.request, call.target.kind, version_of(call.target.kind)
    options.check_write(request)
    body, content_type = request.body or b"", content_type or request.content_type
    sent = bodies.from_request(body, content_type, api_version=kind.api_version, kind=kind.kind)
    if version is not None:
        return version.received(sent, query=call.query, warnings=call.target.warnings)
    _check_type(sent, kind.api_version)
    obj = received(kind, sent, query=call.query, warnings=call.target.warnings, gate=call.gate)
    return obj | {"metadata": dict(obj.get("metadata") or {})}


def applied_by(call: Call) -> JsonObject:
    """Return the configuration to be applied, in JSON, and no part of the object that is not written here."""
    kind, is_status = call.target.kind, call.target.subresource == "status"
    applied = object_of(call, content_type=status.JSON)
    applied |= {"apiVersion": kind.api_version, "kind": kind.kind}
    if applied["metadata"].setdefault("name", call.target.name) != call.target.name:
        raise bad_request(f"the name of the object does not match the name on the URL ({call.target.name})")
    if kind.has_status and is_status:
        return {name: applied[name] for name in ("apiVersion", "kind", "metadata", "status") if name in applied}
    return {name: part for name, part in applied.items() if name != "status" or not kind.has_status}


def _check_type(body: JsonObject, version: str | None) -> None:
    sent = body.get("apiVersion") or version
    if version is not None and sent != version:
        raise bad_request(f"the API version in the data ({sent}) does not match the expected API version ({version})")


def patched_by(call: Call, obj: JsonObject) -> JsonObject:
    """Return what the patch that was sent makes of `obj`."""
    merged, sent = content_type_of(call) == STRATEGIC_MERGE_PATCH, call.request.body or b""
    if merged:
        shape = None if call.target.kind.custom else shape_of(call.target.kind.api_version, call.target.kind.kind)
        if shape is None:
            raise unsupported()
        new = strategic_merge(obj, bodies.from_json(sent), shape)
    else:
        new = patched(obj, sent, call.request.content_type)
    if version := version_of(call.target.kind):
        return version.received(new, query=call.query, warnings=call.target.warnings)
    _check_type(new, call.target.kind.api_version)
    # A merge patch shares what it leaves alone, which was looked at when it was written.
    shares = content_type_of(call) == MERGE_PATCH
    changed = {name: part for name, part in new.items() if not shares or part is not obj.get(name)}
    fitting = received(call.target.kind, changed, query=call.query, warnings=call.target.warnings, gate=call.gate)
    if fitting is not changed:
        new = {name: part for name, part in new.items() if name not in changed} | fitting
    return new if isinstance(new.get("metadata"), dict) else new | {"metadata": {}}


def content_type_of(call: Call) -> str:
    """Return what the body is said to be."""
    return call.request.content_type.partition(";")[0]


def unsupported() -> Refused:
    """Say that nobody takes a body of this type."""
    return Refused(status.failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {}))


def check_patch(call: Call) -> None:
    """Refuse a patch that cannot be one."""
    if content_type_of(call) not in _PATCHES:
        raise unsupported()
    bodies.check_size(call.request.body or b"")
    options.check_write(call.request)
