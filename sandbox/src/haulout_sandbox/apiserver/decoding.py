"""Reads what a client sent as an object of a built-in kind: types that do not fit, and fields that nobody knows.

    fitted(POD, {"spec": {"hostNetwork": "yes"}})       # Misfit: json: cannot unmarshal string into Go struct field …
    fitted(POD, {"spec": {"foo": 1}}).unknown           # ["spec.foo"]; the object comes without it

The words are those of Go's JSON decoder (`sigs.k8s.io/json`). It notes the first value that does not fit and goes on;
types that decode themselves (quantities, times) stop it. A null is nothing: in a list or a map it is the zero value.

Nearly all objects fit. msgspec tells, in a few microseconds, with structs that are made of the Go types when a kind is
met first; only what it does not accept is walked, value by value.
"""

import base64
import binascii
import functools
import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec

from haulout.core import quantity
from haulout_sandbox.apiserver import gotimes, gotypes
from haulout_sandbox.apiserver.fields import child
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.unknown_fields import Duplicate, Pairs

_SCHEMA = "apiextensions.v1.JSONSchemaProps"
_ANYTHING = frozenset({"runtime.RawExtension", "meta.v1.FieldsV1", "apiextensions.v1.JSON"})
_SCHEMA_OR = frozenset(f"{_SCHEMA}Or{other}" for other in ("Array", "Bool", "StringArray"))
_RANGES = {"int32": 2**31, "int64": 2**63}
_ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0}
_LAYOUTS = {"meta.v1.Time": gotimes.SECONDS, "meta.v1.MicroTime": gotimes.MICROSECONDS}
_QUANTITY = re.compile(r"[+-]?[0-9.]+[eEinumkKMGTP]*[-+]?[0-9]*")
_NO_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_NO_SUFFIX = "unable to parse quantity's suffix"


class Misfit(Exception):
    """A value cannot be decoded into its field."""


class Fitted(NamedTuple):
    """An object without what its type does not have, and the paths of that."""

    obj: JsonObject
    unknown: list[str]


def fitted(kind: Kind, obj: JsonObject, *, merged: bool = False) -> Fitted:
    """Return `obj` as the server understands it. Parts of it may be `Pairs`.

    What a strategic merge patch made (`merged`) goes another way in the real server, with words of its own.
    """
    return Fitted(obj, []) if kind.custom else fitted_as(kind.api_version, kind.kind, obj, merged=merged)


def fitted_as(api_version: str, kind: str, obj: JsonObject, *, merged: bool = False) -> Fitted:
    """Return `obj` as the server understands it if it is of that kind; one that is not built in stays as it is."""
    name = gotypes.type_of(api_version, kind)
    if name is None:
        return Fitted(obj, [])
    quick = _quick(name)
    if quick is not None:
        try:
            msgspec.convert(obj, quick, dec_hook=_hook)
        except msgspec.ValidationError:
            pass
        else:
            return Fitted(obj, [])
    walk = _Conversion() if merged else _Walk()
    result = walk.value(obj, name, _Place(name, (), ""))
    if walk.misfit:
        raise Misfit(walk.misfit)
    return Fitted(result, walk.unknown)


def fitted_metadata(meta: Any) -> Fitted:
    """Return the metadata of an object, as far as metadata is known."""
    obj, unknown = fitted_as("v1", "ConfigMap", {"metadata": {} if meta is None else meta})
    return Fitted(obj["metadata"], unknown)


class _Place(NamedTuple):
    """Where a value is: the struct and its fields as Go's errors have them, and the path as strict errors have it."""

    struct: str
    go: tuple[str, ...]
    path: str


