"""Creates MachineMaintenances from MaintenanceNotices, as the scan of the Machine Maintenance Operator does.

Notices may come from any source. This controller only writes MachineMaintenances; `controller` reconciles them,
together with those that users create.
"""

import asyncio
import logging
from datetime import datetime

import msgspec

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, MachineMaintenance
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, phase_at
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
from haulout.errors import AlreadyExists, Conflict, NotFound
from haulout.kube import namespaces
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import difference, merge_patch
from haulout.kube.reflector import ListWatch
from haulout.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

_WORKERS = 4


class MachineNoticeController:
    """Keeps a MachineMaintenance for each notice about a Machine.

    Call `run` at most once. The caller runs `informers`.
    """

    def __init__(
        self, client: Client, *, informers: MachineInformers, namespace: str, notice_filter: NoticeFilter | None = None
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._notice_filter = notice_filter or NoticeFilter()
        self._namespace = namespace
        self._informers = informers
        self._machines, self._maintenances = informers.machines.informer, informers.maintenances.informer
        self._notices: Informer[MaintenanceNotice] = Informer(client, ListWatch(MAINTENANCE_NOTICES), transform=as_is)
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="MachineMaintenance notices",
        )

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_run_informer(self._notices))
            await self._notices.wait_synced()
            await self._informers.wait_synced()
            self._notices.subscribe(self._on_notice_change)
            self._machines.subscribe(self._on_machine_change)
            await self._queue.run()

    def _on_notice_change(self, _old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        if new is not None:
            self._queue.add(new.name)

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        if new is None or (old is not None and _identity(old) == _identity(new)):
            return
        for notice in self._notices.all():
            if is_about(notice, new):
                self._queue.add(notice.name)

    async def _reconcile(self, name: str) -> datetime | None:
        notice = self._notices.get(name)
        if notice is None:
            return None
        now = self._clock.now()
        machine = next((candidate for candidate in self._machines.all() if is_about(notice, candidate)), None)
        candidates = list(self._maintenances.by_index(BY_EVENT, event_id(notice)))
        desired = desired_maintenance(notice, machine, candidates, notice_filter=self._notice_filter, now=now)
        if desired is not None:
            await self._write(desired)
        return phase_at(notice.spec, now=now).until

    async def _write(self, desired: DesiredMaintenance) -> None:
        try:
            if desired.existing is None:
                await self._create(desired)
            else:
                await self._update(desired.existing, desired)
        except AlreadyExists:
            return  # created by another replica, or by our own request whose response was lost
        except Conflict:
            current = await self._client.get(MACHINE_MAINTENANCES, desired.name, namespace=self._namespace)
            if (
                not current.spec.maintenancescheduled
                and desired.existing is not None
                and current.uid == desired.existing.uid
            ):
                await self._update(current, desired)

    async def _create(self, desired: DesiredMaintenance) -> None:
        body: RawObject = {
            "apiVersion": MACHINE_MAINTENANCES.api_version,
            "kind": MACHINE_MAINTENANCES.kind,
            "metadata": {"name": desired.name, "namespace": self._namespace},
            "spec": {"maintenancescheduled": False, **msgspec.to_builtins(desired.spec)},
        }
        try:
            await self._client.create(MACHINE_MAINTENANCES, body, namespace=self._namespace)
        except NotFound:
            await namespaces.create_missing(self._client, self._namespace)
            await self._client.create(MACHINE_MAINTENANCES, body, namespace=self._namespace)
        log.info("Machine %s: event %s is recorded as %s", desired.spec.machinelink, desired.spec.eventid, desired.name)

    async def _update(self, existing: MachineMaintenance, desired: DesiredMaintenance) -> None:
        change = difference(msgspec.to_builtins(existing.spec), msgspec.to_builtins(desired.spec))
        change.pop("maintenancescheduled", None)
        preconditions = {"uid": existing.uid, "resourceVersion": existing.resource_version}
        patch = merge_patch({"metadata": preconditions, "spec": change})
        await self._client.patch(MACHINE_MAINTENANCES, existing.name, patch, namespace=self._namespace)


async def _run_informer(notices: Informer[MaintenanceNotice]) -> None:
    await notices.run()


def _identity(machine: Machine) -> tuple[str | None, str, bool]:
    return machine.spec.provider_id, machine.node, machine.is_being_deleted
