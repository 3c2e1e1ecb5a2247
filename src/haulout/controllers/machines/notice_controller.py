"""Creates MachineMaintenances from MaintenanceNotices, as the scan of the Machine Maintenance Operator does.

Notices may come from any source. This controller only writes MachineMaintenances; `reconciler` reconciles them,
together with those that users create.
"""

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

import msgspec

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, MachineMaintenance
from haulout.api.maintenancenotice import MaintenanceNotice, phase_at
from haulout.api.objects import RawObject
from haulout.api.openshift import Machine
from haulout.controllers.machines.desired_maintenance import (
    DesiredMaintenance,
    NoticeFilter,
    desired_maintenance,
    event_id,
    is_about,
)
from haulout.controllers.machines.informers import BY_EVENT, MachineInformers
from haulout.errors import AlreadyExists, NotFound
from haulout.kube import namespaces
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import difference, merge_patch
from haulout.runtime.controller import Controller
from haulout.runtime.reconciler import Reconciler

log = logging.getLogger(__name__)

_WORKERS = 4


class MachineNoticeController:
    """Keeps a MachineMaintenance for each notice about a Machine.

    Call `run` at most once. The caller runs `informers` and `notices`.
    """

    def __init__(
        self,
        client: Client,
        *,
        informers: MachineInformers,
        notices: Informer[MaintenanceNotice],
        namespace: str,
        notice_filter: NoticeFilter | None = None,
    ) -> None:
        self._informers = informers
        self._notices = notices
        self._controller: Controller[str, MachineNoticeObservation, MachineNoticeDecision] = Controller(
            MachineNoticeReconciler(
                client,
                notices=notices,
                informers=informers,
                namespace=namespace,
                notice_filter=notice_filter or NoticeFilter(),
            ),
            client,
            name="MachineMaintenance notices",
            workers=_WORKERS,
        )

    async def run(self) -> None:
        """Run until cancelled."""
        await self._controller.run(start=self._start)

    async def _start(self, subscriptions: ExitStack) -> None:
        await self._notices.wait_synced()
        await self._informers.wait_synced()
        subscriptions.callback(self._notices.subscribe(self._on_notice_change))
        subscriptions.callback(self._informers.machines.informer.subscribe(self._on_machine_change))

    def _on_notice_change(self, old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        self._controller.queue.add((new or old or MaintenanceNotice()).name)

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        if new is None or (old is not None and _identity(old) == _identity(new)):
            return
        for notice in self._notices.all():
            if is_about(notice, new):
                self._controller.queue.add(notice.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineNoticeObservation:
    """A notice, and the Machine and the MachineMaintenances that it may be about."""

    notice: MaintenanceNotice
    machine: Machine | None
    maintenances: tuple[MachineMaintenance, ...]
    now: datetime


@dataclass(frozen=True, slots=True)
class MachineNoticeDecision:
    """The MachineMaintenance to write, if any."""

    desired: DesiredMaintenance | None
    requeue_at: datetime | None = None


class MachineNoticeReconciler(Reconciler[str, MachineNoticeObservation, MachineNoticeDecision]):
    """Reconciles one notice at a time, by name."""

    def __init__(
        self,
        client: Client,
        *,
        notices: Informer[MaintenanceNotice],
        informers: MachineInformers,
        namespace: str,
        notice_filter: NoticeFilter,
    ) -> None:
        self._client = client
        self._notices = notices
        self._machines, self._maintenances = informers.machines.informer, informers.maintenances
        self._namespace = namespace
        self._notice_filter = notice_filter
        self._created: dict[str, str] = {}  # by notice: the key of what we created, which the index may not have yet

    async def observe(self, key: str) -> MachineNoticeObservation | None:
        notice = self._notices.get(key)
        if notice is None:
            return None
        indexed = [maintenance.key for maintenance in self._maintenances.informer.by_index(BY_EVENT, event_id(notice))]
        created = [self._created[key]] if key in self._created else []
        found = (self._maintenances.get(maintenance) for maintenance in dict.fromkeys((*indexed, *created)))
        return MachineNoticeObservation(
            notice=notice,
            machine=next((candidate for candidate in self._machines.all() if is_about(notice, candidate)), None),
            maintenances=tuple(maintenance for maintenance in found if maintenance is not None),
            now=self._client.clock.now(),
        )

    def decide(self, observation: MachineNoticeObservation) -> MachineNoticeDecision:
        notice, now = observation.notice, observation.now
        desired = desired_maintenance(
            notice, observation.machine, observation.maintenances, notice_filter=self._notice_filter, now=now
        )
        return MachineNoticeDecision(desired, phase_at(notice.spec, now=now).until)

    async def act(self, observation: MachineNoticeObservation, decision: MachineNoticeDecision) -> bool:
        desired = decision.desired
        if desired is None:
            return False
        if desired.existing is not None:
            await self._update(desired.existing, desired)
            return True
        try:
            created = await self._create(desired)
        except AlreadyExists:
            return False  # created by another replica, or by our own request whose response was lost
        self._created[observation.notice.name] = self._maintenances.record_write(created).key
        log.info("Machine %s: event %s is recorded as %s", desired.spec.machinelink, desired.spec.eventid, desired.name)
        return True

    async def refresh(self, key: str, error: Exception) -> bool:
        """Read the MachineMaintenances of the notice."""
        del error
        observation = await self.observe(key)
        for maintenance in () if observation is None else observation.maintenances:
            await self._maintenances.refresh(
                self._client, MACHINE_MAINTENANCES, maintenance.name, namespace=maintenance.namespace
            )
        return True

    async def forget(self, key: str) -> datetime | None:
        self._created.pop(key, None)
        return None

    async def _create(self, desired: DesiredMaintenance) -> MachineMaintenance:
        body: RawObject = {
            "apiVersion": MACHINE_MAINTENANCES.api_version,
            "kind": MACHINE_MAINTENANCES.kind,
            "metadata": {"name": desired.name, "namespace": self._namespace},
            "spec": {"maintenancescheduled": False, **msgspec.to_builtins(desired.spec)},
        }
        try:
            return await self._client.create(MACHINE_MAINTENANCES, body, namespace=self._namespace)
        except NotFound:
            await namespaces.create_missing(self._client, self._namespace)
            return await self._client.create(MACHINE_MAINTENANCES, body, namespace=self._namespace)

    async def _update(self, existing: MachineMaintenance, desired: DesiredMaintenance) -> None:
        change = difference(msgspec.to_builtins(existing.spec), msgspec.to_builtins(desired.spec))
        change.pop("maintenancescheduled", None)
        patch = merge_patch({"metadata": existing.preconditions, "spec": change})
        patched = await self._client.patch(MACHINE_MAINTENANCES, existing.name, patch, namespace=self._namespace)
        self._maintenances.record_write(patched)


def _identity(machine: Machine) -> tuple[str | None, str, bool]:
    return machine.spec.provider_id, machine.node, machine.is_being_deleted
