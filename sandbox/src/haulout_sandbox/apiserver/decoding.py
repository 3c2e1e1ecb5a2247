"""Whether what a client sent is an object of its kind: fields of another type are refused, unknown ones dropped.

    fitted(POD, {"spec": {"hostNetwork": "yes"}})       # Misfit: spec.hostNetwork: expected `bool`, got `str`
    fitted(POD, {"spec": {"foo": 1}}).unknown           # ["spec.foo"]; the object comes without it

`fieldValidation` says what becomes of unknown fields: `Ignore` drops them silently, `Warn` (the default) answers with
warnings, `Strict` refuses. Custom resources have a schema instead (`custom_requests`).

Nearly all objects fit. msgspec tells that in a few microseconds, with structs that are made of the facts in
`protobuf.json` when a kind is met first; only what it does not accept is walked, value by value.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec

from haulout.core import quantity
from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.fields import child
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.protobuf import Field, fields_of, is_kind, message_of

_SCHEMA = "apiextensions.v1.JSONSchemaProps"
_OBJECT_META = "meta.v1.ObjectMeta"
_TYPE_META = {name: Field(name, "string", "", omits_zero=True) for name in ("apiVersion", "kind")}
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


class Misfit(Exception):
    """A value is not of the type that its field has."""


class Fitted(NamedTuple):
    """An object without what its type does not have, and the paths of that."""

    obj: JsonObject
    unknown: list[str]


Gate = Callable[[Fitted, Any], Fitted]
"""Makes of what was read of an object, given the object as it was sent, what a server with more features reads."""


def as_it_is(found: Fitted, _sent: Any) -> Fitted:
    """Add nothing."""
    return found


def fitted(kind: Kind, obj: JsonObject) -> Fitted:
    """Return `obj` as far as its kind knows it; raises `Misfit`."""
    return Fitted(obj, []) if kind.custom else fitted_as(kind.api_version, kind.kind, obj)


def fitted_as(api_version: str, kind: str, obj: JsonObject) -> Fitted:
    """Return `obj` as far as that kind knows it; one that is not built in stays as it is."""
    message = message_of(api_version, kind)
    return Fitted(obj, []) if message is None else _fitted(message, obj, "")


def fitted_metadata(meta: Any) -> Fitted:
    """Return the metadata of an object, as far as metadata is known."""
    return _fitted(_OBJECT_META, {} if meta is None else meta, "metadata")


def received(
    kind: Kind, obj: JsonObject, *, query: Mapping[str, str], warnings: list[str], gate: Gate = as_it_is
) -> JsonObject:
    """Return the object that was sent, or that a patch made, as far as its kind knows it."""
    try:
        found = gate(fitted(kind, obj), obj)
    except Misfit as misfit:
        raise refused(kind, str(misfit)) from None
    complain(kind, found.unknown, query, warnings)
    return found.obj


def complain(kind: Kind, unknown: Iterable[str], query: Mapping[str, str], warnings: list[str]) -> None:
    """Say nothing about unknown fields, warn of them, or refuse: as the request wants."""
    said, directive = [f'unknown field "{path}"' for path in unknown], query.get("fieldValidation", "")
    if directive == "Strict" and said:
        raise refused(kind, f"strict decoding error: {', '.join(said)}")
    if directive in ("", "Warn"):
        warnings.extend(said)


def refused(kind: Kind, why: str) -> status.Refused:
    """Say no to an object that cannot be read."""
    return status.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def _fitted(message: str, obj: Any, path: str) -> Fitted:
    try:
        _convert(message, obj, path)
    except Misfit:
        pass
    else:
        if not message.endswith(".CustomResourceDefinition"):  # of its schemas the quick look sees nothing
            return Fitted(obj, [])
    unknown: list[str] = []
    known = _known(obj, message, path, unknown)
    _convert(message, known, path)
    return Fitted(known, unknown)


def _known(value: Any, message: str, path: str, unknown: list[str]) -> Any:
    """Return a value without the fields that its type does not have; null as a label or the like is an empty text."""
    if not isinstance(value, dict) or message in _OPAQUE:
        return value
    fields = json_fields(_SCHEMA if message.startswith(_SCHEMA) else message)
    kept: JsonObject = {}
    for name, item in value.items():
        where, field = child(path, name), fields.get(name)
        if field is None:
            unknown.append(where)
        elif field.holds == "[]" and isinstance(item, list):
            kept[name] = [_known(it, field.type, f"{where}[{at}]", unknown) for at, it in enumerate(item)]
        elif field.holds == "{}" and isinstance(item, dict):
            nothing = "" if field.type == "string" else None
            given = {key: nothing if it is None else it for key, it in item.items()}
            kept[name] = {key: _known(it, field.type, child(where, key), unknown) for key, it in given.items()}
        else:
            kept[name] = _known(item, field.type, where, unknown)
    return kept


@functools.cache
def json_fields(message: str) -> Mapping[str, Field]:
    """Return the fields of a message by their names in JSON."""
    if message in _SCALARS:
        return {}
    own = _TYPE_META if is_kind(message) else {}
    return dict(own) | {field.name: field for field in _flat(message)}


def _flat(message: str) -> Iterator[Field]:
    for field in fields_of(message).values():
        if field.name:
            yield field
        else:
            yield from _flat(field.type)


# Types, checked by msgspec


def _convert(message: str, obj: Any, path: str) -> None:
    try:
        msgspec.convert(obj, _struct(message), dec_hook=_hook)
    except (msgspec.ValidationError, RecursionError) as problem:
        said, _, where = str(problem).replace(" | null`", "`").partition(" - at `")
        below = where.removesuffix("`").removeprefix("$").removeprefix(".").replace("[...]", "")
        raise Misfit(f"{child(path, below)}: {said[:1].lower()}{said[1:]}" if path or below else said) from None


@functools.cache
def _struct(message: str) -> Any:
    fields = json_fields(message)
    return msgspec.defstruct(
        message.replace(".", "_"),
        [(f"f{number}", _type(field) | None, None) for number, field in enumerate(fields.values())],
        rename={f"f{number}": name for number, name in enumerate(fields)},
        forbid_unknown_fields=True,
        gc=False,
    )


def _type(field: Field) -> Any:
    single = _SPECIAL.get(field.type) or _SCALARS.get(field.type)
    if single is None:
        lists = [it for it in fields_of(field.type).values() if it.name == "*"]
        single = _type(lists[0]) if lists else _struct(field.type)
    if field.holds == "[]":
        return list[single]  # type: ignore[valid-type]  # a type made of facts, not of source
    return dict[str, single] if field.holds == "{}" else single  # type: ignore[valid-type]  # as above


class _Quantity:
    """A quantity."""


class _Time:
    """An instant."""


def _hook(kind: type, value: Any) -> Any:
    """Return something of that type if `value` is one; msgspec wants to have that."""
    if isinstance(value, str):
        return _of_text(kind, value)
    if kind is _Quantity and isinstance(value, int | float) and not isinstance(value, bool):
        return _Quantity()
    raise ValueError("expected a quantity" if kind is _Quantity else "expected a time")


@functools.lru_cache(8192)  # objects repeat most of their quantities and instants each time they are written
def _of_text(kind: type, text: str) -> Any:
    if kind is _Quantity:
        quantity.parse(text)
    elif not _INSTANT.fullmatch(text):
        raise ValueError(f'"{text}" is no time as RFC 3339 has it')
    else:
        datetime.fromisoformat(text)
    return kind()


_INT32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_SCALARS: dict[str, Any] = {
    "string": str,
    "bytes": bytes,
    "bool": bool,
    "int32": _INT32,
    "int64": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "double": float,
}
_OPAQUE: dict[str, Any] = {
    "intstr.IntOrString": _INT32 | str,
    "resource.Quantity": _Quantity,
    "meta.v1.Time": _Time,
    "meta.v1.MicroTime": _Time,
    "runtime.RawExtension": Any,
    "meta.v1.FieldsV1": Any,
    "apiextensions.v1.JSON": Any,
}
_SPECIAL: dict[str, Any] = _OPAQUE | {
    f"{_SCHEMA}{suffix}": Any for suffix in ("", "OrArray", "OrBool", "OrStringArray")
}
