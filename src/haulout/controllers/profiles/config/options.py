"""Options of plugins: a dataclass declares them, and the configuration reader fills them from a file.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class HasLabel:
        "Passes when the node has a label."

        key: str = option("the label's key")                      # required, since it has no default
        value: str = option("its value; any, if empty", default="")

        def problems(self) -> Iterator[tuple[str, str]]:          # optional: checks that need the values
            if " " in self.key:
                yield "key", "expected a key without blanks"

Fields may be `str`, `int`, `float`, `bool`, `timedelta`, an enum of texts or `Literal`, another such dataclass, a
`tuple[…, ...]` or `Mapping[str, …]` of these, `Any` for plain values, and each of them `| None`. A field of another
type has a `TextFormat`, which parses its value from a text. The key in the file is the field's name in camelCase, or
`key=`.

Values are converted as the SAP maintenance-controller converts them (`coercion`), including single values to lists.
"Required" has the meaning that it has there: not empty, not zero. An unknown key is a warning. All errors are reported
at once. What `warnings()` and `template_problems()` yield, in the same form as `problems()`, are warnings, since the Go
controller would not notice them.

`secret_option` declares options that must not be shown: tokens, passwords, and URLs to which anyone who knows them can
post. `parse_problems` validates options whose text has a format, for `Plugin.problems`.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Final, Literal

from haulout.core.yaml_decoder import TextFormat

_METADATA: Final = "haulout.option"


class OptionKind(enum.Enum):
    """Kinds of fields that the reader does not convert by their type."""

    REST = "all keys that no other field has, as plain values"
    RAW = "the value as it was read, for a reader of its own"


REST = OptionKind.REST
RAW = OptionKind.RAW


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meta:
    """The arguments of `option` for a field."""

    description: str
    required: bool
    key: str | None
    kind: TextFormat | OptionKind | None


def option(
    description: str,
    *,
    default: Any = MISSING,
    required: bool | None = None,
    key: str | None = None,
    kind: TextFormat | OptionKind | None = None,
) -> Any:
    """Return a dataclass field that is an option; it is required if it has no default."""
    is_required = default is MISSING if required is None else required
    metadata = {_METADATA: _Meta(description=description, required=is_required, key=key, kind=kind)}
    if isinstance(default, dict):
        # A dict as a default value would be shared by all instances, and dataclasses refuse it.
        return dataclasses.field(default_factory=lambda: dict(default), kw_only=True, metadata=metadata)
    return dataclasses.field(default=default, kw_only=True, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a class, with all its metadata."""

    field: str  # name in Python
    key: str  # name in files
    description: str
    required: bool
    default: Any  # MISSING: none
    type: Any  # without None
    optional: bool  # whether None is allowed
    kind: TextFormat | OptionKind | None


def options_of(cls: type) -> tuple[Option, ...]:
    """Return the options of a dataclass, in the order of its fields."""
    return _options_of(cls)


