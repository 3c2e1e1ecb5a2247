"""The operator processes notices with exactly the shipped permissions: all works, and every permission is used."""

import base64
from datetime import timedelta
from functools import partial
from typing import Any

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticePhase, NoticeStage, definition
from haulout.api.notice_reports import MaintenancePlan
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.notices.permissions import permissions
from haulout.core.timestamps import micro_time
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.providers.aws import credentials as aws
from haulout_sandbox.openshift.objects import INFRASTRUCTURES, an_infrastructure
from support.clusters.cluster_plan import SERVICE_ACCOUNT, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.clusters.process import Program
from support.clusters.rbac import unused_verbs
from support.expectations.maintenance_records import with_record_crd
from support.operators.event_sources import FakeCloud, a_notice, event_sources_of
from support.operators.nodemaintenance import with_operator_rbac
from support.operators.profiles import NAMESPACE
from support.platforms.openshift import with_openshift

PLURAL = MAINTENANCE_NOTICES.plural
MINUTE, SECOND, DAY = timedelta(minutes=1), timedelta(seconds=1), timedelta(days=1)


def operator_with_sources(*clouds: FakeCloud) -> Program:
    """Return a program that is the operator."""

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=NAMESPACE, identity="operator_1")
        await run_operator(client, settings, notices=NoticesComponent(event_sources_of(*clouds)))

    return program


def status(cluster: LiveCluster, name: str) -> dict[str, Any]:
    """Return the status of a notice; empty if there is none yet."""
    return dict(cluster.get(PLURAL, name).get("status", {})) if cluster.has(PLURAL, name) else {}


def phase(cluster: LiveCluster, name: str) -> str:
    """Return the phase of a notice."""
    return str(status(cluster, name).get("phase", ""))


def event_reasons(cluster: LiveCluster, kind: str) -> set[str]:
    """Return the reasons of events about objects of a kind."""
    found = cluster.by_key("events").values()
    return {str(item["reason"]) for item in found if (item.get("regarding") or item["involvedObject"])["kind"] == kind}


async def test_notice_passes_through_all_phases_with_the_shipped_permissions(a_cluster: PlanFactory) -> None:
    cloud = FakeCloud("oci")
    plan = with_record_crd(with_operator_rbac(a_cluster())).with_crd(definition()).with_nodes(1)
    async with plan.running() as cluster:
        now = cluster.clock.now()
        await cluster.create(a_notice("disk", "n1", start=now + DAY))
        cluster.run(operator_with_sources(cloud))
        becomes = partial(cluster.eventually, partial(phase, cluster, "disk"))
        await becomes(becomes=NoticePhase.PLANNED)
        assert status(cluster, "disk")["nodeName"] == "n1"
        await cluster.eventually(partial(_node_condition_status, cluster, "n1", "MaintenancePlanned"), becomes="True")
        await cluster.patch(PLURAL, "disk", spec={"start": micro_time(cluster.clock.now() + 14 * MINUTE)})
        await becomes(becomes=NoticePhase.DUE)
        await cluster.patch(PLURAL, "disk", spec={"stage": NoticeStage.STARTED})
        await becomes(becomes=NoticePhase.ACTIVE)
        await cluster.eventually(
            partial(_node_condition_status, cluster, "n1", "MaintenanceInProgress"), becomes="True"
        )
        await cluster.patch(PLURAL, "disk", spec={"stage": NoticeStage.ENDED})
        await becomes(becomes=NoticePhase.COMPLETED)
        await cluster.eventually(
            partial(_node_condition_status, cluster, "n1", "MaintenanceInProgress"), becomes="False"
        )
        long_ago = merge_patch({"status": {"endedAt": micro_time(now - 8 * DAY)}})
        await cluster.admin.patch(MAINTENANCE_NOTICES, "disk", long_ago, subresource="status")
        await cluster.eventually(lambda: cluster.has(PLURAL, "disk"), becomes=False)

        report = partial(cloud.report, "e1", node_name="n1")
        report(at=now, plan=MaintenancePlan(start=now + DAY))
        await cluster.eventually(partial(phase, cluster, "oci-e1"), becomes=NoticePhase.PLANNED)
        report(at=now + SECOND, plan=MaintenancePlan(start=now + 2 * DAY))
        report(at=now + 2 * SECOND, stage=NoticeStage.CANCELLED)
        await cluster.eventually(partial(phase, cluster, "oci-e1"), becomes=NoticePhase.CANCELLED)

        wanted = {"MaintenanceAnnounced", "MaintenanceDue", "MaintenanceActive", "MaintenanceCompleted"}
        for kind in ("Node", MAINTENANCE_NOTICES.kind):
            await cluster.eventually(partial(_has_event_reasons, cluster, kind, wanted), becomes=True)
        seldom = ("patch events",)  # when the same is told again
        assert [item for item in unused_verbs(cluster, permissions()) if not item.startswith(seldom)] == []


def _has_event_reasons(cluster: LiveCluster, kind: str, wanted: set[str]) -> bool:
    return wanted <= event_reasons(cluster, kind)


async def test_aws_credentials_and_region_are_read_with_the_granted_permissions(a_cluster: PlanFactory) -> None:
    namespace, name = NAMESPACE, "aws-keys"
    account = {"kind": "ServiceAccount", "namespace": SERVICE_ACCOUNT[0], "name": SERVICE_ACCOUNT[1]}
    granted = rbac.roles("haulout-aws", aws.permissions(f"{namespace}/{name}"), account)
    keys = {"aws_access_key_id": "AKIA1", "aws_secret_access_key": "secret"}
    found: list[aws.AwsCredentials] = []

    async def program(client: Client) -> None:
        found.append(await aws.ClusterCredentials(client, secret=f"{namespace}/{name}").current())

    encoded = {key: base64.b64encode(candidate.encode()).decode() for key, candidate in keys.items()}
    meta = {"name": name, "namespace": namespace}
    async with with_openshift(a_cluster()).with_rbac(*granted).running() as cluster:
        await cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": encoded})
        infrastructure = an_infrastructure(region="eu-west-1")
        await cluster.create(infrastructure)
        patch = merge_patch({"status": infrastructure["status"]})
        await cluster.admin.patch(INFRASTRUCTURES, "cluster", patch, subresource="status")
        cluster.run(program)
        await cluster.eventually(lambda: found)
        assert found == [aws.AwsCredentials("eu-west-1", "AKIA1", "secret")]


async def test_forbidden_region_is_left_to_boto3(a_cluster: PlanFactory) -> None:
    found: list[aws.AwsCredentials] = []

    async def program(client: Client) -> None:
        found.append(await aws.ClusterCredentials(client).current())

    async with with_operator_rbac(a_cluster()).running() as cluster:
        cluster.run(program)
        await cluster.eventually(lambda: found)
        assert found == [aws.AwsCredentials()]


def _node_condition_status(cluster: LiveCluster, node: str, kind: str) -> str:
    """Return the status of a condition of a node."""
    found = cluster.get("nodes", node)["status"].get("conditions", ())
    return next((str(item["status"]) for item in found if item["type"] == kind), "")
