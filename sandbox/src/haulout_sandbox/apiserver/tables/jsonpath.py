r"""JSONPath as printer columns use it: `.spec.nodeName`, `.metadata.labels.example\.com/a`, `.entries[-1:].time`.

    find(".status.conditions[?(@.type=='Ready')].status", node)       # ["True"]

Missing keys find nothing. Filters compare with `==` or `!=`. Any other path finds nothing, too.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

_STEP = re.compile(
    r"""
    \.?\[(?P<index>-?\d+)\]
  | \.?\[(?P<start>-?\d*):(?P<end>-?\d*)\]
  | (?P<all>\.?\[\*\]|\.\*)
  | \.?\[(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)")\]
  | \.?\[\?\(@(?P<operand>[^=!)]+?)\s*(?:(?P<compare>==|!=)\s*(?P<literal>[^)]+?)\s*)?\)\]
  | \.?(?P<name>(?:\\.|[^.\[\]'"\\])+)
    """,
    re.VERBOSE,
)
_LITERALS = {"true": True, "false": False}

Step = Callable[[list[Any]], list[Any]]


def find(path: str, value: Any) -> list[Any]:
    values = [value]
    for step in _compile(path):
        values = step(values)
    return values


@functools.lru_cache(maxsize=1024)
def _compile(path: str) -> tuple[Step, ...]:
    path = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps, position = [], 0
    while position < len(path) and path[position:] != ".":
        match = _STEP.match(path, position)
        if match is None:
            return (lambda _: [],)
        steps.append(_new_step(match))
        position = match.end()
    return tuple(steps)


def _new_step(match: re.Match[str]) -> Step:
    if match["all"]:
        return _members
    if match["index"]:
        index = int(match["index"])
        return lambda values: [
            value[index] for value in values if isinstance(value, list) and -len(value) <= index < len(value)
        ]
    if match["operand"]:
        return _filter(match["operand"], match["compare"], match["literal"])
    if match["start"] is not None:
        item_slice = slice(*(int(value) if value else None for value in (match["start"], match["end"])))
        return lambda values: [item for value in values if isinstance(value, list) for item in value[item_slice]]
    name = match["single"] or match["double"] or re.sub(r"\\(.)", r"\1", match["name"] or "")
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _members(values: list[Any]) -> list[Any]:
    members: list[Any] = []
    for value in values:
        members += value if isinstance(value, list) else value.values() if isinstance(value, dict) else []
    return members


def _filter(operand: str, compare: str | None, literal: str | None) -> Step:
    def keeps(item: Any) -> bool:
        found = find(operand, item)
        if compare is None or literal is None:
            return bool(found)
        return bool(found) and (found[0] == _parse_literal(literal)) is (compare == "==")

    return lambda values: [item for item in _members(values) if keeps(item)]


def _parse_literal(text: str) -> Any:
    if text[0] in "'\"":
        return text[1:-1]
    return _LITERALS[text] if text in _LITERALS else float(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else None
