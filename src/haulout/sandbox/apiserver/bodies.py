"""What clients send, decoded: JSON mostly; typed Go clients send protobuf, people may write YAML."""

import msgspec
import yaml

from haulout.sandbox.apiserver import protobuf
from haulout.sandbox.apiserver.kinds import JsonObject
from haulout.sandbox.apiserver.status import JSON, Refused, bad_request, failure

YAML = "application/yaml"
_SHOWN_BYTES = 30  # of a body that cannot be read


def from_request(body: bytes, content_type: str, *, api_version: str, kind: str) -> JsonObject:
    """Return the object in `body`, which should be of `kind`, and is where it does not say."""
    media_type = content_type.partition(";")[0].strip() or JSON
    if media_type == JSON:
        return _from_json(body, kind)
    if media_type == YAML:
        return from_yaml(body)
    if media_type == protobuf.MEDIA_TYPE:
        return _from_protobuf(body, api_version, kind)
    accepted = f"{JSON}, {YAML}, {protobuf.MEDIA_TYPE}"
    said = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    raise Refused(failure(415, "UnsupportedMediaType", said))


def _from_json(body: bytes, kind: str) -> JsonObject:
    unrecognized = f"the object provided is unrecognized (must be of type {kind})"
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"{unrecognized}: {error}") from None
    if not isinstance(decoded, dict):
        raise bad_request(unrecognized)
    return decoded


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


def from_json(body: bytes, what: str) -> JsonObject:
    """Return the object in `body`; `what` names it in the refusal."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"error decoding {what}: {error}") from None
    if not isinstance(decoded, dict):
        raise bad_request(f"error decoding {what}: expected an object")
    return decoded


def from_yaml(body: bytes) -> JsonObject:
    """Return the object in `body`; JSON is YAML, too."""
    try:
        decoded = yaml.load(body, Loader=_JsonLoader)  # noqa: S506 - a safe loader, without dates
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {' '.join(str(error).split())}") from None
    if not isinstance(decoded, dict):
        raise bad_request("error decoding YAML: expected an object")
    return decoded


class _JsonLoader(yaml.CSafeLoader):
    """Reads YAML as JSON has it: what looks like a date is a text."""


_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
