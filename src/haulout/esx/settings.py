"""How the integration works: what `esx.yaml` comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from haulout.drain.policy import Policy
from haulout.errors import ConfigError

_ZONE = "$AZ"
_PATH = "/sdk"


@dataclass(frozen=True, slots=True)
class Credentials:
    """As whom one logs in at a vCenter."""

    username: str
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The way to one vCenter."""

    url: str
    credentials: Credentials
    insecure: bool = False  # whoever answers is believed to be it


@dataclass(frozen=True, slots=True, kw_only=True)
class VCenters:
    """Where vCenters are: one for each zone, by its letter."""

    template_url: str
    credentials: Mapping[str, Credentials] = field(default_factory=dict)
    insecure: bool = False

    def access(self, zone: str) -> Access:
        """Return the way to the vCenter of a zone; raises `ConfigError` if nobody told how to log in there."""
        if zone not in self.credentials:
            raise ConfigError(f"expected a username for zone {zone}", key=f"vCenters.credentials.{zone}")
        url = self.template_url.replace(_ZONE, zone).rstrip("/")
        return Access(url=f"{url}{_PATH}", credentials=self.credentials[zone], insecure=self.insecure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of it."""

    vcenters: VCenters
    period: timedelta = timedelta(minutes=1)  # between two rounds
    jitter: float = 0.1  # by how much of itself that may be longer
    alarms: frozenset[str] = frozenset()  # names of alarms for which hosts are emptied in a hurry
    evicts_for: timedelta | None = None  # with the next one: pods are deleted after this time, and
    deletes_for: timedelta | None = None  # killed after this one; None: nobody is forced
    looks_every: timedelta = timedelta(seconds=10)  # while guests shut down
    shuts_down_within: timedelta = timedelta(minutes=5)  # before the machine is turned off

    def policy(self, *, in_a_hurry: bool) -> Policy:
        """Return how nodes are drained; in a hurry, pods get no time to end."""
        base = Policy.like_smc(evicts_for=self.evicts_for, deletes_for=self.deletes_for)
        return replace(base, grace_period=timedelta()) if in_a_hurry else base
