"""What clients send, decoded: JSON mostly, YAML where an apply may be written in it."""

import msgspec
import yaml

from haulout.sandbox.apiserver.kinds import JsonObject
from haulout.sandbox.apiserver.status import bad_request


def from_json(body: bytes, what: str) -> JsonObject:
    """Return the object in `body`; `what` names it in the refusal."""
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
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
