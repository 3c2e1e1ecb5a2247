"""Decoding of request bodies: an object to store, a patch, or the argument of a subresource."""

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.apiextensions.custom_resource_version import custom_version_of
from haulout_sandbox.apiserver.handlers import request_options
from haulout_sandbox.apiserver.handlers.api_call import ApiCall
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.patch.json_patch import JSON_PATCH, MERGE_PATCH, apply_patch
from haulout_sandbox.apiserver.patch.merge_schema import merge_schema_of
from haulout_sandbox.apiserver.patch.server_side_apply import APPLY_PATCH
from haulout_sandbox.apiserver.patch.strategic_merge import STRATEGIC_MERGE_PATCH, strategic_merge
from haulout_sandbox.apiserver.serializer import request_body
from haulout_sandbox.apiserver.serializer.decoder import DecodeError, decode_as, decode_with_field_validation
from haulout_sandbox.apiserver.status import StatusError, bad_request

_PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)


def decode_body(call: ApiCall, *, kind: str, expected_version: str | None = "") -> JsonObject:
    """Return the decoded body.

    `expected_version` is the API version that the body may name: by default the target's, None for any.
    """
    version = call.target.kind.api_version if expected_version == "" else expected_version
    request_options.check_write_options(call.request)
    body = request_body.decode_object(
        call.request.body or b"", call.request.content_type, api_version=version or "policy/v1", kind=kind
    )
    _check_api_version(body, version)
    try:
        decoded = decode_as(version or "policy/v1", kind, body).obj
    except DecodeError as error:
        raise bad_request(f"the body is no {kind}: {error}") from None
    return decoded | {"metadata": dict(decoded.get("metadata") or {})}


def decode_sent_object(call: ApiCall, *, content_type: str = "") -> JsonObject:
    """Return the object to store, without unknown fields."""
    request, kind, version = call.request, call.target.kind, custom_version_of(call.target.kind)
    request_options.check_write_options(request)
    body, content_type = request.body or b"", content_type or request.content_type
    sent = request_body.decode_object(body, content_type, api_version=kind.api_version, kind=kind.kind)
    if version is not None:
        return version.decode(sent, query=call.query, warnings=call.target.warnings)
    _check_api_version(sent, kind.api_version)
    obj = decode_with_field_validation(kind, sent, query=call.query, warnings=call.target.warnings)
    return obj | {"metadata": dict(obj.get("metadata") or {})}


def decode_applied_configuration(call: ApiCall) -> JsonObject:
    """Return the applied configuration as JSON, without the fields that are not written here."""
    kind, is_status = call.target.kind, call.target.subresource == "status"
    applied = decode_sent_object(call, content_type=status.JSON)
    applied |= {"apiVersion": kind.api_version, "kind": kind.kind}
    if applied["metadata"].setdefault("name", call.target.name) != call.target.name:
        raise bad_request(f"the name of the object does not match the name on the URL ({call.target.name})")
    if kind.has_status and is_status:
        return {name: applied[name] for name in ("apiVersion", "kind", "metadata", "status") if name in applied}
    return {name: part for name, part in applied.items() if name != "status" or not kind.has_status}


def _check_api_version(body: JsonObject, version: str | None) -> None:
    sent = body.get("apiVersion") or version
    if version is not None and sent != version:
        raise bad_request(f"the API version in the data ({sent}) does not match the expected API version ({version})")


def apply_sent_patch(call: ApiCall, obj: JsonObject) -> JsonObject:
    """Return `obj` with the patch of the request applied."""
    is_strategic, sent = content_type_of(call) == STRATEGIC_MERGE_PATCH, call.request.body or b""
    if is_strategic:
        schema = (
            None if call.target.kind.is_custom else merge_schema_of(call.target.kind.api_version, call.target.kind.kind)
        )
        if schema is None:
            raise unsupported_media_type()
        result = strategic_merge(obj, request_body.decode_json_object(sent), schema)
    else:
        result = apply_patch(obj, sent, call.request.content_type)
    if version := custom_version_of(call.target.kind):
        return version.decode(result, query=call.query, warnings=call.target.warnings)
    _check_api_version(result, call.target.kind.api_version)
    # A merge patch leaves untouched parts shared with the old object, and those were validated when they were written.
    is_merge_patch = content_type_of(call) == MERGE_PATCH
    changed = {name: part for name, part in result.items() if not is_merge_patch or part is not obj.get(name)}
    decoded = decode_with_field_validation(call.target.kind, changed, query=call.query, warnings=call.target.warnings)
    if decoded is not changed:
        result = {name: part for name, part in result.items() if name not in changed} | decoded
    return result if isinstance(result.get("metadata"), dict) else result | {"metadata": {}}


def content_type_of(call: ApiCall) -> str:
    return call.request.content_type.partition(";")[0]


def unsupported_media_type() -> StatusError:
    """Return the error for a body with an unsupported media type."""
    return StatusError(status.failure_status(415, "UnsupportedMediaType", "415: Unsupported Media Type", {}))


def check_patch(call: ApiCall) -> None:
    if content_type_of(call) not in _PATCHES:
        raise unsupported_media_type()
    request_body.check_size(call.request.body or b"")
    request_options.check_write_options(call.request)
