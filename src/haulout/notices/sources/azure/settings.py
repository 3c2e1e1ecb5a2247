"""What can be set about Azure, by variables of the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from haulout.errors import ConfigError
from haulout.notices.sources.addresses import address
from haulout.notices.sources.azure.metadata import ADDRESS

START = "HAULOUT_AZURE_START"
MACHINE = "HAULOUT_AZURE_VM"
METADATA = "HAULOUT_AZURE_METADATA"
_WHERE = "environment"


class Start(StrEnum):
    """Whether Azure is told to begin before its time."""

    AFTER_DRAIN = "after-drain"  # the node is empty, and waiting for nothing costs capacity
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was set."""

    start: Start = Start.AFTER_DRAIN
    machine: str = ""  # what Azure calls it; empty: it is asked
    metadata: str = ADDRESS


def read(environ: Mapping[str, str]) -> Settings:
    """Return what the environment says; raises `ConfigError`."""
    start = environ.get(START, "").strip() or Start.AFTER_DRAIN
    if start not in set(Start):
        raise ConfigError(f"expected one of {', '.join(Start)}, found {start[:40]!r}", file=_WHERE, key=START)
    metadata = environ.get(METADATA, "").strip() or ADDRESS
    if not metadata.startswith("http://"):
        raise ConfigError(f"expected an address such as {ADDRESS}, found {metadata[:80]!r}", file=_WHERE, key=METADATA)
    return Settings(
        start=Start(start),
        machine=environ.get(MACHINE, "").strip(),
        metadata=address(metadata, key=METADATA),
    )
