"""The calls of the real boto3, against the fake AWS over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticeStage, definition
from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES, SECRETS
from haulout.core.clock import RealClock
from haulout.errors import CloudError, ConfigError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.providers.aws import boto
from haulout.providers.aws.boto import BotoAutoScaling, BotoEc2, BotoSqs
from haulout.providers.aws.credentials import AwsCredentials, ClusterCredentials
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.notice_writer import NoticeWriter
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws.server import serve
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually

DAY, MINUTE, SECOND = timedelta(days=1), timedelta(minutes=1), timedelta(seconds=1)
QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333/maintenance"


class StaticCredentials(ClusterCredentials):
    """Credentials that need no cluster."""

    def __init__(self) -> None:
        self.forgotten = 0

    async def current(self) -> AwsCredentials:
        """Return the same each time."""
        return AwsCredentials(region="eu-west-1", key="key", secret="secret", token="token")

    def forget(self) -> None:
        """Count how often the credentials were rejected."""
        self.forgotten += 1


@asynccontextmanager
async def boto_clients() -> AsyncIterator[tuple[AwsCloud, BotoEc2, BotoAutoScaling, BotoSqs, AwsSettings]]:
    cloud = AwsCloud(RealClock())
    async with serve(cloud, host="127.0.0.1") as port:
        settings = AwsSettings(endpoint=f"http://127.0.0.1:{port}", queue_url=QUEUE)
        ec2, groups, sqs = boto.new_clients(settings, StaticCredentials())
        assert sqs is not None
        yield cloud, ec2, groups, sqs, settings


@pytest.fixture(autouse=True)
def _with_boto3() -> None:
    pytest.importorskip("boto3")


@pytest.mark.real_time
async def test_ec2_client_returns_the_same_over_boto3_as_in_process() -> None:
    async with boto_clients() as (cloud, ec2, _, _, _):
        instance, stopped = cloud.launch(tags={"team": "a & b <c>"}), cloud.launch()
        start = cloud.clock.now().replace(microsecond=0) + DAY
        event = cloud.schedule(instance, start=start, deadline=start + DAY, description="so & <so>")
        cloud.set_state(stopped, "stopped")
        found, page = await ec2.statuses([instance, stopped])
        expected, _ = await cloud.statuses([instance, stopped])
        actual = [
            {key: item[key] for key in ("InstanceId", "InstanceState")} | {"Events": item.get("Events", [])}
            for item in found
        ]
        assert (actual, page) == ([{key: item[key] for key in actual[0]} for item in expected], "")
        assert (await ec2.instances([instance]))[0]["Tags"] == [{"Key": "team", "Value": "a & b <c>"}]
        moved = await ec2.move_event(instance, event, to=start + timedelta(hours=3))
        assert moved["NotBefore"] == start + timedelta(hours=3)


@pytest.mark.real_time
async def test_sqs_client_receives_hides_and_deletes_messages() -> None:
    async with boto_clients() as (cloud, _, _, sqs, _):
        cloud.queue.send("hello")
        (message,) = await sqs.receive(max_messages=10, wait=SECOND, visibility_timeout=MINUTE)
        assert message["Body"] == "hello"
        await sqs.change_visibility(message["ReceiptHandle"], visibility_timeout=timedelta())
        (again,) = await sqs.receive(max_messages=10, wait=SECOND, visibility_timeout=MINUTE)
        with pytest.raises(CloudError) as error:
            await sqs.delete(message["ReceiptHandle"])
        assert (error.value.code, error.value.status) == ("ReceiptHandleIsInvalid", 400)
        await sqs.delete(again["ReceiptHandle"])
        assert await sqs.receive(max_messages=10, wait=timedelta(), visibility_timeout=MINUTE) == []


@pytest.mark.real_time
async def test_fake_aws_answers_boto3_as_moto_does() -> None:
    """Moto is another fake of AWS, which is tested with boto3; it has no events and no lifecycle actions."""
    moto = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    try:
        theirs = await _call_everything("http://{}:{}".format(*moto.get_host_and_port()))
    finally:
        moto.stop()
    cloud = AwsCloud(RealClock())
    async with serve(cloud, host="127.0.0.1") as port:
        ours = await _call_everything(f"http://127.0.0.1:{port}")
    assert ours == theirs


async def _call_everything(endpoint: str) -> list[object]:
    """Return the results of queue calls, and of a call about an unknown instance."""
    boto3 = pytest.importorskip("boto3")
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "eu-west-1"}
    raw = boto3.client("sqs", endpoint_url=endpoint, **keys)
    url = "http://127.0.0.1/queue"
    with suppress(raw.exceptions.ClientError):  # our model has one queue
        url = (await asyncio.to_thread(raw.create_queue, QueueName="maintenance"))["QueueUrl"]
    await asyncio.to_thread(raw.send_message, QueueUrl=url, MessageBody="a & <b>")
    ec2, _, sqs = boto.new_clients(AwsSettings(endpoint=endpoint, queue_url=url), StaticCredentials())
    assert sqs is not None
    (first,) = await sqs.receive(max_messages=10, wait=SECOND, visibility_timeout=MINUTE)
    while_hidden = await sqs.receive(max_messages=10, wait=timedelta(), visibility_timeout=MINUTE)
    await sqs.change_visibility(first["ReceiptHandle"], visibility_timeout=timedelta())
    (again,) = await sqs.receive(max_messages=10, wait=SECOND, visibility_timeout=MINUTE)
    await sqs.delete(again["ReceiptHandle"])
    after = await sqs.receive(max_messages=10, wait=timedelta(), visibility_timeout=MINUTE)
    with pytest.raises(CloudError) as unknown:
        await ec2.statuses(["i-0123456789abcdef0"])
    error = unknown.value
    is_same = first["ReceiptHandle"] == again["ReceiptHandle"]
    return [first["Body"], while_hidden, is_same, again["Body"], after, error.status, error.code, error.message]


@pytest.mark.real_time
async def test_auto_scaling_client_sends_heartbeats_and_completes_lifecycle_actions() -> None:
    async with boto_clients() as (cloud, _, groups, _, _):
        instance = cloud.launch()
        action = cloud.start_lifecycle_action(instance)
        assert await groups.heartbeat_timeout(group="workers", hook="drain") == 2 * MINUTE
        assert await groups.heartbeat_timeout(group="workers", hook="none") is None
        await groups.heartbeat(instance, group="workers", hook="drain", token=action.token)
        await groups.complete(instance, group="workers", hook="drain", token=action.token)
        assert cloud.auto_scaling.completed == [action.token]
        with pytest.raises(CloudError) as error:
            await groups.complete(instance, group="workers", hook="drain", token=action.token)
        assert error.value.code == "ValidationError"


@pytest.mark.real_time
async def test_auto_scaling_client_finds_and_completes_termination_hooks_without_a_token() -> None:
    async with boto_clients() as (cloud, _, groups, _, _):
        instance, other = cloud.launch(), cloud.launch()
        action = cloud.start_lifecycle_action(instance, silent=True)
        assert await groups.termination_hooks(instance) == ("workers", ["drain"])
        assert await groups.termination_hooks(other) == ("", ())
        await groups.heartbeat(instance, group="workers", hook="drain", token="")
        await groups.complete(instance, group="workers", hook="drain", token="")
        assert cloud.auto_scaling.completed == [action.token]


@pytest.mark.real_time
async def test_boto3_errors_become_cloud_errors_with_the_aws_code() -> None:
    async with boto_clients() as (cloud, ec2, _, sqs, _):
        instance = cloud.launch()
        with pytest.raises(CloudError, match="'i-0bad0bad0bad0bad0' does not exist") as unknown:
            await ec2.statuses([instance, "i-0bad0bad0bad0bad0"])
        assert unknown.value.code == "InvalidInstanceID.NotFound"
        cloud.faults.fail("DescribeInstanceStatus", status=503, code="RequestLimitExceeded", retry_after=7 * SECOND)
        with pytest.raises(CloudError) as busy:
            await ec2.statuses([instance])
        assert (busy.value.status, busy.value.code, busy.value.retry_after) == (503, "RequestLimitExceeded", 7 * SECOND)
        assert cloud.faults.calls.count("DescribeInstanceStatus") == 2
        cloud.faults.fail("DeleteMessage", status=0, after=True)
        cloud.queue.send("x")
        (message,) = await sqs.receive(max_messages=1, wait=SECOND, visibility_timeout=MINUTE)
        with pytest.raises(CloudError) as silent:
            await sqs.delete(message["ReceiptHandle"])
        assert silent.value.status == 0
        assert cloud.queue.messages == []


@pytest.mark.real_time
async def test_expired_credentials_are_reread() -> None:
    cloud, keys = AwsCloud(RealClock()), StaticCredentials()
    async with serve(cloud, host="127.0.0.1") as port:
        ec2, _, _ = boto.new_clients(AwsSettings(endpoint=f"http://127.0.0.1:{port}"), keys)
        cloud.faults.fail("DescribeInstanceStatus", status=400, code="RequestExpired")
        with pytest.raises(CloudError, match="RequestExpired"):
            await ec2.statuses([cloud.launch()])
        assert keys.forgotten == 1


@pytest.mark.real_time
async def test_unreachable_endpoint_is_a_cloud_error_without_status() -> None:
    ec2, _, _ = boto.new_clients(AwsSettings(endpoint="http://127.0.0.1:1"), StaticCredentials())
    with pytest.raises(CloudError) as error:
        await ec2.statuses(["i-0abc"])
    assert (error.value.status, error.value.code) == (0, "EndpointConnectionError")


@pytest.mark.real_time
async def test_event_source_writes_notices_and_completes_hooks_over_boto3() -> None:
    async with boto_clients() as (cloud, _, _, _, settings):
        cluster = SandboxBackend(cloud.clock)
        client = await cluster.client()
        await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
        await client.create(SECRETS, a_secret("test", "keys"), namespace="test")
        planned, leaving = cloud.launch(), cloud.launch()
        for name, instance in (("n1", planned), ("n2", leaving)):
            await client.create(NODES, a_node(name).with_spec(providerID=f"aws:///eu-west-1a/{instance}"))
        nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
        source = boto.new_event_source(
            replace(settings, region="eu-west-1", secret="test/keys"), client=client, nodes=nodes
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(nodes.run()), group.create_task(source.run(NoticeWriter(client)))]
            event = cloud.schedule(planned, start=cloud.clock.now() + DAY)
            action = cloud.start_lifecycle_action(leaving)
            await client.delete(NODES, "n2")
            await eventually(cloud.clock, lambda: _stages(client, f"aws-{event}"), becomes=NoticeStage.SCHEDULED)
            await eventually(cloud.clock, lambda: cloud.auto_scaling.completed, becomes=[action.token])
            await eventually(cloud.clock, lambda: cloud.queue.messages, becomes=[])
            assert list(source.problems()) == []
            for task in tasks:
                task.cancel()


def a_secret(namespace: str, name: str) -> RawObject:
    data = {"aws_access_key_id": "a2V5", "aws_secret_access_key": "c2VjcmV0"}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


async def _stages(client: Client, name: str) -> str:
    return next(
        (notice.spec.stage for notice in (await client.list(MAINTENANCE_NOTICES)).items if notice.name == name), ""
    )


def test_missing_boto3_is_an_error_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'haulout\[aws\]'"):
        boto._load_sdk()
