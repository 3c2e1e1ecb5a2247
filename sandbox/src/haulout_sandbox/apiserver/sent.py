"""What a request sends: an object to be stored, a patch, or something to be done."""

from haulout_sandbox.apiserver import bodies, options, received, status, unknown_fields
from haulout_sandbox.apiserver.apply import APPLY_PATCH
from haulout_sandbox.apiserver.calls import Call
from haulout_sandbox.apiserver.custom_versions import version_of
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.patches import JSON_PATCH, MERGE_PATCH, patched
from haulout_sandbox.apiserver.shapes import shape_of
from haulout_sandbox.apiserver.status import Refused, bad_request
from haulout_sandbox.apiserver.strategic import STRATEGIC_MERGE_PATCH, strategic_merge

_PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)


def body_of(call: Call, *, kind: str, expect: str | None = "") -> JsonObject:
    """Return what is asked for; `expect` is the API version it may name, the target's by default, None for any."""
    target = call.target.kind
    sent, content_type = call.request.body or b"", call.request.content_type
    bodies.check(sent, content_type)
    options.check_write(call.request)
    body = bodies.from_request(sent, content_type, api_version=target.api_version, kind=kind)
    _check_strictly(call, kind)
    version = call.target.kind.api_version if expect == "" else expect
    _check_type(body, version)
    if problem := bodies.type_problem(body, kind=kind, version=target.version, custom=target.custom):
        said = f'{kind} in version "{target.version}" cannot be handled as a {kind}'
        raise bad_request(f"{said}: {problem}")
    body["metadata"] = dict(body.get("metadata") or {})
    return body


def object_of(call: Call) -> JsonObject:
    """Return the object to be stored, as far as its kind knows what it has."""
    request, kind = call.request, call.target.kind
    body, version = request.body or b"", version_of(kind)
    bodies.check(body, request.content_type)
    options.check_write(request)
    sent = bodies.from_request(body, request.content_type, api_version=kind.api_version, kind=kind.kind)
    if version is None:
        _check_type(sent, kind.api_version)
        warnings = call.target.warnings
        obj = received.received(kind, sent, body, query=call.query, warnings=warnings, gate=call.gate)
        return obj | {"metadata": dict(obj.get("metadata") or {})}
    return version.received(sent, query=call.query, warnings=call.target.warnings)


def _check_strictly(call: Call, kind: str) -> None:
    """Warn of keys that come twice, or refuse them, whatever the caller wants."""
    is_json = bodies.media_type(call.request.content_type) == status.JSON
    twice = unknown_fields.duplicates(call.request.body or b"") if is_json else []
    if strict := unknown_fields.complain(twice, call.query, call.target.warnings):
        said = f'{kind} in version "{call.target.kind.version}" cannot be handled as a {kind}'
        raise bad_request(f"{said}: {strict}")


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
    query, warnings = call.query, call.target.warnings
    # A merge patch shares what it leaves alone, which was looked at when it was written.
    shares = content_type_of(call) == MERGE_PATCH
    changed = {name: part for name, part in new.items() if not shares or part is not obj.get(name)}
    fitting = received.patched(
        call.target.kind, changed, sent, merged=merged, query=query, warnings=warnings, gate=call.gate
    )
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
