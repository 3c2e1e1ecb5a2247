"""Replacement of OpenShift Machines: active where MachineMaintenances and the Machine API are installed.

If they are installed later, the component notices without a restart. On other clusters it costs nothing: discovery
begins only when a node has the annotation of a Machine, and the controller is not imported before.

Notices create records only where MaintenanceNotices are installed. Both controllers share the informers of Machines and
records.
"""

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from haulout.api import machinemaintenance
from haulout.api.machinemaintenance import (
    MACHINE_MAINTENANCES,
    NAMESPACE,
    MachineMaintenance,
    MachineMaintenanceCondition,
    MachineMaintenancePhase,
)
from haulout.api.openshift import MACHINE_OF_NODE, MACHINE_SETS, MACHINES
from haulout.api.reasons import OperatorEventReason
from haulout.api.resources import Resource
from haulout.controllers.machines.desired_maintenance import NoticeFilter
from haulout.controllers.machines.permissions import permissions
from haulout.controllers.machines.settings import MachineSettings
from haulout.core.backoff import Backoff
from haulout.core.metrics import MetricVec, gauge
from haulout.core.text import format_count
from haulout.kube.discovery import wait_until_served
from haulout.kube.rbac import Permission
from haulout.runtime.component import Component, CustomResource, Leader
from haulout.runtime.tasks import running

if TYPE_CHECKING:
    from haulout.controllers.machines.controller import MachineMaintenanceController

log = logging.getLogger(__name__)

_REPORTER = "MachineMaintenance"  # reporting controller of events
_DISCOVERY_BACKOFF = Backoff(first=timedelta(minutes=1), limit=timedelta(minutes=10))  # between discovery requests
_RESOURCES: tuple[Resource[Any], ...] = (MACHINE_MAINTENANCES, MACHINES, MACHINE_SETS)
_PRODUCT = "MachineMaintenance with the Machine API"
_NOT_OBSERVED = "Unseen"  # the phase in metrics of a record without a phase

PHASES = gauge(
    "haulout_machine_maintenances",
    "How many MachineMaintenances are in each phase.",
    "phase",
    details="`Unseen` before the first reconcile; only on the leader, if there are any",
)
LATE = gauge(
    "haulout_machine_maintenances_late",
    "How many MachineMaintenances will not finish before the cloud begins its maintenance.",
    details="only on the leader, if there are any",
)


class MachinesComponent(Component):
    """Runs both controllers, and shows what they do."""

    title, failure_reason, action = "Machine replacement", OperatorEventReason.MACHINES_FAILED, "RunMachines"
    metrics = (PHASES, LATE)
    custom_resource = CustomResource(
        MACHINE_MAINTENANCES, "replacing OpenShift machines", machinemaintenance.definition, option="--machines"
    )

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        del settings, namespace
        return permissions()

    def __init__(self, settings: MachineSettings | None = None, policy: NoticeFilter | None = None) -> None:
        super().__init__()
        self.settings = settings or MachineSettings()
        self.policy = policy or NoticeFilter()
        self.controller: MachineMaintenanceController | None = None  # while this replica leads

    async def lead(self, leader: Leader) -> None:
        client, nodes = leader.client, leader.nodes
        await nodes.wait_for(lambda node: MACHINE_OF_NODE in node.metadata.annotations)
        for resource in _RESOURCES:
            await wait_until_served(
                client, resource, product=_PRODUCT, backoff=_DISCOVERY_BACKOFF, on_absent=lambda: None
            )
        # Imported late with its dependencies: of use on OpenShift only.
        from haulout.controllers.machines.controller import MachineMaintenanceController

        log.info("MachineMaintenances and Machines are installed: Machines are replaced on request")
        events = leader.events(_REPORTER)
        controller = MachineMaintenanceController(
            client, events=events, nodes=nodes, settings=self.settings, freezes=leader.freezes
        )
        async with running(events):
            self.controller = controller
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(controller.run())
                    group.create_task(self._create_records_from_notices(leader, controller))
            finally:
                self.controller = None

    async def _create_records_from_notices(self, leader: Leader, controller: "MachineMaintenanceController") -> None:
        """Create records from notices, once MaintenanceNotices are served."""
        await leader.informers.notices.wait_synced()
        from haulout.controllers.machines.notice_controller import MachineNoticeController

        namespace = self.settings.namespace or NAMESPACE
        await MachineNoticeController(
            leader.client,
            informers=controller.informers,
            notices=leader.informers.notices,
            namespace=namespace,
            notice_filter=self.policy,
        ).run()

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.controller is not None and (problem := self.controller.informers.problem()):
            yield f"Machines are not replaced: {problem}"
        hint = f"`kubectl get machinemaintenances -n {self.settings.namespace or NAMESPACE}` shows why"
        if refused := sum(record.status.phase == MachineMaintenancePhase.REFUSED for record in self._records()):
            yield f"{format_count(refused, 'MachineMaintenance')} cannot be done: {hint}"
        if late := sum(map(_is_late, self._records())):
            yield f"{format_count(late, 'Machine')} will not be replaced before the cloud begins: {hint}"

    def status_lines(self) -> Iterator[str]:
        """Yield a line for the status page; nothing if there are no Machines."""
        if self.controller is None:
            return
        if problem := self.controller.informers.problem():
            yield f"[-] machines: {problem}"
            return
        waiting = sum(not _is_over(record) for record in self._records())
        yield f"[+] machines: running on this replica; to be replaced: {waiting}"

    def collect_metrics(self) -> Iterator[MetricVec]:
        """Yield them only while the controller runs here."""
        if self.controller is None:
            return
        phases, late = MetricVec(PHASES), MetricVec(LATE)
        for phase in (_NOT_OBSERVED, *MachineMaintenancePhase):
            phases.set(phase, to=0)
        for record in self._records():
            phases.add(record.status.phase or _NOT_OBSERVED)
        late.set(to=sum(map(_is_late, self._records())))
        yield from (phases, late)

    def _records(self) -> tuple[MachineMaintenance, ...]:
        return () if self.controller is None else tuple(self.controller.informers.maintenances.informer.all())


def _is_over(record: MachineMaintenance) -> bool:
    return record.status.phase in (MachineMaintenancePhase.COMPLETED, MachineMaintenancePhase.CANCELLED)


def _is_late(record: MachineMaintenance) -> bool:
    on_time = record.status.condition(MachineMaintenanceCondition.ON_TIME)
    return not _is_over(record) and on_time is not None and on_time.status == "False"
