"""YAML as the SAP maintenance-controller parses it, with the position of every key and value.

    document = goyaml.parse(data, file="maintenance.yaml")
    document.root            # Mapping(entries={"intervals": Entry(...), …})

That controller uses Go's yaml.v2, which differs from PyYAML in ways that change the meaning of a file: `11:00` is text
and not 660, `y` is true, `1e3` is a number, a date is text. Of duplicate keys the last one counts, and the same holds
for a `<<` merge: unlike in other parsers, a merge after a key overrides that key. All this is preserved, because files
rely on it; probable mistakes are reported as warnings.

A value has its line and column (both from 1). Keys are texts: `yes:` and `5:` are errors, as in Go.
"""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from haulout.compat import goliterals
from haulout.core import yaml_nodes
from haulout.errors import ConfigError, ConfigErrors

Plain = None | bool | int | float | str

_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"
# Values that aliases may expand to: alias_ratio_range_low in decode.go of yaml.v2. Nested aliases grow exponentially.
_MAX_VALUES = 400_000

_CONSTANTS: dict[str, Plain] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys([".nan", ".NaN", ".NAN"], float("nan")),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"], float("inf")),
    **dict.fromkeys(["-.inf", "-.Inf", "-.INF"], float("-inf")),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})?)?")
_TYPED = {"bool": bool, "int": int, "float": float, "null": type(None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value and its position in the file, which error messages name."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar(Value):
    """A scalar and its text: `value` is 8 where `written` is `010`."""

    value: Plain
    written: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence(Value):
    """A list, in block style or in brackets."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key, its position, and its value."""

    name: str
    line: int
    column: int
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping(Value):
    """A mapping of keys to values, after merges; the keys keep their order."""

    entries: dict[str, Entry]

    def get(self, name: str) -> Value | None:
        entry = self.entries.get(name)
        return entry.value if entry else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The content of a file, and its probable mistakes."""

    root: Value | None  # None: the file is empty
    warnings: tuple[ConfigError, ...]


def parse(data: bytes, *, file: str) -> Document:
    """Return the first document in `data`. Raise `ConfigErrors` with all its errors."""
    text = ""
    try:
        text = yaml_nodes.decode_text(data, file=file)
        events = yaml_nodes.first_document_events(text, file=file)
        builder = _Builder(events, file)
        root = builder.document()
    except yaml.YAMLError as error:
        raise ConfigErrors([yaml_nodes.parse_error(error, text, file=file)]) from None
    except ConfigError as error:
        raise ConfigErrors([error]) from None
    if builder.errors:
        raise ConfigErrors(builder.errors)
    is_nothing = isinstance(root, Scalar) and root.value is None
    return Document(root=None if is_nothing else root, warnings=tuple(builder.warnings))


def describe(value: Value) -> str:
    """Return a description of a value for users."""
    if isinstance(value, Mapping | Sequence):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    match value:
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=str(text)):
            return f"the text {shorten(text)!r}"
        case Scalar(value=bool()):
            return f"{shorten(value.written)} (true or false)"
        case Scalar():
            return f"the number {shorten(value.written)}"
    return "something else"


def format_scalar(value: Plain) -> str:
    """Return a scalar as text, as Go writes it: `true`, `8`, `1e+06`, `null`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return goliterals.format_float(value)
    return str(value)


def shorten(text: str, *, limit: int = 60) -> str:
    """Return a text, shortened if it is long."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def path(key: str, name: str) -> str:
    """Return the path of a key below `key`: `intervals.requeue`."""
    return f"{key}.{name}" if key else name


def resolve(text: str) -> Plain:
    """Return the value of an unquoted scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] == ".":
        number = goliterals.parse_float(text)
        return text if number is None else number
    if text[0] not in "+-0123456789":
        return text
    bare = text.replace("_", "")
    whole = goliterals.parse_int(bare)
    if whole is not None:
        return whole
    number = goliterals.parse_float(bare) if _FLOAT.fullmatch(bare) else None
    return text if number is None else number


class _TagMismatch(ValueError):
    """A value does not match its tag."""


class _Builder:
    """Builds values from a parser's events, and collects errors. The value of an anchor is built once."""

    def __init__(self, events: Iterator[yaml.Event], file: str) -> None:
        self.errors: list[ConfigError] = []
        self.warnings: list[ConfigError] = []
        self._events = events
        self._file = file
        self._anchors: dict[str, Value | None] = {}  # None: the parser is inside this anchor
        self._written = 0
        self._sizes: dict[int, int] = {}

    def document(self) -> Value | None:
        """Return the value of the document; None if it is empty."""
        for event in self._events:
            if isinstance(event, yaml.NodeEvent):
                root = self._value(event, "")
                if not self.errors and self._size(root) > self._written + _MAX_VALUES:
                    self._add_error(event, "", f"expected aliases for at most {_MAX_VALUES} values, found more")
                return root
        return None

    def _value(self, event: yaml.Event, key: str) -> Value:
        self._written += 1
        if isinstance(event, yaml.AliasEvent):
            return self._alias_value(event, key)
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        if anchor:
            self._anchors[anchor] = None
        value = self._build(event, key)
        if anchor:
            self._anchors[anchor] = value
        return value

    def _alias_value(self, event: yaml.AliasEvent, key: str) -> Value:
        value = self._anchors.get(event.anchor or "")
        if value is not None:
            return value
        if event.anchor in self._anchors:
            self._add_error(
                event, key, f"expected a value that does not contain itself, found *{event.anchor} inside it"
            )
        else:
            self._add_error(
                event, key, f"expected an alias to something above, found *{event.anchor}, which is not defined"
            )
        return _scalar(event, None)

    def _build(self, event: yaml.Event, key: str) -> Value:
        line, column = _position(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(line=line, column=column, items=tuple(self._items(key)))
        if isinstance(event, yaml.MappingStartEvent):
            return Mapping(line=line, column=column, entries=self._entries(key))
        try:
            return _scalar(event, _typed(event) if isinstance(event, yaml.ScalarEvent) else None)
        except _TagMismatch as error:
            self._add_error(event, key, str(error))
            return _scalar(event, None)

    def _items(self, key: str) -> Iterator[Value]:
        for at, event in enumerate(self._events):
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._value(event, f"{key}[{at}]")

    def _entries(self, key: str) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        lines_by_name: dict[str, int] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            if _is_merge(event):
                self._merge(entries, next(self._events), path(key, _MERGE))
                continue
            name = self._name(event, key)
            value = self._value(next(self._events), path(key, "?" if name is None else name))
            if name is None:
                continue
            line, column = _position(event)
            if name in lines_by_name:
                problem = f"expected it once, found it in line {lines_by_name[name]} too; the one in line {line} counts"
                self.warnings.append(ConfigError(problem, file=self._file, line=line, key=path(key, name)))
            lines_by_name[name] = line
            entries[name] = Entry(name=name, line=line, column=column, value=value)
        return entries

    def _name(self, event: yaml.Event, key: str) -> str | None:
        known = len(self.errors)
        name = self._value(event, key)
        if isinstance(name, Scalar) and isinstance(name.value, str):
            return name.value
        if len(self.errors) == known:
            hint = f"; if it is meant, put it in quotes: '{name.written}'" if isinstance(name, Scalar) else ""
            self._add_error(event, key, f"expected a text as key, found {describe(name)}{hint}")
        return None

    def _merge(self, entries: dict[str, Entry], event: yaml.Event, key: str) -> None:
        value = self._value(event, key)
        is_list = isinstance(event, yaml.SequenceStartEvent)  # a list itself, not an alias to one
        # The first item of a list has the highest priority, so it is applied last.
        for each in reversed(value.items) if is_list and isinstance(value, Sequence) else [value]:
            if isinstance(each, Mapping):
                entries |= each.entries
            else:
                self._add_error(
                    event, key, f"expected a mapping or a list of mappings to merge, found {describe(each)}"
                )

    def _size(self, value: Value) -> int:
        # The number of values after all aliases are expanded.
        if id(value) in self._sizes:
            return self._sizes[id(value)]
        inside: list[Value] = []
        if isinstance(value, Sequence):
            inside = list(value.items)
        elif isinstance(value, Mapping):
            inside = [entry.value for entry in value.entries.values()]
        self._sizes[id(value)] = 1 + sum(map(self._size, inside))
        return self._sizes[id(value)]

    def _add_error(self, event: yaml.Event, key: str, problem: str) -> None:
        line, _ = _position(event)
        self.errors.append(ConfigError(problem, file=self._file, line=line, key=key or None))


def _position(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _scalar(event: yaml.Event, value: Plain) -> Scalar:
    line, column = _position(event)
    written = event.value if isinstance(event, yaml.ScalarEvent) else ""
    return Scalar(line=line, column=column, value=value, written=written)


def _is_merge(event: yaml.Event) -> bool:
    if not isinstance(event, yaml.ScalarEvent) or event.value != _MERGE:
        return False
    is_bare, _ = event.implicit
    return is_bare or event.tag == f"{_TAG}merge"


def _typed(event: yaml.ScalarEvent) -> Plain:
    text = str(event.value)
    if event.tag is None:
        is_bare, _ = event.implicit
        return resolve(text) if is_bare else text
    kind = str(event.tag).removeprefix(_TAG)
    if kind == "binary":
        return _binary(text)
    if kind == "timestamp":
        if _DATE.fullmatch(text):
            return text
        raise _TagMismatch(f"expected a date and time, as its tag says, found {text!r}")
    if kind not in _TYPED:
        return text  # a text, or an unknown tag, which Go treats as text
    value = resolve(text)
    if kind == "float" and type(value) is int:
        return float(value)
    if type(value) is not _TYPED[kind]:
        raise _TagMismatch(f"expected what its tag !!{kind} says, found {shorten(text)!r}")
    return value


def _binary(text: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode(errors="replace")
    except ValueError:
        raise _TagMismatch("expected base64, as its tag !!binary says") from None
