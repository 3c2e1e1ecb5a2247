"""All plugins there are: those of Haulout, and those of other packages that announce themselves by entry points.

    [project.entry-points."haulout.plugins"]
    moonPhase = "acme_haulout.moon:MoonPhase"

A plugin of another package is a subclass of `Check`, `Trigger`, `Notification` or `Schedule`, as ours are. One that
cannot be loaded, or whose type is taken, is left out and told: it must not keep the operator from starting.
"""

import importlib
import logging
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from haulout.profiles.config import Registries
from haulout.profiles.plugin import Check, Notification, Plugin, Schedule, Trigger
from haulout.profiles.plugins import checks, notifications, schedules, triggers

log = logging.getLogger(__name__)

GROUP = "haulout.plugins"
_BASES: dict[type[Plugin], ModuleType] = {
    Check: checks,
    Trigger: triggers,
    Notification: notifications,
    Schedule: schedules,
}


@cache
def registries() -> Registries:
    """Return all plugin classes, by their types."""
    found = [plugin for base, package in _BASES.items() for plugin in _in_package(package, base)]
    found += _of_others(entry_points(group=GROUP), taken={(_base(it), it.type) for it in found})
    return Registries(**{name: {it.type: it for it in found if issubclass(it, base)} for name, base in _NAMES.items()})


_NAMES: dict[str, type[Plugin]] = {
    "checks": Check,
    "triggers": Trigger,
    "notifications": Notification,
    "schedules": Schedule,
}


def _in_package(package: ModuleType, base: type[Plugin]) -> Iterator[type[Plugin]]:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            is_plugin = isinstance(value, type) and issubclass(value, base) and "type" in vars(value)
            if is_plugin and value.__module__ == module.name:
                yield value


def _of_others(points: Iterable[EntryPoint], *, taken: set[tuple[type[Plugin], str]]) -> Iterator[type[Plugin]]:
    for point in points:
        try:
            plugin = point.load()
        except Exception as error:  # noqa: BLE001 - whatever other people's code does on import
            log.warning("plugin %s cannot be loaded from %s, and is left out: %r", point.name, point.value, error)
            continue
        if not (isinstance(plugin, type) and issubclass(plugin, Plugin) and issubclass(plugin, tuple(_BASES))):
            log.warning("plugin %s of %s is no plugin, and is left out", point.name, point.value)
        elif (_base(plugin), plugin.type) in taken:
            log.warning("plugin %s of %s has a type that is taken, and is left out", plugin.type, point.value)
        else:
            yield plugin


def _base(plugin: type[Plugin]) -> type[Plugin]:
    return next(base for base in _BASES if issubclass(plugin, base))
