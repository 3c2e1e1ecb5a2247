"""The reference page of all plugins and the JSON schema of configuration files, generated from the plugin classes.

    python -m tools.reference.plugins docs/reference

writes `plugins.md` and `maintenance.schema.json` there. They contain only plugins of Haulout itself, whatever else is
installed; `haulout check --schema` also includes those of other packages.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

from haulout.controllers.profiles.config.layout import schema_text
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.options import REST, OptionRow, describe, options_of
from haulout.controllers.profiles.plugin import Plugin

PAGE = "plugins.md"
SCHEMA = "maintenance.schema.json"

_OWN_PREFIX = "haulout."
_FAMILIES = {
    "checks": (
        "Checks",
        "check",
        "A check says whether a transition may happen: `check` of a transition names them, as in `a && !(b || c)`.",
    ),
    "triggers": (
        "Triggers",
        "trigger",
        "A trigger does something to a node: on the way (`trigger` of a transition) or in a new state (`enter`).",
    ),
    "notifications": (
        "Notifications",
        "notify",
        "A notification informs people about the state of a node: `notify` of a state. [More](notifications.md).",
    ),
    "schedules": (
        "Schedules",
        "",
        "A schedule says when a notification is sent: `schedule` of its instance. [More](time-windows.md).",
    ),
}
_INTRODUCTION = """\
# Plugins

<!-- made by `make docs` from the plugin classes: edit those -->

These are the checks, triggers, notifications and schedules of [profiles](../concepts/profiles.md). You use a plugin
through an instance, which has a name and a `config`. Write a duration as in Go, `1h30m`; a bare number is seconds.
Texts may contain `${NAME}`.

`haulout check FILE` reports the errors of a file. An editor reports them while you type if it knows
[the schema](maintenance.schema.json). Put this line at the top of the file:

    # yaml-language-server: $schema=maintenance.schema.json
"""


def reference_files(registries: Registries) -> dict[str, str]:
    ours = own_plugins(registries)
    return {PAGE: page(ours), SCHEMA: schema_text(ours)}


def own_plugins(registries: Registries) -> Registries:
    """Return the plugins that are part of Haulout."""
    own_families = {
        field_.name: {
            name: plugin
            for name, plugin in getattr(registries, field_.name).items()
            if plugin.__module__.startswith(_OWN_PREFIX)
        }
        for field_ in fields(registries)
    }
    return replace(registries, **own_families)


def page(registries: Registries) -> str:
    return "\n".join([_INTRODUCTION, *_contents(registries), *_sections(registries)]).rstrip("\n") + "\n"


def _contents(registries: Registries) -> Iterator[str]:
    for family, (heading, _, _) in _FAMILIES.items():
        plugins = _plugins(registries, family)
        if plugins:
            yield f"- {heading}: {', '.join(f'[{name}](#{name.lower()})' for name in plugins)}"
    yield ""


def _sections(registries: Registries) -> Iterator[str]:
    for family, (heading, key, prose) in _FAMILIES.items():
        plugins = _plugins(registries, family)
        if not plugins:
            continue
        yield from (f"## {heading}", "", prose, "")
        for plugin in plugins.values():
            yield from _section(plugin, key)


def _plugins(registries: Registries, family: str) -> Mapping[str, type[Plugin]]:
    return dict(sorted(getattr(registries, family).items(), key=lambda entry: entry[0].lower()))


def _section(plugin: type[Plugin], key: str) -> Iterator[str]:
    yield from (f"### {plugin.type}", "", inspect.cleandoc(plugin.__doc__ or ""), "")
    rows = [_with_rest_key(row, plugin) for row in describe(plugin)]
    if rows:
        yield from ("| key | what | type | default |", "| --- | --- | --- | --- |")
        yield from map(_row, rows)
    else:
        yield "It has no options."
    yield from ("", *_example(plugin, key))


def _with_rest_key(row: OptionRow, plugin: type[Plugin]) -> OptionRow:
    """Return a row; the field that collects all other keys is not a key itself."""
    takes_all = any(option.key == row.key and option.kind is REST for option in options_of(plugin))
    return replace(row, key="", default="") if takes_all else row


def _row(row: OptionRow) -> str:
    default = "required" if row.required else (f"`{row.default}`" if row.default else "")
    cells = (f"`{row.key}`" if row.key else "any other", row.description, row.kind, default)
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in cells)} |"


def _example(plugin: type[Plugin], key: str) -> Iterator[str]:
    """Yield the lines of an example as in a configuration file."""
    lines = (plugin.example or "{}").strip().splitlines()
    config = [f"  config: {lines[0]}"] if lines == ["{}"] else ["  config:", *(f"    {line}" for line in lines)]
    head = [f"- name: my_{_snake(plugin.type)}", f"  type: {plugin.type}"]
    whole = ["schedule:", f"  type: {plugin.type}", *config] if not key else [*head, *config]
    if key == "notify":
        whole += ["  schedule: {type: periodic, config: {interval: 24h}}"]
    yield "```yaml"
    yield from (["instances:", f"  {key}:", *(f"  {line}" for line in whole)] if key else whole)
    yield from ("```", "")


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def main(arguments: list[str]) -> None:
    """Write the files into the given folder."""
    from haulout.controllers.profiles.plugins.registry import registries

    if len(arguments) != 1:
        sys.exit("usage: python -m tools.reference.plugins FOLDER")
    for name, text in reference_files(registries()).items():
        Path(arguments[0], name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
