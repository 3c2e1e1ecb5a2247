"""What the server says about fields that it does not know: nothing, a warning, or no (`fieldValidation`).

It says the same about a field that is there twice.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from haulout.sandbox.apiserver import fields, status
from haulout.sandbox.apiserver.kinds import JsonObject, Kind
from haulout.sandbox.apiserver.status import Refused

DIRECTIVES = ("", "Ignore", "Strict", "Warn")


def check_directive(directive: str, options: str) -> None:
    """Refuse a `fieldValidation` that there is not; `options` is the kind of the options it is part of."""
    if directive not in DIRECTIVES:
        cause = fields.not_supported("fieldValidation", directive, DIRECTIVES)
        raise status.invalid("meta.k8s.io", options, "", [cause])


def complaints(unknown: Iterable[str], duplicates: Iterable[str] = ()) -> list[str]:
    """Return what there is to say about fields, by their paths."""
    return [*(f'duplicate field "{path}"' for path in duplicates), *(f'unknown field "{path}"' for path in unknown)]


def duplicates(body: bytes) -> list[str]:
    """Return the paths of fields that a JSON document names twice."""
    return list(_duplicates(json.loads(body, object_pairs_hook=_Pairs), ""))


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written, field by field."""


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen = set()
        for name, item in value:
            where = fields.child(path, name)
            if name in seen:
                yield where
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
