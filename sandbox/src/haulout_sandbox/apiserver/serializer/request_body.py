"""Decoding of request bodies: JSON, or the protobuf that kubectl sends."""

from collections.abc import Iterator
from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.serializer import protobuf
from haulout_sandbox.apiserver.serializer.decoder import DecodeError, decode_as
from haulout_sandbox.apiserver.status import JSON, StatusError, bad_request, failure_status

MAX_BODY_BYTES = 3 << 20  # as in the real server: MaxRequestBodyBytes in apiserver/pkg/server/config.go
MAX_DEPTH = 150  # levels; no real object comes near, and the sandbox handles objects recursively


def decode_object(body: bytes, content_type: str, *, api_version: str, kind: str) -> JsonObject:
    """Return the object in `body`; refuse one of a kind other than `kind`."""
    check_body(body, content_type)
    if media_type(content_type) == protobuf.MEDIA_TYPE:
        try:
            decoded = protobuf.decode(body, api_version=api_version, kind=kind)
        except protobuf.MalformedProtobuf as problem:
            raise bad_request(f"the body is no protobuf of {kind}: {problem}") from None
    else:
        decoded = decode_json_object(body)
    for name in ("apiVersion", "kind"):
        if not isinstance(decoded.get(name), str | None):
            raise bad_request(f"{name} is no text")
    if (decoded.get("kind") or kind) != kind:
        raise bad_request(f"the object is of kind {decoded['kind']}, not {kind}")
    return decoded


def decode_delete_options(body: bytes, content_type: str) -> JsonObject:
    """Return the DeleteOptions in `body`, of any API version."""
    options = decode_object(body, content_type, api_version="v1", kind="DeleteOptions")
    try:
        return decode_as("v1", "DeleteOptions", options).obj
    except DecodeError as error:
        raise bad_request(str(error)) from None


def check_body(body: bytes, content_type: str) -> None:
    """Refuse an unsupported media type or a body that is too large."""
    if media_type(content_type) not in (JSON, protobuf.MEDIA_TYPE):
        message = f"the body must be of type {JSON} or {protobuf.MEDIA_TYPE}"
        raise StatusError(failure_status(415, "UnsupportedMediaType", message))
    check_size(body)


def check_size(body: bytes) -> None:
    """Refuse a body that is too large."""
    if len(body) > MAX_BODY_BYTES:
        raise StatusError(
            failure_status(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY_BYTES}")
        )


def media_type(content_type: str) -> str:
    """Return the media type without parameters; an empty one means JSON."""
    return content_type.partition(";")[0].strip().lower() if content_type else JSON


def decode_json_object(body: bytes) -> JsonObject:
    decoded = decode_json(body)
    if not isinstance(decoded, dict):
        raise bad_request("the body is no JSON object")
    return decoded


def decode_json(body: bytes) -> Any:
    try:
        decoded = msgspec.json.decode(body)
    except (ValueError, RecursionError) as problem:
        raise bad_request(f"the body is no JSON: {problem}") from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_too_deep(decoded):
        raise bad_request("the body is nested too deeply")
    return decoded


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _nested_values(outer)]
    return bool(level)


def _nested_values(value: Any) -> Iterator[Any]:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (inner for inner in values if isinstance(inner, dict | list))