class _Walk:
    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.misfit = ""

    def value(self, value: Any, kind: str, at: _Place) -> Any:
        if value is None or kind in _ANYTHING:
            return plain(value)
        if kind in _SPECIAL:
            return self._special(value, kind, at)
        under = gotypes.underlying(kind)
        if under.startswith("[]"):
            return self._list(value, kind, under[2:], at)
        if under.startswith("map["):
            return self._map(value, kind, under.partition("]")[2], at)
        if under in _ZEROS:
            return self._scalar(value, kind, under, at)
        return self._struct(value, kind, at)

    def _misfit(self, what: str, kind: str, at: _Place) -> None:
        if not self.misfit:
            field = f"{at.struct.rpartition('.')[2]}.{'.'.join(at.go)}"
            self.misfit = f"json: cannot unmarshal {what} into Go struct field {field} of type {gotypes.printed(kind)}"

    def _struct(self, value: Any, kind: str, at: _Place) -> Any:
        if not isinstance(value, dict | Pairs):
            return self._misfit(_what(value), kind, at)
        fields = gotypes.fields_of(kind) or {}
        result = {}
        for name, item in self._items(value, at.path):
            field = fields.get(name)
            if field is None:
                self.unknown.append(child(at.path, name))
                continue
            place = _Place(kind, (*at.go, *field.held_by, name), child(at.path, name))
            result[name] = self.value(item, field.type, place)
        return result

    def _items(self, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            yield from value.items()
            return
        seen: set[str] = set()
        for name, item in value:
            if name in seen:
                self.unknown.append(Duplicate(child(path, name)))
            seen.add(name)
            yield name, item

    def _list(self, value: Any, kind: str, item_kind: str, at: _Place) -> Any:
        if item_kind == "uint8":
            return self._bytes(value, kind, at)
        if not isinstance(value, list) or isinstance(value, Pairs):
            return self._misfit(_what(value), kind, at)
        return [
            _zero(item_kind) if item is None else self.value(item, item_kind, at._replace(path=f"{at.path}[{index}]"))
            for index, item in enumerate(value)
        ]

    def _map(self, value: Any, kind: str, item_kind: str, at: _Place) -> Any:
        if not isinstance(value, dict | Pairs):
            return self._misfit(_what(value), kind, at)
        return {
            name: _zero(item_kind)
            if item is None
            else self.value(item, item_kind, at._replace(path=child(at.path, name)))
            for name, item in self._items(value, at.path)
        }

    def _scalar(self, value: Any, kind: str, under: str, at: _Place) -> Any:
        if under == "string":
            fits = isinstance(value, str)
        elif under == "bool":
            fits = isinstance(value, bool)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            fits = False
        elif under != "float64" and not (isinstance(value, int) and -_RANGES[under] <= value < _RANGES[under]):
            return self._misfit(f"number {value}", kind, at)
        else:
            fits = True
        return value if fits else self._misfit(_what(value), kind, at)

    def _bytes(self, value: Any, kind: str, at: _Place) -> Any:
        if not isinstance(value, str):
            return "" if value == [] else self._misfit(_what(value), kind, at)
        problem = base64_problem(value)
        if problem:
            raise Misfit(problem)
        return value

    def _special(self, value: Any, kind: str, at: _Place) -> Any:
        if kind == "resource.Quantity":
            problem = quantity_problem(value)
        elif kind in _LAYOUTS:
            if not isinstance(value, str):
                return self._stop(_what(value), "string", at)
            problem = gotimes.problem(value, _LAYOUTS[kind])
        elif kind == "intstr.IntOrString":
            return value if isinstance(value, str) else self._integer(value, at)
        else:
            return self._schema_or(value, at)
        if problem:
            raise Misfit(problem)
        return value

    def _integer(self, value: Any, at: _Place) -> Any:
        if isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31:
            return value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return self._stop(f"number {value}" if number else _what(value), "int32", at)

    def _stop(self, what: str, kind: str, at: _Place) -> Any:
        self.misfit = ""
        self._misfit(what, kind, at)
        raise Misfit(self.misfit)

    def _schema_or(self, value: Any, at: _Place) -> Any:
        if isinstance(value, dict | Pairs):
            return self._struct(value, _SCHEMA, at)
        if isinstance(value, list):
            return [it if isinstance(it, str) else self.value(it, _SCHEMA, at) for it in value]
        return value


class _Conversion(_Walk):
    """As `runtime.DefaultUnstructuredConverter` does it: field by field in Go's order, until something does not fit."""

    def _misfit(self, what: str, kind: str, at: _Place) -> None:  # noqa: ARG002 - its words do not tell the place
        under = gotypes.underlying(kind)
        held = _GO_KINDS.get(what.partition(" ")[0], "float64" if "." in what else "int64")
        if under.startswith(("[]", "map[")):
            raise Misfit(f"cannot restore {'slice' if under.startswith('[]') else 'map'} from {held}")
        if under not in _ZEROS:
            raise Misfit(f"cannot restore struct from: {held}")
        convertible = (held, under) == ("int64", "string") or (held == "float64" and under.startswith("int"))
        printed = gotypes.printed(kind)
        raise Misfit(f"cannot convert {held} to {printed}" if convertible else f"unrecognized type: {under}")

    def _stop(self, what: str, kind: str, at: _Place) -> Any:  # noqa: ARG002 - as above
        raise Misfit(f"json: cannot unmarshal {what} into Go value of type {kind}")

    def _struct(self, value: Any, kind: str, at: _Place) -> Any:
        if isinstance(value, dict):
            fields = gotypes.fields_of(kind) or {}
            known = {name: value[name] for name in fields if name in value}
            value = known | {name: value[name] for name in sorted(value) if name not in fields}
        return super()._struct(value, kind, at)


_GO_KINDS = {"object": "map", "array": "slice", "string": "string", "bool": "bool"}
_SPECIAL = frozenset({"resource.Quantity", "intstr.IntOrString", *_LAYOUTS, *_SCHEMA_OR})


def plain(value: Any) -> Any:
    """Return a value without `Pairs`: the last of two counts."""
    if isinstance(value, Pairs):
        return {name: plain(item) for name, item in value}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def quantity_problem(value: Any) -> str:
    """Return why `value` is no quantity."""
    text = value.strip() if isinstance(value, str) else ("true" if isinstance(value, bool) else str(value))
    if not _QUANTITY.fullmatch(text):
        return _NO_QUANTITY
    try:
        quantity.parse(text)
    except ValueError:
        return _NO_SUFFIX
    return ""


def base64_problem(text: str) -> str:
    """Return why `text` is not base64, as Go has it: with the place up to which it is."""
    joined = text.replace("\r", "").replace("\n", "")
    try:
        base64.b64decode(joined, validate=True)
    except (binascii.Error, ValueError):
        good = re.match(r"(?:[A-Za-z0-9+/]{4})*", joined)
        at = good.end() if good else 0
        rest = joined[at : at + 4]
        wrong = re.search(r"[^A-Za-z0-9+/]", rest)
        return f"illegal base64 data at input byte {at + (wrong.start() if wrong else 0)}"
    return ""


def _what(value: Any) -> str:
    if isinstance(value, dict | Pairs):
        return "object"
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) else "bool" if isinstance(value, bool) else "number"


