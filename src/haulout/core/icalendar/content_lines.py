"""The iCalendar syntax: folded lines, properties with parameters, nested components.

    DTSTART;TZID=Europe/Berlin:20261224T180000

This module does not interpret properties. The parser never raises: it records each error with its line and continues,
so that a user sees all errors at once. The time for a hostile file is linear in its size, which is limited to the
maximum of a ConfigMap, and there is no recursion. Most of a typical file is attendees, alarms and colors: properties
that the caller does not need are skipped without parsing.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from haulout.errors import ConfigError, ConfigErrors

MAX_BYTES = 1024 * 1024
_MAX_PROBLEMS = 20
_MAX_DEPTH = 8
_MAX_ABBREVIATED = 60

_NAME = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_PARAMETER = re.compile(r';([A-Za-z0-9-]+)=((?:"[^"]*"|[^";:,]*)(?:,(?:"[^"]*"|[^";:,]*))*)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Property:
    """One line: `name;parameters:value`. Names are in upper case."""

    line: int
    name: str
    parameters: Mapping[str, str]
    value: str

    @property
    def text(self) -> str:
        """Return the value with escapes resolved."""
        return _ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], self.value)


@dataclass(slots=True)
class Component:
    """The content between BEGIN and END."""

    name: str
    line: int
    properties: list[Property] = field(default_factory=list)
    components: list["Component"] = field(default_factory=list)

    def get_all(self, name: str) -> list[Property]:
        """Return the properties with this name, in the order of the file."""
        return [line for line in self.properties if line.name == name]

    def get(self, name: str) -> Property | None:
        """Return the first property with this name."""
        return next((line for line in self.properties if line.name == name), None)


class PropertyError(ValueError):
    """The value of a property is invalid."""

    def __init__(self, problem: str, line: Property) -> None:
        super().__init__(problem)
        self.line = line


@contextmanager
def property_errors(line: Property) -> Iterator[None]:
    """Convert a ValueError in the context to a `PropertyError` of this property."""
    try:
        yield
    except PropertyError:
        raise
    except ValueError as error:
        raise PropertyError(str(error), line) from None


class ErrorCollector:
    """Collects the errors of a file, up to a limit."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._errors: list[ConfigError] = []

    def add(self, line: int, text: str, *, key: str | None = None) -> None:
        """Add an error at a line."""
        if len(self._errors) < _MAX_PROBLEMS:
            self._errors.append(ConfigError(text, file=self._file, line=line, key=key))

    def add_component_error(self, component: "Component", error: ValueError) -> None:
        """Add an error of a component, or of one of its properties."""
        if isinstance(error, PropertyError):
            self.add(error.line.line, str(error), key=error.line.name)
        else:
            self.add(component.line, str(error), key=component.name)

    def raise_if_any(self) -> None:
        """Raise `ConfigErrors` if there are errors."""
        if self._errors:
            raise ConfigErrors(self._errors)


def parse_components(data: bytes, property_names: Collection[str], problems: ErrorCollector) -> list[Component]:
    """Return the calendars of a file, with the given properties only."""
    if len(data) > MAX_BYTES:
        problems.add(1, f"expected at most {MAX_BYTES} bytes, found {len(data)}")
        return []
    names = {name.encode() for name in (*property_names, "BEGIN", "END")}
    root = Component("", 0)
    open_components = [root]
    for line, raw in _unfold(data):
        name = raw.partition(b":")[0].partition(b";")[0].upper()
        if name not in names and name != raw.upper():
            continue
        text = _decode(line, raw, problems)
        line_property = _parse_property(line, text)
        if line_property is None:
            problems.add(line, f"expected a line such as SUMMARY:Freeze, found {abbreviate(text)}")
            if open_components == [root]:
                return []  # another kind of file, such as a web page: every line would be an error
        elif line_property.name == "BEGIN":
            _begin(line_property, open_components, problems)
        elif line_property.name == "END":
            _end(line_property, open_components, problems)
        else:
            open_components[-1].properties.append(line_property)
    for unclosed in open_components[1:]:
        problems.add(unclosed.line, f"expected END:{unclosed.name} for this; the file seems to be cut off")
    return root.components


def abbreviate(text: str) -> str:
    """Return a text for a message, shortened if it is long."""
    return repr(text if len(text) <= _MAX_ABBREVIATED else f"{text[:_MAX_ABBREVIATED]}…")


def _begin(begin: Property, open_components: list[Component], problems: ErrorCollector) -> None:
    component = Component(begin.value.strip().upper(), begin.line)
    if len(open_components) == 1 and component.name != "VCALENDAR":
        problems.add(component.line, f"expected BEGIN:VCALENDAR, found BEGIN:{abbreviate(component.name)}")
    if len(open_components) > _MAX_DEPTH:
        problems.add(component.line, f"expected at most {_MAX_DEPTH} components inside each other")
        return
    open_components[-1].components.append(component)
    open_components.append(component)


def _end(end: Property, open_components: list[Component], problems: ErrorCollector) -> None:
    name = end.value.strip().upper()
    if name == open_components[-1].name and len(open_components) > 1:
        open_components.pop()
        return
    expected = f"END:{open_components[-1].name}" if open_components[-1].name else "BEGIN:VCALENDAR"
    problems.add(end.line, f"expected {expected}, found END:{name}")


def _unfold(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield unfolded lines with their line numbers. Lines may be folded between the bytes of a character."""
    folded: list[bytes] = []
    first_line = 1
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line[:1] in {b" ", b"\t"} and folded:
            folded.append(line.removesuffix(b"\r")[1:])
            continue
        if unfolded := b"".join(folded).strip():
            yield first_line, unfolded
        folded, first_line = [line.removesuffix(b"\r")], number
    if unfolded := b"".join(folded).strip():
        yield first_line, unfolded


def _decode(number: int, line: bytes, problems: ErrorCollector) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        problems.add(number, "expected text in UTF-8, found other bytes")
        return line.decode(errors="replace")


def _parse_property(line: int, text: str) -> Property | None:
    name = _NAME.match(text)
    if name is None:
        return None
    position = name.end()
    parameters: dict[str, str] = {}
    while found := _PARAMETER.match(text, position):
        parameters[found[1].upper()] = found[2].strip('"')
        position = found.end()
    if text[position : position + 1] != ":":
        return None
    return Property(line, name[0].upper(), parameters, text[position + 1 :])
