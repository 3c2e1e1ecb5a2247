"""Whether records can be written: their CRD is installed, and the last writes did not fail for all of them.

`WriteBackoff` delays all writes after a failure that may concern the records of all nodes, until a write succeeds.
`CrdProbe` tells whether the API server has the CRD of MaintenanceRecords. While it is missing, it queries discovery
once a minute.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.core.backoff import RECONNECT
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    MalformedResponse,
    NotFound,
    Unauthorized,
)
from haulout.kube import discovery
from haulout.kube.client import Client

log = logging.getLogger(__name__)

# Concern one record only.
SINGLE_RECORD_ERRORS = (AlreadyExists, BadRequest, Conflict, MalformedResponse, Invalid, NotFound)

PROBE_INTERVAL = timedelta(minutes=1)  # while the CRD is missing
_CONFIRM_AFTER = timedelta(seconds=5)  # at the start, before history is disabled


@dataclass(slots=True)
class WriteFailure:
    """The last failure, and until when to wait."""

    error: KubeError
    until: float  # monotonic


class WriteBackoff:
    """Whether writes fail for all records, and when to try again."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.failure: WriteFailure | None = None
        self._clock = clock
        self._random = random
        self._retry = Retry(clock, random, RECONNECT)

    def retry_at(self) -> datetime | None:
        """Return when to try again; None: now. The jitter avoids that the same record is always the first."""
        wait = 0 if self.failure is None else self.failure.until - self._clock.monotonic()
        if wait <= 0:
            return None
        return self._clock.now() + timedelta(seconds=wait + self._random.random())

    def record_failure(self, error: KubeError) -> datetime:
        """Delay all writes after a failure that may concern all of them; return when to try again."""
        known = self.failure
        if known is not None and (retry_at := self.retry_at()) is not None:
            return retry_at  # another worker has recorded the failure
        # By type: the message contains the name of a node, so it would differ each time.
        if known is None or type(known.error) is not type(error):
            level = logging.WARNING if isinstance(error, Forbidden | Unauthorized) else logging.INFO
            log.log(level, "cannot write the history; entries are kept in memory until it works: %s", error)
        if known is None:
            self._retry.reset()
        delay = self._retry.delay(error)
        self.failure = WriteFailure(error, self._clock.monotonic() + delay.total_seconds())
        return self._clock.now() + delay


class CrdProbe:
    """Queries discovery for the CRD, and calls `on_installed` and `on_missing` when that changes."""

    def __init__(self, client: Client, *, on_installed: Callable[[], object], on_missing: Callable[[], object]) -> None:
        self.missing = asyncio.Event()  # set while the CRD is missing
        self._client = client
        self._clock = client.clock
        self._on_installed = on_installed
        self._on_missing = on_missing

    @property
    def is_missing(self) -> bool:
        return self.missing.is_set()

    async def probe_at_start(self) -> None:
        """Disable history at the start if the CRD is missing. Confirm that first: the API server may be starting."""
        try:
            if await discovery.serves(self._client, MAINTENANCE_RECORDS):
                return
        except KubeError as error:
            log.debug("cannot check whether the history is installed: %s", error)
            return
        await self._clock.sleep(_CONFIRM_AFTER)
        await self.probe()

    async def run(self) -> None:
        """Query once a minute while the CRD is missing, until cancelled."""
        while True:
            await self.missing.wait()
            await self._clock.sleep(PROBE_INTERVAL)
            await self.probe()

    async def probe(self) -> None:
        try:
            is_installed = await discovery.serves(self._client, MAINTENANCE_RECORDS)
        except KubeError as error:
            log.debug("cannot check whether the history is installed: %s", error)
            return
        if is_installed and self.is_missing:
            self._on_installed()
        elif not is_installed and not self.is_missing:
            self._on_missing()
