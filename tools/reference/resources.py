"""The reference pages of custom resources, generated from their definitions.

    python -m tools.reference.resources docs/reference/resources

writes a page per kind there: every field with its type, limits and description, and the columns of `kubectl get`. A
handwritten page explains each kind as a whole; the two pages link to each other.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from haulout.app.manifests.operator_manifests import definitions

_HANDWRITTEN_PAGES = {
    "NodeMaintenance": "node-maintenance.md",
    "MaintenanceRecord": "history.md",
    "MaintenanceNotice": "notices.md",
    "MaintenanceFreeze": "freeze.md",
    "MachineMaintenance": "machine-maintenance.md",
}
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "maxProperties": "at most {} keys",
}
_DURATION = "(ns|us|µs|ms|s|m|h)"  # part of the pattern of a duration
_SELECTOR_FIELDS = {"matchLabels", "matchExpressions"}
_COMMON_FIELDS = {"apiVersion", "kind", "metadata"}

Schema = Mapping[str, Any]


def pages() -> dict[str, str]:
    return {f"{crd['spec']['names']['singular']}.md": page(crd) for crd in definitions(with_machines=True)}


def page(definition: Mapping[str, Any]) -> str:
    """Return the page of one kind in Markdown."""
    spec = definition["spec"]
    lines = [*_head(spec), *(line for version in spec["versions"] for line in _version(version))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(spec: Schema) -> Iterator[str]:
    names = spec["names"]
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
    yield f"# Fields of {names['kind']}\n"
    yield "<!-- made by `make docs` from the definition: edit that -->\n"
    yield (
        f"{_one_line(schema.get('description', ''))} [What it does](../{_HANDWRITTEN_PAGES[names['kind']]}).\n"
    ).lstrip()
    yield "| | |"
    yield "| --- | --- |"
    yield f"| kind | `{names['kind']}` |"
    yield f"| apiVersion | {', '.join('`' + spec['group'] + '/' + name['name'] + '`' for name in spec['versions'])} |"
    yield f"| scope | {'the whole cluster' if spec['scope'] == 'Cluster' else 'a namespace'} |"
    short = ", ".join(f"`kubectl get {name}`" for name in (names["plural"], *names.get("shortNames", ())))
    yield f"| kubectl | {short} |\n"


def _version(version: Schema) -> Iterator[str]:
    schema = version["schema"]["openAPIV3Schema"]
    for name, part in schema["properties"].items():
        if name not in _COMMON_FIELDS and "properties" in part:
            yield f"## {name}\n"
            yield from _table(_rows(part, name))
    single = {name: column for name, column in schema["properties"].items() if name not in _COMMON_FIELDS}
    simple_fields = {name: column for name, column in single.items() if "properties" not in column}
    if simple_fields:
        yield "## Fields\n"
        yield from _table(_rows({**schema, "properties": simple_fields}, ""))
    columns = version.get("additionalPrinterColumns", ())
    if columns:
        yield "## Columns of kubectl get\n"
        yield "| column | shows | |"
        yield "| --- | --- | --- |"
        for column in columns:
            yield f"| {column['name']} | `{column['jsonPath']}` | {_cell(_column(column))} |"
        yield ""


def _column(column: Schema) -> str:
    only = "with `-o wide`" if column.get("priority") else ""
    return " ".join(filter(None, (column.get("description", ""), only)))


def _table(rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    yield "| field | what | type |"
    yield "| --- | --- | --- |"
    for cells in rows:
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, description and type of all nested fields; `[]` marks the items of a list."""
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        field_path = f"{path}.{name}" if path else name
        description = _one_line(field.get("description", ""))
        required_mark = "Required. " if name in required else ""
        yield f"`{field_path}`", f"{required_mark}{description}", _type(field)
        if _is_selector(field):
            continue
        yield from _rows(field, field_path)
        items = field.get("items", {})
        if "properties" in items:
            yield from _rows(items, f"{field_path}[]")
        extra = field.get("additionalProperties")
        if isinstance(extra, Mapping) and "properties" in extra:
            yield from _rows(extra, f"{field_path}.*")


def _is_selector(field: Schema) -> bool:
    return set(field.get("properties", ())) == _SELECTOR_FIELDS


def _type(field: Schema) -> str:
    if _is_selector(field):
        return "label selector"
    if _DURATION in field.get("pattern", ""):
        return "duration, such as `1h30m`"
    kind = "number or text" if field.get("x-kubernetes-int-or-string") else field.get("type", "any")
    if kind == "array":
        kind = f"list of {_type(field.get('items', {}))}"
    extra = field.get("additionalProperties")
    if kind == "object" and isinstance(extra, Mapping):
        kind = f"map of {_type(extra)}"
    return "; ".join(filter(None, (f"{kind}{_format(field)}", *_bounds(field))))


def _format(field: Schema) -> str:
    return f" ({field['format']})" if "format" in field else ""


def _bounds(field: Schema) -> Iterator[str]:
    if "enum" in field:
        yield "one of " + ", ".join(f"`{value}`" if value != "" else "nothing" for value in field["enum"])
    if "pattern" in field:
        yield f"matches `{field['pattern']}`"
    for name, template in _LIMITS.items():
        if name in field:
            yield (
                "not empty"
                if name.startswith("min") and name != "minimum" and field[name] == 1
                else template.format(field[name])
            )
    if "default" in field:
        yield f"default `{field['default']}`"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Write the pages into the given folder."""
    if len(arguments) != 1:
        sys.exit("usage: python -m tools.reference.resources FOLDER")
    folder = Path(arguments[0])
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
