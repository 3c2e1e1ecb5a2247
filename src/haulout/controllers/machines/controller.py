"""The MachineMaintenance controller: its informers, its work queues, and the changes that enqueue a key.

    controller = MachineMaintenanceController(client, events=recorder, nodes=nodes)
    await controller.run()                      # until cancelled

`reconciler` reconciles one MachineMaintenance, `claim_reconciler` the claim on one set of Machines. The API server
holds all state that a successor needs.

MachineMaintenances outside of the operator's namespace are ignored: whoever can create one can have a Machine deleted.
"""

from contextlib import ExitStack

from haulout.api.hold import hold_of
from haulout.api.machinemaintenance import MachineMaintenance
from haulout.api.objects import Node, OwnerReference, object_key
from haulout.api.openshift import CONTROL_PLANE_MACHINE_SETS, Machine, MachineSet
from haulout.controllers.machines.claim_reconciler import (
    CONTROL_PLANE,
    ClaimDecision,
    ClaimObservation,
    ClaimReconciler,
)
from haulout.controllers.machines.executor import MachineExecutor
from haulout.controllers.machines.informers import MachineInformers
from haulout.controllers.machines.observation import Decision, Observation
from haulout.controllers.machines.reconciler import MachineMaintenanceReconciler
from haulout.controllers.machines.settings import MachineSettings
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder
from haulout.runtime.controller import Controller
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.journal import Journal

_NAME = "MachineMaintenance"
_WORKERS = 8


class MachineMaintenanceController:
    """Reconciles all MachineMaintenances. Call `run` at most once. The caller runs the node informer."""

    def __init__(
        self,
        client: Client,
        *,
        events: EventRecorder,
        nodes: Informer[Node],
        settings: MachineSettings | None = None,
        freezes: FreezeSource,
    ) -> None:
        self.settings = settings or MachineSettings()
        self._freezes = freezes
        self._nodes = nodes
        self.informers = MachineInformers(
            client,
            nodes=nodes,
            namespace=self.settings.namespace,
            machine_namespace=self.settings.machine_namespace,
        )
        executor = MachineExecutor(client, self.informers)
        self._maintenances: Controller[str, Observation, Decision] = Controller(
            MachineMaintenanceReconciler(
                client.clock,
                informers=self.informers,
                nodes=nodes,
                executor=executor,
                policy=self.settings.policy,
                freezes=self._freezes,
                journal=Journal(_NAME, events, metrics=client.metrics),
                record_change=self._record_change,
            ),
            client,
            name=_NAME,
            workers=_WORKERS,
        )
        self._claims: Controller[str, ClaimObservation, ClaimDecision] = Controller(
            ClaimReconciler(self.informers, executor, on_released=self._enqueue_maintenances_of),
            client,
            name="MachineSet claims",
            workers=_WORKERS,
        )

    async def run(self) -> None:
        """Run until cancelled."""
        await self._maintenances.run(background=(self.informers.run, self._claims.run), start=self._start)

    async def _start(self, subscriptions: ExitStack) -> None:
        await self.informers.wait_synced()
        subscriptions.callback(self._freezes.subscribe(self._enqueue_open))
        subscriptions.callback(self.informers.maintenances.informer.subscribe(self._on_maintenance_change))
        subscriptions.callback(self.informers.machines.informer.subscribe(self._on_machine_change))
        subscriptions.callback(self.informers.machine_sets.informer.subscribe(self._on_machine_set_change))
        subscriptions.callback(self._nodes.subscribe(self._on_node_change))  # this informer outlasts the controller

    def _record_change(self, key: str) -> None:
        self._maintenances.record_change(key)

    # Event handlers

    def _on_maintenance_change(self, old: MachineMaintenance | None, new: MachineMaintenance | None) -> None:
        for maintenance in (old, new):
            if maintenance is not None:
                self._maintenances.queue.add(maintenance.key)
                machine = self.informers.machine(maintenance.spec.machinelink)
                self._enqueue_owner(None if machine is None else machine.controller_owner)

    def _enqueue_open(self) -> None:
        for maintenance in self.informers.open_maintenances():
            self._maintenances.queue.add(maintenance.key)

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            if machine is not None:
                self._enqueue_owner_and_waiting(machine.controller_owner)
                for maintenance in self.informers.open_maintenances():
                    if maintenance.spec.machinelink == machine.name:
                        self._maintenances.queue.add(maintenance.key)

    def _on_machine_set_change(self, old: MachineSet | None, new: MachineSet | None) -> None:
        machine_set = new or old
        if machine_set is not None:
            self._enqueue_owner_and_waiting(OwnerReference(name=machine_set.name))

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _relevant_state(old) == _relevant_state(new):
            return
        for node in (old, new):
            machine = None if node is None else self.informers.machine_of(node.name)
            if machine is not None:
                self._enqueue_owner_and_waiting(machine.controller_owner)

    def _enqueue_owner_and_waiting(self, owner: OwnerReference | None) -> None:
        """Enqueue a MachineSet and all MachineMaintenances that wait for it."""
        if owner is not None:
            self._enqueue_owner(owner)
            self._enqueue_maintenances_of(owner.name)

    def _enqueue_owner(self, owner: OwnerReference | None) -> None:
        if owner is None:
            return
        if owner.kind == CONTROL_PLANE_MACHINE_SETS.kind:
            self._claims.queue.add(CONTROL_PLANE)
        else:
            self._claims.queue.add(object_key(owner.name, self.settings.machine_namespace))

    def _enqueue_maintenances_of(self, owner: str) -> None:
        for maintenance in self.informers.open_maintenances():
            machine = self.informers.machine(maintenance.spec.machinelink)
            if machine is not None and machine.controller_owner is not None and machine.controller_owner.name == owner:
                self._maintenances.queue.add(maintenance.key)


def _relevant_state(node: Node) -> object:
    """Return the fields of a node whose changes trigger a reconcile. A freeze selects by labels."""
    return node.is_ready, hold_of(node), node.metadata.labels
