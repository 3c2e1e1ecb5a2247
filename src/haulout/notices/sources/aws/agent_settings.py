"""What can be set about the agent of an EC2 instance, also by the variables of aws-node-termination-handler.

    settings = read(os.environ)

The handler has a switch for each kind of event. What is switched off is not asked for. All are on unless they are
switched off: the profile says what is done about a notice.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from haulout.errors import ConfigError
from haulout.notices.sources.addresses import address
from haulout.notices.sources.aws.metadata import ADDRESS
from haulout.notices.sources.aws.readings import Family
from haulout.notices.sources.aws.settings import NETWORK
from haulout.notices.sources.variables import ENVIRONMENT, flag

METADATA = "HAULOUT_AWS_METADATA"
_ADDRESSES = (METADATA, "INSTANCE_METADATA_URL")
# The first that is true decides: the handler monitors recommendations if it is to cordon for them, or to drain.
_SWITCHES: Mapping[Family, tuple[str, ...]] = {
    Family.SPOT: ("ENABLE_SPOT_INTERRUPTION_DRAINING",),
    Family.TARGET: ("ENABLE_ASG_LIFECYCLE_DRAINING",),
    Family.EVENT: ("ENABLE_SCHEDULED_EVENT_DRAINING",),
    Family.REBALANCE: ("ENABLE_REBALANCE_MONITORING", "ENABLE_REBALANCE_DRAINING"),
}
VARIABLES = (METADATA, NETWORK)
SHARED = ("INSTANCE_METADATA_URL", *(name for names in _SWITCHES.values() for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What was set."""

    metadata: str = ADDRESS
    families: tuple[Family, ...] = tuple(_SWITCHES)  # what is asked for
    drains_for_network: bool = False  # maintenance of the network counts as a reboot


def read(environ: Mapping[str, str]) -> AgentSettings:
    """Return what the environment says; raises `ConfigError`."""
    key = next((it for it in _ADDRESSES if environ.get(it, "").strip()), METADATA)
    metadata = environ.get(key, "").strip() or ADDRESS
    if not metadata.startswith("http://"):
        raise ConfigError(f"expected an address such as {ADDRESS}, found {metadata[:80]!r}", file=ENVIRONMENT, key=key)
    families = tuple(family for family, names in _SWITCHES.items() if _is_on(environ, names))
    if not families:
        switches = ", ".join(SHARED[1:])
        raise ConfigError(f"expected some event to listen for, found that {switches} are all off", file=ENVIRONMENT)
    return AgentSettings(
        metadata=address(metadata, key=key),
        families=families,
        drains_for_network=flag(environ, NETWORK, default=False),
    )


def _is_on(environ: Mapping[str, str], names: tuple[str, ...]) -> bool:
    written = [name for name in names if environ.get(name, "").strip()]
    return not written or any(flag(environ, name, default=True) for name in written)
