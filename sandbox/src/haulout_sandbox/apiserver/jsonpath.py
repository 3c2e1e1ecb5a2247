r"""JSONPath, as printer columns use it: `.spec.nodeName`, `.metadata.labels.example\.com/a`, `.entries[-1:].time`.

    find(".status.conditions[?(@.type=='Ready')].status", node)       # ["True"]

Missing keys find nothing. Filters compare with `==` or `!=`; a path that is none of these finds nothing, too.
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
_WORDS = {"true": True, "false": False}

Step = Callable[[list[Any]], list[Any]]


def find(path: str, value: Any) -> list[Any]:
    """Return all that `path` leads to."""
    found = [value]
    for step in _compiled(path):
        found = step(found)
    return found


@functools.lru_cache(maxsize=1024)
def _compiled(path: str) -> tuple[Step, ...]:
    path = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps, at = [], 0
    while at < len(path) and path[at:] != ".":
        found = _STEP.match(path, at)
        if found is None:
            return (lambda _: [],)
        steps.append(_step(found))
        at = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["all"]:
        return _members
    if found["index"]:
        at = int(found["index"])
        return lambda values: [it[at] for it in values if isinstance(it, list) and -len(it) <= at < len(it)]
    if found["operand"]:
        return _filter(found["operand"], found["compare"], found["literal"])
    if found["start"] is not None:
        part = slice(*(int(it) if it else None for it in (found["start"], found["end"])))
        return lambda values: [item for it in values if isinstance(it, list) for item in it[part]]
    name = found["single"] or found["double"] or re.sub(r"\\(.)", r"\1", found["name"] or "")
    return lambda values: [it[name] for it in values if isinstance(it, dict) and name in it]


def _members(values: list[Any]) -> list[Any]:
    members: list[Any] = []
    for it in values:
        members += it if isinstance(it, list) else it.values() if isinstance(it, dict) else []
    return members


def _filter(operand: str, compare: str | None, literal: str | None) -> Step:
    def keeps(item: Any) -> bool:
        found = find(operand, item)
        if compare is None or literal is None:
            return bool(found)
        return bool(found) and (found[0] == _literal(literal)) is (compare == "==")

    return lambda values: [item for item in _members(values) if keeps(item)]


def _literal(text: str) -> Any:
    if text[0] in "'\"":
        return text[1:-1]
    return _WORDS[text] if text in _WORDS else float(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else None
