"""Load configuration files for commands, and print the permissions that they need."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import click

from haulout.app.components import ComponentSettings, ComponentType, component_types
from haulout.cli.check.command import read_input
from haulout.cli.output import format_pairs, printable
from haulout.controllers.profiles import permissions
from haulout.controllers.profiles.config.dry_run import dry_run
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.missing_permissions import profile_permissions
from haulout.controllers.profiles.plugins.registry import registries
from haulout.errors import ConfigErrors, UsageError
from haulout.kube.rbac import Permission


def load_configuration(file: str, variables: Mapping[str, str]) -> Configuration:
    """Return the configuration in a file, with placeholders for unset variables, unless permissions depend on them."""
    name = "standard input" if file == "-" else file
    result = dry_run(read_input(file), registries(), {**os.environ, **variables}, file=name, assume_placeholders=True)
    if result.loaded is None:
        raise ConfigErrors(result.errors, warnings=result.warnings)
    loaded = result.loaded.configuration
    places = [
        f"{item.namespace} {' '.join(item.names)}"
        for plugin in loaded.plugins()
        for item in permissions.permissions_of(plugin, namespace="")
    ]
    undetermined = [item for item in result.unset if any(f"value-of-{item}" in place for place in places)]
    if undetermined:
        names = ", ".join(undetermined)
        raise UsageError(
            f"{name}: which permissions are needed depends on {names}: set it with --env {undetermined[0]}=value"
        )
    return loaded


def component_settings(given: Mapping[str, Any], variables: Mapping[str, str]) -> ComponentSettings:
    """Return the components that options switch on: by a file that decides their permissions, or by True."""
    environ = {**os.environ, **variables}
    found: dict[ComponentType, Any] = {}
    for kind in component_types():
        if (value := given.get(kind.name)) is True:
            found[kind] = None
        elif value is not None:
            name = "standard input" if value == "-" else value
            found[kind] = kind.parse(read_input(value), file=name, environ=environ).settings
    return found


def permission_lines(configuration: Configuration, *, namespace: str) -> Iterator[str]:
    """Yield a line per permission that a configuration needs, with the instances that need it."""
    instances_by_permission = permissions.plugin_permissions(configuration, namespace=namespace)
    rows = [
        _permission_row(permission, instances_by_permission.get(permission, ()))
        for permission in profile_permissions(configuration, namespace=namespace)
    ]
    yield (
        f"An operator in namespace {namespace} needs these permissions for its profiles, in addition to those for "
        "NodeMaintenances:"
    )
    yield from format_pairs(rows)


def _permission_row(permission: Permission, instances: tuple[str, ...]) -> tuple[str, str]:
    names = f" {', '.join(permission.names)}" if permission.names else ""
    instance_names = f" [{', '.join(instances)}]" if instances else ""
    return f"  {', '.join(permission.verbs)}", f"{permission}{names}: {permission.why}{instance_names}"


def permissions_json(configuration: Configuration, *, namespace: str) -> list[dict[str, object]]:
    """Return the permissions that a configuration needs, as JSON values."""
    instances_by_permission = permissions.plugin_permissions(configuration, namespace=namespace)
    return [
        {
            "verbs": permission.verbs,
            "group": permission.group,
            "resource": permission.resource,
            "namespace": permission.namespace,
            "names": permission.names,
            "purpose": permission.why,
            "instances": instances_by_permission.get(permission, ()),
        }
        for permission in profile_permissions(configuration, namespace=namespace)
    ]


def print_permissions(configuration: Configuration, *, namespace: str) -> None:
    for line in permission_lines(configuration, namespace=namespace):
        click.echo(printable(line))
