"""Settings of the Compute API event source, from environment variables.

    settings = read(os.environ)         # None: the source is off

The variables for the credentials file and the metadata host are those of Google's libraries. This module imports
nothing else of the package: most operators do not use Google Cloud.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from haulout.errors import ConfigError
from haulout.providers.environment import ENVIRONMENT, bool_variable, duration_variable, parse_endpoint

COMPUTE, METADATA = "https://compute.googleapis.com", "http://169.254.169.254"  # an IP address needs no DNS
CREDENTIALS_VARIABLE, METADATA_HOST_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"
_ENABLED_VARIABLE, _PROJECTS_VARIABLE, _FILTER_VARIABLE = "HAULOUT_GCP", "HAULOUT_GCP_PROJECTS", "HAULOUT_GCP_FILTER"
_POLL_INTERVAL_VARIABLE, _EARLY_START_VARIABLE, _ENDPOINT_VARIABLE = (
    "HAULOUT_GCP_LOOK_EVERY",
    "HAULOUT_GCP_START",
    "HAULOUT_GCP_ENDPOINT",
)
VARIABLES = (
    _ENABLED_VARIABLE,
    _PROJECTS_VARIABLE,
    _FILTER_VARIABLE,
    _POLL_INTERVAL_VARIABLE,
    _EARLY_START_VARIABLE,
    _ENDPOINT_VARIABLE,
)  # our own variables
ENABLING_VARIABLES = (_ENABLED_VARIABLE, _PROJECTS_VARIABLE)  # without one of them the Compute API is not used

_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]")
_DEFAULT_POLL_INTERVAL, _MIN_POLL_INTERVAL = timedelta(minutes=5), timedelta(seconds=30)
_MAX_FILTER = 2048


class GoogleEarlyStart(StrEnum):
    """Whether a maintenance that may begin early does so."""

    AFTER_DRAIN = "after-drain"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpSettings:
    """Settings of the Compute API event source."""

    projects: tuple[str, ...] = ()  # empty: the projects of the nodes
    filter: str = ""  # filter expression for instances, as in the Compute API
    poll_interval: timedelta = _DEFAULT_POLL_INTERVAL
    early_start: GoogleEarlyStart = GoogleEarlyStart.NEVER
    endpoint: str = COMPUTE
    credentials: Path | None = None  # None: tokens come from the metadata server
    metadata: str = METADATA

    @property
    def scope(self) -> str:
        """The OAuth scope that a token needs."""
        what = "compute.readonly" if self.early_start is GoogleEarlyStart.NEVER else "compute"
        return f"https://www.googleapis.com/auth/{what}"


def early_start_note(early_start: GoogleEarlyStart) -> str:
    """Return the end of a log line about where events come from."""
    return "" if early_start is GoogleEarlyStart.NEVER else "; maintenance begins once its node is empty"


def read(variables: Mapping[str, str]) -> GcpSettings | None:
    """Return the settings; None if the Compute API is not used. Raise `ConfigError`."""
    projects = tuple(_projects(variables))
    if not projects and not bool_variable(variables, _ENABLED_VARIABLE, default=False):
        return None
    credentials = variables.get(CREDENTIALS_VARIABLE, "").strip()
    if credentials:
        from haulout.providers.gcp.tokens import read_credentials

        read_credentials(Path(credentials))  # fail at startup if the file is invalid
    return GcpSettings(
        projects=projects,
        filter=_filter(variables),
        poll_interval=duration_variable(
            variables, _POLL_INTERVAL_VARIABLE, default=_DEFAULT_POLL_INTERVAL, minimum=_MIN_POLL_INTERVAL
        ),
        early_start=_early_start(variables),
        endpoint=parse_endpoint(variables.get(_ENDPOINT_VARIABLE, ""), key=_ENDPOINT_VARIABLE) or COMPUTE,
        credentials=Path(credentials) if credentials else None,
        metadata=metadata_server(variables),
    )


def metadata_server(variables: Mapping[str, str]) -> str:
    """Return the URL of the metadata server; raise `ConfigError`."""
    host = variables.get(METADATA_HOST_VARIABLE, "").strip()
    return parse_endpoint(f"http://{host}", key=METADATA_HOST_VARIABLE) if host else METADATA


def _projects(variables: Mapping[str, str]) -> Iterator[str]:
    for value in re.split(r"[\s,]+", variables.get(_PROJECTS_VARIABLE, "")):
        if value and not _PROJECT.fullmatch(value):
            expected = "expected ids of projects, such as my-project-1234"
            raise ConfigError(f"{expected}, found {value[:80]!r}", file=ENVIRONMENT, key=_PROJECTS_VARIABLE)
        if value:
            yield value


def _filter(variables: Mapping[str, str]) -> str:
    value = variables.get(_FILTER_VARIABLE, "").strip()
    if len(value) > _MAX_FILTER or not value.isprintable():
        expected = "expected an expression such as labels.goog-k8s-cluster-name=prod"
        raise ConfigError(f"{expected}, found {value[:80]!r}", file=ENVIRONMENT, key=_FILTER_VARIABLE)
    return value


def _early_start(variables: Mapping[str, str]) -> GoogleEarlyStart:
    value = variables.get(_EARLY_START_VARIABLE, "").strip().lower()
    try:
        return GoogleEarlyStart(value) if value else GoogleEarlyStart.NEVER
    except ValueError:
        expected = f"expected {' or '.join(GoogleEarlyStart)}"
        raise ConfigError(f"{expected}, found {value[:60]!r}", file=ENVIRONMENT, key=_EARLY_START_VARIABLE) from None
