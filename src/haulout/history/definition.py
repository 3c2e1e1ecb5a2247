"""Whether the server has the definition of MaintenanceRecords. While it has none, it is asked once a minute."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from haulout.errors import KubeError
from haulout.history.record import MAINTENANCE_RECORDS
from haulout.kube import discovery
from haulout.kube.client import Client

log = logging.getLogger(__name__)

ASKED_EVERY = timedelta(minutes=1)  # whether there is a definition by now
_CONFIRMED_AFTER = timedelta(seconds=5)  # that there is none when it begins


class Definition:
    """Asks for the definition, and calls `turn_on` and `turn_off` when the answer is another than before."""

    def __init__(self, client: Client, *, turn_on: Callable[[], object], turn_off: Callable[[], object]) -> None:
        self.off = asyncio.Event()  # set while there is no definition
        self._client = client
        self._clock = client.clock
        self._turn_on = turn_on
        self._turn_off = turn_off

    @property
    def is_off(self) -> bool:
        """Tell whether there is no definition, as far as is known."""
        return self.off.is_set()

    async def learn(self) -> None:
        """Be off from the start without a definition, but not because of a server that has just started itself."""
        try:
            if await discovery.serves(self._client, MAINTENANCE_RECORDS):
                return
        except KubeError as error:
            log.debug("whether a history is kept is not known yet: %s", error)
            return
        await self._clock.sleep(_CONFIRMED_AFTER)
        await self.ask()

    async def keep_asking(self) -> None:
        """Ask while there is none, until cancelled."""
        while True:
            await self.off.wait()
            await self._clock.sleep(ASKED_EVERY)
            await self.ask()

    async def ask(self) -> None:
        """Ask the server once."""
        try:
            is_on = await discovery.serves(self._client, MAINTENANCE_RECORDS)
        except KubeError as error:
            log.debug("whether a history is kept is not known yet: %s", error)
            return
        if is_on and self.is_off:
            self._turn_on()
        elif not is_on and not self.is_off:
            self._turn_off()
