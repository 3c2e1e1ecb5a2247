"""`haulout check` for a kubernikus.yaml: what is wrong with it, and what it means."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from haulout.app import kubernikus_settings
from haulout.cli import check_text
from haulout.cli.terminal import printable
from haulout.core import duration
from haulout.core.cloudprovider import FILE, SECRET_KEY
from haulout.errors import ConfigError, ConfigErrors
from haulout.kubernikus.keys import DELETE_NODE, NEEDS_UPDATE
from haulout.kubernikus.settings import Settings
from haulout.profiles.words import counted


def is_named_so(file: str) -> bool:
    """Tell whether a file is one by its name."""
    return Path(file).name == kubernikus_settings.USUAL.name


def say(data: bytes, *, file: str, environ: Mapping[str, str], quiet: bool, as_json: bool) -> tuple[int, int]:
    """Print it; return how many errors and warnings there are."""
    settings: Settings | None = None
    errors: Sequence[ConfigError] = ()
    warnings: Sequence[ConfigError] = ()
    try:
        loaded = kubernikus_settings.read(data, file=file, environ=environ)
        settings, warnings = loaded.configuration, loaded.warnings
    except ConfigErrors as error:
        errors, warnings = error.errors, error.warnings
    if as_json:
        told = {"errors": list(map(_plain, errors)), "warnings": list(map(_plain, warnings))}
        click.echo(
            msgspec.json.format(msgspec.json.encode({"file": file, "ok": not errors, **told}), indent=2).decode()
        )
        return len(errors), len(warnings)
    for line in check_text.listed(errors, warnings):
        click.echo(line)
    for line in () if quiet else _explained(settings, file=file, errors=len(errors)):
        click.echo(printable(line))
    return len(errors), len(warnings)


def _plain(it: ConfigError) -> dict[str, object]:
    return {"line": it.line, "key": it.key, "problem": it.problem}


def _explained(settings: Settings | None, *, file: str, errors: int) -> Iterator[str]:
    if settings is None:
        yield f"{file} cannot be used: {counted(errors, 'error')}."
        return
    every, policy = duration.format(settings.interval), settings.policy
    yield f"{file} can be used."
    yield f"Label {NEEDS_UPDATE} says whether a kubelet is of another version than the API server,"
    yield f"which is asked for its own every {every}."
    yield f"A node with the label {DELETE_NODE}=true is cordoned and drained, and its server deleted."
    if policy.eviction_timeout is None or policy.deletion_timeout is None:
        yield "Its pods are evicted, for as long as that takes: disruption budgets are kept."
    else:
        evicts, deletes = duration.format(policy.eviction_timeout), duration.format(policy.deletion_timeout)
        yield f"A pod that could not be evicted for {evicts} is deleted, whatever its budget says, and one that takes"
        yield f"longer than {deletes} and its grace period to end is ended."
    where = f"{SECRET_KEY} of Secret {settings.secret}" if settings.secret else f"file {FILE}"
    yield f"Credentials of OpenStack are in {where}."
