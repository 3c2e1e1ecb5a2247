"""The components of the operator and of the hub: one line registers one.

Options of commands, permissions, manifests, chart values, metrics, alerts and cordon owners follow from their classes,
and from the modules `package_files` beside them.
"""

import functools
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haulout.controllers.machines.component import MachinesComponent
from haulout.core.clock import Clock
from haulout.drain.cordon import Cordon
from haulout.providers.component import CloudComponent
from haulout.runtime.component import Component, CordonOwner, CustomResource, SettingsFile

if TYPE_CHECKING:
    from haulout.runtime.package_files import Packaging

# All are imported at use.
_CORE = (  # every operator runs them
    "haulout.controllers.nodemaintenance.component.NodeMaintenancesComponent",
    "haulout.app.history.HistoryComponent",
    "haulout.controllers.notices.component.NoticesComponent",
    "haulout.controllers.freeze.component.MaintenanceFreezes",
    "haulout.controllers.profiles.component.ProfilesComponent",
)
_HUB = (
    "haulout.controllers.clusterapi.component.ClusterApi",
    "haulout.controllers.clusterapi.component.MachineDrainRules",
    "haulout.controllers.clusterapi.component.Metal3",
)
_COMPONENTS = (  # as configured
    "haulout.controllers.kubernikus.component.Kubernikus",
    "haulout.controllers.esx.component.Esx",
)
_CLOUDS = (
    "haulout.providers.oci.component.OciEvents",
    "haulout.providers.aws.component.AwsEvents",
    "haulout.providers.gcp.component.GcpEvents",
    "haulout.providers.gke.component.GkeEvents",
)

ComponentType = type[Component]
ComponentSettings = Mapping[ComponentType, Any]
"""The components of an installation with their settings; None: with unknown settings."""


@functools.cache
def core_types() -> tuple[ComponentType, ...]:
    """Return the classes of the components that every operator runs."""
    return tuple(map(_import, _CORE))


@functools.cache
def component_types() -> tuple[ComponentType, ...]:
    """Return the classes of the components that a settings file switches on."""
    return tuple(map(_import, _COMPONENTS))


@functools.cache
def cloud_types() -> tuple[type[CloudComponent], ...]:
    """Return the classes of all event sources of clouds."""
    return tuple(map(_import, _CLOUDS))


def custom_resources() -> tuple[CustomResource, ...]:
    """Return the custom resources of all components."""
    kinds: tuple[ComponentType, ...] = (*core_types(), MachinesComponent, *component_types())
    return tuple(kind.custom_resource for kind in kinds if kind.custom_resource is not None)


def all_types() -> tuple[ComponentType, ...]:
    """Return the classes of all components, for tools: those of the hub import much."""
    return (*core_types(), MachinesComponent, *map(_import, _HUB), *component_types(), *cloud_types())


@functools.cache
def packagings() -> "Mapping[ComponentType, Packaging]":
    """Return what components add to packages and monitoring: that of a folder belongs to its first component."""
    modules: dict[str, ComponentType] = {}
    for kind in all_types():
        modules.setdefault(f"{kind.__module__.rpartition('.')[0]}.package_files", kind)
    return {
        kind: importlib.import_module(module).PACKAGING
        for module, kind in modules.items()
        if importlib.util.find_spec(module) is not None
    }


def _import(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


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
