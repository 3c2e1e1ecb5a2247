"""What the Machine Maintenance Operator is for, from AWS to the new node, under the roles that are shipped.

AWS says that it will stop an instance. That becomes a notice, and the notice a MachineMaintenance; the Machine is
deleted, its node is emptied and ended by the Machine API, and another node comes in its place. The operator is whole.
"""

from datetime import timedelta

from haulout.app import manifests
from haulout.app.manifests import Installation
from haulout.app.notices import Notices
from haulout.app.operator import OperatorSettings, run_operator
from haulout.kinds.machinemaintenance import NAMESPACE
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.sources.aws.settings import Settings
from haulout.notices.sources.aws.source import AwsSource
from haulout_sandbox.clouds.aws import AwsCloud
from support.builders import a_budget, a_deployment
from support.clusters import ACCOUNT, Plans
from support.live import LiveCluster
from support.maintaining import maintained
from support.openshift import PATIENCE, instance_of, machine_api, machines, node_of, openshift, ready, with_machine_set
from support.processes import Program
from support.replacing import LONG, PLURAL, flag, phase

DAY, SOON = timedelta(days=1), timedelta(seconds=2)


def operator(cloud: AwsCloud) -> Program:
    """Return the whole operator, which asks this cloud about all instances every two seconds."""

    def sources(client: Client, nodes: Cache[Node]) -> list[AwsSource]:
        how = Settings(look_every=SOON)
        return [AwsSource(ec2=cloud, groups=cloud, sqs=None, client=client, nodes=nodes, settings=how)]

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=ACCOUNT[0], identity="operator_1")
        await run_operator(client, settings, notices=Notices(sources=sources))

    return program


def announced(cluster: LiveCluster, event: str) -> str:
    """Return how the notice of an event stands."""
    found = cluster.all(MAINTENANCE_NOTICES.plural).get(f"aws-{event}", {})
    return str(found.get("status", {}).get("phase", ""))


async def test_from_an_event_of_aws_to_the_new_node(a_cluster: Plans) -> None:
    rights = manifests.permissions(Installation(image="example/haulout", machines=True))
    plan = openshift(maintained(a_cluster())).with_rights(*rights)
    async with plan.running() as cluster, machine_api(cluster):
        cloud = AwsCloud(cluster.clock)
        first, second, third = await with_machine_set(cluster, "workers", replicas=3)
        for name in (first, second, third):
            cloud.launch(called=instance_of(cluster, name))
        await cluster.create(a_deployment("shop/cart", replicas=3), a_budget("shop/cart", minAvailable=2))
        await cluster.eventually(lambda: cluster.ready("shop/cart"), becomes=3)
        instance, node = instance_of(cluster, first), node_of(cluster, first)
        start = (cluster.clock.now() + 10 * DAY).replace(microsecond=0)
        event = cloud.schedule(instance, "instance-stop", start=start, last=None, deadline=start + 4 * DAY)
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

        await cluster.eventually(lambda: phase(cluster, record), becomes="Completed", within=LONG)
        assert flag(cluster, record)
        assert not cluster.has("nodes", node)
        cloud.drop(instance)  # AWS speaks no more of what is gone
        await cluster.eventually(lambda: len(ready(cluster)), becomes=3, within=PATIENCE)
        await cluster.eventually(lambda: cluster.ready("shop/cart"), becomes=3)
        await cluster.eventually(lambda: announced(cluster, event) in ("Completed", "Cancelled"))

        # Nobody else was touched: an event that is over is no reason, and a reboot none to replace a Machine.
        assert {second, third} <= set(machines(cluster))
        assert list(cluster.all(PLURAL)) == [f"{NAMESPACE}/{record}"]
        assert announced(cluster, over) in ("", "Completed")
        assert announced(cluster, reboot) == "Planned"
        for plural in ("poddisruptionbudgets", "deployments"):  # or no Machine could be emptied at the end
            await cluster.delete(plural, "shop/cart")
