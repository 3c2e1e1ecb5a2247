"""Decoding of sent objects: fields of the wrong type are refused, unknown fields are dropped.

    decode(POD, {"spec": {"hostNetwork": "yes"}})       # DecodeError: spec.hostNetwork: expected `bool`, got `str`
    decode(POD, {"spec": {"foo": 1}}).unknown           # ["spec.foo"]; the object comes without it

`fieldValidation` determines what happens with unknown fields: `Ignore` drops them silently, `Warn` (the default) adds
warnings, `Strict` refuses. Custom resources have a schema instead (`apiextensions.schema`).

Nearly all objects are valid. msgspec confirms that in a few microseconds, with structs that are generated from
`protobuf.json` at the first use of a kind. Only an object that msgspec does not accept is walked value by value.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec

from haulout.core import quantity
from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.field_errors import child_path
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.serializer.protobuf import Field, fields_of, is_kind_message, message_name

_SCHEMA = "apiextensions.v1.JSONSchemaProps"
_OBJECT_META = "meta.v1.ObjectMeta"
_TYPE_META = {name: Field(name, "string", "", omits_zero=True) for name in ("apiVersion", "kind")}
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


# Fields that Kubernetes 1.36, which `protobuf.json` is from, does not have yet: drains read that of KEP-4563.
_NEWER_FIELDS = {"core.v1.PodSpec": (Field("evictionResponders", "runtime.RawExtension", "[]", omits_zero=True),)}


class DecodeError(Exception):
    """A value is not of its field's type."""


class Decoded(NamedTuple):
    """An object without its unknown fields, and the paths of these."""

    obj: JsonObject
    unknown: list[str]


def decode(kind: Kind, obj: JsonObject) -> Decoded:
    """Return `obj` without its unknown fields; raise `DecodeError`."""
    return Decoded(obj, []) if kind.is_custom else decode_as(kind.api_version, kind.kind, obj)


def decode_as(api_version: str, kind: str, obj: JsonObject) -> Decoded:
    """Return `obj` without its unknown fields; an object of a kind that is not built in is returned unchanged."""
    message = message_name(api_version, kind)
    return Decoded(obj, []) if message is None else _decode(message, obj, "")


def decode_metadata(meta: Any) -> Decoded:
    """Return an object's metadata without unknown fields."""
    return _decode(_OBJECT_META, {} if meta is None else meta, "metadata")


def decode_with_field_validation(
    kind: Kind,
    obj: JsonObject,
    *,
    query: Mapping[str, str],
    warnings: list[str],
) -> JsonObject:
    """Return a sent or patched object without its unknown fields, which are reported as `fieldValidation` says."""
    try:
        decoded = decode(kind, obj)
    except DecodeError as error:
        raise decode_refusal(kind, str(error)) from None
    report_unknown_fields(kind, decoded.unknown, query, warnings)
    return decoded.obj


def report_unknown_fields(kind: Kind, unknown: Iterable[str], query: Mapping[str, str], warnings: list[str]) -> None:
    """Ignore unknown fields, warn of them, or refuse, as `fieldValidation` says."""
    messages, directive = [f'unknown field "{path}"' for path in unknown], query.get("fieldValidation", "")
    if directive == "Strict" and messages:
        raise decode_refusal(kind, f"strict decoding error: {', '.join(messages)}")
    if directive in ("", "Warn"):
        warnings.extend(messages)


def decode_refusal(kind: Kind, detail: str) -> status.StatusError:
    """Return the error for an object that cannot be decoded."""
    return status.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {detail}')


def _decode(message: str, obj: Any, path: str) -> Decoded:
    try:
        _convert(message, obj, path)
    except DecodeError:
        pass
    else:
        if not message.endswith(".CustomResourceDefinition"):  # msgspec does not look into the schemas of definitions
            return Decoded(obj, [])
    unknown: list[str] = []
    known = _known_fields(obj, message, path, unknown)
    _convert(message, known, path)
    return Decoded(known, unknown)


