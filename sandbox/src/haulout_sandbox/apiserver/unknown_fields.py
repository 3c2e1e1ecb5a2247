"""What the server says about fields that it does not know: nothing, a warning, or no (`fieldValidation`).

It says the same about a field that is there twice.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from haulout_sandbox.apiserver import fields, status
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.status import Refused


class Duplicate(str):
    """The path of a field that is known, and that was sent twice."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object as it was written, field by field."""


def complaints(paths: Iterable[str]) -> list[str]:
    """Return what there is to say about fields, unknown or sent twice, by their paths."""
    return [f'{"duplicate" if isinstance(path, Duplicate) else "unknown"} field "{path}"' for path in paths]


def complain(paths: Iterable[str], query: Mapping[str, str], warnings: list[str]) -> str:
    """Say nothing about fields, warn of them, or return why not: as the request wants."""
    said, directive = complaints(paths), query.get("fieldValidation", "")
    if directive == "Strict" and said:
        return strictly(said)
    if directive in ("", "Warn"):
        warnings.extend(said)
    return ""


def duplicates(body: bytes) -> list[str]:
    """Return the paths of fields that a JSON document names twice."""
    try:
        kept = msgspec.json.encode(msgspec.json.decode(body))
    except ValueError:
        return []  # Go forgives it, and reads it; who sends that has other troubles
    if len(kept) == len(body.strip()):
        return []  # what is lost makes it shorter; what looks different may not have lost anything
    return list(_duplicates(pairs(body), ""))


def pairs(body: bytes) -> Any:
    """Return a JSON document as it was written."""
    return json.loads(body, object_pairs_hook=Pairs)


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Pairs):
        seen = set()
        for name, item in value:
            where = fields.child(path, name)
            if name in seen:
                yield Duplicate(where)
            seen.add(name)
            yield from _duplicates(item, where)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _duplicates(item, f"{path}[{at}]")


def strictly(complaints: Iterable[str]) -> str:
    """Return why an object that was sent with `Strict` cannot be read."""
    return f"strict decoding error: {', '.join(complaints)}"


def refused(kind: Kind, why: str) -> Refused:
    """Say no to an object that cannot be read."""
    return status.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def refused_patch(patched: JsonObject, why: str) -> Refused:
    """Say no to a patch that makes this of the object, which cannot be read."""
    return status.invalid("", "", "", [fields.invalid("patch", fields.as_json(patched), why)])