def _zero(kind: str) -> Any:
    under = gotypes.underlying(kind)
    if under in _ZEROS:
        return _ZEROS[under]
    return None if under.startswith(("[]", "map[")) or kind in _ANYTHING else "0" if kind in _SPECIAL else {}


# What fits, told quickly


@functools.cache
def _quick(name: str) -> Any:
    """Return a type that msgspec accepts exactly the well-formed objects of; None if there is none."""
    return None if name == "apiextensions.v1.CustomResourceDefinition" else _quick_struct(name)


@functools.cache
def _quick_struct(name: str) -> Any:
    fields = gotypes.fields_of(name) or {}
    return msgspec.defstruct(
        name.replace(".", "_"),
        [(f"f{number}", _quick_type(field.type) | None, None) for number, field in enumerate(fields.values())],
        rename={f"f{number}": field for number, field in enumerate(fields)},
        forbid_unknown_fields=True,
        gc=False,
    )


def _quick_type(kind: str) -> Any:
    if kind in _ANYTHING:
        return Any
    under = gotypes.underlying(kind)
    if under == "[]uint8":
        return bytes
    if under.startswith("[]"):
        return list[_quick_type(under[2:])]  # type: ignore[misc]  # a type made of facts, not of source
    if under.startswith("map["):
        return dict[str, _quick_type(under.partition("]")[2])]  # type: ignore[misc]  # as above
    return _QUICK.get(under) or _quick_struct(under)


class _Quantity:
    """A quantity."""


class _Time:
    """An instant."""


class _MicroTime:
    """An instant with microseconds."""


def _hook(kind: type, value: Any) -> Any:
    """Return something of that type if `value` is one; msgspec wants to have that."""
    if isinstance(value, str):
        return _texted(kind, value)
    if kind is _Quantity and isinstance(value, int) and not isinstance(value, bool):
        return _Quantity()
    raise ValueError("no such text")


@functools.lru_cache(8192)
def _texted(kind: type, text: str) -> Any:
    if kind is _Quantity:
        wrong = quantity_problem(text)
    else:
        wrong = gotimes.problem(text, gotimes.SECONDS if kind is _Time else gotimes.MICROSECONDS)
    if wrong:
        raise ValueError(wrong)
    return kind()


_QUICK: dict[str, Any] = {
    "string": str,
    "bool": bool,
    "int32": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    "int64": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "float64": float,
    "intstr.IntOrString": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | str,
    "resource.Quantity": _Quantity,
    "meta.v1.Time": _Time,
    "meta.v1.MicroTime": _MicroTime,
}
