"""Loads and validates a `maintenance.yaml`.

    loaded = loader.load(Path("config/maintenance.yaml"), registries, os.environ)
    loaded.configuration.profiles["flatcar"].states[State.OPERATIONAL].transitions
    loaded.warnings  # what the Go controller accepts silently

A file that the SAP maintenance-controller loads is loaded with the same meaning, and one that it rejects is rejected.
All errors are reported at once, each with its line. A configuration is immutable: an edited file becomes a new one.

This module does not know which plugins exist: `Registries` has their classes by type. A top-level section that belongs
to another component is named in `sections`, with the options class to read it into. `Configuration.sections` has the
result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from haulout.controllers.profiles.config.model import Configuration
from haulout.errors import ConfigError
from haulout.runtime.config_watcher import read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Registries:
    """The available plugin classes, by type. Types of schedules are case-insensitive."""

    checks: Mapping[str, type] = field(default_factory=dict)
    triggers: Mapping[str, type] = field(default_factory=dict)
    notifications: Mapping[str, type] = field(default_factory=dict)
    schedules: Mapping[str, type] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and its warnings, in the order of the lines."""

    configuration: Configuration
    warnings: tuple[ConfigError, ...] = ()


def load(
    source: Path | bytes,
    registries: Registries,
    environ: Mapping[str, str],
    *,
    file: str | None = None,
    sections: Mapping[str, type] | None = None,
    opens_files: bool = True,
) -> Loaded:
    """Return the configuration in a file or its content. Raise `ConfigErrors` with all errors.

    Files that the configuration names are validated too, unless `opens_files` is false: the author of the file may lack
    permission to read them.
    """
    # Imported late: `builder` imports `Loaded` and `Registries` from this module.
    from haulout.controllers.profiles.config.builder import build

    name = file or (str(source) if isinstance(source, Path) else "maintenance.yaml")
    data = source if isinstance(source, bytes) else read_file(source, name)
    return build(data, registries, environ, file=name, sections=sections or {}, opens_files=opens_files)
