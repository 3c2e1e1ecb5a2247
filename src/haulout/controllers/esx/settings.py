"""How the integration works: what `esx.yaml` comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from haulout.drain.policy import DrainPolicy
from haulout.errors import ConfigError

_ZONE_PLACEHOLDER = "$AZ"
_PATH = "/sdk"


@dataclass(frozen=True, slots=True)
class VCenterCredentials:
    """As whom one logs in at a vCenter."""

    username: str
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VCenterAccess:
    """The way to one vCenter."""

    url: str
    credentials: VCenterCredentials
    insecure: bool = False  # whoever answers is believed to be it


@dataclass(frozen=True, slots=True, kw_only=True)
class VCenters:
    """Where vCenters are: one for each zone, by its letter."""

    template_url: str
    credentials: Mapping[str, VCenterCredentials] = field(default_factory=dict)
    insecure: bool = False

    def access(self, zone: str) -> VCenterAccess:
        """Return the way to the vCenter of a zone; raises `ConfigError` if nobody told how to log in there."""
        if zone not in self.credentials:
            raise ConfigError(f"expected a username for zone {zone}", key=f"vCenters.credentials.{zone}")
        url = self.template_url.replace(_ZONE_PLACEHOLDER, zone).rstrip("/")
        return VCenterAccess(url=f"{url}{_PATH}", credentials=self.credentials[zone], insecure=self.insecure)


@dataclass(frozen=True, slots=True, kw_only=True)
class EsxSettings:
    """All of it."""

    vcenters: VCenters
    interval: timedelta = timedelta(minutes=1)  # between two rounds
    jitter: float = 0.1  # by how much of itself that may be longer
    alarms: frozenset[str] = frozenset()  # names of alarms for which hosts are emptied in a hurry
    eviction_timeout: timedelta | None = None  # with the next one: pods are deleted after this time, and
    deletion_timeout: timedelta | None = None  # killed after this one; None: nobody is forced
    shutdown_poll_interval: timedelta = timedelta(seconds=10)  # while guests shut down
    shutdown_timeout: timedelta = timedelta(minutes=5)  # before the machine is turned off

    def drain_policy(self, *, immediate: bool) -> DrainPolicy:
        """Return how nodes are drained; in a hurry, pods get no time to end."""
        base = DrainPolicy.like_smc(eviction_timeout=self.eviction_timeout, deletion_timeout=self.deletion_timeout)
        return replace(base, grace_period=timedelta()) if immediate else base