def _known_fields(value: Any, message: str, path: str, unknown: list[str]) -> Any:
    """Return a value without its unknown fields; null as the value of a label or the like becomes an empty string."""
    if not isinstance(value, dict) or message in _OPAQUE:
        return value
    fields = json_fields(_SCHEMA if message.startswith(_SCHEMA) else message)
    known: JsonObject = {}
    for name, item in value.items():
        item_path, field = child_path(path, name), fields.get(name)
        if field is None:
            unknown.append(item_path)
        elif field.container == "[]" and isinstance(item, list):
            known[name] = [
                _known_fields(entry, field.type, f"{item_path}[{index}]", unknown) for index, entry in enumerate(item)
            ]
        elif field.container == "{}" and isinstance(item, dict):
            empty = "" if field.type == "string" else None
            entries = {key: empty if entry is None else entry for key, entry in item.items()}
            known[name] = {
                key: _known_fields(entry, field.type, child_path(item_path, key), unknown)
                for key, entry in entries.items()
            }
        else:
            known[name] = _known_fields(item, field.type, item_path, unknown)
    return known


@functools.cache
def json_fields(message: str) -> Mapping[str, Field]:
    if message in _SCALARS:
        return {}
    type_fields = _TYPE_META if is_kind_message(message) else {}
    fields = (*_flattened_fields(message), *_NEWER_FIELDS.get(message, ()))
    return dict(type_fields) | {field.name: field for field in fields}


def _flattened_fields(message: str) -> Iterator[Field]:
    for field in fields_of(message).values():
        if field.name:
            yield field
        else:
            yield from _flattened_fields(field.type)


# Types for msgspec


def _convert(message: str, obj: Any, path: str) -> None:
    try:
        msgspec.convert(obj, _struct(message), dec_hook=_dec_hook)
    except (msgspec.ValidationError, RecursionError) as error:
        text, _, location = str(error).replace(" | null`", "`").partition(" - at `")
        inner_path = location.removesuffix("`").removeprefix("$").removeprefix(".").replace("[...]", "")
        raise DecodeError(
            f"{child_path(path, inner_path)}: {text[:1].lower()}{text[1:]}" if path or inner_path else text
        ) from None


@functools.cache
def _struct(message: str) -> Any:
    fields = json_fields(message)
    return msgspec.defstruct(
        message.replace(".", "_"),
        [(f"f{number}", _field_type(field) | None, None) for number, field in enumerate(fields.values())],
        rename={f"f{number}": name for number, name in enumerate(fields)},
        forbid_unknown_fields=True,
        gc=False,
    )


def _field_type(field: Field) -> Any:
    single = _SPECIAL.get(field.type) or _SCALARS.get(field.type)
    if single is None:
        lists = [inner for inner in fields_of(field.type).values() if inner.name == "*"]
        single = _field_type(lists[0]) if lists else _struct(field.type)
    if field.container == "[]":
        return list[single]  # type: ignore[valid-type]  # a type made of facts, not of source
    return dict[str, single] if field.container == "{}" else single  # type: ignore[valid-type]  # as above


class _Quantity:
    """A quantity."""


class _Time:
    """An instant."""


def _dec_hook(kind: type, value: Any) -> Any:
    """Return an instance of the type if `value` is valid, as msgspec requires."""
    if isinstance(value, str):
        return _check_text(kind, value)
    if kind is _Quantity and isinstance(value, int | float) and not isinstance(value, bool):
        return _Quantity()
    raise ValueError("expected a quantity" if kind is _Quantity else "expected a time")


@functools.lru_cache(8192)  # most quantities and timestamps of an object repeat in each write
def _check_text(kind: type, text: str) -> Any:
    if kind is _Quantity:
        quantity.parse(text)
    elif not _RFC3339.fullmatch(text):
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
