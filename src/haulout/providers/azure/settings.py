"""What can be set about Azure, by variables of the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from haulout.errors import ConfigError
from haulout.providers.azure.imds import ADDRESS
from haulout.providers.endpoints import parse_endpoint

EARLY_START_VARIABLE = "HAULOUT_AZURE_START"
MACHINE_VARIABLE = "HAULOUT_AZURE_VM"
METADATA_VARIABLE = "HAULOUT_AZURE_METADATA"
_ENVIRONMENT = "environment"


class AzureEarlyStart(StrEnum):
    """Whether Azure is told to begin before its time."""

    AFTER_DRAIN = "after-drain"  # the node is empty, and waiting for nothing costs capacity
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """What was set."""

    early_start: AzureEarlyStart = AzureEarlyStart.AFTER_DRAIN
    machine: str = ""  # what Azure calls it; empty: it is asked
    metadata: str = ADDRESS


def read(environ: Mapping[str, str]) -> AzureSettings:
    """Return what the environment says; raises `ConfigError`."""
    early_start = environ.get(EARLY_START_VARIABLE, "").strip() or AzureEarlyStart.AFTER_DRAIN
    if early_start not in set(AzureEarlyStart):
        raise ConfigError(
            f"expected one of {', '.join(AzureEarlyStart)}, found {early_start[:40]!r}",
            file=_ENVIRONMENT,
            key=EARLY_START_VARIABLE,
        )
    metadata = environ.get(METADATA_VARIABLE, "").strip() or ADDRESS
    if not metadata.startswith("http://"):
        raise ConfigError(
            f"expected an address such as {ADDRESS}, found {metadata[:80]!r}", file=_ENVIRONMENT, key=METADATA_VARIABLE
        )
    return AzureSettings(
        early_start=AzureEarlyStart(early_start),
        machine=environ.get(MACHINE_VARIABLE, "").strip(),
        metadata=parse_endpoint(metadata, key=METADATA_VARIABLE),
    )
