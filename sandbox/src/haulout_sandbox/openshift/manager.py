"""The manager of the simulated Machine API."""

from functools import partial
from random import Random

from haulout.kube.client import Client
from haulout_sandbox.controllers.base import ControllerManager
from haulout_sandbox.openshift.instance_provider import InstanceProvider
from haulout_sandbox.openshift.machine import MachineApiDelays, MachineController
from haulout_sandbox.openshift.machineset import ControlPlaneMachineSetController, MachineSetController

__all__ = ["MachineApi", "MachineApiDelays"]


class MachineApi:
    """Runs the controllers of the Machine API; its CRDs must be served."""

    def __init__(
        self, client: Client, instances: InstanceProvider, *, random: Random, delays: MachineApiDelays | None = None
    ) -> None:
        machines = partial(MachineController, instances=instances, delays=delays or MachineApiDelays())
        factories = (machines, MachineSetController, ControlPlaneMachineSetController)
        self._controllers = ControllerManager(client, random=random, factories=factories)

    async def run(self) -> None:
        await self._controllers.run()
