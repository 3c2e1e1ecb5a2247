"""Declaration of Helm values; `values.yaml`, its JSON schema and its README are generated from it.

A value has a default, a description, and a JSON schema that is as strict as possible: a misspelled value, or one of the
wrong type, is refused before anything changes in a cluster.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

_WIDTH = 116
_HEADER = "# All values, with their defaults. Made by `make packages`: edit tools.packages.helm.settings.\n"


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the chart. The description is shown in values.yaml, in the schema and in the README."""

    default: Any
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """A group of values, which may contain groups."""

    description: str
    values: Mapping[str, "Value | Group"]


def string_value(default: str, description: str, *, pattern: str = "", choice: tuple[str, ...] = ()) -> Value:
    """Return a string value, limited by a pattern or a list of choices."""
    more = {"pattern": pattern} if pattern else {"enum": list(choice)} if choice else {}
    return Value(default, description, {"type": "string", **more})


def bool_value(description: str, *, default: bool) -> Value:
    return Value(default, description, {"type": "boolean"})


def int_value(default: int, description: str, *, minimum: int, maximum: int) -> Value:
    return Value(default, description, {"type": "integer", "minimum": minimum, "maximum": maximum})


def string_map_value(description: str, default: Mapping[str, str] | None = None) -> Value:
    """Return a map of strings, such as labels."""
    return Value(dict(default or {}), description, {"type": "object", "additionalProperties": {"type": "string"}})


def object_value(description: str, default: Mapping[str, Any] | None = None) -> Value:
    """Return an object that the Kubernetes API validates."""
    return Value(dict(default or {}), description, {"type": "object"})


def list_value(description: str, default: list[Any] | None = None, *, items: Mapping[str, Any] | None = None) -> Value:
    return Value(default or [], description, {"type": "array", "items": items or {"type": "object"}})


# Generated files


def as_yaml(group: Group) -> str:
    """Return `values.yaml`, with a comment for each value."""
    return _HEADER + "\n".join(_yaml_lines(group, ""))


def as_schema(group: Group) -> str:
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the Haulout chart"}
    schema = whole | _schema(group)
    # Helm passes `global` to each subchart, and `additionalProperties: false` would refuse it.
    schema["properties"]["global"] = {"type": "object", "description": "Global values of a parent chart. Not used."}
    return json.dumps(schema, indent=2) + "\n"


def as_tables(group: Group) -> str:
    """Return Markdown tables: one per group, and one for values without a group."""
    alone = {name: value for name, value in group.values.items() if isinstance(value, Value)}
    groups = {name: value for name, value in group.values.items() if isinstance(value, Group)}
    return "\n".join(
        [
            *(f"## {name}\n\n{value.description}\n\n{_table(value, f'{name}.')}" for name, value in groups.items()),
            f"## Pods and other values\n\n{_table(Group('', alone), '')}",
        ]
    )


def _table(group: Group, prefix: str) -> str:
    rows = (
        f"| `{path}` | {_shorten(value.default)} | {value.description} |\n" for path, value in _flatten(group, prefix)
    )
    return "| value | default | description |\n| --- | --- | --- |\n" + "".join(rows)


def _yaml_lines(group: Group, pad: str) -> Iterator[str]:
    for name, value in group.values.items():
        if not pad:
            yield ""
        yield from (f"{pad}# {line}" for line in textwrap.wrap(value.description, _WIDTH - len(pad)))
        if isinstance(value, Group):
            yield f"{pad}{name}:"
            yield from _yaml_lines(value, f"{pad}  ")
        else:
            dumped = yaml.safe_dump({name: value.default}, sort_keys=False, width=_WIDTH)
            yield from (f"{pad}{line}" for line in dumped.splitlines())
    if not pad:
        yield ""


def _schema(group: Group) -> dict[str, Any]:
    return {
        "type": "object",
        "description": group.description,
        "additionalProperties": False,
        "properties": {
            name: _schema(value)
            if isinstance(value, Group)
            else {"description": value.description, "default": value.default, **value.schema}
            for name, value in group.values.items()
        },
    }


def _flatten(group: Group, prefix: str) -> Iterator[tuple[str, Value]]:
    for name, value in group.values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Group):
            yield from _flatten(value, f"{path}.")
        else:
            yield path, value


def _shorten(default: Any) -> str:
    written = json.dumps(default)
    return f"`{written}`" if len(written) < 40 else "see `values.yaml`"  # noqa: PLR2004 - as wide as a column may be
