"""Objects as typed Go clients send them: protobuf in, the JSON object that it means out.

A body is four bytes of magic and an envelope with the kind and the object's own bytes. How the kinds lie on the wire is
in `protobuf.json`, made by `tests/controlplane/protobuf.py`: of each message the fields by number, noted as

    "name TYPE"             TYPE is string, bytes, bool, int32, int64, double, or a message by its name
    "name? TYPE"            left out of the JSON where it is zero; senders write zeros, too
    "name []TYPE"           a list
    "name {}TYPE"           a map, its keys are texts
    " TYPE"                 the fields of this message lie beside the others in the JSON
    "* []TYPE"              the message is this list in the JSON

Some messages mean something else in JSON than their fields say (times, quantities, ports); `_MEANINGS` has them. What
is malformed is called so in the words of Go's decoder. Fields that nobody knows are skipped, as they are there.
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
_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - all of these are UTC, and say so by a Z


class Malformed(Exception):
    """The bytes are no object; `kind` and `api_version` are known if the envelope was sound."""

    def __init__(self, problem: str, *, api_version: str = "", kind: str = "") -> None:
        super().__init__(problem)
        self.api_version = api_version
        self.kind = kind


def decode(body: bytes, *, api_version: str, kind: str) -> JsonObject:
    """Return the object in `body`, which is of the given kind if it does not say; raises `Malformed`."""
    if not body:
        raise Malformed("empty data")
    if not body.startswith(MAGIC):
        raise Malformed(f"provided data does not appear to be a protobuf message, expected prefix {_as_go(MAGIC)}")
    if body == MAGIC:
        raise Malformed("empty body")
    envelope = _message("runtime.Unknown", body[len(MAGIC) :], 0)
    api_version, kind = envelope.get("apiVersion", api_version), envelope.get("kind", kind)
    try:
        content = _message(_message_of(api_version, kind), base64.b64decode(envelope.get("raw", "")), 0)
    except Malformed as problem:
        raise Malformed(str(problem), api_version=api_version, kind=kind) from None
    return {"apiVersion": api_version, "kind": kind, **content}


def _message_of(api_version: str, kind: str) -> str:
    kinds = _facts().kinds
    found = kinds.get(f"{api_version} {kind}")
    if found is None and kind.endswith("Options"):
        found = kinds.get(f"meta.k8s.io/v1 {kind}")  # options are of every group, also of a custom resource's
    if found is None:
        raise Malformed(
            f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    return found


class _Field(NamedTuple):
    name: str
    type: str
    holds: str  # "[]" a list, "{}" a map, "" one value
    omits_zero: bool


def _message(name: str, data: bytes, depth: int) -> Any:
    if depth > _DEEPEST:
        raise Malformed("exceeded max depth")
    meaning = _MEANINGS.get(name)
    if meaning and not data:
        return meaning({})
    fields = _fields(name)
    result: JsonObject = {}
    parts: dict[_Field, list[bytes]] = {}  # a message may come in parts
    for number, wire, value in _wire(data, name.rpartition(".")[2]):
        field = fields.get(number)
        if field is None:
            continue
        if field.holds == "{}":
            result.setdefault(field.name, {}).update((_entry(field, _bytes(field, wire, value), depth),))
        elif field.holds == "[]":
            result.setdefault(field.name, []).extend(_items(field, wire, value, depth))
        elif field.type in _SCALARS:
            result[field.name] = _scalar(field, wire, value)
        else:
            parts.setdefault(field, []).append(_bytes(field, wire, value))
    for field, pieces in parts.items():
        below = _message(field.type, b"".join(pieces), depth + 1)
        result |= {field.name: below} if field.name else below
    return meaning(result) if meaning else _shown(fields, result)


def _shown(fields: Mapping[int, _Field], found: JsonObject) -> Any:
    """Return a message's fields as Go shows them in JSON."""
    if any(field.name == "*" for field in fields.values()):
        return found.get("*", [])
    omitted = {field.name for field in fields.values() if field.omits_zero}
    return {name: value for name, value in found.items() if value is not None and (value or name not in omitted)}


def _entry(field: _Field, data: bytes, depth: int) -> tuple[str, Any]:
    key, found = "", None
    for number, wire, value in _wire(data, field.name):
        if number == 1:
            key = _text(_bytes(field, wire, value))
        elif number == 2:  # noqa: PLR2004 - a map's entry has a key, 1, and a value, 2
            found = _single(field, wire, value, depth)
    return key, _single(field, _BYTES, b"", depth) if found is None else found


