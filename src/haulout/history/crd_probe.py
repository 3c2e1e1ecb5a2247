"""Whether the API server has the CRD of MaintenanceRecords. While it is missing, discovery is queried once a minute."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.errors import KubeError
from haulout.kube import discovery
from haulout.kube.client import Client

log = logging.getLogger(__name__)

PROBE_INTERVAL = timedelta(minutes=1)  # while the CRD is missing
_CONFIRM_AFTER = timedelta(seconds=5)  # at the start, before history is disabled


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
        """Whether the CRD is missing as far as known."""
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
