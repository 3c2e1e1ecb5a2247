"""The stand-in as a whole."""

from functools import partial
from random import Random

from haulout.kube.client import Client
from haulout_sandbox.controllers.base import ControllerManager
from haulout_sandbox.metal3.baremetalhost import BareMetalHostController
from haulout_sandbox.metal3.rack import Rack


class Metal3:
    """Looks after the hosts of a rack; its definitions must be served."""

    def __init__(self, client: Client, rack: Rack, *, random: Random) -> None:
        factories = (partial(BareMetalHostController, rack=rack),)
        self._controllers = ControllerManager(client, random=random, factories=factories, events=True)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controllers.run()
