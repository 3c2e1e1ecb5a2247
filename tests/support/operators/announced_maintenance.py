"""Announced maintenance: the whole operator without a configuration, and a cloud that reports the stages of one event.

`AnnouncedMaintenance` writes the notices of the cloud. Its times are minutes since the start of the test.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from haulout.api import maintenancerecord
from haulout.api.maintenancenotice import MaintenanceKind, NoticeCondition, NoticeStage, definition
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.api.objects import NodeConditionType, RawObject
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.timestamps import micro_time
from haulout.kube.client import Client
from haulout.providers.notice_writer import NoticeWriter
from haulout_sandbox.apiserver import Write
from support.clusters.cluster_plan import ClusterPlan
from support.clusters.live_cluster import SandboxCluster
from support.clusters.process import Program
from support.fakes.external_client import FakeExternalClient
from support.operators.nodemaintenance import OPERATOR, with_operator_rbac
from support.operators.profiles import NAMESPACE
from support.operators.profiles_controller import invariants

MISSING_FILE = Path("there-is-no-such-folder/maintenance.yaml")
_OWN_PREFIXES = ("haulout.dev/", "cloud.sap/", "node.kubernetes.io/unschedulable")


def with_notices(plan: ClusterPlan, *, max_unavailable: int | None = None) -> ClusterPlan:
    """Return a plan where notices and records can be written, and where the operator may do what we ship for it."""
    with_crds = with_operator_rbac(plan).with_crd(definition()).with_crd(maintenancerecord.custom_resource_definition())
    return with_crds.with_invariants(
        *invariants(OPERATOR, max_unavailable=max_unavailable, own_metadata=(*NoticeCondition, *NodeConditionType))
    )


def notice_operator(file: Path = MISSING_FILE, *, identity: str = "operator_1") -> Program:
    """Return the whole operator; its file need not be there."""

    async def program(client: Client) -> None:
        profiles_file = ProfilesFile(file, environ={}, clock=client.clock, is_optional=True)
        settings = OperatorSettings(namespace=NAMESPACE, identity=identity)
        await run_operator(
            client,
            settings,
            profiles=ProfilesComponent(profiles_file, FakeExternalClient()),
            notices=NoticesComponent(),
        )

    return program


class AnnouncedMaintenance:
    """A cloud that announces one maintenance of one machine, and accessors of its node."""

    def __init__(self, cluster: SandboxCluster, node: str) -> None:
        self.cluster = cluster
        self.node = node
        self.started_at = cluster.clock.now()
        self._notice_writer = NoticeWriter(cluster.admin)

    async def report(
        self,
        stage: NoticeStage = NoticeStage.SCHEDULED,
        *,
        start: float | None = None,
        end: float | None = None,
        reported_at: float | None = None,
        kind: MaintenanceKind = MaintenanceKind.REBOOT,
    ) -> None:
        """Report the stage and the plan; a report may be older than its arrival."""
        now = self.cluster.clock.now()
        plan = None
        if start is not None:
            until = None if end is None else self.started_at + timedelta(minutes=end)
            plan = MaintenancePlan(
                kind=kind, reason="EVACUATION", start=self.started_at + timedelta(minutes=start), end=until
            )
        notice_report = NoticeReport(
            source="oci",
            notice_id=f"of-{self.node}",
            at=now if reported_at is None else self.started_at + timedelta(minutes=reported_at),
            provider_id=f"sandbox://z1/{self.node}",
            stage=stage,
            plan=plan,
        )
        await self._notice_writer.write(notice_report)

    def format_minute(self, minute: float) -> str:
        """Return a minute of the test as a timestamp."""
        return micro_time(self.started_at + timedelta(minutes=minute))

    async def wait_until_minute(self, minute: float) -> None:
        """Wait until a minute of the test."""
        left = self.started_at + timedelta(minutes=minute) - self.cluster.clock.now()
        await self.cluster.clock.sleep(max(left, timedelta()))

    def out_of_service(self) -> list[tuple[int, int | None]]:
        """Return from which minute to which the node took no pods, rounded down; None: it still does not."""
        found: list[tuple[int, int | None]] = []
        for write in _node_writes(self.cluster.history, self.node):
            is_out = bool(write.after and write.after["spec"].get("unschedulable"))
            minute = int((write.written_at - self.started_at) / timedelta(minutes=1))
            if is_out and (not found or found[-1][1] is not None):
                found.append((minute, None))
            elif not is_out and found and found[-1][1] is None:
                found[-1] = found[-1][0], minute
        return found


def own_metadata(node: RawObject) -> dict[str, str]:
    """Return the labels and annotations of a node that are ours."""
    metadata = node["metadata"]
    all_metadata = {**metadata.get("labels", {}), **metadata.get("annotations", {})}
    return {key: value for key, value in all_metadata.items() if key.startswith(_OWN_PREFIXES)}


def _node_writes(history: Sequence[Write], node: str) -> list[Write]:
    return [write for write in history if write.kind.plural == "nodes" and write.key == node]
