"""All plugins there are: those of Haulout, and those of other packages that announce themselves by entry points.

    [project.entry-points."haulout.plugins"]
    moonPhase = "acme_haulout.moon:MoonPhase"

A plugin of another package is a subclass of `Check`, `Trigger`, `Notification` or `Schedule`, as ours are. One that
cannot be loaded, or whose type is taken, is left out and told: it must not keep the operator from starting. Other
packages are looked through only for a type that is not ours: to do so takes almost a megabyte of memory.
"""

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from haulout.profiles.config import Registries
from haulout.profiles.plugin import Check, Notification, Plugin, Schedule, Trigger
from haulout.profiles.plugins import checks, notifications, schedules, triggers

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

GROUP = "haulout.plugins"
_BASES: dict[type[Plugin], ModuleType] = {
    Check: checks,
    Trigger: triggers,
    Notification: notifications,
    Schedule: schedules,
}
_ByType = Mapping[str, type[Plugin]]


class _Shelf(_ByType):
    """The plugins of a family, by type. Each of ours is imported when it is asked for: few are used in one cluster."""

    def __init__(self, base: type[Plugin], others: Callable[[], Mapping[type[Plugin], _ByType]]) -> None:
        self._base = base
        self._others = others
        self._modules = _ours(base)
        self._imported: dict[str, type[Plugin]] = {}

    def __getitem__(self, name: str) -> type[Plugin]:
        if name not in self._modules:
            return self._others()[self._base][name]
        if name not in self._imported:
            module = importlib.import_module(self._modules[name])
            self._imported[name] = next(it for it in vars(module).values() if self._is_plugin(it, module))
        return self._imported[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._modules
        yield from self._others()[self._base]

    def __len__(self) -> int:
        return len(self._modules) + len(self._others()[self._base])

    def _is_plugin(self, value: object, module: ModuleType) -> bool:
        if not isinstance(value, type) or value.__module__ != module.__name__:
            return False
        return issubclass(value, self._base) and "type" in vars(value)


@cache
def registries() -> Registries:
    """Return all plugin classes, by their types."""
    others = cache(_of_others)
    return Registries(
        checks=_Shelf(Check, others),
        triggers=_Shelf(Trigger, others),
        notifications=_Shelf(Notification, others),
        schedules=_Shelf(Schedule, others),
    )


def _ours(base: type[Plugin]) -> dict[str, str]:
    """Return the modules of a family, by the types of their plugins."""
    package = _BASES[base]
    modules = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    return {_type_in(it.name): it.name for it in modules if "._" not in it.name}


def _type_in(module: str) -> str:
    """Return the type of the plugin in a module: `hasLabel` is in `has_label`."""
    first, *others = module.rpartition(".")[2].split("_")
    return first + "".join(it.capitalize() for it in others)


def _of_others() -> dict[type[Plugin], dict[str, type[Plugin]]]:
    """Return the plugins of other packages, by family and type."""
    from importlib.metadata import entry_points

    ours = {base: _ours(base) for base in _BASES}
    found: dict[type[Plugin], dict[str, type[Plugin]]] = {base: {} for base in _BASES}
    for point in entry_points(group=GROUP):
        if (plugin := _loaded(point)) is None:
            continue
        base = next(it for it in _BASES if issubclass(plugin, it))
        if plugin.type in ours[base] or plugin.type in found[base]:
            log.warning("plugin %s of %s has a type that is taken, and is left out", plugin.type, point.value)
            continue
        found[base][plugin.type] = plugin
    return found


def _loaded(point: "EntryPoint") -> type[Plugin] | None:
    try:
        plugin = point.load()
    except Exception as error:  # noqa: BLE001 - whatever other people's code does on import
        log.warning("plugin %s cannot be loaded from %s, and is left out: %r", point.name, point.value, error)
        return None
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin) and issubclass(plugin, tuple(_BASES))):
        log.warning("plugin %s of %s is no plugin, and is left out", point.name, point.value)
        return None
    return plugin