@cache
def _options_of(cls: type) -> tuple[Option, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(
        _option(field, field.metadata[_METADATA], hints[field.name])
        for field in dataclasses.fields(cls)
        if _METADATA in field.metadata
    )


def _option(field: dataclasses.Field[Any], meta: _Meta, hint: Any) -> Option:
    parts = typing.get_args(hint) if typing.get_origin(hint) in {types.UnionType, typing.Union} else (hint,)
    wanted = [part for part in parts if part is not type(None)]
    if len(wanted) != 1 and meta.kind is None:
        raise TypeError(f"option {field.name}: one type is expected, or a Form that makes the value")
    return Option(
        field=field.name,
        key=meta.key or _camel_case(field.name),
        description=meta.description,
        required=meta.required,
        default=field.default if field.default_factory is MISSING else field.default_factory(),
        type=wanted[0],
        optional=len(wanted) < len(parts),
        kind=meta.kind,
    )


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def item_type(kind: Any) -> Any:
    """Return the type of the items of a tuple type; None for other types."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else None


def value_type(kind: Any) -> Any:
    """Return the type of the values of a mapping type; None for other types."""
    is_mapping = typing.get_origin(kind) in {dict, Mapping}
    return typing.get_args(kind)[1] if is_mapping else (Any if kind in {dict, Mapping} else None)


def choices(kind: Any) -> dict[str, Any] | None:
    """Return the texts that an enum or a Literal allows, with their values; None for other types."""
    if typing.get_origin(kind) is Literal:
        return {str(value): value for value in typing.get_args(kind)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {str(member.value): member for member in kind}
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRow:
    """One row of the generated reference of a plugin: docs/reference/plugins.md."""

    key: str
    kind: str
    required: bool
    default: str
    description: str


def describe(cls: type, *, below: str = "") -> Iterator[OptionRow]:
    """Yield a row for each option of a class, including those of nested classes."""
    for each in options_of(cls):
        name = f"{below}{each.key}"
        default = "" if each.default in (MISSING, None) or each.required else _format_default(each.default)
        yield OptionRow(
            key=name, kind=_type_text(each), required=each.required, default=default, description=each.description
        )
        inner = item_type(each.type) or each.type
        if dataclasses.is_dataclass(inner) and each.kind is None:
            yield from describe(typing.cast("type", inner), below=f"{name}{'[]' if item_type(each.type) else ''}.")


def schema(cls: type) -> dict[str, Any]:
    """Return the JSON schema of a class, for editors. It allows values that are converted, and `${…}` everywhere."""
    options = options_of(cls)
    properties = {each.key: {**_schema_of(each), "description": each.description} for each in options}
    result: dict[str, Any] = {"type": ["object", "null"], "properties": properties}
    # A required boolean that is missing is false, as in Go.
    required = [each.key for each in options if each.required and each.type is not bool]
    if required:
        result |= {"type": "object", "required": required}
    if any(each.kind is REST for each in options):
        properties.pop(next(each.key for each in options if each.kind is REST))
    elif prose := (cls.__doc__ or "").strip():
        result["description"] = prose
    return result


_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": ["string", "number", "boolean"]},
    int: {"type": ["integer", "string"]},
    float: {"type": ["number", "string"]},
    bool: {"type": ["boolean", "string"]},
    timedelta: {"type": ["string", "number"]},
}
_NAMES: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    timedelta: "duration",
}


def _schema_of(each: Option) -> dict[str, Any]:
    if isinstance(each.kind, OptionKind):
        return {}
    found = _schema_for(each.type, formed=each.kind is not None)
    if each.optional or not each.required:
        return {"anyOf": [found, {"type": "null"}]}
    return found


def _schema_for(kind: Any, *, formed: bool) -> dict[str, Any]:
    if item := item_type(kind):
        items = _schema_for(item, formed=formed)
        return {"anyOf": [{"type": "array", "items": items}, items]}
    if formed:
        return _SCHEMAS[str]
    if value := value_type(kind):
        return {"type": "object", "additionalProperties": _schema_for(value, formed=False)}
    if texts := choices(kind):
        return {"enum": list(texts)}
    if dataclasses.is_dataclass(kind):
        return schema(typing.cast("type", kind))
    return _SCHEMAS.get(kind, {})


def _type_text(each: Option) -> str:
    if isinstance(each.kind, OptionKind):
        return "anything"
    item = item_type(each.type)
    named = each.kind.expected if each.kind else _type_name(item or each.type)
    return f"list of {named}" if item else named


def _type_name(kind: Any) -> str:
    if texts := choices(kind):
        return ", ".join(texts)
    if value_type(kind) or dataclasses.is_dataclass(kind):
        return "mapping"
    return _NAMES.get(kind, "anything")


def _format_default(default: Any) -> str:
    # Imported late: only generated pages need it, and every plugin imports this module.
    from haulout.core import duration

    match default:
        case bool():
            return "true" if default else "false"
        case timedelta():
            return duration.format(default)
        case enum.Enum():
            return str(default.value)
        case tuple() | list():
            return ", ".join(map(_format_default, default))
    return str(default)


def secret_option(description: str, **kwargs: Any) -> Any:
    """Return an option, as `option` does, that is excluded from `repr`, so that no log and no error shows it."""
    field = option(description, **kwargs)
    field.repr = False
    return field


def parse_problems(key: str, text: str, read: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    """Yield the message of the ValueError that `read` raises for a text, if any."""
    try:
        read(text)
    except ValueError as error:
        yield key, str(error)


def parse_problems_each(key: str, texts: Iterable[str], read: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    for number, text in enumerate(texts):
        yield from parse_problems(f"{key}[{number}]", text, read)
