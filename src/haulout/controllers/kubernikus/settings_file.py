"""Parse `kubernikus.yaml`, the file of the SAP maintenance-controller, by the rules of its `maintenance.yaml`.

    file = KubernikusFile(Path("config/kubernikus.yaml"), environ=os.environ, clock=clock)  # raises ConfigErrors
    file.settings
    await file.watch(use)  # calls `use` after a valid edit; an invalid one changes nothing

Timeouts that the SAP maintenance-controller ignores since its version 2.0 have the effect again that its documentation
gives them: only with `force`, they limit how long eviction is tried, and how long a pod may take to terminate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from haulout.controllers.kubernikus.settings import KubernikusSettings, SecretKey
from haulout.controllers.profiles.config import reader
from haulout.controllers.profiles.config.options import option
from haulout.core.clock import Clock
from haulout.drain.policy import DrainPolicy
from haulout.runtime.config_watcher import ConfigFile, LoadedConfig

_MIN_INTERVAL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeletion:
    """How pods that were deleted or evicted terminate."""

    period: timedelta = option("Accepted and ignored: nothing is polled.")
    timeout: timedelta = option(
        "With `podEviction.force`: how long a deleted pod may take to terminate before it is force-deleted."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEviction:
    """How pods are evicted."""

    period: timedelta = option("Accepted and ignored: nothing is polled.")
    timeout: timedelta = option("With `force`: how long eviction is tried before the pod is deleted.")
    force: bool = option("Delete pods that cannot be evicted in time.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals and timeouts."""

    requeue: timedelta = option("How often the version of the API server and the servers in Nova are polled.")
    pod_deletion: PodDeletion = option("How long evicted or deleted pods may take to terminate.", required=False)
    pod_eviction: PodEviction = option("How pods are evicted.", required=False)

    def warnings(self) -> list[tuple[str, str]]:
        """Warn about an interval below the minimum."""
        if self.requeue >= _MIN_INTERVAL:
            return []
        return [("requeue", "this is shorter than the minimum of 1s; 1s is used")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretName:
    """A reference to a Secret."""

    name: str = option("The Secret's name.", default="")
    namespace: str = option("The Secret's namespace.", default="")

    def warnings(self) -> list[tuple[str, str]]:
        """Warn about a reference that lacks its name or namespace."""
        if bool(self.name) == bool(self.namespace):
            return []
        missing = "namespace" if self.name else "name"
        return [(missing, "expected both name and namespace: with only one, the file is read instead of the Secret")]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernikusDocument:
    """The whole file."""

    intervals: Intervals = option("Intervals and timeouts.", required=False)
    cloud_provider_secret: SecretName = option(
        "The Secret whose key `cloudprovider.conf` has the credentials. The default is the file "
        "`./provider/cloudprovider.conf`.",
        default=SecretName(),
    )

    def settings(self) -> KubernikusSettings:
        intervals, secret = self.intervals, self.cloud_provider_secret
        policy = DrainPolicy.like_smc()
        if intervals.pod_eviction.force:
            zero = timedelta()  # the SAP maintenance-controller accepts negative durations
            policy = DrainPolicy.like_smc(
                eviction_timeout=max(intervals.pod_eviction.timeout, zero),
                deletion_timeout=max(intervals.pod_deletion.timeout, zero),
            )
        has_secret = secret.name and secret.namespace
        return KubernikusSettings(
            interval=max(intervals.requeue, _MIN_INTERVAL),
            policy=policy,
            secret=SecretKey(namespace=secret.namespace, name=secret.name) if has_secret else None,
        )


def read(data: bytes | str, *, file: str, environ: Mapping[str, str]) -> LoadedConfig[KubernikusSettings]:
    """Parse a file; raise `ConfigErrors`."""
    document, warnings = reader.read(KubernikusDocument, data, file=file, environ=environ)
    return LoadedConfig(document.settings(), warnings)


class KubernikusFile(ConfigFile[KubernikusSettings]):
    """The file while the operator runs."""

    def __init__(self, path: Path, *, environ: Mapping[str, str], clock: Clock) -> None:
        super().__init__(path, load=lambda data: read(data, file=str(path), environ=environ), clock=clock)
