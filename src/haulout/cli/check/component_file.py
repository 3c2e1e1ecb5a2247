"""`haulout check` for the settings file of a component: validate and explain it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from haulout.app.components import ComponentType, component_types
from haulout.cli.check import check_text
from haulout.cli.output import printable
from haulout.core.text import format_count
from haulout.errors import ConfigError, ConfigErrors


def component_of(file: str, kinds: Iterable[str]) -> ComponentType | None:
    """Return the component whose settings a file contains, by an option or by the name of the file."""
    checked = {kind.name: kind for kind in component_types() if kind.settings_file and kind.settings_file.check_help}
    for name in kinds:
        return checked[name]
    by_file = {kind.settings_file.name: kind for kind in checked.values() if kind.settings_file}
    return by_file.get(Path(file).name)


def print_report(
    kind: ComponentType, data: bytes, *, file: str, environ: Mapping[str, str], quiet: bool, as_json: bool
) -> tuple[int, int]:
    """Print the result; return the number of errors and warnings."""
    settings: Any = None
    errors: Sequence[ConfigError] = ()
    warnings: Sequence[ConfigError] = ()
    try:
        loaded = kind.parse(data, file=file, environ=environ)
        settings, warnings = loaded.settings, loaded.warnings
    except ConfigErrors as error:
        errors, warnings = error.errors, error.warnings
    if as_json:
        findings = {"errors": list(map(_finding_json, errors)), "warnings": list(map(_finding_json, warnings))}
        click.echo(
            msgspec.json.format(msgspec.json.encode({"file": file, "ok": not errors, **findings}), indent=2).decode()
        )
        return len(errors), len(warnings)
    for line in check_text.error_lines(errors, warnings):
        click.echo(line)
    for line in () if quiet else _explanation(kind, settings, file=file, errors=len(errors)):
        click.echo(printable(line))
    return len(errors), len(warnings)


def _finding_json(error: ConfigError) -> dict[str, object]:
    return {"line": error.line, "key": error.key, "problem": error.problem}


def _explanation(kind: ComponentType, settings: Any, *, file: str, errors: int) -> Iterator[str]:
    if errors:
        yield f"{file} cannot be used: {format_count(errors, 'error')}."
        return
    yield f"{file} can be used."
    yield from kind.explain(settings)
