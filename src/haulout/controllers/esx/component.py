"""Nodes on ESX hosts as a component of the operator, if there is an `esx.yaml`, or a simulated vCenter in the sandbox.

Only the leader loads the vSphere SDK.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from haulout.api.leases import PROFILES_LEASE
from haulout.api.objects import Node
from haulout.api.reasons import OperatorEventReason
from haulout.controllers.esx.labels import CORDON_OWNER, HOST, STATE, HostState, is_initiated
from haulout.core.clock import Clock
from haulout.core.metrics import MetricVec, gauge
from haulout.core.text import format_count
from haulout.errors import ConfigError
from haulout.kube.client import Client
from haulout.kube.rbac import Permission
from haulout.runtime.component import Component, CordonOwner, Leader, SettingsFile
from haulout.runtime.tasks import running

if TYPE_CHECKING:
    from haulout.controllers.esx.controller import EsxController
    from haulout.controllers.esx.settings import EsxSettings
    from haulout.controllers.esx.settings_file import EsxFile
    from haulout.controllers.esx.vcenter import VCenterLogin

_REPORTER = "ESX"  # reporting controller of events

HOSTS = gauge(
    "haulout_esx_hosts",
    "How many ESX hosts with nodes are in each maintenance state.",
    "state",
    details="`true`: in maintenance or entering it, `alarm`, or `false`; only where the ESX controller runs",
)
VCENTER_UP = gauge(
    "haulout_esx_vcenter_up",
    "Whether the vCenter of a zone answered the last request.",
    "zone",
    details="only where the ESX controller runs",
)
NODES = gauge(
    "haulout_esx_nodes",
    "How many nodes are in maintenance for their ESX host, entering or leaving it, or waiting for it.",
    "stuck",
    details="`stuck` is `true` for nodes that need attention; only where the ESX controller runs",
)


def _describe_hold(node: Node) -> str:
    host, state = (node.metadata.labels.get(label, "unknown") for label in (HOST, STATE))
    return f"it is out of service for ESX host {host}, which is in state {state}"


class Esx(Component):
    """Drains nodes on ESX hosts in maintenance, and shuts them down."""

    name, title = "esx", "ESX"
    failure_reason, action = OperatorEventReason.ESX_FAILED, "RunEsx"
    metrics = (HOSTS, VCENTER_UP, NODES)
    initiator = "esx"
    lease = PROFILES_LEASE
    settings_file = SettingsFile(
        name="esx.yaml",
        configures="nodes on ESX hosts",
        run_help="Maintain nodes that are virtual machines on ESX hosts, by this esx.yaml of the SAP "
        "maintenance-controller.",
        go_flag="enable-esx-maintenance",
        go_flag_help="Maintain nodes on ESX hosts, by ./config/esx.yaml.",
        object_name="haulout-esx",
        is_secret=True,
        manifests_help="Also the objects that are needed to maintain nodes on ESX hosts, with a Secret haulout-esx "
        "with the key esx.yaml. The operator needs an image with the vSphere SDK.",
    )
    cordon_owner = CordonOwner(name=CORDON_OWNER, describe=_describe_hold, is_present=is_initiated)

    def __init__(
        self,
        read_settings: "Callable[[], EsxSettings]",
        connect: "Callable[[Client], VCenterLogin]",
        *,
        file: "EsxFile | None" = None,
    ) -> None:
        super().__init__()
        self.read_settings = read_settings
        self.connect = connect
        self.controller: EsxController | None = None  # while this replica leads
        self._file = file  # None: the settings are those of a simulation

    @classmethod
    def from_file(cls, file: "EsxFile") -> Self:
        """Return the component for a file, with a vCenter login that uses the SDK."""

        def connect(client: Client) -> "VCenterLogin":
            from haulout.controllers.esx.vsphere_sdk import vcenter_login

            return vcenter_login(client.clock)

        return cls(lambda: file.settings, connect, file=file)

    @classmethod
    def load(cls, path: Path, *, environ: Mapping[str, str], clock: Clock) -> Self:
        from haulout.controllers.esx import vsphere_sdk
        from haulout.controllers.esx.settings_file import EsxFile

        file = EsxFile(path, environ=environ, clock=clock)
        vsphere_sdk.check()
        return cls.from_file(file)

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        from haulout.controllers.esx.permissions import permissions

        del settings
        return permissions(namespace=namespace)

    def warnings(self) -> Iterable[ConfigError]:
        return () if self._file is None else self._file.warnings

    async def lead(self, leader: Leader) -> None:
        from haulout.controllers.esx.controller import EsxController

        # A recorder of its own: many events of pods must not delay those of nodes.
        pod_events = leader.events(_REPORTER)
        if self._file is not None:
            self._file.refresh()
        try:
            async with leader.journal(_REPORTER, self.history_backlog) as journal, running(pod_events):
                self.controller = EsxController(
                    leader.client,
                    connect=self.connect(leader.client),
                    read_settings=self.read_settings,
                    journal=journal,
                    nodes=leader.nodes,
                    handover=leader.handover,
                    namespace=leader.namespace,
                    about_pods=pod_events,
                    drain_metrics=self.drain_metrics,
                    freezes=leader.freezes,
                )
                await self.controller.run(background=(self._watch_file,))
        finally:
            self.controller = None

    async def _watch_file(self) -> None:
        if self._file is not None and self.controller is not None:
            await self._file.watch(self.controller.use_settings)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self._file is not None and (problem := self._file.problem) is not None:
            yield f"the last valid ESX configuration stays in force: {problem}"
        if self.controller is not None:
            yield from self.controller.problems()

    def status_lines(self) -> Iterator[str]:
        if self.controller is None:
            yield "[+] ESX: not running on this replica, but on the leader or in a SAP maintenance-controller"
        elif problem := next(self.problems(), ""):
            yield f"[-] ESX: {problem.removeprefix('ESX ')}"
        else:
            hosts, busy = self.controller.host_counts()
            yield f"[+] ESX: this replica manages {format_count(hosts, 'host')}; in maintenance or alarm: {busy}"

    def collect_metrics(self) -> Iterator[MetricVec]:
        if self.controller is None:
            return
        hosts, vcenters_up, nodes = MetricVec(HOSTS), MetricVec(VCENTER_UP), MetricVec(NODES)
        for state in HostState:
            hosts.set(state, to=0)
        for stuck in ("false", "true"):
            nodes.set(stuck, to=0)
        for letter, zone in self.controller.zones.items():
            vcenters_up.set(letter, to=zone.is_reachable)
            for state in zone.host_states.values():
                hosts.add(state)
            for is_stuck in zone.nodes_in_progress():
                nodes.add(str(is_stuck).lower())
        yield from (hosts, vcenters_up, nodes)
