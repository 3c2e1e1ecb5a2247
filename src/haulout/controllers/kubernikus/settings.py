"""What a `kubernikus.yaml` says, as values."""

from dataclasses import dataclass, field
from datetime import timedelta

from haulout.drain.policy import DrainPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """Where a Secret is."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernikusSettings:
    """How nodes are looked at and emptied, and where the way into OpenStack is written."""

    interval: timedelta = timedelta(seconds=30)  # at which those are asked who do not tell by themselves
    policy: DrainPolicy = field(default_factory=DrainPolicy.like_smc)
    secret: SecretKey | None = None  # None: a file
