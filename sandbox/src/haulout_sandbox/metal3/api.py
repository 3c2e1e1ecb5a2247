"""The stand-in as a whole."""

from functools import partial
from random import Random

from haulout.kube.client import Client
from haulout_sandbox.controllers.base import Controllers
from haulout_sandbox.metal3.hosts import BareMetalHosts
from haulout_sandbox.metal3.rack import Rack


class Metal3:
    """Looks after the hosts of a rack; its definitions must be served."""

    def __init__(self, client: Client, rack: Rack, *, random: Random) -> None:
        kinds = (partial(BareMetalHosts, rack=rack),)
        self._controllers = Controllers(client, random=random, kinds=kinds, events=True)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controllers.run()