def _items(field: _Field, wire: int, value: int | bytes, depth: int) -> list[Any]:
    if wire == _BYTES and isinstance(value, bytes) and field.type in ("int32", "int64", "bool"):  # packed
        items, at = [], 0
        while at < len(value):
            each, at = _varint(value, at)
            items.append(_scalar(field, _VARINT, each))
        return items
    return [_single(field, wire, value, depth)]


def _single(field: _Field, wire: int, value: int | bytes, depth: int) -> Any:
    if field.type in _SCALARS:
        return _scalar(field, wire, value)
    return _message(field.type, _bytes(field, wire, value), depth + 1)


def _scalar(field: _Field, wire: int, value: int | bytes) -> Any:
    expected, convert = _SCALARS[field.type]
    if wire != expected:
        raise _wrong(field, wire)
    return convert(value)


def _bytes(field: _Field, wire: int, value: int | bytes) -> bytes:
    if wire != _BYTES or not isinstance(value, bytes):
        raise _wrong(field, wire)
    return value


def _wrong(field: _Field, wire: int) -> Malformed:
    embedded = field.name in ("", "metadata")  # Go names such a field after its type
    name = field.type.rpartition(".")[2] if embedded else f"{field.name[:1].upper()}{field.name[1:]}"
    return Malformed(f"proto: wrong wireType = {wire} for field {name}")


def _wire(data: bytes, name: str) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and value of each field; groups, which nobody sends, are skipped."""
    at, groups = 0, 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire in (_GROUP, _END_GROUP):
            groups += 1 if wire == _GROUP else -1
            if groups < 0:
                raise Malformed(f"proto: {name}: wiretype end group for non-group")
            continue
        if not number:
            raise Malformed(f"proto: {name}: illegal tag {number} (wire type {wire})")
        value, at = _value(data, at, wire)
        if not groups:
            yield number, wire, value
    if groups:
        raise _cut()


def _value(data: bytes, at: int, wire: int) -> tuple[int | bytes, int]:
    if wire == _VARINT:
        return _varint(data, at)
    if wire == _BYTES:
        length, at = _varint(data, at)
    elif wire in _WIDTHS:
        length = _WIDTHS[wire]
    else:
        raise Malformed(f"proto: illegal wireType {wire}")
    if length > len(data) - at:
        raise _cut()
    return data[at : at + length], at + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while shift < _BITS_OF_VARINT:
        if at == len(data):
            raise _cut()
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says "go on"
            return result & (1 << _BITS_OF_VARINT) - 1, at
        shift += 7
    raise Malformed("proto: integer overflow")


def _cut() -> Malformed:
    return Malformed("unexpected EOF")


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _signed(bits: int) -> Callable[[int], int]:
    return lambda value: (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _double(value: bytes) -> float:
    (number,) = struct.unpack("<d", value)
    if number - number != 0:
        raise Malformed(f"json: unsupported value: {number}")
    return int(number) if number.is_integer() else float(number)


_SCALARS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "string": (_BYTES, _text),
    "bytes": (_BYTES, lambda value: base64.b64encode(value).decode()),
    "bool": (_VARINT, bool),
    "int32": (_VARINT, _signed(32)),
    "int64": (_VARINT, _signed(64)),
    "double": (_FIXED64, _double),
}


def _time(found: JsonObject) -> str | None:
    return f"{_instant(found['seconds'], 0).isoformat()}Z" if "seconds" in found else None


def _micro_time(found: JsonObject) -> str | None:
    if "seconds" not in found:
        return None
    return f"{_instant(found['seconds'], found.get('nanos', 0) // 1000).isoformat(timespec='microseconds')}Z"


def _instant(seconds: int, microseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=microseconds)
    except OverflowError:
        raise Malformed("Time.MarshalJSON: year outside of range [0,9999]") from None


def _raw(found: JsonObject) -> Any:
    raw = base64.b64decode(next(iter(found.values()), ""))
    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, RecursionError) as problem:
        raise Malformed(str(problem)) from None


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


def _as_go(data: bytes) -> str:
    return f"[{' '.join(str(byte) for byte in data)}]"


class _Facts(msgspec.Struct):
    kinds: dict[str, str]
    messages: dict[str, dict[int, str]]


@functools.cache
def _facts() -> _Facts:
    return msgspec.json.decode(resources.files(__package__).joinpath("protobuf.json").read_bytes(), type=_Facts)


@functools.cache
def _fields(message: str) -> Mapping[int, _Field]:
    return {number: _field(noted) for number, noted in _facts().messages[message].items()}


def _field(noted: str) -> _Field:
    name, _, kind = noted.rpartition(" ")
    holds = kind[:2] if kind.startswith(("[]", "{}")) else ""
    return _Field(name.removesuffix("?"), kind.removeprefix(holds), holds, name.endswith("?"))
