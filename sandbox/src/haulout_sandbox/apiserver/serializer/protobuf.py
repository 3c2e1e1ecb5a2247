"""The built-in types of Kubernetes, and the objects that kubectl sends as protobuf rather than as JSON.

kubectl creates objects of built-in kinds, and asks `auth can-i`, in protobuf. A body is four bytes of magic and an
envelope with the kind and the object's own bytes; `decode` returns the object that it means in JSON.

`protobuf.json`, made by `tests/controlplane/protobuf.py`, has the fields of each message by number. `decoder` reads
from it which fields there are and of which type. They are noted as

    "name TYPE"             TYPE is string, bytes, bool, int32, int64, double, or a message by its name
    "name? TYPE"            left out of the JSON where it is zero; senders write zeros, too
    "name []TYPE"           a list
    "name {}TYPE"           a map, its keys are texts
    " TYPE"                 the fields of this message lie beside the others in the JSON
    "* []TYPE"              the message is this list in the JSON

Some messages mean something else in JSON than their fields say (times, quantities, ports): `_JSON_CONVERTERS` has them.
"""

import base64
import functools
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

_MAX_DEPTH = 100  # no built-in kind comes near; the schema of a definition could go on for ever
_BITS_OF_VARINT = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - all of these are UTC, and say so by a Z


class MalformedProtobuf(ValueError):
    """The bytes are no object."""


class Field(NamedTuple):
    """A field of a message; `container` is `[]` for a list, `{}` for a map."""

    name: str
    type: str
    container: str
    omits_zero: bool


def message_name(api_version: str, kind: str) -> str | None:
    """Return the name of the message that a kind is; options are of every group."""
    kinds = _protobuf_types().kinds
    version = "meta.k8s.io/v1" if kind.endswith("Options") else api_version
    return kinds.get(f"{version} {kind}")


def is_kind_message(message: str) -> bool:
    """Tell whether objects of a message say which kind they are."""
    return message in _kind_messages()


@functools.cache
def fields_of(message: str) -> Mapping[int, Field]:
    """Return the fields of a message by their numbers."""
    return {number: _parse_field(notation) for number, notation in _protobuf_types().messages[message].items()}


def decode(body: bytes, *, api_version: str, kind: str) -> JsonObject:
    """Return the object in `body`, which is of the given kind if it does not say; raises `MalformedProtobuf`."""
    if not body.startswith(MAGIC):
        raise MalformedProtobuf("the body does not begin as protobuf does")
    try:
        envelope = _decode_message("runtime.Unknown", body[len(MAGIC) :], 0)
        api_version, kind = envelope.get("apiVersion", api_version), envelope.get("kind", kind)
        message = message_name(api_version, kind)
        if message is None:
            raise MalformedProtobuf(f"there is no kind {kind} in version {api_version}")
        content = _decode_message(message, base64.b64decode(envelope.get("raw", "")), 0)
    except (struct.error, OverflowError, msgspec.DecodeError, RecursionError) as problem:
        raise MalformedProtobuf(str(problem)) from None
    return {"apiVersion": api_version, "kind": kind, **content}


