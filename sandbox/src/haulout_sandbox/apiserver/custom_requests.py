"""What clients send about custom resources, read as the real server reads it.

It knows no Go type for them but their metadata's. The rest is pruned to what the schema knows; what is dropped is told
or refused, as the request's `fieldValidation` says.
"""

from collections.abc import Mapping

from haulout.kube.transport import Request
from haulout_sandbox.apiserver import unknown_fields
from haulout_sandbox.apiserver.apply import APPLY_PATCH
from haulout_sandbox.apiserver.bodies import media_type, summary
from haulout_sandbox.apiserver.custom_versions import CustomVersion
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.object_meta import Malformed, drop_repeated_owners
from haulout_sandbox.apiserver.patches import JSON_PATCH, MERGE_PATCH
from haulout_sandbox.apiserver.status import JSON, Refused, bad_request, failure

_PATCHES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


def check_patch(kind: Kind, content_type: str) -> None:
    """Refuse a patch that custom resources do not take: nobody knows how their lists merge."""
    if kind.rules is not None and content_type not in _PATCHES:
        said = "the body of the request was in an unknown format - accepted media types include"
        raise Refused(failure(415, "UnsupportedMediaType", f"{said}: {', '.join(_PATCHES)}"))


def check_type(sent: JsonObject, body: bytes, kind: Kind) -> None:
    """Refuse what does not say which kind it is, or is of another version."""
    unrecognized = f"the object provided is unrecognized (must be of type {kind.kind})"
    for name in ("apiVersion", "kind"):
        if not isinstance(sent.get(name, ""), str | None):
            why = f"json: cannot unmarshal into Go struct field .{name} of type string"
            raise bad_request(f"{unrecognized}: couldn't get version/kind; json parse error: {why} ({summary(body)})")
    if not sent.get("kind"):
        text = body.decode(errors="replace")
        raise bad_request(f"{unrecognized}: Object 'Kind' is missing in '{text}' ({summary(body)})")
    version = sent.get("apiVersion") or ""
    if version != kind.api_version:
        said = f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        raise bad_request(said)


def received(
    sent: JsonObject, request: Request, version: CustomVersion, *, query: Mapping[str, str], warnings: list[str]
) -> JsonObject:
    """Return the object that was sent, to be created or to replace another."""
    try:
        obj, unknown = version.coerced(sent)
    except Malformed as problem:
        raise unknown_fields.refused(version.now.kind, str(problem)) from None
    is_json = media_type(request.content_type) == JSON
    twice = unknown_fields.duplicates(request.body) if is_json and request.body else []
    strict = unknown_fields.complain([*twice, *unknown], query, warnings)
    if strict:
        raise unknown_fields.refused(version.now.kind, strict)
    warnings += drop_repeated_owners(obj["metadata"])
    return obj


def patched(new: JsonObject, version: CustomVersion, *, query: Mapping[str, str], warnings: list[str]) -> JsonObject:
    """Return what a patch made of an object."""
    try:
        obj, unknown = version.coerced(new)
    except Malformed as problem:
        raise unknown_fields.refused_patch(new, str(problem)) from None
    strict = unknown_fields.complain(unknown, query, warnings)
    if strict:
        raise unknown_fields.refused_patch(new, strict)
    return obj
