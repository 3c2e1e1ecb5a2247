"""Options that follow from the registered components (`haulout.app.components`).

Each group of options reaches its command as one parameter: the values by the name of the component.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from haulout.app.components import cloud_types, settings_files

Command = Callable[..., Any]
OPTION_NAMES = tuple(settings_files())


def run_options(command: Command) -> Command:
    """Add `--NAME FILE` of `haulout run`, as the parameter `component_files`."""
    options = {
        name: click.option(f"--{name}", type=click.Path(path_type=Path), metavar="FILE", help=file.run_help)
        for name, file in settings_files().items()
    }
    return _add(command, options, parameter="component_files")


def manifests_options(command: Command) -> Command:
    """Add the options of `haulout manifests`, as the parameter `components`: a file, or True if none is needed."""
    options = {
        name: click.option(f"--{name}", metavar="FILE", help=file.manifests_help)
        if file.decides_permissions
        else click.option(f"--{name}", is_flag=True, help=file.manifests_help)
        for name, file in settings_files().items()
    }
    return _add(command, options, parameter="components")


def cloud_variables() -> Iterator[str]:
    """Yield a line about the environment variables of each cloud whose events the operator reads."""
    names = {kind.cloud: ", ".join((*kind.enabling_variables, "and others")) for kind in cloud_types()}
    width = max(map(len, names.values()))
    yield from (f"{name:<{width}}  read maintenance events of {cloud}" for cloud, name in names.items())


def check_options(command: Command) -> Command:
    """Add the options of `haulout check` about the kind of the file, as the parameter `kinds`."""
    options = {
        name: click.option(f"--{name}", is_flag=True, help=file.check_help)
        for name, file in settings_files().items()
        if file.check_help
    }
    return _add(command, options, parameter="kinds")


def _add(command: Command, options: Mapping[str, Callable[[Command], Command]], *, parameter: str) -> Command:
    @functools.wraps(command)
    def with_components(*args: Any, **values: Any) -> Any:
        return command(*args, **{parameter: _given(values, options)}, **values)

    decorated: Command = with_components
    for add in reversed(list(options.values())):
        decorated = add(decorated)
    return decorated


def _given(values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Remove the options from `values`, and return those that were given."""
    found = {name: values.pop(name) for name in names}
    return {name: value for name, value in found.items() if value}
