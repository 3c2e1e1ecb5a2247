"""What the Machine Maintenance Operator is for, from AWS to the new node, under the roles that are shipped.

AWS says that it will stop an instance. That becomes a notice, and the notice a MachineMaintenance; the Machine is
deleted, its node is emptied and ended by the Machine API, and another node comes in its place. The operator is whole.
"""

from datetime import timedelta

from haulout.api.machinemaintenance import NAMESPACE
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.objects import Node
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.notices.component import NoticesComponent
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.component import EventSourceComponent
from haulout_sandbox.clouds.aws import AwsCloud
from support.builders.objects import a_deployment, a_pdb
from support.clusters.cluster_plan import SERVICE_ACCOUNT, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.clusters.process import Program
from support.operators.nodemaintenance import with_nodemaintenance_crd
from support.platforms.machinemaintenance import PLURAL, REPLACEMENT_TIMEOUT, is_deletion_scheduled, phase
from support.platforms.openshift import (
    TIMEOUT,
    create_machine_set,
    instance_of,
    machine_api,
    machines,
    node_of,
    ready_machines,
    with_openshift,
)

DAY, POLL_INTERVAL = timedelta(days=1), timedelta(seconds=2)


def operator(cloud: AwsCloud) -> Program:
    """Return the whole operator, which asks this cloud about all instances every two seconds."""

    def make(client: Client, nodes: Informer[Node]) -> AwsEventSource:
        aws_settings = AwsSettings(poll_interval=POLL_INTERVAL)
        return AwsEventSource(
            ec2=cloud, auto_scaling=cloud, sqs=None, client=client, nodes=nodes, settings=aws_settings
        )

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=SERVICE_ACCOUNT[0], identity="operator_1")
        await run_operator(client, settings, notices=NoticesComponent([EventSourceComponent("aws", make)]))

    return program


def notice_phase(cluster: LiveCluster, event: str) -> str:
    """Return the phase of an event's notice."""
    found = cluster.by_key(MAINTENANCE_NOTICES.plural).get(f"aws-{event}", {})
    return str(found.get("status", {}).get("phase", ""))


async def test_aws_event_leads_to_a_replaced_node(a_cluster: PlanFactory) -> None:
    rights = operator_manifests.role_objects(Installation(image="example/haulout", machines=True))
    plan = with_openshift(with_nodemaintenance_crd(a_cluster())).with_rbac(*rights)
    async with plan.running() as cluster, machine_api(cluster):
        cloud = AwsCloud(cluster.clock)
        first, second, third = await create_machine_set(cluster, "workers", replicas=3)
        for name in (first, second, third):
            cloud.launch(instance_id=instance_of(cluster, name))
        await cluster.create(a_deployment("shop/cart", replicas=3), a_pdb("shop/cart", minAvailable=2))
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=3)
        instance, node = instance_of(cluster, first), node_of(cluster, first)
        start = (cluster.clock.now() + 10 * DAY).replace(microsecond=0)
        event = cloud.schedule(instance, "instance-stop", start=start, duration=None, deadline=start + 4 * DAY)
        over = cloud.schedule(
            instance_of(cluster, second), "instance-stop", start=start - 12 * DAY, description="[Completed] degraded"
        )
        reboot = cloud.schedule(instance_of(cluster, third), "instance-reboot", start=start)

        cluster.run(operator(cloud))
        record = f"mm-{first}-{event.removeprefix('instance-event-')}"
        await cluster.eventually(lambda: cluster.has(PLURAL, f"{NAMESPACE}/{record}"))
        spec = cluster.get(PLURAL, f"{NAMESPACE}/{record}")["spec"]
        assert (spec["eventcode"], spec["eventid"]) == ("instance-stop", event)
        assert (spec["machineid"], spec["machinelink"]) == (instance, first)
        assert (spec["notbefore"], spec["description"]) == (f"{start:%Y-%m-%dT%H:%M:%SZ}", "The host needs maintenance")

        await cluster.eventually(lambda: phase(cluster, record), becomes="Completed", within=REPLACEMENT_TIMEOUT)
        assert is_deletion_scheduled(cluster, record)
        assert not cluster.has("nodes", node)
        cloud.forget_instance(instance)  # AWS speaks no more of what is gone
        await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=3, within=TIMEOUT)
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=3)
        await cluster.eventually(lambda: notice_phase(cluster, event) in ("Completed", "Cancelled"))

        # No other Machine was touched: neither an ended event nor a reboot replaces a Machine.
        assert {second, third} <= set(machines(cluster))
        assert list(cluster.by_key(PLURAL)) == [f"{NAMESPACE}/{record}"]
        assert notice_phase(cluster, over) in ("", "Completed")
        assert notice_phase(cluster, reboot) == "Planned"
        for plural in ("poddisruptionbudgets", "deployments"):  # or no Machine could be emptied at the end
            await cluster.delete(plural, "shop/cart")
