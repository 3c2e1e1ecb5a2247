"""Loads a `maintenance.yaml`, checked as a whole.

    loaded = config.load(Path("config/maintenance.yaml"), registries, os.environ)
    loaded.configuration.profiles["flatcar"].states[State.OPERATIONAL].transitions
    loaded.warnings                     # what the Go controller would not even mention

A file that the SAP maintenance-controller loads is loaded, with the same meaning, and one that it refuses is refused;
but all reasons come at once, each with its line. A configuration is a value that never changes: an edited file makes
another one.

Which plugins there are is not known here: `Registries` has their classes by type. A top-level section that belongs to
somebody else is named in `sections`, with the options class that it is read into; `Configuration.sections` has what
came out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from haulout.controllers.profiles.config.model import Configuration
from haulout.errors import ConfigError, ConfigErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class Registries:
    """The plugin classes that there are, by type. Types of schedules are compared without case."""

    checks: Mapping[str, type] = field(default_factory=dict)
    triggers: Mapping[str, type] = field(default_factory=dict)
    notifications: Mapping[str, type] = field(default_factory=dict)
    schedules: Mapping[str, type] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and what about its file is probably not meant, in the order of the lines."""

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
    """Return what a file, or its content, says; `ConfigErrors` has all that is wrong with it.

    Of files that it names it is told what is wrong with them, unless somebody wrote it who may not read them.
    """
    from haulout.controllers.profiles.config.builder import build

    name = file or (str(source) if isinstance(source, Path) else "maintenance.yaml")
    data = source if isinstance(source, bytes) else read_file(source, name)
    return build(data, registries, environ, file=name, sections=sections or {}, opens_files=opens_files)


def read_file(path: Path, name: str) -> bytes:
    """Return what a file holds; raises `ConfigErrors`."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise ConfigErrors([ConfigError(f"expected a file that can be read: {reason}", file=name)]) from None
