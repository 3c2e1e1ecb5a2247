"""The built-in types of Kubernetes, and the objects that kubectl sends as protobuf rather than as JSON.

kubectl creates objects of built-in kinds, and asks `auth can-i`, in protobuf. A body is four bytes of magic and an
envelope with the kind and the object's own bytes; `decode` returns the object that it means in JSON.

`protobuf.json`, made by `tests/controlplane/protobuf.py`, has the fields of each message by number. `decoding` reads
from it which fields there are and of which type. They are noted as

    "name TYPE"             TYPE is string, bytes, bool, int32, int64, double, or a message by its name
    "name? TYPE"            left out of the JSON where it is zero; senders write zeros, too
    "name []TYPE"           a list
    "name {}TYPE"           a map, its keys are texts
    " TYPE"                 the fields of this message lie beside the others in the JSON
    "* []TYPE"              the message is this list in the JSON

Some messages mean something else in JSON than their fields say (times, quantities, ports): `_MEANINGS` has them.
"""

import base64
import functools
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from haulout_sandbox.apiserver.kinds import JsonObject

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

_DEEPEST = 100  # no built-in kind comes near; the schema of a definition could go on for ever
_BITS_OF_VARINT = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - all of these are UTC, and say so by a Z


class Malformed(ValueError):
    """The bytes are no object."""


class Field(NamedTuple):
    """A field of a message; `holds` is `[]` for a list, `{}` for a map."""

    name: str
    type: str
    holds: str
    omits_zero: bool


def message_of(api_version: str, kind: str) -> str | None:
    """Return the name of the message that a kind is; options are of every group."""
    kinds = _facts().kinds
    version = "meta.k8s.io/v1" if kind.endswith("Options") else api_version
    return kinds.get(f"{version} {kind}")


def is_kind(message: str) -> bool:
    """Tell whether objects of a message say which kind they are."""
    return message in _kinds()


@functools.cache
def fields_of(message: str) -> Mapping[int, Field]:
    """Return the fields of a message by their numbers."""
    return {number: _field(noted) for number, noted in _facts().messages[message].items()}


def decode(body: bytes, *, api_version: str, kind: str) -> JsonObject:
    """Return the object in `body`, which is of the given kind if it does not say; raises `Malformed`."""
    if not body.startswith(MAGIC):
        raise Malformed("the body does not begin as protobuf does")
    try:
        envelope = _message("runtime.Unknown", body[len(MAGIC) :], 0)
        api_version, kind = envelope.get("apiVersion", api_version), envelope.get("kind", kind)
        message = message_of(api_version, kind)
        if message is None:
            raise Malformed(f"there is no kind {kind} in version {api_version}")
        content = _message(message, base64.b64decode(envelope.get("raw", "")), 0)
    except (struct.error, OverflowError, msgspec.DecodeError, RecursionError) as problem:
        raise Malformed(str(problem)) from None
    return {"apiVersion": api_version, "kind": kind, **content}


def _message(name: str, data: bytes, depth: int) -> Any:
    if depth > _DEEPEST:
        raise Malformed("the object is nested too deeply")
    fields, meaning = fields_of(name), _MEANINGS.get(name)
    found: JsonObject = {}
    for number, value in _wire(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.holds == "{}":
            found.setdefault(field.name, {}).update((_entry(field, value, depth),))
        elif field.holds == "[]":
            found.setdefault(field.name, []).append(_single(field, value, depth))
        elif field.name:
            found[field.name] = _single(field, value, depth)
        else:
            found |= _single(field, value, depth)
    if meaning:
        return meaning(found)
    if "*" in (field.name for field in fields.values()):
        return found.get("*", [])
    omitted = {field.name for field in fields.values() if field.omits_zero}
    return {name: value for name, value in found.items() if value is not None and (value or name not in omitted)}


def _entry(field: Field, data: int | bytes, depth: int) -> tuple[str, Any]:
    parts = dict(_wire(_bytes(data)))
    return _text(parts.get(1, b"")), _single(field, parts.get(2, b""), depth)


def _single(field: Field, value: int | bytes, depth: int) -> Any:
    convert = _SCALARS.get(field.type)
    return convert(value) if convert else _message(field.type, _bytes(value), depth + 1)


def _wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            length, at = _varint(data, at)
        elif wire in _WIDTHS:
            length = _WIDTHS[wire]
        else:
            raise Malformed(f"wire type {wire} is unknown")
        if length > len(data) - at:
            raise Malformed("the body ends in the middle of a field")
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, _BITS_OF_VARINT, 7):
        if at == len(data):
            break
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says "go on"
            return result & (1 << _BITS_OF_VARINT) - 1, at
    raise Malformed("a number does not end")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise Malformed("a number stands where there is none")
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


def _time(found: JsonObject) -> str | None:
    return f"{(_EPOCH + timedelta(seconds=found['seconds'])).isoformat()}Z" if "seconds" in found else None


def _micro_time(found: JsonObject) -> str | None:
    if "seconds" not in found:
        return None
    at = _EPOCH + timedelta(seconds=found["seconds"], microseconds=found.get("nanos", 0) // 1000)
    return f"{at.isoformat(timespec='microseconds')}Z"


def _raw(found: JsonObject) -> Any:
    raw = base64.b64decode(next(iter(found.values()), ""))
    return msgspec.json.decode(raw) if raw else None


_SCHEMAS = "apiextensions.v1.JSONSchemaProps"
_MEANINGS: dict[str, Callable[[JsonObject], Any]] = {
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


class _Facts(msgspec.Struct):
    kinds: dict[str, str]
    messages: dict[str, dict[int, str]]


@functools.cache
def _facts() -> _Facts:
    return msgspec.json.decode(resources.files(__package__).joinpath("protobuf.json").read_bytes(), type=_Facts)


@functools.cache
def _kinds() -> frozenset[str]:
    return frozenset(_facts().kinds.values())


def _field(noted: str) -> Field:
    name, _, kind = noted.rpartition(" ")
    holds = kind[:2] if kind.startswith(("[]", "{}")) else ""
    return Field(name.removesuffix("?"), kind.removeprefix(holds), holds, name.endswith("?"))
