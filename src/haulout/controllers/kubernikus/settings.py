"""The settings in `kubernikus.yaml`, as values."""

from dataclasses import dataclass, field
from datetime import timedelta

from haulout.drain.policy import DrainPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """Namespace and name of a Secret."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernikusSettings:
    """Settings of the Kubernikus controller."""

    interval: timedelta = timedelta(seconds=30)  # poll interval of the API server's version and of Nova
    policy: DrainPolicy = field(default_factory=DrainPolicy.like_smc)
    secret: SecretKey | None = None  # Secret with OpenStack credentials; None: they are in a file
