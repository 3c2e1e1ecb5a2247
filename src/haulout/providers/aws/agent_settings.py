"""Settings of the agent on an EC2 instance, also from the variables of aws-node-termination-handler.

    settings = read(os.environ)

The handler has a switch for each type of event. Types that are off are not polled. All are on by default: the profile
decides what happens for a notice.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from haulout.errors import ConfigError
from haulout.providers.aws.imds import ADDRESS
from haulout.providers.aws.instance_events import EventType
from haulout.providers.aws.settings import NETWORK_MAINTENANCE_VARIABLE
from haulout.providers.endpoints import parse_endpoint
from haulout.providers.environment import ENVIRONMENT, bool_variable

METADATA_VARIABLE = "HAULOUT_AWS_METADATA"
_ADDRESSES = (METADATA_VARIABLE, "INSTANCE_METADATA_URL")
# A type is on if any of its set variables is true: the handler monitors rebalance recommendations if it should cordon
# for them or drain.
_SWITCHES: Mapping[EventType, tuple[str, ...]] = {
    EventType.SPOT: ("ENABLE_SPOT_INTERRUPTION_DRAINING",),
    EventType.TARGET_LIFECYCLE_STATE: ("ENABLE_ASG_LIFECYCLE_DRAINING",),
    EventType.SCHEDULED_EVENT: ("ENABLE_SCHEDULED_EVENT_DRAINING",),
    EventType.REBALANCE: ("ENABLE_REBALANCE_MONITORING", "ENABLE_REBALANCE_DRAINING"),
}
VARIABLES = (METADATA_VARIABLE, NETWORK_MAINTENANCE_VARIABLE)
NTH_VARIABLES = ("INSTANCE_METADATA_URL", *(name for names in _SWITCHES.values() for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of the agent."""

    metadata: str = ADDRESS
    event_types: tuple[EventType, ...] = tuple(_SWITCHES)  # the types to poll
    drains_for_network_maintenance: bool = False  # treat network maintenance as a reboot


def read(environ: Mapping[str, str]) -> AgentSettings:
    """Return the settings; raise `ConfigError`."""
    key = next((variable for variable in _ADDRESSES if environ.get(variable, "").strip()), METADATA_VARIABLE)
    metadata = environ.get(key, "").strip() or ADDRESS
    if not metadata.startswith("http://"):
        raise ConfigError(f"expected an address such as {ADDRESS}, found {metadata[:80]!r}", file=ENVIRONMENT, key=key)
    event_types = tuple(event_type for event_type, names in _SWITCHES.items() if _is_enabled(environ, names))
    if not event_types:
        switches = ", ".join(NTH_VARIABLES[1:])
        raise ConfigError(f"expected some event to listen for, found that {switches} are all off", file=ENVIRONMENT)
    return AgentSettings(
        metadata=parse_endpoint(metadata, key=key),
        event_types=event_types,
        drains_for_network_maintenance=bool_variable(environ, NETWORK_MAINTENANCE_VARIABLE, default=False),
    )


def _is_enabled(environ: Mapping[str, str], names: tuple[str, ...]) -> bool:
    set_names = [name for name in names if environ.get(name, "").strip()]
    return not set_names or any(bool_variable(environ, name, default=True) for name in set_names)
