"""What clients send about built-in kinds, made to fit: wrong types are refused, unknown fields dropped.

`fieldValidation` says what becomes of fields that nobody knows, or that were sent twice: `Ignore` drops them silently,
`Warn` (the default) answers with warnings, `Strict` refuses. `custom_versions` does the same for custom resources.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from haulout_sandbox.apiserver import fields, status, unknown_fields
from haulout_sandbox.apiserver.decoding import Fitted, Misfit, fitted
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.strategic import go_text

_DEPRECATED = {
    ("v1", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}


Gate = Callable[[Fitted, Any], Fitted]
"""Makes of what was read of an object, given the object as it was sent, what a server with more features reads."""


def as_it_is(found: Fitted, _sent: Any) -> Fitted:
    """Add nothing."""
    return found


def deprecations(kind: Kind) -> list[str]:
    """Return the warnings that every answer about a kind has."""
    said = _DEPRECATED.get((kind.api_version, kind.kind))
    return [said] if said else []


def received(
    kind: Kind, obj: JsonObject, sent: bytes, *, query: Mapping[str, str], warnings: list[str], gate: Gate = as_it_is
) -> JsonObject:
    """Return the object that was sent, which `sent` has in full if that is JSON."""
    is_json = sent.lstrip().startswith(b"{") and query.get("fieldValidation") != "Ignore"
    if is_json and unknown_fields.duplicates(sent):
        obj = unknown_fields.pairs(sent)
    try:
        found = gate(fitted(kind, obj), obj)
    except Misfit as misfit:
        raise unknown_fields.refused(kind, str(misfit)) from None
    strict = unknown_fields.complain(found.unknown, query, warnings)
    if strict:
        raise unknown_fields.refused(kind, strict)
    return found.obj


def patched(
    kind: Kind,
    new: JsonObject,
    sent: bytes,
    *,
    merged: bool,
    query: Mapping[str, str],
    warnings: list[str],
    gate: Gate = as_it_is,
) -> JsonObject:
    """Return what a patch made of an object; `merged` tells that it was a strategic merge patch."""
    try:
        found = gate(fitted(kind, new, merged=merged), new)
    except Misfit as misfit:
        raise _refused_patch(new, sent, str(misfit), merged=merged) from None
    strict = unknown_fields.complain([*unknown_fields.duplicates(sent), *found.unknown], query, warnings)
    if strict:
        raise _refused_patch(new, sent, strict, merged=merged)
    return found.obj


def _refused_patch(new: JsonObject, sent: bytes, why: str, *, merged: bool) -> status.Refused:
    if not merged:
        return unknown_fields.refused_patch(new, why)
    return status.invalid("", "", "", [fields.invalid("patch", go_text(msgspec.json.decode(sent)), why)])
