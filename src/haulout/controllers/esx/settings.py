"""Settings of the ESX controller, from `esx.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from haulout.drain.policy import DrainPolicy
from haulout.errors import ConfigError

_ZONE_PLACEHOLDER = "$AZ"
_PATH = "/sdk"


@dataclass(frozen=True, slots=True)
class VCenterCredentials:
    """Username and password for a vCenter."""

    username: str
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VCenterAccess:
    """URL and credentials of one vCenter."""

    url: str
    credentials: VCenterCredentials
    insecure: bool = False  # do not verify the TLS certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class VCenters:
    """The vCenters: one per zone, by the letter of the zone."""

    template_url: str
    credentials: Mapping[str, VCenterCredentials] = field(default_factory=dict)
    insecure: bool = False

    def access(self, zone: str) -> VCenterAccess:
        """Return the access to the vCenter of a zone; raise `ConfigError` if it has no credentials."""
        if zone not in self.credentials:
            raise ConfigError(f"expected a username for zone {zone}", key=f"vCenters.credentials.{zone}")
        url = self.template_url.replace(_ZONE_PLACEHOLDER, zone).rstrip("/")
        return VCenterAccess(url=f"{url}{_PATH}", credentials=self.credentials[zone], insecure=self.insecure)


@dataclass(frozen=True, slots=True, kw_only=True)
class EsxSettings:
    """Settings of the ESX controller."""

    vcenters: VCenters
    interval: timedelta = timedelta(minutes=1)  # between two rounds
    jitter: float = 0.1  # fraction of the interval that may be added at random
    alarms: frozenset[str] = frozenset()  # names of alarms on which nodes are drained without grace period
    eviction_timeout: timedelta | None = None  # pods are deleted after this time; needs deletion_timeout
    deletion_timeout: timedelta | None = None  # and killed after this time; None: no pod is forced
    shutdown_poll_interval: timedelta = timedelta(seconds=10)  # while guests shut down
    shutdown_timeout: timedelta = timedelta(minutes=5)  # before the machine is powered off

    def drain_policy(self, *, immediate: bool) -> DrainPolicy:
        """Return the drain policy; with `immediate` pods get no grace period."""
        base = DrainPolicy.like_smc(eviction_timeout=self.eviction_timeout, deletion_timeout=self.deletion_timeout)
        return replace(base, grace_period=timedelta()) if immediate else base
