"""Whether the server has the definition of MaintenanceRecords. While it has none, it is asked once a minute."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.errors import KubeError
from haulout.kube import discovery
from haulout.kube.client import Client

log = logging.getLogger(__name__)

PROBE_INTERVAL = timedelta(minutes=1)  # whether there is a definition by now
_CONFIRM_AFTER = timedelta(seconds=5)  # that there is none when it begins


class CrdProbe:
    """Asks for the definition, and calls `on_installed` and `on_missing` when the answer is another than before."""

    def __init__(self, client: Client, *, on_installed: Callable[[], object], on_missing: Callable[[], object]) -> None:
        self.missing = asyncio.Event()  # set while there is no definition
        self._client = client
        self._clock = client.clock
        self._on_installed = on_installed
        self._on_missing = on_missing

    @property
    def is_missing(self) -> bool:
        """Tell whether there is no definition, as far as is known."""
        return self.missing.is_set()

    async def probe_at_start(self) -> None:
        """Be off from the start without a definition, but not because of a server that has just started itself."""
        try:
            if await discovery.serves(self._client, MAINTENANCE_RECORDS):
                return
        except KubeError as error:
            log.debug("whether a history is kept is not known yet: %s", error)
            return
        await self._clock.sleep(_CONFIRM_AFTER)
        await self.probe()

    async def run(self) -> None:
        """Ask while there is none, until cancelled."""
        while True:
            await self.missing.wait()
            await self._clock.sleep(PROBE_INTERVAL)
            await self.probe()

    async def probe(self) -> None:
        """Ask the server once."""
        try:
            is_installed = await discovery.serves(self._client, MAINTENANCE_RECORDS)
        except KubeError as error:
            log.debug("whether a history is kept is not known yet: %s", error)
            return
        if is_installed and self.is_missing:
            self._on_installed()
        elif not is_installed and not self.is_missing:
            self._on_missing()
