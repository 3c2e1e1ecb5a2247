"""What fields of shapes mean: the comments beside them in `shapes`, so that all that is said of them is said once.

    class Tile(Shape, frozen=True):
        hold: str = ""  # who holds it back from maintenance, and why

Both the OpenAPI document and the reference page are made from them. Without the source there are none.
"""

import inspect
import re
from collections.abc import Mapping
from functools import cache

from haulout.web.api import shapes

_CLASS = re.compile(r"class (?P<name>\w+)\(")
_MEMBER = re.compile(r"    (?P<name>\w+)(:| =) .*?  # (noqa: \w+ - a \w+: )?(?P<text>.+)")


@cache
def meanings() -> Mapping[tuple[str, str], str]:
    """Return what is said of members of classes, by the names of both in the code."""
    found: dict[tuple[str, str], str] = {}
    name = ""
    for line in _source():
        if begins := _CLASS.match(line):
            name = begins["name"]
        elif member := _MEMBER.fullmatch(line):
            found[name, member["name"]] = member["text"]
    return found


def _source() -> list[str]:
    try:
        return inspect.getsource(shapes).splitlines()
    except OSError:
        return []
