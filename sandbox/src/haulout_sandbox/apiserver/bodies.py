"""What clients send, decoded: JSON mostly; typed Go clients send protobuf, people may write YAML.

What cannot be read is refused in the words of the real server's codecs: `apimachinery/pkg/runtime/serializer`.
"""

from typing import Any

from haulout_sandbox.apiserver import fields, gojson, protobuf
from haulout_sandbox.apiserver.decoding import Misfit, fitted_metadata
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.shapes import shape_of
from haulout_sandbox.apiserver.status import JSON, Refused, bad_request, failure
from haulout_sandbox.apiserver.yamls import BadYaml, decode_yaml

YAML = "application/yaml"
LARGEST = 3 << 20  # bytes, as the real server: MaxRequestBodyBytes in apiserver/pkg/server/config.go

_SHOWN_BYTES = 30  # of a body that cannot be read
_SCHEME = 'scheme "pkg/runtime/scheme.go:111"'
_HEAD = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_NO_HEAD = "couldn't get version/kind; json parse error"
_A_MAP = "map[string]interface {}"


def from_request(body: bytes, content_type: str, *, api_version: str, kind: str) -> JsonObject:
    """Return the object in `body`, which should be of `kind`, and is where it does not say."""
    check(body, content_type)
    if media_type(content_type) == protobuf.MEDIA_TYPE:
        return _from_protobuf(body, api_version, kind)
    try:
        decoded = _document(body, content_type)
    except _Unrecognized as problem:
        said = f"the object provided is unrecognized (must be of type {kind}): {problem} ({summary(body)})"
        raise bad_request(said) from None
    _check_kind(decoded, api_version, kind)
    return decoded


def delete_options(body: bytes, content_type: str) -> JsonObject:
    """Return the DeleteOptions in `body`, of whatever version."""
    check(body, content_type)
    if media_type(content_type) == protobuf.MEDIA_TYPE:
        return _from_protobuf(body, "v1", "DeleteOptions")
    try:
        decoded = _document(body, content_type)
    except _Unrecognized as problem:
        raise bad_request(str(problem)) from None
    kind, version = decoded.get("kind") or "DeleteOptions", decoded.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        raise bad_request(f"{_no_kind(version, kind)}")
    for name, (types, go_type) in _OPTIONS.items():
        value = decoded.get(name)
        if value is not None and (not isinstance(value, types) or (types is int and isinstance(value, bool))):
            said = f"json: cannot unmarshal {gojson.kind_of(value)} into Go struct field DeleteOptions.{name}"
            raise bad_request(f"{said} of type {go_type}")
    return decoded


