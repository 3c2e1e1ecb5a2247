"""Decodes YAML files into structs, and reports all errors of a file at once.

    scenario = yaml_decoder.decode(data, Scenario, file="storm.yaml")
    scenario.value.pools[0].name
    raise ConfigErrors([scenario.error_at("pools[0].name", "…")])        # errors that only the caller can detect

A msgspec struct is the schema: fields, types, bounds (`Meta(ge=1)`) and defaults. msgspec's own decoder stops at the
first error and has no line numbers. This one continues, and reports file, line, key, what was found and what was
expected; for an unknown key it suggests the most similar one.

Durations are in Go's notation. A text with a required format has a `TextFormat`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec
import yaml
from msgspec import inspect

from haulout.core import duration, yaml_nodes
from haulout.core.text import closest_match
from haulout.core.yaml_nodes import describe, kind_of, line_of
from haulout.errors import ConfigError, ConfigErrors

T = TypeVar("T", bound=msgspec.Struct)

_INVALID: Any = object()  # result of a value whose error is recorded
_NUMBERS = {"int", "float"}


@dataclass(frozen=True, slots=True)
class TextFormat:
    """The required format of a text.

    `check` raises a ValueError with the problem. With `accepts_numbers`, numbers are accepted as text.
    """

    expected: str
    check: Callable[[str], object]
    accepts_numbers: bool = False

    @property
    def meta(self) -> msgspec.Meta:
        """The metadata to put into `Annotated`, where the decoder finds this format."""
        return msgspec.Meta(extra={"form": self})


@dataclass(frozen=True, slots=True)
class DecodedFile(Generic[T]):
    """The decoded content of a file, with line numbers."""

    value: T
    file: str
    lines: Mapping[str, int]  # by key, such as `pools[0].name`

    def error_at(self, key: str, problem: str) -> ConfigError:
        """Return an error about the value at `key`, or about its nearest parent."""
        return ConfigError(problem, file=self.file, line=yaml_nodes.line_at(self.lines, key), key=key)


def decode(data: bytes, type_: type[T], *, file: str) -> DecodedFile[T]:
    """Decode `data` as a `type_`. Raise `ConfigErrors` with all errors."""
    nothing = yaml.MappingNode("tag:yaml.org,2002:map", [], start_mark=yaml.Mark(file, 0, 0, 0, "", 0))
    decoder = _Decoder(file)
    value = decoder.value(yaml_nodes.compose_first(data, file=file) or nothing, inspect.type_info(type_), "")
    if decoder.problems:
        raise ConfigErrors(decoder.problems)
    return DecodedFile(value, file, decoder.lines)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the most similar name; empty if there is none."""
    suggestion = closest_match(name, known)
    return f"; did you mean {suggestion}?" if suggestion else ""


def join_with_or(names: Sequence[str]) -> str:
    """Return names as text: `a, b or c`."""
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


