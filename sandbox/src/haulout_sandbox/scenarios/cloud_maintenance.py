"""Simulation of cloud maintenance from announcement to end, and of terminated instances.

    maintenance = CloudMaintenance(cluster, fleet, member, kind="Reboot", event=event, …)
    await maintenance.run(on_event)

The machine really goes down, whether its node is drained or not: a cloud does not ask the cluster. If the machine is
replaced before, its maintenance is dropped. The start is read from the cloud's model when it is due, because clients of
the cloud may reschedule it.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.api.objects import RawObject
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios.actions.action_result import OnEvent
from haulout_sandbox.scenarios.cloud_providers import CloudProvider
from haulout_sandbox.scenarios.fleet import Fleet, FleetMember

_POLL_INTERVAL = timedelta(seconds=10)  # for a start that a client has rescheduled
_NOUNS = {"Reboot": "reboot", "Stop": "stop", "Terminate": "end", "Migrate": "migration", "Freeze": "freeze"}
_VERBS = {"Reboot": "reboots", "Stop": "stops", "Terminate": "terminates", "Migrate": "migrates", "Freeze": "freezes"}


class MaintenanceState(StrEnum):
    PLANNED = "planned"
    STARTED = "started"
    ENDED = "ended"


@dataclass(slots=True)
class CloudMaintenance:
    cluster: Cluster
    fleet: Fleet
    member: FleetMember
    kind: str
    event: str
    duration: timedelta
    state: MaintenanceState = MaintenanceState.PLANNED
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def description(self) -> str:
        return f"the {_NOUNS[self.kind]} of {self.member.node}"

    @property
    def provider(self) -> CloudProvider:
        return self.fleet.provider(self.member.cloud)

    async def run(self, on_event: OnEvent) -> None:
        """Begin and end the maintenance when due, unless that was already done."""
        while (
            self.state is MaintenanceState.PLANNED
            and not self._is_node_gone
            and (starts_at := self._starts_at) > self._now()
        ):
            await self._wait_until(min(starts_at, self._now() + _POLL_INTERVAL))
        if self.state is MaintenanceState.PLANNED:
            on_event(await self.start())
        ends_at = self._now() + self.duration
        while self.state is MaintenanceState.STARTED and self._now() < ends_at:
            await self._wait_until(ends_at)
        if self.state is MaintenanceState.STARTED:
            on_event(await self.end())

    def reschedule(self, start: datetime) -> None:
        self._require_state(MaintenanceState.PLANNED, "rescheduled")
        self.provider.reschedule(self.event, start=start)
        self._changed.set()

    def cancel(self) -> None:
        self._require_state(MaintenanceState.PLANNED, "cancelled")
        self._set_state(MaintenanceState.ENDED)
        self.provider.cancel_maintenance(self.event)

    async def start(self) -> str:
        """Begin the maintenance now; return a message."""
        self._require_state(MaintenanceState.PLANNED, "started")
        node, title = self.member.node, self.provider.title
        if self._is_node_gone:
            self._set_state(MaintenanceState.ENDED)
            self.provider.discard_maintenance(self.event)
            return f"{title} drops {self.description}, which is gone"
        self._set_state(MaintenanceState.STARTED)
        pods_text = describe_pods(self.cluster, node)
        self.provider.start_maintenance(self.event)
        match self.kind:
            case "Terminate":
                await self.fleet.remove_machine(node)
            case "Stop":
                self.provider.stop_instance(self.member.instance)
                self.cluster.kubelets.kill(node)
            case "Reboot" | "Freeze":
                self.cluster.kubelets.kill(node)
        return f"{title} {_VERBS[self.kind]} {node}, {pods_text}"

    async def end(self) -> str:
        """End the maintenance now; return a message."""
        self._require_state(MaintenanceState.STARTED, "ended")
        self._set_state(MaintenanceState.ENDED)
        node, title = self.member.node, self.provider.title
        if self.kind == "Terminate":
            self.provider.end_maintenance(self.event)
            return add_replacement(self.fleet, self.member)
        if not self._is_node_gone:
            self._restart_node(node)
        self.provider.end_maintenance(self.event)
        return f"{title} is done with {node}"

    def _restart_node(self, node: str) -> None:
        match self.kind:
            case "Reboot":
                self.cluster.kubelets.reboot(node, timedelta())
            case "Stop":
                self.provider.start_instance(self.member.instance)
                self.cluster.kubelets.reboot(node, timedelta())
            case "Freeze":
                self.cluster.kubelets.revive(node)

    @property
    def _is_node_gone(self) -> bool:
        return self.fleet.member(self.member.node) is None

    @property
    def _starts_at(self) -> datetime:
        return self.provider.maintenance_start(self.event)

    def _require_state(self, state: MaintenanceState, participle: str) -> None:
        if self.state is not state:
            raise ValueError(f"{self.description} is {self.state} and cannot be {participle}")

    def _set_state(self, state: MaintenanceState) -> None:
        self.state = state
        self._changed.set()

    async def _wait_until(self, instant: datetime) -> None:
        """Wait for an instant, or for a change of the maintenance."""
        self._changed.clear()
        alarm = self.cluster.clock.call_at(instant, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            alarm.cancel()

    def _now(self) -> datetime:
        return self.cluster.clock.now()


def add_replacement(fleet: Fleet, member: FleetMember) -> str:
    """Launch a replacement for a machine; return a message."""
    if any(member.pool == pool.name for pool in fleet.openshift_pools):
        return f"{member.node} is gone for good; another comes when its Machine is deleted"
    return f"{fleet.add_machine(member.pool)} joins in place of {member.node}"


def describe_pods(cluster: Cluster, node: str) -> str:
    """Return the number of pods on a machine as text."""
    lost_pods = sum(_is_lost(pod) for pod in cluster.api.objects("pods") if pod["spec"].get("nodeName") == node)
    if not lost_pods:
        return "which is empty"
    return f"with {lost_pods} pods on it" if lost_pods > 1 else "with 1 pod on it"


def _is_lost(pod: RawObject) -> bool:
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
    return not owners & {"DaemonSet", "Node"} and pod["status"].get("phase") not in ("Succeeded", "Failed")
