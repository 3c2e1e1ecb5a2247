"""The manager of the simulated Metal3."""

from functools import partial
from random import Random

from haulout.kube.client import Client
from haulout_sandbox.controllers.base import ControllerManager
from haulout_sandbox.metal3.baremetalhost import BareMetalHostController
from haulout_sandbox.metal3.rack import Rack


class Metal3:
    """Runs the Metal3 controller for the hosts of a rack; its CRDs must be served."""

    def __init__(self, client: Client, rack: Rack, *, random: Random) -> None:
        factories = (partial(BareMetalHostController, rack=rack),)
        self._controllers = ControllerManager(client, random=random, factories=factories, events=True)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._controllers.run()
