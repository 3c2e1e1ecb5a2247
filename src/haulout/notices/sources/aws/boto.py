"""The calls of AWS, by boto3, in threads.

    source = listening(settings, client=client, nodes=nodes)

Nothing is connected yet when this returns. Credentials are had when a call needs them, and again after they were
refused. boto3's own retries are off: who calls decides when to try again, and says what is wrong meanwhile.

Each call has a thread of its own that nobody waits for when the process ends: a long poll takes twenty seconds.
"""

import asyncio
import importlib
import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from haulout.core.sdk_limits import BoundedResponse, excess
from haulout.core.threads import in_a_thread
from haulout.errors import CloudError, KubeError
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.sources.aws.access import Access, ClusterAccess
from haulout.notices.sources.aws.cloud import TERMINATING, Document
from haulout.notices.sources.aws.settings import Settings
from haulout.notices.sources.aws.source import AwsSource
from haulout.notices.sources.extras import AWS

_CONNECT_SECONDS, _READ_SECONDS = 10, 40  # shorter than we wait for a call, so that few threads are left behind
_MOST_AT_ONCE = 32
_UNAUTHORIZED = 401
_REFUSED = (401, 403)
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
_UNCONFIGURED = {
    "NoCredentialsError": "no credentials were found",
    "PartialCredentialsError": "the credentials are not complete",
    "NoRegionError": "no region is known: set AWS_REGION",
}


def listening(settings: Settings, *, client: Client, nodes: Cache[Node]) -> AwsSource:
    """Return the source that listens to AWS; raises ConfigError if boto3 is not installed."""
    access = ClusterAccess(client, region=settings.region, secret=settings.secret)
    ec2, groups, sqs = connected(settings, access)
    return AwsSource(ec2=ec2, groups=groups, sqs=sqs, client=client, nodes=nodes, settings=settings)


def connected(settings: Settings, access: ClusterAccess) -> tuple["BotoEc2", "BotoAutoScaling", "BotoSqs | None"]:
    """Return the calls; raises ConfigError if boto3 is not installed."""
    calls = _Calls(settings.endpoint, access)
    return BotoEc2(calls), BotoAutoScaling(calls), BotoSqs(calls, settings.queue_url) if settings.queue_url else None


class BotoEc2:
    """EC2."""

    def __init__(self, calls: "_Calls") -> None:
        self._calls = calls

    async def statuses(self, instances: Sequence[str], *, page: str = "") -> tuple[Sequence[Document], str]:
        """Return how instances are, in whatever state, and the name of the next page."""
        wanted = {"InstanceIds": list(instances), "IncludeAllInstances": True}
        wanted |= {"NextToken": page} if page else {}
        found = await self._calls.call("ec2", "describe_instance_status", **wanted)
        return found.get("InstanceStatuses") or [], found.get("NextToken") or ""

    async def instances(self, instances: Sequence[str]) -> Sequence[Document]:
        """Return instances, with their tags."""
        found = await self._calls.call("ec2", "describe_instances", InstanceIds=list(instances))
        return [it for reservation in found.get("Reservations") or [] for it in reservation.get("Instances") or []]

    async def move_event(self, instance: str, event: str, *, to: datetime) -> Document:
        """Have an event begin at another time; return it."""
        found = await self._calls.call(
            "ec2", "modify_instance_event_start_time", InstanceId=instance, InstanceEventId=event, NotBefore=to
        )
        return dict(found.get("Event") or {})


class BotoSqs:
    """One queue of SQS."""

    def __init__(self, calls: "_Calls", url: str) -> None:
        self._calls = calls
        self._url = url

    async def receive(self, *, most: int, wait: timedelta, hidden: timedelta) -> Sequence[Document]:
        """Wait for messages and return some."""
        found = await self._calls.call(
            "sqs",
            "receive_message",
            QueueUrl=self._url,
            MaxNumberOfMessages=most,
            WaitTimeSeconds=int(wait.total_seconds()),
            VisibilityTimeout=int(hidden.total_seconds()),
        )
        return found.get("Messages") or []

    async def hide(self, receipt: str, *, hidden: timedelta) -> None:
        """Have nobody get a message for some time from now on."""
        seconds = int(hidden.total_seconds())
        await self._calls.call(
            "sqs", "change_message_visibility", QueueUrl=self._url, ReceiptHandle=receipt, VisibilityTimeout=seconds
        )

    async def delete(self, receipt: str) -> None:
        """Have nobody get a message any more."""
        await self._calls.call("sqs", "delete_message", QueueUrl=self._url, ReceiptHandle=receipt)


