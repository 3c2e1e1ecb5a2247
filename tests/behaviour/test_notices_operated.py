"""The operator sees to notices with exactly the permissions that are shipped: all works, and none is there in vain."""

import base64
from datetime import timedelta
from functools import partial
from typing import Any

from haulout.app.notices import Notices
from haulout.app.operator import OperatorSettings, run_operator
from haulout.kinds.notice import MAINTENANCE_NOTICES, Phase, Stage, definition
from haulout.kinds.reports import Plan
from haulout.kube import access
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.timestamps import micro_time
from haulout.notices.permissions import permissions
from haulout.notices.sources.aws import access as aws
from haulout_sandbox.openshift import INFRASTRUCTURES, an_infrastructure
from support.clusters import ACCOUNT, Plans
from support.listening import Cloud, a_notice, listening_to
from support.live import LiveCluster
from support.maintaining import entitled
from support.openshift import openshift
from support.permitting import unused
from support.processes import Program
from support.profiled import NAMESPACE
from support.recorded import recorded

PLURAL = MAINTENANCE_NOTICES.plural
MINUTE, SECOND, DAY = timedelta(minutes=1), timedelta(seconds=1), timedelta(days=1)


def operating(*clouds: Cloud) -> Program:
    """Return a program that is the operator."""

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=NAMESPACE, identity="operator_1")
        await run_operator(client, settings, notices=Notices(listening_to(*clouds)))

    return program


def status(cluster: LiveCluster, name: str) -> dict[str, Any]:
    """Return the status of a notice; empty if there is none yet."""
    return dict(cluster.get(PLURAL, name).get("status", {})) if cluster.has(PLURAL, name) else {}


def phase(cluster: LiveCluster, name: str) -> str:
    """Return how a notice stands."""
    return str(status(cluster, name).get("phase", ""))


def reasons(cluster: LiveCluster, kind: str) -> set[str]:
    """Return the reasons of events about objects of a kind."""
    found = cluster.all("events").values()
    return {str(it["reason"]) for it in found if (it.get("regarding") or it["involvedObject"])["kind"] == kind}


async def test_a_notice_goes_its_way_with_the_permissions_that_are_shipped(a_cluster: Plans) -> None:
    cloud = Cloud("oci")
    plan = recorded(entitled(a_cluster())).with_definition(definition()).with_nodes(1)
    async with plan.running() as cluster:
        now = cluster.clock.now()
        await cluster.create(a_notice("disk", "n1", start=now + DAY))
        cluster.run(operating(cloud))
        becomes = partial(cluster.eventually, partial(phase, cluster, "disk"))
        await becomes(becomes=Phase.PLANNED)
        assert status(cluster, "disk")["nodeName"] == "n1"
        await cluster.eventually(partial(_says, cluster, "n1", "MaintenancePlanned"), becomes="True")
        await cluster.change(PLURAL, "disk", spec={"start": micro_time(cluster.clock.now() + 14 * MINUTE)})
        await becomes(becomes=Phase.DUE)
        await cluster.change(PLURAL, "disk", spec={"stage": Stage.STARTED})
        await becomes(becomes=Phase.ACTIVE)
        await cluster.eventually(partial(_says, cluster, "n1", "MaintenanceInProgress"), becomes="True")
        await cluster.change(PLURAL, "disk", spec={"stage": Stage.ENDED})
        await becomes(becomes=Phase.COMPLETED)
        await cluster.eventually(partial(_says, cluster, "n1", "MaintenanceInProgress"), becomes="False")
        long_ago = merge_patch({"status": {"endedAt": micro_time(now - 8 * DAY)}})
        await cluster.me.patch(MAINTENANCE_NOTICES, "disk", long_ago, subresource="status")
        await cluster.eventually(lambda: cluster.has(PLURAL, "disk"), becomes=False)

        says = partial(cloud.says, "e1", node_name="n1")
        says(at=now, plan=Plan(start=now + DAY))
        await cluster.eventually(partial(phase, cluster, "oci-e1"), becomes=Phase.PLANNED)
        says(at=now + SECOND, plan=Plan(start=now + 2 * DAY))
        says(at=now + 2 * SECOND, stage=Stage.CANCELLED)
        await cluster.eventually(partial(phase, cluster, "oci-e1"), becomes=Phase.CANCELLED)

        wanted = {"MaintenanceAnnounced", "MaintenanceDue", "MaintenanceActive", "MaintenanceCompleted"}
        for kind in ("Node", MAINTENANCE_NOTICES.kind):
            await cluster.eventually(partial(_are_told, cluster, kind, wanted), becomes=True)
        seldom = ("patch events",)  # when the same is told again
        assert [it for it in unused(cluster, permissions()) if not it.startswith(seldom)] == []


def _are_told(cluster: LiveCluster, kind: str, wanted: set[str]) -> bool:
    return wanted <= reasons(cluster, kind)


async def test_the_keys_and_the_region_of_aws_are_read_with_what_that_is_granted(a_cluster: Plans) -> None:
    namespace, name = NAMESPACE, "aws-keys"
    account = {"kind": "ServiceAccount", "namespace": ACCOUNT[0], "name": ACCOUNT[1]}
    granted = access.roles("haulout-aws", aws.permissions(f"{namespace}/{name}"), account)
    keys = {"aws_access_key_id": "AKIA1", "aws_secret_access_key": "secret"}
    found: list[aws.Access] = []

    async def program(client: Client) -> None:
        found.append(await aws.ClusterAccess(client, secret=f"{namespace}/{name}").current())

    encoded = {key: base64.b64encode(it.encode()).decode() for key, it in keys.items()}
    meta = {"name": name, "namespace": namespace}
    async with openshift(a_cluster()).with_rights(*granted).running() as cluster:
        await cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": encoded})
        infrastructure = an_infrastructure(region="eu-west-1")
        await cluster.create(infrastructure)
        said = merge_patch({"status": infrastructure["status"]})
        await cluster.me.patch(INFRASTRUCTURES, "cluster", said, subresource="status")
        cluster.run(program)
        await cluster.eventually(lambda: found)
        assert found == [aws.Access("eu-west-1", "AKIA1", "secret")]


async def test_who_may_not_ask_for_the_region_leaves_that_to_boto3(a_cluster: Plans) -> None:
    found: list[aws.Access] = []

    async def program(client: Client) -> None:
        found.append(await aws.ClusterAccess(client).current())

    async with entitled(a_cluster()).running() as cluster:
        cluster.run(program)
        await cluster.eventually(lambda: found)
        assert found == [aws.Access()]


def _says(cluster: LiveCluster, node: str, kind: str) -> str:
    """Return the status of a condition of a node."""
    found = cluster.get("nodes", node)["status"].get("conditions", ())
    return next((str(it["status"]) for it in found if it["type"] == kind), "")
