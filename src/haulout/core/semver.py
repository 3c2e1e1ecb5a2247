"""Semantic Versioning 2.0: `1.4.0`, `2.0.0-rc.1+build.5`.

Parsing is strict, as in other systems: three numbers without leading zeros, no `v` prefix, no omitted parts. Versions
are ordered by precedence: a pre-release comes before its release, and build metadata is ignored.
"""

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

_NUMBER = r"0|[1-9][0-9]*"
_ALPHANUMERIC = r"[0-9]*[A-Za-z-][0-9A-Za-z-]*"
_SHAPE = re.compile(
    rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    rf"(?:-(?P<pre>(?:{_NUMBER}|{_ALPHANUMERIC})(?:\.(?:{_NUMBER}|{_ALPHANUMERIC}))*))?"
    r"(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_MAX_NUMBER = 2**64 - 1  # the largest number that other systems can parse


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A version. Versions that differ only in build metadata are equal."""

    major: int
    minor: int
    patch: int
    pre: tuple[int | str, ...] = ()
    build: str = ""

    @property
    def _precedence(self) -> tuple[Any, ...]:
        # A number sorts before a word, and fewer parts before more. A release has none and sorts last.
        pre = tuple((isinstance(part, str), part) for part in self.pre)
        return self.major, self.minor, self.patch, not pre, pre

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._precedence == other._precedence

    def __lt__(self, other: "Version") -> bool:
        return self._precedence < other._precedence

    def __hash__(self) -> int:
        return hash(self._precedence)

    def __str__(self) -> str:
        pre = f"-{'.'.join(map(str, self.pre))}" if self.pre else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}{f'+{self.build}' if self.build else ''}"


def parse(text: str) -> Version:
    """Parse a version. Raise ValueError if it is not exactly as the specification demands."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no semantic version such as 1.4.0 or 2.0.0-rc.1")
    pre = tuple(int(part) if part.isdecimal() else part for part in (match["pre"] or "").split(".") if part)
    major, minor, patch = (int(match[name]) for name in ("major", "minor", "patch"))
    if max(major, minor, patch, *(part for part in pre if isinstance(part, int))) > _MAX_NUMBER:
        raise ValueError(f"{text!r} has a number that is larger than {_MAX_NUMBER}")
    return Version(major, minor, patch, pre, match["build"] or "")
