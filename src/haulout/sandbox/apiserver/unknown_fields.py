"""What the server says about fields that it does not know: nothing, a warning, or no (`fieldValidation`)."""

from collections.abc import Iterable

from haulout.sandbox.apiserver import fields, status
from haulout.sandbox.apiserver.kinds import JsonObject, Kind
from haulout.sandbox.apiserver.status import Refused


def warnings(unknown: Iterable[str]) -> list[str]:
    """Return the values of the Warning headers that name the paths: what `Warn`, the default, does."""
    return [f"299 - {fields.quoted(_said(path))}" for path in unknown]


def refused(kind: Kind, unknown: Iterable[str]) -> Refused:
    """Say no to an object that was sent with `Strict`."""
    said = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
    return status.bad_request(f"{said}: {_strict(unknown)}")


def refused_patch(patched: JsonObject, unknown: Iterable[str]) -> Refused:
    """Say no to a patch, sent with `Strict`, that makes this of the object."""
    cause = fields.invalid("patch", fields.as_json(patched), _strict(unknown))
    return status.invalid("", "", "", [cause])


def _strict(unknown: Iterable[str]) -> str:
    return f"strict decoding error: {', '.join(map(_said, unknown))}"


def _said(path: str) -> str:
    return f'unknown field "{path}"'
