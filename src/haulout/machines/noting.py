"""Notices become MachineMaintenances: what the Machine Maintenance Operator's scan does, from what any source says.

It writes records and nothing else; the controller beside it sees to them, as to those that people write.
"""

import asyncio
import logging
from datetime import datetime

import msgspec

from haulout.errors import AlreadyExists, Conflict, NotFound
from haulout.kinds.machinemaintenance import MACHINE_MAINTENANCES, MachineMaintenance
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kinds.openshift import Machine
from haulout.kinds.standing import standing
from haulout.kube import namespaces
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import RawObject
from haulout.kube.patches import difference, merge_patch
from haulout.kube.queue import Queue
from haulout.machines.records import Policy, Wanted, event_id, is_about, wanted
from haulout.machines.sight import BY_EVENT, Sight

log = logging.getLogger(__name__)

_WORKERS = 4


class Noting:
    """Keeps a record for each notice that concerns a Machine; `run` may be called once, and another runs `sight`."""

    def __init__(self, client: Client, *, sight: Sight, namespace: str, policy: Policy | None = None) -> None:
        self._client = client
        self._clock = client.clock
        self._policy = policy or Policy()
        self._namespace = namespace
        self._sight = sight
        self._machines, self._records = sight.machines.cache, sight.records.cache
        self._notices: Cache[MaintenanceNotice] = Cache(client, Selection(MAINTENANCE_NOTICES), row=as_is)
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            meters=client.meters,
            name="notices of Machines",
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow(self._notices))
            await self._notices.wait_synced()
            await self._sight.wait_synced()
            self._notices.subscribe(self._note_notice)
            self._machines.subscribe(self._note_machine)
            await self._queue.run()

    def _note_notice(self, _old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        if new is not None:
            self._queue.add(new.name)

    def _note_machine(self, old: Machine | None, new: Machine | None) -> None:
        if new is None or (old is not None and _place(old) == _place(new)):
            return
        for notice in self._notices.all():
            if is_about(notice, new):
                self._queue.add(notice.name)

    async def _work(self, name: str) -> datetime | None:
        notice = self._notices.get(name)
        if notice is None:
            return None
        now = self._clock.now()
        machine = next((it for it in self._machines.all() if is_about(notice, it)), None)
        known = list(self._records.by(BY_EVENT, event_id(notice)))
        record = wanted(notice, machine, known, policy=self._policy, now=now)
        if record is not None:
            await self._write(record)
        return standing(notice.spec, now=now).until

    async def _write(self, record: Wanted) -> None:
        try:
            if record.found is None:
                await self._create(record)
            else:
                await self._change(record.found, record)
        except AlreadyExists:
            return  # another process, or our own write that was answered to nobody
        except Conflict:
            found = await self._client.get(MACHINE_MAINTENANCES, record.name, namespace=self._namespace)
            if not found.spec.maintenancescheduled and record.found is not None and found.uid == record.found.uid:
                await self._change(found, record)

    async def _create(self, record: Wanted) -> None:
        body: RawObject = {
            "apiVersion": MACHINE_MAINTENANCES.api_version,
            "kind": MACHINE_MAINTENANCES.kind,
            "metadata": {"name": record.name, "namespace": self._namespace},
            "spec": {"maintenancescheduled": False, **msgspec.to_builtins(record.spec)},
        }
        try:
            await self._client.create(MACHINE_MAINTENANCES, body, namespace=self._namespace)
        except NotFound:
            await namespaces.create_missing(self._client, self._namespace)
            await self._client.create(MACHINE_MAINTENANCES, body, namespace=self._namespace)
        log.info("Machine %s: event %s is recorded as %s", record.spec.machinelink, record.spec.eventid, record.name)

    async def _change(self, found: MachineMaintenance, record: Wanted) -> None:
        change = difference(msgspec.to_builtins(found.spec), msgspec.to_builtins(record.spec))
        change.pop("maintenancescheduled", None)
        basis = {"uid": found.uid, "resourceVersion": found.resource_version}
        patch = merge_patch({"metadata": basis, "spec": change})
        await self._client.patch(MACHINE_MAINTENANCES, found.name, patch, namespace=self._namespace)


async def _follow(notices: Cache[MaintenanceNotice]) -> None:
    await notices.run()


def _place(machine: Machine) -> tuple[str | None, str, bool]:
    return machine.spec.provider_id, machine.node, machine.is_leaving
