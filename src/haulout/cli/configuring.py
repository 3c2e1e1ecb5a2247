"""What a configuration must be allowed in a cluster, for commands that print or check it."""

import os
from collections.abc import Iterator, Mapping

import click

from haulout.app import kubernikus_settings, needs
from haulout.cli.check import content
from haulout.cli.terminal import aligned, printable
from haulout.errors import ConfigErrors, UsageError
from haulout.kube.access import Permission
from haulout.kubernikus.settings import Settings as KubernikusSettings
from haulout.profiles import permissions
from haulout.profiles.model import Configuration
from haulout.profiles.plugins.registry import registries
from haulout.profiles.trial import attempt


def configuration(file: str, given: Mapping[str, str]) -> Configuration:
    """Return the configuration in a file, whatever variables are not set here, unless permissions depend on them."""
    name = "standard input" if file == "-" else file
    found = attempt(content(file), registries(), {**os.environ, **given}, file=name, assume=True)
    if found.loaded is None:
        raise ConfigErrors(found.errors, warnings=found.warnings)
    loaded = found.loaded.configuration
    places = [
        f"{it.namespace} {' '.join(it.names)}"
        for plugin in loaded.plugins()
        for it in permissions.of(plugin, namespace="")
    ]
    missed = [it for it in found.unset if any(f"value-of-{it}" in place for place in places)]
    if missed:
        names = ", ".join(missed)
        raise UsageError(f"{name}: which permissions are needed depends on {names}: give it, --env {missed[0]}=value")
    return loaded


def of_kubernikus(file: str, given: Mapping[str, str]) -> KubernikusSettings:
    """Return what a kubernikus.yaml says; raises `ConfigErrors`."""
    name = "standard input" if file == "-" else file
    return kubernikus_settings.read(content(file), file=name, environ={**os.environ, **given}).configuration


def lines(wanted: Configuration, *, namespace: str) -> Iterator[str]:
    """Yield what a configuration needs, a line for each thing, with the instances that need it."""
    asked_by = permissions.wanted(wanted, namespace=namespace)
    rows = [_row(it, asked_by.get(it, ())) for it in needs.of_profiles(wanted, namespace=namespace)]
    yield f"An operator in namespace {namespace} needs for its profiles, beside what NodeMaintenances need:"
    yield from aligned(rows)


def _row(it: Permission, instances: tuple[str, ...]) -> tuple[str, str]:
    names = f" {', '.join(it.names)}" if it.names else ""
    asking = f" [{', '.join(instances)}]" if instances else ""
    return f"  {', '.join(it.verbs)}", f"{it}{names}: {it.why}{asking}"


def documented(wanted: Configuration, *, namespace: str) -> list[dict[str, object]]:
    """Return the same for programs."""
    asked_by = permissions.wanted(wanted, namespace=namespace)
    return [
        {
            "verbs": it.verbs,
            "group": it.group,
            "resource": it.resource,
            "namespace": it.namespace,
            "names": it.names,
            "why": it.why,
            "instances": asked_by.get(it, ()),
        }
        for it in needs.of_profiles(wanted, namespace=namespace)
    ]


def say(wanted: Configuration, *, namespace: str) -> None:
    """Print it."""
    for line in lines(wanted, namespace=namespace):
        click.echo(printable(line))
