"""Objects that are posted and answered but never stored: their parts, as types.

A field of the wrong type is refused, an unknown one dropped, and a null is the same as nothing, as in Go.
"""

from typing import Any, TypeVar

import msgspec

from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.status import bad_request

Spec = TypeVar("Spec", bound=msgspec.Struct)


def spec_of(body: JsonObject, kind: type[Spec]) -> Spec:
    """Return the spec of what was posted."""
    try:
        return msgspec.convert(_without_nulls(body.get("spec") or {}), kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"{body.get('kind', 'the object provided')} cannot be handled: spec: {error}") from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
