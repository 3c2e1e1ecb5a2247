"""What can be configured of the Compute API as a source, by environment variables.

    settings = read(os.environ)         # None: the Compute API is not asked

The file with credentials and the host of the metadata server have the names that all of Google's libraries go by.
Reading this loads nothing else of this package: most operators have nothing to do with Google Cloud.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from haulout.errors import ConfigError
from haulout.notices.sources.addresses import address
from haulout.notices.sources.variables import ENVIRONMENT, flag, interval

COMPUTE, METADATA = "https://compute.googleapis.com", "http://169.254.169.254"  # as a name it would have to be found
FILE, HOST = "GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"
_ON, _PROJECTS, _FILTER = "HAULOUT_GCP", "HAULOUT_GCP_PROJECTS", "HAULOUT_GCP_FILTER"
_EVERY, _BEGIN, _ENDPOINT = "HAULOUT_GCP_LOOK_EVERY", "HAULOUT_GCP_START", "HAULOUT_GCP_ENDPOINT"
VARIABLES = (_ON, _PROJECTS, _FILTER, _EVERY, _BEGIN, _ENDPOINT)  # those that are ours
TURN_ON = (_ON, _PROJECTS)  # without one of them the Compute API is not asked

_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]")
_LOOK_EVERY, _SHORTEST_LOOK = timedelta(minutes=5), timedelta(seconds=30)
_LONGEST_FILTER = 2048


class Begin(StrEnum):
    """Whether a maintenance that may begin early does so."""

    AFTER_DRAIN = "after-drain"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is configured."""

    projects: tuple[str, ...] = ()  # empty: those that the nodes are in
    filter: str = ""  # of instances, in the language of the Compute API
    look_every: timedelta = _LOOK_EVERY
    begin: Begin = Begin.NEVER
    endpoint: str = COMPUTE
    credentials: Path | None = None  # None: the metadata server gives tokens
    metadata: str = METADATA

    @property
    def scope(self) -> str:
        """What a token has to allow."""
        what = "compute.readonly" if self.begin is Begin.NEVER else "compute"
        return f"https://www.googleapis.com/auth/{what}"


def read(variables: Mapping[str, str]) -> Settings | None:
    """Return what environment variables say; None if the Compute API is not asked. Raises `ConfigError`."""
    projects = tuple(_projects(variables))
    if not projects and not flag(variables, _ON, default=False):
        return None
    credentials = variables.get(FILE, "").strip()
    if credentials:
        from haulout.notices.sources.gcp.tokens import read_key

        read_key(Path(credentials))  # to be told now if it makes no sense
    return Settings(
        projects=projects,
        filter=_filter(variables),
        look_every=interval(variables, _EVERY, default=_LOOK_EVERY, least=_SHORTEST_LOOK),
        begin=_begin(variables),
        endpoint=address(variables.get(_ENDPOINT, ""), key=_ENDPOINT) or COMPUTE,
        credentials=Path(credentials) if credentials else None,
        metadata=metadata_server(variables),
    )


def metadata_server(variables: Mapping[str, str]) -> str:
    """Return where the metadata server is; raises `ConfigError`."""
    host = variables.get(HOST, "").strip()
    return address(f"http://{host}", key=HOST) if host else METADATA


def _projects(variables: Mapping[str, str]) -> Iterator[str]:
    for value in re.split(r"[\s,]+", variables.get(_PROJECTS, "")):
        if value and not _PROJECT.fullmatch(value):
            expected = "expected ids of projects, such as my-project-1234"
            raise ConfigError(f"{expected}, found {value[:80]!r}", file=ENVIRONMENT, key=_PROJECTS)
        if value:
            yield value


def _filter(variables: Mapping[str, str]) -> str:
    value = variables.get(_FILTER, "").strip()
    if len(value) > _LONGEST_FILTER or not value.isprintable():
        expected = "expected an expression such as labels.goog-k8s-cluster-name=prod"
        raise ConfigError(f"{expected}, found {value[:80]!r}", file=ENVIRONMENT, key=_FILTER)
    return value


def _begin(variables: Mapping[str, str]) -> Begin:
    value = variables.get(_BEGIN, "").strip().lower()
    try:
        return Begin(value) if value else Begin.NEVER
    except ValueError:
        expected = f"expected {' or '.join(Begin)}"
        raise ConfigError(f"{expected}, found {value[:60]!r}", file=ENVIRONMENT, key=_BEGIN) from None
