"""What the server says about fields that it does not know: nothing, a warning, or no (`fieldValidation`).

It says the same about a field that is there twice.
"""

from collections.abc import Iterable

from haulout.sandbox.apiserver import fields, status
from haulout.sandbox.apiserver.kinds import JsonObject, Kind
from haulout.sandbox.apiserver.status import Refused


def complaints(unknown: Iterable[str], duplicates: Iterable[str] = ()) -> list[str]:
    """Return what there is to say about fields, by their paths."""
    return [*(f'duplicate field "{path}"' for path in duplicates), *(f'unknown field "{path}"' for path in unknown)]


def strictly(complaints: Iterable[str]) -> str:
    """Return why an object that was sent with `Strict` cannot be read."""
    return f"strict decoding error: {', '.join(complaints)}"


def refused(kind: Kind, why: str) -> Refused:
    """Say no to an object that cannot be read."""
    return status.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def refused_patch(patched: JsonObject, why: str) -> Refused:
    """Say no to a patch that makes this of the object, which cannot be read."""
    return status.invalid("", "", "", [fields.invalid("patch", fields.as_json(patched), why)])