class _Decoder:
    """Decodes one file, and collects its errors."""

    def __init__(self, file: str) -> None:
        self.problems: list[ConfigError] = []
        self.lines: dict[str, int] = {}
        self._file = file
        self._entries_of: dict[int, dict[str, yaml.Node]] = {}
        self._open_nodes: list[yaml.Node] = []  # detects aliases that contain themselves

    def value(self, node: yaml.Node, kind: inspect.Type, key: str) -> Any:
        """Return the value of `node`, or `_INVALID`."""
        if key:
            self.lines[key] = line_of(node)
        if any(node is each for each in self._open_nodes):
            return self._add_error(node, key, "expected a value that does not contain itself")
        self._open_nodes.append(node)
        try:
            return self._value(node, kind, key)
        finally:
            self._open_nodes.pop()

    def _value(self, node: yaml.Node, kind: inspect.Type, key: str) -> Any:  # noqa: PLR0911 - one line for each kind
        match kind:
            case inspect.UnionType():
                return self._union(node, kind, key)
            case inspect.StructType():
                return self._struct(node, kind, key)
            case inspect.DictType():
                return self._mapping(node, kind, key)
            case inspect.VarTupleType():
                return self._list(node, kind, key)
            case inspect.AnyType():
                return self._plain_value(node, key)
            case inspect.Metadata():
                return self._formatted_text(node, _text_format(kind), key)
            case _:
                return self._scalar(node, kind, key)

    def _union(self, node: yaml.Node, union: inspect.UnionType, key: str) -> Any:
        types = [each for each in union.types if not isinstance(each, inspect.NoneType)]
        if kind_of(node) == "null" and len(types) < len(union.types):
            return None
        matching_types = [each for each in types if _matches(node, each)]
        if not matching_types and len(types) > 1:
            return self._unexpected(node, key, " or ".join(_expected(each) for each in types))
        return self._value(node, (matching_types or types)[0], key)

    def _struct(self, node: yaml.Node, struct: inspect.StructType, key: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._unexpected(node, key, _expected(struct))
        fields = {field.encode_name: field for field in struct.fields}
        # A struct is made only if none of its values is invalid. Its own validation must not see `_INVALID`.
        known = len(self.problems)
        values: dict[str, Any] = {}
        for name, value in self._entries(node, key).items():
            path = _path(key, name)
            if name not in fields:
                self._add_error(
                    value, path, f"there is no such key{did_you_mean(name, fields) or _known_fields(fields)}"
                )
            elif kind_of(value) != "null":
                values[fields[name].name] = self.value(value, fields[name].type, path)
        for field in struct.fields:
            if field.required and field.name not in values:
                self._add_error(node, _path(key, field.encode_name), f"expected {_expected(field.type)}, found nothing")
        return struct.cls(**values) if len(self.problems) == known else _INVALID

    def _mapping(self, node: yaml.Node, mapping: inspect.DictType, key: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._unexpected(node, key, _expected(mapping))
        return {
            name: self.value(value, mapping.value_type, _path(key, name))
            for name, value in self._entries(node, key).items()
        }

    def _entries(self, node: yaml.MappingNode, key: str) -> dict[str, yaml.Node]:
        if id(node) in self._entries_of:  # an alias: merged keys are already in its node, and would count as duplicates
            return self._entries_of[id(node)]
        entries = self._entries_of.setdefault(id(node), {})
        own_keys = {id(name) for name, _ in node.value}  # those in the mapping itself, not merged into it
        found_keys: set[str] = set()
        for name, value in yaml_nodes.entries_of(node):
            text = str(name.value) if isinstance(name, yaml.ScalarNode) else ""
            if id(name) in own_keys and text in found_keys:
                before = line_of(entries[text])
                self._add_error(name, _path(key, text), f"expected it once, found it in line {before} too")
            found_keys |= {text} if id(name) in own_keys else set()
            entries[text] = value
        return entries

    def _list(self, node: yaml.Node, items: inspect.VarTupleType, key: str) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            return self._unexpected(node, key, _expected(items))
        return tuple(self.value(each, items.item_type, f"{key}[{at}]") for at, each in enumerate(node.value))

    def _plain_value(self, node: yaml.Node, key: str) -> Any:
        try:
            return yaml_nodes.to_plain(node)
        except (yaml.YAMLError, ValueError) as error:
            return self._add_error(node, key, f"expected plain values: {' '.join(str(error).split())}")

    def _scalar(self, node: yaml.Node, kind: inspect.Type, key: str) -> Any:
        if not isinstance(node, yaml.ScalarNode) or not _matches(node, kind):
            hint = yaml_nodes.quotes_hint(node) if isinstance(kind, inspect.StrType) else ""
            return self._unexpected(node, key, _expected(kind), hint)
        match kind:
            case inspect.TimeDeltaType():
                return self._duration(node, key)
            case inspect.LiteralType() if node.value not in kind.values:
                hint = did_you_mean(str(node.value), map(str, kind.values))
                return self._add_error(node, key, f"expected {_expected(kind)}, found {str(node.value)!r}{hint}")
            case inspect.StrType() | inspect.LiteralType():
                return str(node.value)
        value = yaml_nodes.to_plain(node)
        if isinstance(kind, inspect.IntType | inspect.FloatType) and not _is_within_bounds(value, kind):
            return self._add_error(node, key, f"expected {_expected(kind)}, found {node.value}")
        return value

    def _duration(self, node: yaml.ScalarNode, key: str) -> Any:
        try:
            length = duration.parse(str(node.value))
        except duration.DurationError as error:
            return self._add_error(node, key, f"expected a duration such as 90s, 5m or 1h30m: {error.problem}")
        if length < timedelta():
            return self._add_error(node, key, f"expected a duration that is not negative, found {node.value}")
        return length

    def _formatted_text(self, node: yaml.Node, text_format: TextFormat, key: str) -> Any:
        readable = yaml_nodes.TEXT_KINDS | (_NUMBERS if text_format.accepts_numbers else set())
        if not isinstance(node, yaml.ScalarNode) or kind_of(node) not in readable:
            return self._unexpected(node, key, text_format.expected, yaml_nodes.quotes_hint(node))
        try:
            text_format.check(str(node.value))
        except ValueError as error:
            reason = f" ({error})" if str(error) else ""
            return self._add_error(node, key, f"expected {text_format.expected}, found {str(node.value)!r}{reason}")
        return str(node.value)

    def _unexpected(self, node: yaml.Node, key: str, expected: str, hint: str = "") -> Any:
        return self._add_error(node, key, f"expected {expected}, found {describe(node)}{hint}")

    def _add_error(self, node: yaml.Node, key: str, problem: str) -> Any:
        self.problems.append(ConfigError(problem, file=self._file, line=line_of(node), key=key or None))
        return _INVALID


def _path(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _known_fields(fields: Iterable[str]) -> str:
    return f"; there are {', '.join(fields)}"


@dataclass(frozen=True, slots=True)
class _TypeDescription:
    """The name of a type in messages, and the YAML kinds that it accepts."""

    name: str
    yaml_kinds: frozenset[str]


_TEXT_DESCRIPTION = _TypeDescription("text", frozenset(yaml_nodes.TEXT_KINDS))
_TYPE_DESCRIPTIONS: dict[type[inspect.Type], _TypeDescription] = {
    inspect.StructType: _TypeDescription("a mapping", frozenset({"map"})),
    inspect.DictType: _TypeDescription("a mapping", frozenset({"map"})),
    inspect.VarTupleType: _TypeDescription("a list", frozenset({"seq"})),
    inspect.IntType: _TypeDescription("a whole number", frozenset({"int"})),
    inspect.FloatType: _TypeDescription("a number", frozenset(_NUMBERS)),
    inspect.BoolType: _TypeDescription("true or false", frozenset({"bool"})),
    inspect.TimeDeltaType: _TypeDescription(
        "a duration such as 90s, 5m or 1h30m", frozenset({*yaml_nodes.TEXT_KINDS, *_NUMBERS})
    ),
}


def _text_format(kind: inspect.Metadata) -> TextFormat:
    text_format: TextFormat = (kind.extra or {})["form"]
    return text_format


def _matches(node: yaml.Node, kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return kind_of(node) in yaml_nodes.TEXT_KINDS or (
            _text_format(kind).accepts_numbers and kind_of(node) in _NUMBERS
        )
    return kind_of(node) in _TYPE_DESCRIPTIONS.get(type(kind), _TEXT_DESCRIPTION).yaml_kinds


def _expected(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType():
            return " or ".join(_expected(each) for each in kind.types if not isinstance(each, inspect.NoneType))
        case inspect.LiteralType():
            return join_with_or([str(value) for value in kind.values])
        case inspect.Metadata():
            return _text_format(kind).expected
        case inspect.IntType() | inspect.FloatType():
            return f"{_TYPE_DESCRIPTIONS[type(kind)].name}{_bounds(kind)}"
    return _TYPE_DESCRIPTIONS.get(type(kind), _TEXT_DESCRIPTION).name


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge:g} to {kind.le:g}"
    return f" of at least {kind.ge:g}" if kind.ge is not None else ""


def _is_within_bounds(value: float, kind: inspect.IntType | inspect.FloatType) -> bool:
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)
