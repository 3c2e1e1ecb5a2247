"""What a cloud says about the instances of Machines, and the operator that hears of it."""

from datetime import datetime, timedelta

from haulout.kinds.notice import Kind, Stage
from haulout.kinds.reports import Plan, Report
from haulout.machines.records import Policy
from haulout.machines.timing import Terms
from haulout.notices.inbox import Inbox
from support.live import LiveCluster
from support.openshift import instance_of
from support.replacing import Program, operating

EVENT = "instance-event-0a1b2c3d4e5f60718"
KINDS = {"instance-stop": Kind.STOP, "instance-retirement": Kind.TERMINATE}


def noting(policy: Policy | None = None, terms: Terms | None = None) -> Program:
    """Return the operator with both of its parts."""
    return operating(terms, notes=policy or Policy())


async def hear(
    cluster: LiveCluster,
    machine: str,
    *,
    code: str = "instance-stop",
    event: str = EVENT,
    start: datetime | None = None,
    stage: Stage = Stage.SCHEDULED,
    instance: str = "",
) -> None:
    """Hear of an event of the cloud, as a poll finds it."""
    begins = start or cluster.clock.now() + timedelta(days=10)
    plan = Plan(kind=KINDS.get(code, Kind.REBOOT), reason=code, description="degraded hardware", start=begins)
    report = Report(
        source="aws",
        notice_id=event,
        at=cluster.clock.now(),
        provider_id=instance or instance_of(cluster, machine),
        stage=stage,
        plan=plan,
    )
    await Inbox(cluster.me).take(report)