def _decode_message(name: str, data: bytes, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise MalformedProtobuf("the object is nested too deeply")
    fields, to_json = fields_of(name), _JSON_CONVERTERS.get(name)
    values: JsonObject = {}
    for number, value in _wire_fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.container == "{}":
            values.setdefault(field.name, {}).update((_map_entry(field, value, depth),))
        elif field.container == "[]":
            values.setdefault(field.name, []).append(_field_value(field, value, depth))
        elif field.name:
            values[field.name] = _field_value(field, value, depth)
        else:
            values |= _field_value(field, value, depth)
    if to_json:
        return to_json(values)
    if "*" in (field.name for field in fields.values()):
        return values.get("*", [])
    omitted = {field.name for field in fields.values() if field.omits_zero}
    return {name: value for name, value in values.items() if value is not None and (value or name not in omitted)}


def _map_entry(field: Field, data: int | bytes, depth: int) -> tuple[str, Any]:
    parts = dict(_wire_fields(_bytes(data)))
    return _text(parts.get(1, b"")), _field_value(field, parts.get(2, b""), depth)


def _field_value(field: Field, value: int | bytes, depth: int) -> Any:
    convert = _SCALARS.get(field.type)
    return convert(value) if convert else _decode_message(field.type, _bytes(value), depth + 1)


def _wire_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field."""
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, offset = _varint(data, offset)
            yield tag >> 3, value
            continue
        if wire_type == _BYTES:
            length, offset = _varint(data, offset)
        elif wire_type in _WIDTHS:
            length = _WIDTHS[wire_type]
        else:
            raise MalformedProtobuf(f"wire type {wire_type} is unknown")
        if length > len(data) - offset:
            raise MalformedProtobuf("the body ends in the middle of a field")
        yield tag >> 3, data[offset : offset + length]
        offset += length


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, _BITS_OF_VARINT, 7):
        if offset == len(data):
            break
        byte = data[offset]
        offset += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says "go on"
            return result & (1 << _BITS_OF_VARINT) - 1, offset
    raise MalformedProtobuf("a number does not end")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise MalformedProtobuf("a number stands where there is none")
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode(errors="replace")


def _signed(bits: int) -> Callable[[int | bytes], int]:
    def convert(value: int | bytes) -> int:
        number = value if isinstance(value, int) else 0
        return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)

    return convert


def _double(value: int | bytes) -> float:
    (number,) = struct.unpack("<d", _bytes(value))
    return int(number) if number.is_integer() else float(number)


_SCALARS: dict[str, Callable[[int | bytes], Any]] = {
    "string": _text,
    "bytes": lambda value: base64.b64encode(_bytes(value)).decode(),
    "bool": bool,
    "int32": _signed(32),
    "int64": _signed(64),
    "double": _double,
}


def _time(fields: JsonObject) -> str | None:
    return f"{(_EPOCH + timedelta(seconds=fields['seconds'])).isoformat()}Z" if "seconds" in fields else None


def _micro_time(fields: JsonObject) -> str | None:
    if "seconds" not in fields:
        return None
    time = _EPOCH + timedelta(seconds=fields["seconds"], microseconds=fields.get("nanos", 0) // 1000)
    return f"{time.isoformat(timespec='microseconds')}Z"


def _raw(fields: JsonObject) -> Any:
    raw = base64.b64decode(next(iter(fields.values()), ""))
    return msgspec.json.decode(raw) if raw else None


_SCHEMAS = "apiextensions.v1.JSONSchemaProps"
_JSON_CONVERTERS: dict[str, Callable[[JsonObject], Any]] = {
    "runtime.Unknown": lambda found: found,
    "runtime.RawExtension": _raw,
    "meta.v1.FieldsV1": _raw,
    "meta.v1.Time": _time,
    "meta.v1.MicroTime": _micro_time,
    "resource.Quantity": lambda found: found.get("string") or "0",
    "intstr.IntOrString": lambda found: found.get("strVal", "") if found.get("type") else found.get("intVal", 0),
    "apiextensions.v1.JSON": _raw,
    f"{_SCHEMAS}OrArray": lambda found: found.get("jSONSchemas") or found.get("schema"),
    f"{_SCHEMAS}OrBool": lambda found: found.get("schema", found.get("allows", False)),
    f"{_SCHEMAS}OrStringArray": lambda found: found.get("property") or found.get("schema"),
}


class _ProtobufTypes(msgspec.Struct):
    kinds: dict[str, str]
    messages: dict[str, dict[int, str]]


@functools.cache
def _protobuf_types() -> _ProtobufTypes:
    return msgspec.json.decode(resources.files(__package__).joinpath("protobuf.json").read_bytes(), type=_ProtobufTypes)


@functools.cache
def _kind_messages() -> frozenset[str]:
    return frozenset(_protobuf_types().kinds.values())


def _parse_field(notation: str) -> Field:
    name, _, kind = notation.rpartition(" ")
    container = kind[:2] if kind.startswith(("[]", "{}")) else ""
    return Field(name.removesuffix("?"), kind.removeprefix(container), container, name.endswith("?"))
