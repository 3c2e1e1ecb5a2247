"""MaintenanceFreezes as a component of the operator. It always runs; without the CRD it has nothing to do.

It only reports: a freeze has its effect also while this component does not run.
"""

from collections.abc import Iterator
from typing import Any

from haulout.api import maintenancefreeze
from haulout.api.maintenancefreeze import MAINTENANCE_FREEZES
from haulout.api.reasons import OperatorEventReason
from haulout.core.text import format_count
from haulout.kube.rbac import Permission
from haulout.runtime.component import Component, CustomResource, Leader
from haulout.runtime.freezes import FreezeLister


class MaintenanceFreezes(Component):
    """Writes the status of MaintenanceFreezes, and records when they begin and end."""

    title, failure_reason, action = "MaintenanceFreezes", OperatorEventReason.FREEZES_FAILED, "RunMaintenanceFreezes"
    custom_resource = CustomResource(
        MAINTENANCE_FREEZES, "times in which no new maintenance begins", maintenancefreeze.definition
    )

    def __init__(self) -> None:
        super().__init__()
        self.freezes: FreezeLister | None = None  # while this replica leads

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        del settings, namespace
        group, plural = MAINTENANCE_FREEZES.group, MAINTENANCE_FREEZES.plural
        return (
            Permission(("get", "list", "watch"), group, plural, None, "honour MaintenanceFreezes"),
            Permission(("patch",), group, f"{plural}/status", None, "write the status of MaintenanceFreezes"),
            Permission(("list", "watch"), "", "nodes", None, "watch nodes"),
            # Freezes are cluster-scoped: their events are created in the namespace `default`.
            Permission(("create", "patch"), "events.k8s.io", "events", "default", "record events"),
        )

    async def lead(self, leader: Leader) -> None:
        from haulout.controllers.freeze.controller import FreezeController

        self.freezes = leader.freezes
        try:
            async with leader.journal("freeze", self.history_backlog) as journal:
                await FreezeController(leader.client, freezes=leader.freezes, nodes=leader.nodes, journal=journal).run()
        finally:
            self.freezes = None

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.freezes is None:
            return
        if unknown := self.freezes.current().unknown:
            yield f"no maintenance begins, because MaintenanceFreezes are not known: {unknown}"
        for name, problem in self.freezes.informer.undecodable.items():
            yield f"MaintenanceFreeze {name} is ignored because it cannot be decoded: {problem}"

    def status_lines(self) -> Iterator[str]:
        """Yield a line for the status page; nothing if there are no freezes."""
        if self.freezes is None:
            return
        if problem := next(self.problems(), ""):
            yield f"[-] freezes: {problem}"
        elif items := self.freezes.current().items:
            yield f"[+] freezes: this replica honours {format_count(len(items), 'MaintenanceFreeze')}"
