"""`haulout check` for a kubernikus.yaml: validate and explain it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from haulout.app import kubernikus_settings
from haulout.cli.check import check_text
from haulout.cli.terminal import printable
from haulout.compat.openstack_config import DEFAULT_FILE, SECRET_KEY
from haulout.controllers.kubernikus.labels import DELETE_NODE, NEEDS_UPDATE
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.core import duration
from haulout.core.text import format_count
from haulout.errors import ConfigError, ConfigErrors


def is_kubernikus_file(file: str) -> bool:
    """Return whether the name of a file is that of a kubernikus.yaml."""
    return Path(file).name == kubernikus_settings.DEFAULT_PATH.name


def print_report(data: bytes, *, file: str, environ: Mapping[str, str], quiet: bool, as_json: bool) -> tuple[int, int]:
    """Print the result; return the number of errors and warnings."""
    settings: KubernikusSettings | None = None
    errors: Sequence[ConfigError] = ()
    warnings: Sequence[ConfigError] = ()
    try:
        loaded = kubernikus_settings.read(data, file=file, environ=environ)
        settings, warnings = loaded.configuration, loaded.warnings
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
    for line in () if quiet else _explanation(settings, file=file, errors=len(errors)):
        click.echo(printable(line))
    return len(errors), len(warnings)


def _finding_json(error: ConfigError) -> dict[str, object]:
    return {"line": error.line, "key": error.key, "problem": error.problem}


def _explanation(settings: KubernikusSettings | None, *, file: str, errors: int) -> Iterator[str]:
    if settings is None:
        yield f"{file} cannot be used: {format_count(errors, 'error')}."
        return
    every, policy = duration.format(settings.interval), settings.policy
    yield f"{file} can be used."
    yield f"Label {NEEDS_UPDATE} says whether the version of a kubelet differs from that of the API server,"
    yield f"whose version is read every {every}."
    yield f"A node with the label {DELETE_NODE}=true is cordoned and drained, and its server deleted."
    if policy.eviction_timeout is None or policy.deletion_timeout is None:
        yield "Its pods are evicted without a time limit: PodDisruptionBudgets are respected."
    else:
        evicts, deletes = duration.format(policy.eviction_timeout), duration.format(policy.deletion_timeout)
        yield f"A pod that could not be evicted for {evicts} is deleted regardless of its PodDisruptionBudget, and one"
        yield f"that takes longer than its grace period and {deletes} to terminate is deleted by force."
    credentials_place = f"{SECRET_KEY} of Secret {settings.secret}" if settings.secret else f"file {DEFAULT_FILE}"
    yield f"The credentials for OpenStack are in {credentials_place}."
