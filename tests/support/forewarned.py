"""Maintenance that is announced: the whole operator without a configuration, and a cloud that talks about a machine.

async with noticed(a_cluster(clock).with_nodes(2)).on_the_sandbox() as cluster:
    cluster.run(operating())
    cloud = Cloud(cluster, "n1")
    await cloud.say(start=20, end=40)                       # in minutes from the beginning of the story
    await cloud.until(45)
    assert cloud.out_of_service() == [(5, 40)]
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from haulout.app.configured import Configured
from haulout.app.notices import Notices
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.drain.lifecycle import NodeCondition
from haulout.history import record
from haulout.kinds.notice import Kind, NoticeCondition, Stage, definition
from haulout.kinds.reports import Plan, Report
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.timestamps import micro_time
from haulout.notices.inbox import Inbox
from haulout_sandbox.apiserver import Write
from support.clusters import ClusterPlan
from support.live import SandboxCluster
from support.maintaining import OPERATOR, entitled
from support.outside import FakeOutside
from support.processes import Program
from support.profiled import NAMESPACE
from support.profiling import invariants

NOWHERE = Path("there-is-no-such-folder/maintenance.yaml")
_OURS = ("haulout.dev/", "cloud.sap/", "node.kubernetes.io/unschedulable")


def noticed(plan: ClusterPlan, *, most: int | None = None) -> ClusterPlan:
    """Return a plan where notices and records can be written, and where the operator may do what we ship for it."""
    defined = entitled(plan).with_definition(definition()).with_definition(record.definition())
    return defined.upholding(*invariants(OPERATOR, most=most, ours=(*NoticeCondition, *NodeCondition)))


def operating(file: Path = NOWHERE, *, identity: str = "operator_1") -> Program:
    """Return the whole operator; its file need not be there."""

    async def program(client: Client) -> None:
        configured = Configured(file, environ={}, clock=client.clock, may_lack=True)
        settings = OperatorSettings(namespace=NAMESPACE, identity=identity)
        await run_operator(client, settings, profiles=Profiles(configured, FakeOutside()), notices=Notices())

    return program


class Cloud:
    """A cloud that talks about one maintenance of one machine, and those who look at its node."""

    def __init__(self, cluster: SandboxCluster, node: str) -> None:
        self.cluster = cluster
        self.node = node
        self.began = cluster.clock.now()
        self._inbox = Inbox(cluster.me)

    async def say(
        self,
        stage: Stage = Stage.SCHEDULED,
        *,
        start: float | None = None,
        end: float | None = None,
        said: float | None = None,
        kind: Kind = Kind.REBOOT,
    ) -> None:
        """Say how far it is, and what is planned; it may have been said earlier than it is heard."""
        now = self.cluster.clock.now()
        plan = None
        if start is not None:
            until = None if end is None else self.began + timedelta(minutes=end)
            plan = Plan(kind=kind, reason="EVACUATION", start=self.began + timedelta(minutes=start), end=until)
        report = Report(
            source="oci",
            notice_id=f"of-{self.node}",
            at=now if said is None else self.began + timedelta(minutes=said),
            provider_id=f"sandbox://z1/{self.node}",
            stage=stage,
            plan=plan,
        )
        await self._inbox.take(report)

    def at(self, minute: float) -> str:
        """Return a minute of the story as it is written."""
        return micro_time(self.began + timedelta(minutes=minute))

    async def until(self, minute: float) -> None:
        """Wait until a minute of the story."""
        left = self.began + timedelta(minutes=minute) - self.cluster.clock.now()
        await self.cluster.clock.sleep(max(left, timedelta()))

    def out_of_service(self) -> list[tuple[int, int | None]]:
        """Return from which minute to which the node took no pods, rounded down; None: it still does not."""
        found: list[tuple[int, int | None]] = []
        for write in _of(self.cluster.history, self.node):
            is_out = bool(write.after and write.after["spec"].get("unschedulable"))
            minute = int((write.at - self.began) / timedelta(minutes=1))
            if is_out and (not found or found[-1][1] is not None):
                found.append((minute, None))
            elif not is_out and found and found[-1][1] is None:
                found[-1] = found[-1][0], minute
        return found


def ours(node: RawObject) -> dict[str, str]:
    """Return what of a node's labels and annotations is ours."""
    metadata = node["metadata"]
    both = {**metadata.get("labels", {}), **metadata.get("annotations", {})}
    return {key: value for key, value in both.items() if key.startswith(_OURS)}


def _of(history: Sequence[Write], node: str) -> list[Write]:
    return [it for it in history if it.kind.plural == "nodes" and it.key == node]