class BotoAutoScaling:
    """Auto Scaling."""

    def __init__(self, calls: "_Calls") -> None:
        self._calls = calls

    async def heartbeat(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Have Auto Scaling wait longer for us."""
        action = _action(instance, group=group, hook=hook, token=token)
        await self._calls.call("autoscaling", "record_lifecycle_action_heartbeat", **action)

    async def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Have Auto Scaling continue with what it was about to do."""
        action = _action(instance, group=group, hook=hook, token=token)
        await self._calls.call("autoscaling", "complete_lifecycle_action", LifecycleActionResult="CONTINUE", **action)

    async def patience(self, *, group: str, hook: str) -> timedelta | None:
        """Return how long Auto Scaling waits for a heartbeat; None if it has no such hook."""
        found = await self._calls.call(
            "autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=group, LifecycleHookNames=[hook]
        )
        seconds = [it.get("HeartbeatTimeout") for it in found.get("LifecycleHooks") or []]
        return timedelta(seconds=seconds[0]) if seconds and seconds[0] else None

    async def termination_hooks(self, instance: str) -> tuple[str, Sequence[str]]:
        """Return the group of an instance and the hooks that its termination waits for; empty if there is no such."""
        found = await self._calls.call("autoscaling", "describe_auto_scaling_instances", InstanceIds=[instance])
        group = next((it.get("AutoScalingGroupName") for it in found.get("AutoScalingInstances") or []), "")
        if not group:
            return "", ()
        described = await self._calls.call("autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=group)
        hooks = described.get("LifecycleHooks") or []
        return group, [it["LifecycleHookName"] for it in hooks if it.get("LifecycleTransition") == TERMINATING]


def _action(instance: str, *, group: str, hook: str, token: str) -> dict[str, str]:
    action = {"InstanceId": instance, "AutoScalingGroupName": group, "LifecycleHookName": hook}
    return {**action, "LifecycleActionToken": token} if token else action


class _Calls:
    """Makes calls with clients of boto3, which are made anew when the way to AWS is another."""

    def __init__(self, endpoint: str, access: ClusterAccess) -> None:
        self._boto3, self._config, self._errors = _sdk()
        self._endpoint = endpoint
        self._access = access
        self._making = threading.Lock()
        self._made_for: Access | None = None
        self._clients: dict[str, Any] = {}
        self._at_once = asyncio.Semaphore(_MOST_AT_ONCE)

    async def call(self, service: str, operation: str, **wanted: Any) -> Any:
        """Return what a call answers; whatever goes wrong is a CloudError."""
        doing = f"{service} {operation.replace('_', ' ')}"
        try:
            access = await self._access.current()
        except KubeError as error:
            raise CloudError(str(error), doing=doing, status=_UNAUTHORIZED, code="NoAccess") from error
        try:
            async with self._at_once:
                return await in_a_thread(lambda: self._call(access, service, operation, wanted, doing), name="aws")
        except CloudError as error:
            if error.status in _REFUSED or error.code in _EXPIRED:
                self._access.forget()
            raise

    def _call(self, access: Access, service: str, operation: str, wanted: dict[str, Any], doing: str) -> Any:
        try:
            return getattr(self._client(access, service), operation)(**wanted)
        except self._errors.ClientError as error:
            raise _said(error.response, doing) from error
        except (self._errors.BotoCoreError, OSError) as error:
            kind = type(error).__name__
            problem = _UNCONFIGURED.get(kind)
            status = _UNAUTHORIZED if problem else 0
            raise CloudError(problem or str(excess(error) or error), doing=doing, status=status, code=kind) from error

    def _client(self, access: Access, service: str) -> Any:
        with self._making:
            if access != self._made_for:
                self._clients, self._made_for = {}, access
            if service not in self._clients:
                self._clients[service] = self._make(access, service)
            return self._clients[service]

    def _make(self, access: Access, service: str) -> Any:
        session = self._boto3.session.Session(
            region_name=access.region or None,
            aws_access_key_id=access.key or None,
            aws_secret_access_key=access.secret or None,
            aws_session_token=access.token or None,
        )
        config = self._config.Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": 1},
            max_pool_connections=_MOST_AT_ONCE,
            user_agent_extra="haulout",
        )
        return session.client(service, endpoint_url=self._endpoint or None, config=config)


def _sdk() -> tuple[Any, Any, Any]:
    try:
        found = [importlib.import_module(it) for it in ("boto3", "botocore.config", "botocore.exceptions")]
        connections = importlib.import_module("botocore.awsrequest")
    except ImportError as error:
        raise AWS.lacking(error) from error
    for connection in (connections.AWSHTTPConnection, connections.AWSHTTPSConnection):
        connection.response_class = BoundedResponse
    for name in ("boto3", "botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return found[0], found[1], found[2]


def _said(response: dict[str, Any], doing: str) -> CloudError:
    told, about = response.get("Error") or {}, response.get("ResponseMetadata") or {}
    seconds = str((about.get("HTTPHeaders") or {}).get("retry-after", ""))
    return CloudError(
        str(told.get("Message") or "it said no"),
        doing=doing,
        status=int(about.get("HTTPStatusCode") or 0),
        code=str(told.get("Code") or ""),
        retry_after=timedelta(seconds=int(seconds)) if seconds.isdigit() else None,
    )
