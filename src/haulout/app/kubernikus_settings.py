"""Reads `kubernikus.yaml`, the file of the SAP maintenance-controller, by the rules of its `maintenance.yaml`.

    file = KubernikusFile(Path("config/kubernikus.yaml"), environ=os.environ, clock=clock)      # raises ConfigErrors
    file.settings
    await file.follow(use)                  # calls `use` with what an edit says; a broken one changes nothing

Times that have had no effect there since version 2.0 have the one again that its documentation gives them: with
`force`, and only then, they say how long a pod is asked to leave, and how long it may take to end.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from haulout.controllers.kubernikus.settings import KubernikusSettings, SecretKey
from haulout.controllers.profiles.config import reader
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.config.watcher import ConfigChange, ConfigWatcher
from haulout.core.clock import Clock
from haulout.drain.policy import DrainPolicy
from haulout.errors import ConfigError, ConfigErrors

log = logging.getLogger(__name__)

DEFAULT_PATH = Path("config/kubernikus.yaml")  # where the SAP maintenance-controller looks, from the working directory
_MIN_INTERVAL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """How pods end that were told to go."""

    period: timedelta = option("Taken and of no effect: nothing is polled.")
    timeout: timedelta = option(
        "With `podEviction.force`: how long a pod that was told to go may take, before it gets no more time."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """How pods are evicted."""

    period: timedelta = option("Taken and of no effect: nothing is polled.")
    timeout: timedelta = option("With `force`: how long a pod is asked to leave, before it is deleted.")
    force: bool = option("Delete pods that cannot be evicted in time.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often, and how long."""

    requeue: timedelta = option("How often the API server is asked for its version, and Nova what became of a server.")
    pod_deletion: Deletion = option("How pods end that were told to go.", required=False)
    pod_eviction: Eviction = option("How pods are evicted.", required=False)

    def warnings(self) -> list[tuple[str, str]]:
        """Return an interval that is too short."""
        if self.requeue >= _MIN_INTERVAL:
            return []
        return [("requeue", "this is shorter than a second, which is what counts instead")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretName:
    """Where a Secret is."""

    name: str = option("The Secret's name.", default="")
    namespace: str = option("The Secret's namespace.", default="")

    def warnings(self) -> list[tuple[str, str]]:
        """Return half of a name."""
        if bool(self.name) == bool(self.namespace):
            return []
        missing = "namespace" if self.name else "name"
        return [(missing, "expected both name and namespace: with one of them the Secret is not read, but the file")]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernikusDocument:
    """The file."""

    intervals: Intervals = option("How often, and how long.", required=False)
    cloud_provider_secret: SecretName = option(
        "The Secret whose key `cloudprovider.conf` has the credentials. Without one it is the file "
        "`./provider/cloudprovider.conf`.",
        default=SecretName(),
    )

    def settings(self) -> KubernikusSettings:
        """Return what it comes to."""
        intervals, secret = self.intervals, self.cloud_provider_secret
        policy = DrainPolicy.like_smc()
        if intervals.pod_eviction.force:
            zero = timedelta()  # the SAP maintenance-controller takes negative times, too
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


@dataclass(frozen=True, slots=True)
class LoadedKubernikusSettings:
    """What a file says, and what about it is probably not meant."""

    configuration: KubernikusSettings
    warnings: tuple[ConfigError, ...] = ()


def read(data: bytes | str, *, file: str, environ: Mapping[str, str]) -> LoadedKubernikusSettings:
    """Return what a file says; raises `ConfigErrors`."""
    shape, warnings = reader.read(KubernikusDocument, data, file=file, environ=environ)
    return LoadedKubernikusSettings(shape.settings(), warnings)


class KubernikusFile:
    """The file while the operator runs. Making one reads it; raises `ConfigErrors`."""

    def __init__(self, path: Path, *, environ: Mapping[str, str], clock: Clock) -> None:
        self.path = path
        self._watched = ConfigWatcher(
            path,
            load=lambda data: read(data, file=str(path), environ=environ),
            clock=clock,
            compare=lambda _old, _new: (),
        )
        loaded = self._watched.start()
        self.settings = loaded.configuration
        self.warnings = loaded.warnings

    @property
    def problem(self) -> ConfigErrors | None:
        """What is wrong with the file as it is now."""
        return self._watched.problem

    async def watch(self, use: Callable[[KubernikusSettings], object]) -> None:
        """Follow the file until cancelled; `use` is called with what it says from then on."""

        def change(change: ConfigChange[LoadedKubernikusSettings]) -> None:
            self.settings, self.warnings = change.loaded.configuration, change.loaded.warnings
            log.info("%s is in force", self.path)
            for warning in self.warnings:
                log.warning("%s", warning)
            use(self.settings)

        def restored() -> None:
            log.info("%s makes sense again", self.path)

        await self._watched.watch(on_change=change, on_problem=self._log_problem, on_restored=restored)

    def _log_problem(self, problem: ConfigErrors) -> None:
        for error in problem.errors:
            log.error("%s", error)
        log.error("%s makes no sense: going on by what it said before", self.path)
