"""The stand-in as a whole: its controllers, and the instances that it launches and ends."""

from functools import partial
from random import Random

from haulout.kube.client import Client
from haulout_sandbox.controllers.base import Controllers
from haulout_sandbox.openshift.instances import Instances
from haulout_sandbox.openshift.machines import Machines, Paces
from haulout_sandbox.openshift.sets import ControlPlaneMachineSets, MachineSets

__all__ = ["MachineApi", "Paces"]


class MachineApi:
    """Runs the Machine API; its definitions must be served."""

    def __init__(self, client: Client, instances: Instances, *, random: Random, paces: Paces | None = None) -> None:
        machines = partial(Machines, instances=instances, paces=paces or Paces())
        kinds = (machines, MachineSets, ControlPlaneMachineSets)
        self._controllers = Controllers(client, random=random, kinds=kinds)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controllers.run()
