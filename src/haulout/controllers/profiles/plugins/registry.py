"""The available plugins: those of Haulout, and those that other packages register as entry points.

    [project.entry-points."haulout.plugins"]
    moonPhase = "acme_haulout.moon:MoonPhase"

A plugin of another package is a subclass of `Check`, `Trigger`, `Notification` or `Schedule`, like Haulout's own. One
that cannot be loaded, or whose type is already taken, is skipped with a warning: it must not keep the operator from
starting. Entry points are read only for a type that is not Haulout's own, since that takes almost a megabyte of memory.
"""

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.plugin import Check, Notification, Plugin, Schedule, Trigger
from haulout.controllers.profiles.plugins import checks, notifications, schedules, triggers

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "haulout.plugins"
_BASES: dict[type[Plugin], ModuleType] = {
    Check: checks,
    Trigger: triggers,
    Notification: notifications,
    Schedule: schedules,
}
_ByType = Mapping[str, type[Plugin]]


class _PluginFamily(_ByType):
    """The plugins of a family, by type. Haulout's own are imported on first use, since a cluster uses few of them."""

    def __init__(self, base: type[Plugin], external: Callable[[], Mapping[type[Plugin], _ByType]]) -> None:
        self._base = base
        self._external = external
        self._modules = _own_modules(base)
        self._imported: dict[str, type[Plugin]] = {}

    def __getitem__(self, name: str) -> type[Plugin]:
        if name not in self._modules:
            return self._external()[self._base][name]
        if name not in self._imported:
            module = importlib.import_module(self._modules[name])
            self._imported[name] = next(value for value in vars(module).values() if self._is_plugin(value, module))
        return self._imported[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._modules
        yield from self._external()[self._base]

    def __len__(self) -> int:
        return len(self._modules) + len(self._external()[self._base])

    def _is_plugin(self, value: object, module: ModuleType) -> bool:
        if not isinstance(value, type) or value.__module__ != module.__name__:
            return False
        return issubclass(value, self._base) and "type" in vars(value)


@cache
def registries() -> Registries:
    external = cache(_external_plugins)
    return Registries(
        checks=_PluginFamily(Check, external),
        triggers=_PluginFamily(Trigger, external),
        notifications=_PluginFamily(Notification, external),
        schedules=_PluginFamily(Schedule, external),
    )


def _own_modules(base: type[Plugin]) -> dict[str, str]:
    """Return the modules of a family, by the types of their plugins."""
    package = _BASES[base]
    modules = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    return {_plugin_type(module.name): module.name for module in modules if "._" not in module.name}


def _plugin_type(module: str) -> str:
    """Return the type of the plugin in a module: `hasLabel` is in `has_label`."""
    first, *others = module.rpartition(".")[2].split("_")
    return first + "".join(word.capitalize() for word in others)


def _external_plugins() -> dict[type[Plugin], dict[str, type[Plugin]]]:
    """Return the plugins of other packages, by family and type."""
    from importlib.metadata import entry_points

    own = {base: _own_modules(base) for base in _BASES}
    found: dict[type[Plugin], dict[str, type[Plugin]]] = {base: {} for base in _BASES}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if (plugin := _load(point)) is None:
            continue
        base = next(base_class for base_class in _BASES if issubclass(plugin, base_class))
        if plugin.type in own[base] or plugin.type in found[base]:
            log.warning("plugin %s of %s is ignored: another plugin has its type", plugin.type, point.value)
            continue
        found[base][plugin.type] = plugin
    return found


def _load(point: "EntryPoint") -> type[Plugin] | None:
    try:
        plugin = point.load()
    except Exception as error:  # noqa: BLE001 - third-party code may raise anything on import
        log.warning("plugin %s is ignored, as it cannot be loaded from %s: %r", point.name, point.value, error)
        return None
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin) and issubclass(plugin, tuple(_BASES))):
        log.warning("plugin %s of %s is ignored: it is not a plugin", point.name, point.value)
        return None
    return plugin
