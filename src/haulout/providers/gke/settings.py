"""Settings of the GKE event source, from environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from haulout.errors import ConfigError
from haulout.providers.environment import ENVIRONMENT, bool_variable
from haulout.providers.gcp.settings import GoogleEarlyStart

_ENABLED_VARIABLE, _EARLY_START_VARIABLE = "HAULOUT_GKE", "HAULOUT_GKE_START"
VARIABLES = (_ENABLED_VARIABLE, _EARLY_START_VARIABLE)
ENABLING_VARIABLES = (_ENABLED_VARIABLE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class GkeSettings:
    """Settings of the GKE event source. It needs no credentials."""

    early_start: GoogleEarlyStart = GoogleEarlyStart.NEVER


def read(variables: Mapping[str, str]) -> GkeSettings | None:
    """Return the settings; None if the source is off. Raise `ConfigError`."""
    if not bool_variable(variables, _ENABLED_VARIABLE, default=False):
        return None
    value = variables.get(_EARLY_START_VARIABLE, "").strip().lower() or GoogleEarlyStart.NEVER
    if value not in set(GoogleEarlyStart):
        raise ConfigError(
            f"expected {' or '.join(GoogleEarlyStart)}, found {value[:60]!r}",
            file=ENVIRONMENT,
            key=_EARLY_START_VARIABLE,
        )
    return GkeSettings(early_start=GoogleEarlyStart(value))
