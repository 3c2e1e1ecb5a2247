"""Notices from AWS on any cluster: the API server accepts all of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeStage, definition
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.imds_event_source import ImdsEventSource
from haulout.providers.aws.instance_events import SHOWN_BY_IMDS
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.notice_writer import NoticeWriter
from haulout.runtime.freezes import NoFreezes
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws.ec2 import address_of
from support.builders.objects import a_node
from support.clouds import aws_messages as aws
from support.clusters.backends import ClusterBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually

DAY, HOUR, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)


@asynccontextmanager
async def running_source(cluster: ClusterBackend, cloud: AwsCloud) -> AsyncIterator[tuple[Client, AwsEventSource]]:
    """Run the event source of a cloud; yield a client and the source."""
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
    source = AwsEventSource(
        ec2=cloud, auto_scaling=cloud, sqs=cloud, client=client, nodes=nodes, settings=AwsSettings()
    )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(nodes.run()), group.create_task(source.run(NoticeWriter(client)))]
        yield client, source
        for task in tasks:
            task.cancel()


async def notices(client: Client, instance: str) -> list[MaintenanceNotice]:
    return [notice for notice in (await client.list(MAINTENANCE_NOTICES)).items if notice.spec.provider_id == instance]


async def stages(client: Client, instance: str) -> list[str]:
    return [notice.spec.stage for notice in await notices(client, instance)]


async def test_scheduled_event_becomes_a_notice_that_follows_its_changes(cluster: ClusterBackend) -> None:
    cloud = AwsCloud(cluster.clock, id_seed=f"{cluster.prefix}-end")
    async with running_source(cluster, cloud) as (client, source):
        start = (cluster.clock.now() + DAY).replace(microsecond=0)
        instance = cloud.launch()
        event = cloud.schedule(instance, start=start, deadline=start + 9 * DAY)
        await eventually(cluster.clock, lambda: stages(client, instance), becomes=[NoticeStage.SCHEDULED])
        (found,) = await notices(client, instance)
        assert (found.name, found.spec.start, found.spec.end) == (f"aws-{event}", start, start + 2 * HOUR)
        await source.reschedule(found, start + 3 * DAY)
        cloud.reschedule(instance, event, start=start + 3 * DAY)
        cloud.cancel_event(instance, event)
        await eventually(cluster.clock, lambda: stages(client, instance), becomes=[NoticeStage.CANCELLED])
        assert (await notices(client, instance))[0].spec.start == start + 3 * DAY
        assert not source.problems()


async def test_lifecycle_action_is_completed_when_the_node_is_deleted(cluster: ClusterBackend) -> None:
    cloud = AwsCloud(cluster.clock, id_seed=f"{cluster.prefix}-scale")
    instance, name = cloud.launch(), f"{cluster.prefix}-leaving"
    async with running_source(cluster, cloud) as (client, _):
        await client.create(NODES, a_node(name).with_spec(providerID=f"aws:///eu-west-1a/{instance}"))
        cloud.start_lifecycle_action(instance)
        await eventually(cluster.clock, lambda: stages(client, instance), becomes=[NoticeStage.SCHEDULED])
        await cluster.clock.sleep(SECOND)
        assert cloud.auto_scaling.completed == []
        await client.delete(NODES, name)
        await eventually(cluster.clock, lambda: stages(client, instance), becomes=[NoticeStage.STARTED])
        assert len(cloud.auto_scaling.completed) == 1


async def test_unusual_aws_events_are_accepted_by_the_api_server(cluster: ClusterBackend) -> None:
    cloud = AwsCloud(cluster.clock, id_seed=f"{cluster.prefix}-any")
    start = (cluster.clock.now() + DAY).replace(microsecond=0)
    instances = [cloud.launch() for _ in range(6)]
    async with running_source(cluster, cloud) as (client, source):
        descriptions = [{"latestDescription": "\u00e9\u0000\U0001f4a5" * 9_000}]
        unusual_fields: dict[str, Any] = {
            "eventArn": f"arn:{cluster.prefix}/?#\u00e9 %",
            "eventTypeCode": "REBOOT" + "x" * 9_000,
        }
        cloud.queue.send(aws.health(instances[0], start=start, eventDescription=descriptions, **unusual_fields))
        cloud.schedule(instances[1], "system-reboot", start=start, duration=-DAY, deadline=start - DAY)
        cloud.schedule(instances[2], "instance-stop", start=start, duration=None, description="")
        cloud.interrupt_spot(instances[3])
        cloud.recommend_rebalance(instances[4])
        cloud.start_lifecycle_action(instances[5], group="group with spaces", hook="h" * 255)

        async def missing() -> list[str]:
            return [instance for instance in instances if len(await notices(client, instance)) != 1]

        await eventually(cluster.clock, missing, becomes=[])
        assert not source.problems()


Announce = Callable[[AwsCloud, str], object]
Run = Callable[[NoticeWriter], Coroutine[Any, Any, None]]


def a_reboot(cloud: AwsCloud, instance: str) -> None:
    cloud.schedule(instance, start=(cloud.clock.now() + DAY).replace(microsecond=0))


ANNOUNCED: dict[str, Announce] = {
    "spot": AwsCloud.interrupt_spot,
    "rebalance": AwsCloud.recommend_rebalance,
    "termination": AwsCloud.start_lifecycle_action,
    "event": a_reboot,
}


@pytest.mark.parametrize("first", ["queue", "agent", "both"])
async def test_agent_and_queue_write_one_notice_per_event(cluster: ClusterBackend, first: str) -> None:
    cloud = AwsCloud(cluster.clock, id_seed=f"{cluster.prefix}-{first}")
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    instances = {event_type: cloud.launch() for event_type in ANNOUNCED}
    names = {event_type: f"{cluster.prefix}-{first}-{event_type}" for event_type in ANNOUNCED}
    for event_type, instance in instances.items():
        await client.create(NODES, a_node(names[event_type]).with_spec(providerID=f"aws:///eu-west-1a/{instance}"))
    nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
    queue = AwsEventSource(ec2=cloud, auto_scaling=cloud, sqs=cloud, client=client, nodes=nodes, settings=AwsSettings())
    agents = [
        ImdsEventSource(cloud.metadata(instances[agent]), node=names[agent], clock=cluster.clock, random=client.random)
        for agent in ANNOUNCED
    ]

    async def written() -> dict[str, list[tuple[str, bool]]]:
        """Return, for each event, the notices of its instance: its node, and whether the agent has reported it."""
        found = (await client.list(MAINTENANCE_NOTICES)).items
        return {
            event_type: [
                (item.spec.node_name, SHOWN_BY_IMDS in item.metadata.annotations)
                for item in found
                if item.spec.provider_id == instance
            ]
            for event_type, instance in instances.items()
        }

    def expected(*, by_agent: bool) -> dict[str, list[tuple[str, bool]]]:
        return {event_type: [(names[event_type], by_agent)] for event_type in ANNOUNCED}

    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = [group.create_task(nodes.run())]
        runs: dict[str, list[Run]] = {"queue": [queue.run], "agent": [agent.run for agent in agents]}
        starts = [*runs["queue"], *runs["agent"]] if first == "both" else runs[first]
        tasks += [group.create_task(run(NoticeWriter(client))) for run in starts]
        await nodes.wait_synced()
        for event_type, announce in ANNOUNCED.items():
            announce(cloud, instances[event_type])
        if first == "queue":
            await eventually(cluster.clock, written, becomes=expected(by_agent=False))
            tasks += [group.create_task(run(NoticeWriter(client))) for run in runs["agent"]]
        if first == "agent":
            await eventually(cluster.clock, written, becomes=expected(by_agent=True))
            tasks += [group.create_task(run(NoticeWriter(client))) for run in runs["queue"]]

        async def is_fully_processed() -> bool:
            return not cloud.queue.messages and await written() == expected(by_agent=True)

        await eventually(cluster.clock, is_fully_processed, within=timedelta(minutes=1))
        assert await written() == expected(by_agent=True)
        for task in tasks:
            task.cancel()


async def test_node_without_a_provider_id_is_found_by_its_address(cluster: ClusterBackend) -> None:
    cloud = AwsCloud(cluster.clock, id_seed=f"{cluster.prefix}-bare")
    instance, name = cloud.launch(), f"{cluster.prefix}-bare"
    async with running_source(cluster, cloud) as (client, _):
        node = a_node(name).with_spec()
        node["status"] = {"addresses": [{"type": "InternalIP", "address": address_of(instance)}]}
        await client.create(NODES, node)
        nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
        events = EventRecorder(client, instance="test")
        controller = MaintenanceNoticeController(
            client, events=events, nodes=nodes, notices=notice_informer(client), freezes=NoFreezes()
        )

        async def found() -> list[str]:
            return [notice.status.node_name for notice in await notices(client, instance)]

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(run()) for run in (nodes.run, controller.notices.run, events.run, controller.run)
            ]
            await nodes.wait_synced()
            cloud.start_lifecycle_action(instance)
            await eventually(cluster.clock, found, becomes=[name])
            for task in tasks:
                task.cancel()
        assert cloud.auto_scaling.completed == []
        await client.delete(NODES, name)


# The event shapes of the public documents of aws-node-termination-handler and of AWS, each with the kind of its notice.
EVENT_SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "spot interruption": (
        {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning"}
        | {
            "detail": {"instance-id": "@ID", "instance-action": "terminate"},
            "resources": ["arn:aws:ec2:eu:1:instance/@ID"],
        },
        "Terminate",
    ),
    "rebalance recommendation": (
        {
            "source": "aws.ec2",
            "detail-type": "EC2 Instance Rebalance Recommendation",
            "detail": {"instance-id": "@ID"},
        },
        "Terminate",
    ),
    "stopping, as the console writes it": (
        {"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "resources": None}
        | {"detail": {"instance-id": "@ID", "state": "Stopping"}},
        "Stop",
    ),
    "shutting down": (
        {"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification"}
        | {"detail": {"instance-id": "@ID", "state": "shutting-down"}},
        "Terminate",
    ),
    "scheduled change without a status": (
        {"source": "aws.health", "detail-type": "AWS Health Event", "resources": ["@ID"]}
        | {
            "detail": {
                "eventArn": "arn:aws:health:region::event/PREFIX",
                "service": "EC2",
                "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
                "eventTypeCategory": "scheduledChange",
                "startTime": "Sat, 05 Jun 2016 15:10:09 GMT",
                "eventDescription": [{"language": "en_US", "latestDescription": "described here"}],
                "affectedEntities": [{"entityValue": "@ID", "tags": {"stage": "prod", "app": "my-app"}}],
            }
        },
        "Terminate",
    ),
    "scheduled change with little more than the instance": (
        {"source": "aws.health", "detail-type": "AWS Health Event", "resources": None}
        | {
            "detail": {
                "service": "EC2",
                "eventTypeCategory": "scheduledChange",
                "affectedEntities": [{"entityValue": "@ID", "tags": None}],
            }
        },
        "Unknown",
    ),
    "lifecycle action by EventBridge": (
        {"source": "aws.autoscaling", "detail-type": "EC2 Instance-terminate Lifecycle Action"}
        | {
            "detail": aws.action("@ID", LifecycleActionToken="PREFIX-eb"),
            "resources": ["arn:aws:autoscaling:group"],
        },
        "Terminate",
    ),
    "lifecycle action straight to the queue": (
        aws.action("@ID", LifecycleActionToken="PREFIX-direct", RequestId="r-1", Service="AWS Auto Scaling")
        | {"Time": "2020-07-01T22:19:58.000Z", "Origin": "AutoScalingGroup", "Destination": "EC2"},
        "Terminate",
    ),
    "lifecycle action by SNS": (
        {"Type": "Notification", "Message": json.dumps(aws.action("@ID", LifecycleActionToken="PREFIX-sns"))},
        "Terminate",
    ),
    "lifecycle action wrapped without a type": (
        {"Message": json.dumps(aws.action("@ID", LifecycleActionToken="PREFIX-bare"))},
        "Terminate",
    ),
}
ENVELOPE = {"version": "0", "account": "123456789012", "region": "us-east-1", "time": "2020-07-01T22:19:58Z"}


@pytest.mark.parametrize("shape", EVENT_SAMPLES)
async def test_each_documented_event_becomes_a_notice_of_its_instance(cluster: ClusterBackend, shape: str) -> None:
    number = list(EVENT_SAMPLES).index(shape)
    cloud = AwsCloud(cluster.clock, id_seed=f"{cluster.prefix}-shape-{number}")
    instance, name = cloud.launch(), f"{cluster.prefix}-shape-{number}"
    body, kind = EVENT_SAMPLES[shape]
    whole = body if "Message" in body or "EC2InstanceId" in body else ENVELOPE | {"id": f"{name}-event"} | body
    async with running_source(cluster, cloud) as (client, source):
        await client.create(NODES, a_node(name).with_spec(providerID=f"aws:///us-east-1a/{instance}"))

        async def is_node_listed() -> bool:
            return any(node.name == name for node in (await client.list(NODES)).items)

        await eventually(cluster.clock, is_node_listed)
        await cluster.clock.sleep(SECOND / 2)
        cloud.queue.send(json.dumps(whole).replace("PREFIX", name).replace("@ID", instance))

        async def kinds() -> list[str]:
            return [notice.spec.kind for notice in await notices(client, instance)]

        await eventually(cluster.clock, kinds, becomes=[kind])
        await eventually(cluster.clock, lambda: len(cloud.queue.messages), becomes=0)
        assert not source.quarantine.count
        await client.delete(NODES, name)


async def test_test_notification_is_deleted_without_a_notice(cluster: ClusterBackend) -> None:
    cloud = AwsCloud(cluster.clock, id_seed=f"{cluster.prefix}-probe")
    probe = {"Service": "AWS Auto Scaling", "Event": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": "workers"}
    async with running_source(cluster, cloud) as (_, source):
        for body in (probe, {"Message": json.dumps(probe)}, {"LifecycleTransition": "autoscaling:TEST_NOTIFICATION"}):
            cloud.queue.send(json.dumps(body))
        await eventually(cluster.clock, lambda: len(cloud.queue.messages), becomes=0)
        assert (source.messages_processed, source.quarantine.count) == (0, 0)
