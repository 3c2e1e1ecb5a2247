"""What can be set about labels of GKE, by environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from haulout.errors import ConfigError
from haulout.notices.sources.gcp.settings import Begin
from haulout.notices.sources.variables import ENVIRONMENT, flag

_ON, _BEGIN = "HAULOUT_GKE", "HAULOUT_GKE_START"
VARIABLES = (_ON, _BEGIN)
TURN_ON = (_ON,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is configured."""

    begin: Begin = Begin.NEVER


def read(variables: Mapping[str, str]) -> Settings | None:
    """Return what environment variables say; None if labels are not looked at. Raises `ConfigError`."""
    if not flag(variables, _ON, default=False):
        return None
    value = variables.get(_BEGIN, "").strip().lower() or Begin.NEVER
    if value not in set(Begin):
        raise ConfigError(f"expected {' or '.join(Begin)}, found {value[:60]!r}", file=ENVIRONMENT, key=_BEGIN)
    return Settings(begin=Begin(value))
