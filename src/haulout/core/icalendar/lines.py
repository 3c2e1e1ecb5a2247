"""iCalendar as it is written: lines that may be folded, properties with parameters, components inside components.

    DTSTART;TZID=Europe/Berlin:20261224T180000

Nothing here knows what a property means. Reading never raises: what is wrong is noted, with its line, and the reading
goes on, so that a person learns everything at once. A hostile file costs time in proportion to its size, which is
limited to what a ConfigMap can hold, and no recursion. Most of an ordinary file is about attendees, alarms and colours:
properties that nobody asks for are skipped unread.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from haulout.errors import ConfigError, ConfigErrors

MOST_BYTES = 1024 * 1024
_MOST_PROBLEMS = 20
_DEEPEST = 8
_SHOWN = 60

_NAME = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_PARAMETER = re.compile(r';([A-Za-z0-9-]+)=((?:"[^"]*"|[^";:,]*)(?:,(?:"[^"]*"|[^";:,]*))*)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Property:
    """One line: `name;parameters:value`, names in capitals."""

    line: int
    name: str
    parameters: Mapping[str, str]
    value: str

    @property
    def text(self) -> str:
        """The value without escapes."""
        return _ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], self.value)


@dataclass(slots=True)
class Component:
    """What stands between BEGIN and END."""

    name: str
    line: int
    properties: list[Property] = field(default_factory=list)
    parts: list["Component"] = field(default_factory=list)

    def all(self, name: str) -> list[Property]:
        """Return the properties of a name, in the order of the file."""
        return [each for each in self.properties if each.name == name]

    def one(self, name: str) -> Property | None:
        """Return the first property of a name."""
        return next((each for each in self.properties if each.name == name), None)


class Misread(ValueError):
    """What is wrong with the value of a property."""

    def __init__(self, problem: str, where: Property) -> None:
        super().__init__(problem)
        self.where = where


@contextmanager
def reading(line: Property) -> Iterator[None]:
    """Say of which property something is wrong with, if something is."""
    try:
        yield
    except Misread:
        raise
    except ValueError as error:
        raise Misread(str(error), line) from None


class Problems:
    """What is wrong with a file; after some, the rest is not told."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._errors: list[ConfigError] = []

    def add(self, line: int, text: str, *, key: str | None = None) -> None:
        """Note what is wrong in a line."""
        if len(self._errors) < _MOST_PROBLEMS:
            self._errors.append(ConfigError(text, file=self._file, line=line, key=key))

    def of(self, part: "Component", error: ValueError) -> None:
        """Note what is wrong with a component, or with one of its properties."""
        if isinstance(error, Misread):
            self.add(error.where.line, str(error), key=error.where.name)
        else:
            self.add(part.line, str(error), key=part.name)

    def end(self) -> None:
        """Raise what there is."""
        if self._errors:
            raise ConfigErrors(self._errors)


def components(data: bytes, wanted: Collection[str], problems: Problems) -> list[Component]:
    """Return the calendars that a file holds, with the wanted properties."""
    if len(data) > MOST_BYTES:
        problems.add(1, f"expected at most {MOST_BYTES} bytes, found {len(data)}")
        return []
    names = {name.encode() for name in (*wanted, "BEGIN", "END")}
    root = Component("", 0)
    inside = [root]
    for line, written in _unfolded(data):
        name = written.partition(b":")[0].partition(b";")[0].upper()
        if name not in names and name != written.upper():
            continue
        text = _decoded(line, written, problems)
        found = _property(line, text)
        if found is None:
            problems.add(line, f"expected a line such as SUMMARY:Freeze, found {shown(text)}")
            if inside == [root]:
                return []  # it is something else, such as a web page: each of its lines would be wrong
        elif found.name == "BEGIN":
            _begin(found, inside, problems)
        elif found.name == "END":
            _end(found, inside, problems)
        else:
            inside[-1].properties.append(found)
    for open_part in inside[1:]:
        problems.add(open_part.line, f"expected END:{open_part.name} for this; the file seems to be cut off")
    return root.parts


def shown(text: str) -> str:
    """Return a text for a message, however long it is."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _begin(begin: Property, inside: list[Component], problems: Problems) -> None:
    part = Component(begin.value.strip().upper(), begin.line)
    if len(inside) == 1 and part.name != "VCALENDAR":
        problems.add(part.line, f"expected BEGIN:VCALENDAR, found BEGIN:{shown(part.name)}")
    if len(inside) > _DEEPEST:
        problems.add(part.line, f"expected at most {_DEEPEST} components inside each other")
        return
    inside[-1].parts.append(part)
    inside.append(part)


def _end(end: Property, inside: list[Component], problems: Problems) -> None:
    name = end.value.strip().upper()
    if name == inside[-1].name and len(inside) > 1:
        inside.pop()
        return
    expected = f"END:{inside[-1].name}" if inside[-1].name else "BEGIN:VCALENDAR"
    problems.add(end.line, f"expected {expected}, found END:{name}")


def _unfolded(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their numbers. They were folded by bytes, perhaps within a character."""
    folded: list[bytes] = []
    begins = 1
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line[:1] in {b" ", b"\t"} and folded:
            folded.append(line.removesuffix(b"\r")[1:])
            continue
        if whole := b"".join(folded).strip():
            yield begins, whole
        folded, begins = [line.removesuffix(b"\r")], number
    if whole := b"".join(folded).strip():
        yield begins, whole


def _decoded(number: int, line: bytes, problems: Problems) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        problems.add(number, "expected text in UTF-8, found other bytes")
        return line.decode(errors="replace")


def _property(line: int, text: str) -> Property | None:
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
