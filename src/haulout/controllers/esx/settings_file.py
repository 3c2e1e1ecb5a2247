"""Parse `esx.yaml`, the file of the SAP maintenance-controller, by the rules of its `maintenance.yaml`.

file = EsxFile(Path("config/esx.yaml"), environ=os.environ, clock=clock)  # raises ConfigErrors
file.settings
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from haulout.controllers.esx.settings import EsxSettings, VCenterCredentials, VCenters
from haulout.controllers.profiles.config import reader
from haulout.controllers.profiles.config.options import option, secret_option
from haulout.core.clock import Clock
from haulout.runtime.config_watcher import ConfigFile, LoadedConfig

_MIN_JITTER = 0.001
_DEFAULT_DELETION_TIMEOUT = timedelta(minutes=10)  # with force, if the file sets none; as in the trigger `eviction`
_EXPECTED_ADDRESS = "expected an address such as https://vcenter-$AZ.example.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInterval:
    """When vCenters are polled."""

    period: timedelta = option("How often each vCenter is polled.")
    jitter: float = option("By which random fraction the period may be longer: `0.1` is a tenth.")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a jitter that the SAP maintenance-controller rejects, and durations that are not positive."""
        if self.jitter < _MIN_JITTER:
            yield "jitter", f"expected a number from {_MIN_JITTER}, found {self.jitter:g}"
        if self.period <= timedelta():
            yield "period", "expected a duration above zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeletion:
    """How pods are deleted."""

    period: timedelta | None = option("Accepted and ignored: nothing is polled.", default=None)
    timeout: timedelta | None = option(
        "With `podEviction.force`: how long a deleted pod may take to terminate before it is force-deleted. `10m` by "
        "default.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEviction:
    """How pods are evicted."""

    period: timedelta = option("Accepted and ignored: nothing is polled.")
    timeout: timedelta = option("With `force`: how long eviction is tried before the pod is deleted.")
    force: bool = option("Delete pods that cannot be evicted in time.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """How virtual machines are shut down."""

    period: timedelta = option("How often to check whether a guest has shut down.")
    timeout: timedelta = option("How long a guest may take to shut down before its virtual machine is powered off.")

    def problems(self) -> Iterator[tuple[str, str]]:
        for key, value in (("period", self.period), ("timeout", self.timeout)):
            if value <= timedelta():
                yield key, "expected a duration above zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals and timeouts."""

    check: CheckInterval = option("When vCenters are polled.", required=False)
    pod_deletion: PodDeletion = option("How pods are deleted.", required=False)
    pod_eviction: PodEviction = option("How pods are evicted.", required=False)
    vm_shutdown: Shutdown = option("How virtual machines are shut down.", required=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Credentials of a vCenter."""

    username: str = option("User name.")
    password: str = secret_option("Password; `${NAME}` is replaced by an environment variable.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class VCenterLocations:
    """URLs and credentials of vCenters."""

    template_url: str = option(
        "URL of the vCenters without `/sdk`; `$AZ` is replaced by the letter of the zone.", key="templateUrl"
    )
    insecure: bool = option("Do not verify TLS certificates.", default=False)
    credentials: Mapping[str, Login] = option("Credentials, by the letter of the zone.")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield invalid URLs, and zones that are not one letter. Never repeat a value: it may be secret."""
        try:
            url = urlsplit(self.template_url.replace("$AZ", "a"))
            is_address = url.scheme in ("https", "http") and bool(url.hostname) and (url.port or 1) > 0
        except ValueError:
            url, is_address = urlsplit(""), False
        if not is_address:
            yield "templateUrl", _EXPECTED_ADDRESS
        elif url.username is not None or url.query or url.fragment:
            yield "templateUrl", f"{_EXPECTED_ADDRESS}, without a user, a query or a fragment"
        for letter in self.credentials:
            if len(letter) != 1:
                yield f"credentials.{letter}", "expected the last letter of a zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class EsxDocument:
    """The whole file."""

    intervals: Intervals = option("Intervals and timeouts.", required=False)
    alarms: tuple[str, ...] = option(
        "Names of alarms of vCenter: nodes of hosts with one of them are drained with grace period 0.", default=()
    )
    v_centers: VCenterLocations = option("URLs and credentials of vCenters.", required=False)

    def settings(self) -> EsxSettings:
        intervals, locations = self.intervals, self.v_centers
        eviction_timeout = deletion_timeout = None
        if intervals.pod_eviction.force:
            zero = timedelta()  # the SAP maintenance-controller accepts negative durations
            eviction_timeout = max(intervals.pod_eviction.timeout, zero)
            deletion_timeout = max(intervals.pod_deletion.timeout or _DEFAULT_DELETION_TIMEOUT, zero)
        return EsxSettings(
            vcenters=VCenters(
                template_url=locations.template_url,
                credentials={
                    zone: VCenterCredentials(login.username, login.password)
                    for zone, login in locations.credentials.items()
                },
                insecure=locations.insecure,
            ),
            interval=intervals.check.period,
            jitter=intervals.check.jitter,
            alarms=frozenset(self.alarms),
            eviction_timeout=eviction_timeout,
            deletion_timeout=deletion_timeout,
            shutdown_poll_interval=intervals.vm_shutdown.period,
            shutdown_timeout=intervals.vm_shutdown.timeout,
        )


def read(data: bytes | str, *, file: str, environ: Mapping[str, str]) -> LoadedConfig[EsxSettings]:
    """Parse a file; raise `ConfigErrors`."""
    document, warnings = reader.read(EsxDocument, data, file=file, environ=environ)
    return LoadedConfig(document.settings(), warnings)


class EsxFile(ConfigFile[EsxSettings]):
    """The file while the operator runs."""

    def __init__(self, path: Path, *, environ: Mapping[str, str], clock: Clock) -> None:
        super().__init__(path, load=lambda data: read(data, file=str(path), environ=environ), clock=clock)
