"""The values of the Helm chart, written down once: `values.yaml`, its schema and its README come from here.

A value has a default, a sentence for people, and a JSON schema that is as strict as it can be: a value that is spelled
wrong, or of the wrong kind, is refused before anything is changed in a cluster.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

_WIDTH = 116
_HEADER = "# All values, with their defaults. Made by `make packages`: edit tools.packages.settings.\n"


@dataclass(frozen=True, slots=True)
class Value:
    """Something that can be set."""

    default: Any
    says: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """Values that belong together."""

    says: str
    values: Mapping[str, "Value | Group"]


def text(default: str, says: str, *, pattern: str = "", choice: tuple[str, ...] = ()) -> Value:
    """Return a text, of a pattern or of a choice."""
    more = {"pattern": pattern} if pattern else {"enum": list(choice)} if choice else {}
    return Value(default, says, {"type": "string", **more})


def flag(says: str, *, default: bool) -> Value:
    """Return something that is on or off."""
    return Value(default, says, {"type": "boolean"})


def number(default: int, says: str, *, least: int, most: int) -> Value:
    """Return a whole number."""
    return Value(default, says, {"type": "integer", "minimum": least, "maximum": most})


def texts(says: str, default: Mapping[str, str] | None = None) -> Value:
    """Return texts by name, such as labels."""
    return Value(dict(default or {}), says, {"type": "object", "additionalProperties": {"type": "string"}})


def free(says: str, default: Mapping[str, Any] | None = None) -> Value:
    """Return an object that Kubernetes knows, and judges."""
    return Value(dict(default or {}), says, {"type": "object"})


def several(says: str, default: list[Any] | None = None, *, of: Mapping[str, Any] | None = None) -> Value:
    """Return a list."""
    return Value(default or [], says, {"type": "array", "items": of or {"type": "object"}})


# What is made of them


def as_yaml(group: Group) -> str:
    """Return `values.yaml`, each value with what it is for."""
    return _HEADER + "\n".join(_written(group, ""))


def as_schema(group: Group) -> str:
    """Return `values.schema.json`."""
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of Haulout's chart"}
    schema = whole | _schema(group)
    schema["properties"]["global"] = {"type": "object", "description": "Of a chart that this one is a part of; unused."}
    return json.dumps(schema, indent=2) + "\n"


def as_tables(group: Group) -> str:
    """Return the same as tables of Markdown: one for each group, and one for what is in none."""
    alone = {name: it for name, it in group.values.items() if isinstance(it, Value)}
    groups = {name: it for name, it in group.values.items() if isinstance(it, Group)}
    return "\n".join(
        [
            *(f"## {name}\n\n{it.says}\n\n{_table(it, f'{name}.')}" for name, it in groups.items()),
            f"## The pods, and the rest\n\n{_table(Group('', alone), '')}",
        ]
    )


def _table(group: Group, prefix: str) -> str:
    rows = (f"| `{path}` | {_short(value.default)} | {value.says} |\n" for path, value in _all(group, prefix))
    return "| value | default | what |\n| --- | --- | --- |\n" + "".join(rows)


def _written(group: Group, pad: str) -> Iterator[str]:
    for name, value in group.values.items():
        if not pad:
            yield ""
        yield from (f"{pad}# {line}" for line in textwrap.wrap(value.says, _WIDTH - len(pad)))
        if isinstance(value, Group):
            yield f"{pad}{name}:"
            yield from _written(value, f"{pad}  ")
        else:
            dumped = yaml.safe_dump({name: value.default}, sort_keys=False, width=_WIDTH)
            yield from (f"{pad}{line}" for line in dumped.splitlines())
    if not pad:
        yield ""


def _schema(group: Group) -> dict[str, Any]:
    return {
        "type": "object",
        "description": group.says,
        "additionalProperties": False,
        "properties": {
            name: _schema(it) if isinstance(it, Group) else {"description": it.says, "default": it.default, **it.schema}
            for name, it in group.values.items()
        },
    }


def _all(group: Group, prefix: str) -> Iterator[tuple[str, Value]]:
    for name, value in group.values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Group):
            yield from _all(value, f"{path}.")
        else:
            yield path, value


def _short(default: Any) -> str:
    written = json.dumps(default)
    return f"`{written}`" if len(written) < 40 else "see `values.yaml`"  # noqa: PLR2004 - as wide as a column may be
