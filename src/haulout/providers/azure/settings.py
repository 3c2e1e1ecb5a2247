"""Settings of the Azure event source, from environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from haulout.errors import ConfigError
from haulout.providers.azure.imds import ADDRESS
from haulout.providers.environment import parse_endpoint

EARLY_START_VARIABLE = "HAULOUT_AZURE_START"
MACHINE_VARIABLE = "HAULOUT_AZURE_VM"
METADATA_VARIABLE = "HAULOUT_AZURE_METADATA"
_ENVIRONMENT = "environment"


class AzureEarlyStart(StrEnum):
    """Whether an event is approved before its time, which begins it for all machines that it affects."""

    AFTER_DRAIN = "after-drain"  # once the node is empty: an empty node that waits costs capacity
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """Settings of the Azure event source, which runs only in agents."""

    early_start: AzureEarlyStart = AzureEarlyStart.AFTER_DRAIN
    machine: str = ""  # the name of the machine in Azure; empty: read from the metadata service
    metadata: str = ADDRESS


def read(environ: Mapping[str, str]) -> AzureSettings:
    """Return the settings; raise `ConfigError`."""
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
