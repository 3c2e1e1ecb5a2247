"""Notices of a cloud about the instances of OpenShift Machines, and the operator that receives them."""

from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.controllers.machines.desired_maintenance import NoticeFilter
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.providers.notice_writer import NoticeWriter
from support.clusters.live_cluster import LiveCluster
from support.platforms.machinemaintenance import Program, machinemaintenance_operator
from support.platforms.openshift import instance_of

EVENT = "instance-event-0a1b2c3d4e5f60718"
KINDS = {"instance-stop": MaintenanceKind.STOP, "instance-retirement": MaintenanceKind.TERMINATE}


def machine_notice_operator(
    notice_filter: NoticeFilter | None = None, replacement_policy: ReplacementPolicy | None = None
) -> Program:
    """Return the operator with both of its parts."""
    return machinemaintenance_operator(replacement_policy, notice_filter=notice_filter or NoticeFilter())


async def report_event(
    cluster: LiveCluster,
    machine: str,
    *,
    code: str = "instance-stop",
    event: str = EVENT,
    start: datetime | None = None,
    stage: NoticeStage = NoticeStage.SCHEDULED,
    instance: str = "",
) -> None:
    """Report an event of the cloud, as a poll finds it."""
    starts_at = start or cluster.clock.now() + timedelta(days=10)
    plan = MaintenancePlan(
        kind=KINDS.get(code, MaintenanceKind.REBOOT), reason=code, description="degraded hardware", start=starts_at
    )
    report = NoticeReport(
        source="aws",
        notice_id=event,
        at=cluster.clock.now(),
        provider_id=instance or instance_of(cluster, machine),
        stage=stage,
        plan=plan,
    )
    await NoticeWriter(cluster.admin).write(report)
