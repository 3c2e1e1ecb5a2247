"""JSONPath, as printer columns and selectable fields use it: `.spec.nodeName`, `.items[0]`, `[*]`, filters, `..name`.

    find(".status.conditions[?(@.type=='Ready')].status", node)       # ["True"]

Missing keys find nothing, as in the API server's tables. Follows `client-go/util/jsonpath`; unions, ranges of more
than slices and formatting text around a path are not part of what a column can have.
"""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

_NAME = re.compile(r"\.?((?:\\.|[^.\[\]'\"\\])+)")
_RECURSIVE = re.compile(r"\.\.((?:\\.|[^.\[\]\\])+)?")
_INDEX = re.compile(r"\.?\[(-?\d+)\]")
_SLICE = re.compile(r"\.?\[(-?\d*):(-?\d*)(?::(-?\d+))?\]")
_QUOTED = re.compile(r"\.?\[(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\]")
_ALL = re.compile(r"\.?\[\*\]|\.\*")
_FILTER = re.compile(r"\.?\[\?\(")
_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")
_LITERAL = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(-?\d+(?:\.\d+)?)|(true|false)")

Step = Callable[[Iterable[Any]], list[Any]]
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


class JsonPathError(ValueError):
    """A text that is no path."""


def find(path: str, value: Any) -> list[Any]:
    """Return all that `path` leads to."""
    found = [value]
    for step in compiled(path):
        found = step(found)
    return found


@functools.lru_cache(maxsize=1024)
def compiled(path: str) -> tuple[Step, ...]:
    """Return the steps of a path; raise `JsonPathError` for what is none."""
    path = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps, at = [], 0
    while at < len(path) and path[at:] != ".":
        step, at = _step(path, at)
        steps.append(step)
    return tuple(steps)


def _step(path: str, at: int) -> tuple[Step, int]:
    for shape, step in _STEPS:
        if found := shape.match(path, at):
            return step(found), found.end()
    if found := _FILTER.match(path, at):
        return _filter(path, found.end())
    raise JsonPathError(f"unrecognized part of a path: {path[at:]}")


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _named(name: str) -> Step:
    return lambda values: [each[name] for each in values if isinstance(each, dict) and name in each]


def _part(at: int | slice) -> Step:
    def step(values: Iterable[Any]) -> list[Any]:
        lists = [each for each in values if isinstance(each, list)]
        if isinstance(at, slice):
            return [item for each in lists for item in each[at]]
        return [each[at] for each in lists if -len(each) <= at < len(each)]

    return step


def _members(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for each in values:
        if isinstance(each, list):
            found += each
        elif isinstance(each, dict):
            found += [each[name] for name in sorted(each)]
    return found


def _everywhere(name: str | None) -> Step:
    def step(values: Iterable[Any]) -> list[Any]:
        found: list[Any] = []
        for each in values:
            if name is None:
                found.append(each)
            elif isinstance(each, dict) and name in each:
                found.append(each[name])
            found += step(_members([each]))
        return found

    return step


_STEPS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Step]], ...] = (
    (_RECURSIVE, lambda found: _everywhere(_plain(found[1]) if found[1] else None)),
    (_ALL, lambda _: _members),
    (_INDEX, lambda found: _part(int(found[1]))),
    (_SLICE, lambda found: _part(slice(*(int(number) if number else None for number in found.groups())))),
    (_QUOTED, lambda found: _named(_plain(found[1] if found[1] is not None else found[2]))),
    (_NAME, lambda found: _named(_plain(found[1]))),
)


def _filter(path: str, at: int) -> tuple[Step, int]:
    left, at = _operand(path, at)
    comparison = _COMPARISON.match(path, at)
    right: Callable[[Any], list[Any]] | None = None
    if comparison:
        right, at = _operand(path, comparison.end())
    if path[at : at + 2] != ")]":
        raise JsonPathError(f"unterminated filter: {path}")

    def keeps(item: Any) -> bool:
        found = left(item)
        if comparison is None or right is None:
            return bool(found)
        other = right(item)
        if not found or not other:
            return False
        try:
            return _COMPARE[comparison[1]](found[0], other[0])
        except TypeError:
            return False

    return lambda values: [item for item in _members(values) if keeps(item)], at + 2


def _operand(path: str, at: int) -> tuple[Callable[[Any], list[Any]], int]:
    if found := _LITERAL.match(path, at):
        single, double, number, word = found.groups()
        if number is not None:
            value: Any = float(number) if "." in number else int(number)
        else:
            value = word == "true" if word else _plain(single if single is not None else double)
        return lambda _: [value], found.end()
    if path[at : at + 1] != "@":
        raise JsonPathError(f"unrecognized part of a filter: {path[at:]}")
    at, steps = at + 1, []
    while at < len(path) and path[at] in ".[":
        step, at = _filter_step(path, at)
        steps.append(step)
    return lambda item: functools.reduce(lambda found, step: step(found), steps, [item]), at


def _filter_step(path: str, at: int) -> tuple[Step, int]:
    name = re.compile(r"\.([\w-]+)").match(path, at)
    return (_named(name[1]), name.end()) if name else _step(path, at)