_OPTIONS: dict[str, tuple[type, str]] = {
    "dryRun": (list, "[]string"),
    "gracePeriodSeconds": (int, "int64"),
    "orphanDependents": (bool, "bool"),
    "preconditions": (dict, "v1.Preconditions"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
}


def check(body: bytes, content_type: str) -> None:
    """Refuse what is of an unknown kind or too large."""
    if media_type(content_type) not in (JSON, YAML, protobuf.MEDIA_TYPE):
        accepted = f"{JSON}, {YAML}, {protobuf.MEDIA_TYPE}"
        said = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise Refused(failure(415, "UnsupportedMediaType", said))
    check_size(body)


def check_size(body: bytes) -> None:
    """Refuse what is too large."""
    if len(body) > LARGEST:
        raise Refused(failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {LARGEST}"))


def media_type(content_type: str) -> str:
    """Return the type without its parameters; nothing means JSON."""
    return content_type.partition(";")[0].strip().lower() if content_type else JSON


def from_json(body: bytes, *, prefix: str = "") -> JsonObject:
    """Return the object in `body`; a refusal begins with `prefix`."""
    try:
        decoded = gojson.decode(body)
    except gojson.Malformed as problem:
        raise bad_request(f"{prefix}{problem}") from None
    if not isinstance(decoded, dict):
        raise bad_request(f"{prefix}{_not_into(decoded, _A_MAP)}")
    return decoded


def from_yaml(body: bytes) -> JsonObject:
    """Return the object in the body of an apply patch; JSON is YAML, too."""
    try:
        decoded = decode_yaml(body)
    except BadYaml as problem:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {problem}") from None
    if decoded is None:
        return {}
    if not isinstance(decoded, dict):
        why = f"error unmarshaling JSON: while decoding JSON: {_not_into(decoded, _A_MAP)}"
        raise bad_request(f"error decoding YAML: {why}")
    return decoded


def type_problem(obj: JsonObject, *, kind: str, version: str, custom: bool) -> str:
    """Return what Go would say about the types in `obj`, as far as all of the server relies on them.

    What a `custom` kind has beside its metadata is up to its schema.
    """
    for section in ("metadata",) if custom else ("metadata", "spec", "status"):
        value = obj.get(section)
        if value is not None and not isinstance(value, dict):
            go_type = "v1.ObjectMeta" if section == "metadata" else f"{version}.{kind}{section.title()}"
            where = f"Go struct field {kind}.{section} of type {go_type}"
            return f"json: cannot unmarshal {gojson.kind_of(value)} into {where}"
    try:
        fitted_metadata(obj.get("metadata"))
    except Misfit as misfit:
        return str(misfit)
    return ""


class _Unrecognized(Exception):
    """The body does not even tell what it is."""


def _document(body: bytes, content_type: str) -> JsonObject:
    try:
        decoded = decode_yaml(body) if media_type(content_type) == YAML else gojson.decode(body)
    except gojson.Malformed as problem:
        raise _Unrecognized(f"{_NO_HEAD}: {problem}") from None
    except BadYaml as problem:
        raise _Unrecognized(str(problem)) from None
    if decoded is None:
        return {}
    if not isinstance(decoded, dict):
        raise _Unrecognized(f"{_NO_HEAD}: {_not_into(decoded, _HEAD)}")
    for name in ("apiVersion", "kind"):
        if not isinstance(decoded.get(name) or "", str):
            value = gojson.kind_of(decoded[name])
            raise _Unrecognized(
                f"{_NO_HEAD}: json: cannot unmarshal {value} into Go struct field .{name} of type string"
            )
    version = decoded.get("apiVersion") or ""
    if version.count("/") > 1:
        raise _Unrecognized(f"unexpected GroupVersion string: {version}")
    return decoded


def _not_into(value: Any, go_type: str) -> str:
    return f"json: cannot unmarshal {gojson.kind_of(value)} into Go value of type {go_type}"


def _check_kind(decoded: JsonObject, api_version: str, kind: str) -> None:
    """Refuse an object that says that it is another one, if the server can tell."""
    sent_kind, sent_version = decoded.get("kind") or kind, decoded.get("apiVersion") or api_version
    if (sent_kind, sent_version) == (kind, api_version) or shape_of(api_version, kind) is None:
        return
    version = sent_version.rpartition("/")[2]
    said = f'{sent_kind} in version "{version}" cannot be handled as a {kind}'
    if shape_of(sent_version, sent_kind) is None:
        raise bad_request(f"{said}: {_no_kind(sent_version, sent_kind)}")
    if sent_kind != kind:
        target = f"{api_version.rpartition('/')[0].partition('.')[0] or 'core'}.{kind}"
        raise bad_request(f"{said}: converting ({version}.{sent_kind}) to ({target}): unknown conversion")


def _no_kind(version: str, kind: str) -> str:
    return f"no kind {fields.quoted(kind)} is registered for version {fields.quoted(version)} in {_SCHEME}"


def _from_protobuf(body: bytes, api_version: str, kind: str) -> JsonObject:
    try:
        return protobuf.decode(body, api_version=api_version, kind=kind)
    except protobuf.Malformed as problem:
        if problem.kind:
            version = problem.api_version.rpartition("/")[2]
            said = f'{problem.kind} in version "{version}" cannot be handled as a {kind}: {problem}'
        else:
            said = f"the object provided is unrecognized (must be of type {kind}): {problem} ({summary(body)})"
        raise bad_request(said) from None


def summary(body: bytes) -> str:
    """Return what begins a body, as the real server's errors show it."""
    begin = body[:_SHOWN_BYTES]
    shown = begin.decode(errors="replace") if body.startswith(b"{") else begin.hex()
    return (shown if len(body) <= _SHOWN_BYTES else f"{shown} ...") or "<empty>"
