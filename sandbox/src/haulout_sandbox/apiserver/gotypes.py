"""The Go types of the real server: what the built-in kinds are decoded into, and what errors print.

`gotypes.json` is written by `tests/controlplane/gotypes.py`. A type is noted as Go writes it, with the full names of
the types that it is made of, pointers left out: `[]core.v1.Container`, `map[string]string`.

    kinds       "v1 Pod": the name of its type
    types       a struct: {name in JSON: type}; in front of the type stands what is embedded to hold the field, if
                anything is; any other named type: what it is ("core.v1.RestartPolicy": "string")
    internal    what validation works on: a struct is a list of "GoName nameInJson type", with pointers, in Go's order
"""

import functools
from importlib import resources
from typing import NamedTuple

import msgspec

_SCALARS = frozenset({"string", "bool", "int32", "int64", "float64"})


class Field(NamedTuple):
    """A field of a struct: its type, and the names of the structs embedded on the way to it."""

    type: str
    held_by: tuple[str, ...]


class _Facts(msgspec.Struct):
    kinds: dict[str, str]
    types: dict[str, dict[str, str] | str]
    internal: dict[str, list[str] | str]


@functools.cache
def facts() -> _Facts:
    """Return everything that is known."""
    return msgspec.json.decode(resources.files(__package__).joinpath("gotypes.json").read_bytes(), type=_Facts)


def type_of(api_version: str, kind: str) -> str | None:
    """Return the name of the type of a built-in kind."""
    return facts().kinds.get(f"{api_version} {kind}")


@functools.cache
def fields_of(name: str) -> dict[str, Field] | None:
    """Return the fields of a struct by their names in JSON; None for a type that is not a struct."""
    told = facts().types.get(name)
    return {field: _field(text) for field, text in told.items()} if isinstance(told, dict) else None


def _field(text: str) -> Field:
    held_by, _, kind = text.rpartition(" ")
    return Field(kind, tuple(held_by.split(".")) if held_by else ())


@functools.cache
def underlying(name: str) -> str:
    """Return what a named type is in the end; a struct is itself."""
    told = facts().types.get(name)
    return underlying(told) if isinstance(told, str) else name


@functools.cache
def printed(name: str) -> str:
    """Return a type as Go prints it: only the last part of a package's name is shown."""
    if name.startswith("[]"):
        return f"[]{printed(name[2:])}"
    if name.startswith("map["):
        key, _, value = name[4:].partition("]")
        return f"map[{printed(key)}]{printed(value)}"
    return name if name in _SCALARS else ".".join(name.split(".")[-2:])
