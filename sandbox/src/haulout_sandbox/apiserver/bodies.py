"""What clients send, decoded: JSON, or the protobuf in which kubectl creates objects."""

from collections.abc import Iterator
from typing import Any

import msgspec

from haulout_sandbox.apiserver import protobuf
from haulout_sandbox.apiserver.decoding import Misfit, fitted_as
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.status import JSON, Refused, bad_request, failure

LARGEST = 3 << 20  # bytes, as the real server: MaxRequestBodyBytes in apiserver/pkg/server/config.go
DEEPEST = 150  # levels; no real object comes near, and all that the sandbox does with an object it does by recursion


def from_request(body: bytes, content_type: str, *, api_version: str, kind: str) -> JsonObject:
    """Return the object in `body`, which must be of `kind` if it says of which it is."""
    check(body, content_type)
    if media_type(content_type) == protobuf.MEDIA_TYPE:
        try:
            decoded = protobuf.decode(body, api_version=api_version, kind=kind)
        except protobuf.Malformed as problem:
            raise bad_request(f"the body is no protobuf of {kind}: {problem}") from None
    else:
        decoded = from_json(body)
    for name in ("apiVersion", "kind"):
        if not isinstance(decoded.get(name), str | None):
            raise bad_request(f"{name} is no text")
    if (decoded.get("kind") or kind) != kind:
        raise bad_request(f"the object is of kind {decoded['kind']}, not {kind}")
    return decoded


def delete_options(body: bytes, content_type: str) -> JsonObject:
    """Return the DeleteOptions in `body`, of whatever version."""
    options = from_request(body, content_type, api_version="v1", kind="DeleteOptions")
    try:
        return fitted_as("v1", "DeleteOptions", options).obj
    except Misfit as misfit:
        raise bad_request(str(misfit)) from None


def check(body: bytes, content_type: str) -> None:
    """Refuse what is of an unknown kind or too large."""
    if media_type(content_type) not in (JSON, protobuf.MEDIA_TYPE):
        said = f"the body must be of type {JSON} or {protobuf.MEDIA_TYPE}"
        raise Refused(failure(415, "UnsupportedMediaType", said))
    check_size(body)


def check_size(body: bytes) -> None:
    """Refuse what is too large."""
    if len(body) > LARGEST:
        raise Refused(failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {LARGEST}"))


def media_type(content_type: str) -> str:
    """Return the type without its parameters; nothing means JSON."""
    return content_type.partition(";")[0].strip().lower() if content_type else JSON


def from_json(body: bytes) -> JsonObject:
    """Return the object in `body`."""
    decoded = decode(body)
    if not isinstance(decoded, dict):
        raise bad_request("the body is no JSON object")
    return decoded


def decode(body: bytes) -> Any:
    """Return the value in `body`, which is JSON."""
    try:
        decoded = msgspec.json.decode(body)
    except (ValueError, RecursionError) as problem:
        raise bad_request(f"the body is no JSON: {problem}") from None
    if body.count(b"{") + body.count(b"[") > DEEPEST and _is_too_deep(decoded):
        raise bad_request("the body is nested too deeply")
    return decoded


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
    return bool(level)


def _inside(value: Any) -> Iterator[Any]:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (inner for inner in values if isinstance(inner, dict | list))
