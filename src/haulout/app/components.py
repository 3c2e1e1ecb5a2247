"""The components of the operator: one line registers one.

Options of commands, permissions, manifests, chart values, metrics, alerts and cordon owners follow from their classes.
"""

import functools
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from haulout.core.clock import Clock
from haulout.drain.cordon import Cordon
from haulout.runtime.component import Component, CordonOwner, SettingsFile

_COMPONENTS = (  # imported at use
    "haulout.controllers.kubernikus.component.Kubernikus",
    "haulout.controllers.esx.component.Esx",
)

ComponentType = type[Component]
ComponentSettings = Mapping[ComponentType, Any]
"""The components of an installation with their settings; None: with unknown settings."""


@functools.cache
def component_types() -> tuple[ComponentType, ...]:
    return tuple(map(_import, _COMPONENTS))


def _import(path: str) -> ComponentType:
    module, _, name = path.rpartition(".")
    found: ComponentType = getattr(importlib.import_module(module), name)
    return found


def settings_files() -> Mapping[str, SettingsFile]:
    """Return the settings files of components by the component's name."""
    return {kind.name: kind.settings_file for kind in component_types() if kind.settings_file is not None}


def load_components(files: Mapping[str, Path], *, environ: Mapping[str, str], clock: Clock) -> tuple[Component, ...]:
    """Return the components that run with these settings files, by name. Raise `ConfigErrors`."""
    found: list[Component] = []
    for kind in component_types():
        if kind.settings_file is None:
            found.append(kind())
        elif kind.name in files:
            found.append(kind.load(files[kind.name], environ=environ, clock=clock))
    return tuple(found)


def cordon_owners() -> Mapping[str, CordonOwner]:
    """Return the cordon owners of all components by name."""
    owners = (kind.cordon_owner for kind in component_types())
    return {owner.name: owner for owner in owners if owner is not None}


def owners_in(cordon: Cordon) -> Sequence[CordonOwner]:
    """Return the owners of a cordon that are components."""
    return [owner for name, owner in cordon_owners().items() if name in cordon.owners]
