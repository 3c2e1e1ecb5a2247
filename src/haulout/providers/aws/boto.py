"""The AWS calls through boto3, in threads.

    source = new_event_source(settings, client=client, nodes=nodes)

This connects to nothing yet. Credentials are read when a call needs them, and again after they were rejected. boto3's
own retries are off: the caller decides when to retry, and reports the problem meanwhile.

Each call has its own daemon thread, which does not delay the end of the process: a long poll takes twenty seconds.
"""

import asyncio
import importlib
import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from haulout.api.objects import Node
from haulout.core.cloud_sdk import AWS, UncompressedLimitedResponse, limit_error_of, run_in_thread
from haulout.errors import CloudError, KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.aws.api import TERMINATING, Document
from haulout.providers.aws.credentials import AwsCredentials, ClusterCredentials
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.settings import AwsSettings

_CONNECT_SECONDS, _READ_SECONDS = 10, 40  # shorter than the timeout of a call, so that few threads are left behind
_MAX_PARALLEL_CALLS = 32
_UNAUTHORIZED = 401
_UNAUTHORIZED_STATUSES = (401, 403)
_EXPIRED_CODES = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
_CONFIGURATION_PROBLEMS = {
    "NoCredentialsError": "no credentials were found",
    "PartialCredentialsError": "the credentials are not complete",
    "NoRegionError": "no region is known: set AWS_REGION",
}


def new_event_source(settings: AwsSettings, *, client: Client, nodes: Informer[Node]) -> AwsEventSource:
    """Return the event source for AWS; raise `ConfigError` if boto3 is not installed."""
    credentials = ClusterCredentials(client, region=settings.region, secret=settings.secret)
    ec2, auto_scaling, sqs = new_clients(settings, credentials)
    return AwsEventSource(ec2=ec2, auto_scaling=auto_scaling, sqs=sqs, client=client, nodes=nodes, settings=settings)


def new_clients(
    settings: AwsSettings, credentials: ClusterCredentials
) -> tuple["BotoEc2", "BotoAutoScaling", "BotoSqs | None"]:
    """Return the clients; raise `ConfigError` if boto3 is not installed."""
    calls = _BotoCalls(settings.endpoint, credentials)
    return BotoEc2(calls), BotoAutoScaling(calls), BotoSqs(calls, settings.queue_url) if settings.queue_url else None


class BotoEc2:
    """EC2 through boto3. Statuses include instances that are not running, which EC2 omits by default."""

    def __init__(self, calls: "_BotoCalls") -> None:
        self._calls = calls

    async def statuses(self, instances: Sequence[str], *, page: str = "") -> tuple[Sequence[Document], str]:
        request = {"InstanceIds": list(instances), "IncludeAllInstances": True}
        request |= {"NextToken": page} if page else {}
        found = await self._calls.call("ec2", "describe_instance_status", **request)
        return found.get("InstanceStatuses") or [], found.get("NextToken") or ""

    async def instances(self, instances: Sequence[str]) -> Sequence[Document]:
        found = await self._calls.call("ec2", "describe_instances", InstanceIds=list(instances))
        return [
            instance
            for reservation in found.get("Reservations") or []
            for instance in reservation.get("Instances") or []
        ]

    async def move_event(self, instance: str, event: str, *, to: datetime) -> Document:
        found = await self._calls.call(
            "ec2", "modify_instance_event_start_time", InstanceId=instance, InstanceEventId=event, NotBefore=to
        )
        return dict(found.get("Event") or {})


class BotoSqs:
    """One SQS queue through boto3, identified by its URL."""

    def __init__(self, calls: "_BotoCalls", url: str) -> None:
        self._calls = calls
        self._url = url

    async def receive(self, *, max_messages: int, wait: timedelta, visibility_timeout: timedelta) -> Sequence[Document]:
        found = await self._calls.call(
            "sqs",
            "receive_message",
            QueueUrl=self._url,
            MaxNumberOfMessages=max_messages,
            WaitTimeSeconds=int(wait.total_seconds()),
            VisibilityTimeout=int(visibility_timeout.total_seconds()),
        )
        return found.get("Messages") or []

    async def change_visibility(self, receipt: str, *, visibility_timeout: timedelta) -> None:
        seconds = int(visibility_timeout.total_seconds())
        await self._calls.call(
            "sqs", "change_message_visibility", QueueUrl=self._url, ReceiptHandle=receipt, VisibilityTimeout=seconds
        )

    async def delete(self, receipt: str) -> None:
        await self._calls.call("sqs", "delete_message", QueueUrl=self._url, ReceiptHandle=receipt)


class BotoAutoScaling:
    """Auto Scaling through boto3. An action without a token is identified by its group, hook and instance."""

    def __init__(self, calls: "_BotoCalls") -> None:
        self._calls = calls

    async def heartbeat(self, instance: str, *, group: str, hook: str, token: str) -> None:
        action = _action(instance, group=group, hook=hook, token=token)
        await self._calls.call("autoscaling", "record_lifecycle_action_heartbeat", **action)

    async def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        action = _action(instance, group=group, hook=hook, token=token)
        await self._calls.call("autoscaling", "complete_lifecycle_action", LifecycleActionResult="CONTINUE", **action)

    async def heartbeat_timeout(self, *, group: str, hook: str) -> timedelta | None:
        found = await self._calls.call(
            "autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=group, LifecycleHookNames=[hook]
        )
        seconds = [lifecycle_hook.get("HeartbeatTimeout") for lifecycle_hook in found.get("LifecycleHooks") or []]
        return timedelta(seconds=seconds[0]) if seconds and seconds[0] else None

    async def termination_hooks(self, instance: str) -> tuple[str, Sequence[str]]:
        found = await self._calls.call("autoscaling", "describe_auto_scaling_instances", InstanceIds=[instance])
        group = next((entry.get("AutoScalingGroupName") for entry in found.get("AutoScalingInstances") or []), "")
        if not group:
            return "", ()
        described = await self._calls.call("autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=group)
        hooks = described.get("LifecycleHooks") or []
        return group, [entry["LifecycleHookName"] for entry in hooks if entry.get("LifecycleTransition") == TERMINATING]


def _action(instance: str, *, group: str, hook: str, token: str) -> dict[str, str]:
    action = {"InstanceId": instance, "AutoScalingGroupName": group, "LifecycleHookName": hook}
    return {**action, "LifecycleActionToken": token} if token else action


class _BotoCalls:
    """Makes calls with boto3 clients, which are created again when the credentials change."""

    def __init__(self, endpoint: str, credentials: ClusterCredentials) -> None:
        self._boto3, self._config, self._errors = _load_sdk()
        self._endpoint = endpoint
        self._credentials = credentials
        self._lock = threading.Lock()
        self._clients_for: AwsCredentials | None = None
        self._clients: dict[str, Any] = {}
        self._semaphore = asyncio.Semaphore(_MAX_PARALLEL_CALLS)

    async def call(self, service: str, operation: str, **arguments: Any) -> Any:
        """Make a call and return its result; every failure is a `CloudError`."""
        doing = f"{service} {operation.replace('_', ' ')}"
        try:
            credentials = await self._credentials.current()
        except KubeError as error:
            raise CloudError(str(error), doing=doing, status=_UNAUTHORIZED, code="NoAccess") from error
        try:
            async with self._semaphore:
                return await run_in_thread(
                    lambda: self._call(credentials, service, operation, arguments, doing), name="aws"
                )
        except CloudError as error:
            if error.status in _UNAUTHORIZED_STATUSES or error.code in _EXPIRED_CODES:
                self._credentials.forget()
            raise

    def _call(
        self, credentials: AwsCredentials, service: str, operation: str, arguments: dict[str, Any], doing: str
    ) -> Any:
        try:
            return getattr(self._client(credentials, service), operation)(**arguments)
        except self._errors.ClientError as error:
            raise _cloud_error(error.response, doing) from error
        except (self._errors.BotoCoreError, OSError) as error:
            kind = type(error).__name__
            problem = _CONFIGURATION_PROBLEMS.get(kind)
            status = _UNAUTHORIZED if problem else 0
            raise CloudError(
                problem or str(limit_error_of(error) or error), doing=doing, status=status, code=kind
            ) from error

    def _client(self, credentials: AwsCredentials, service: str) -> Any:
        # boto3 sessions are not thread-safe, clients are.
        with self._lock:
            if credentials != self._clients_for:
                self._clients, self._clients_for = {}, credentials
            if service not in self._clients:
                self._clients[service] = self._new_client(credentials, service)
            return self._clients[service]

    def _new_client(self, credentials: AwsCredentials, service: str) -> Any:
        session = self._boto3.session.Session(
            region_name=credentials.region or None,
            aws_access_key_id=credentials.key or None,
            aws_secret_access_key=credentials.secret or None,
            aws_session_token=credentials.token or None,
        )
        config = self._config.Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": 1},
            max_pool_connections=_MAX_PARALLEL_CALLS,
            user_agent_extra="haulout",
        )
        return session.client(service, endpoint_url=self._endpoint or None, config=config)


def _load_sdk() -> tuple[Any, Any, Any]:
    try:
        found = [importlib.import_module(module) for module in ("boto3", "botocore.config", "botocore.exceptions")]
        connections = importlib.import_module("botocore.awsrequest")
    except ImportError as error:
        raise AWS.missing_error(error) from error
    for connection in (connections.AWSHTTPConnection, connections.AWSHTTPSConnection):
        # A response without limit could exhaust the memory of the operator.
        connection.response_class = UncompressedLimitedResponse
    # With -v they would log every request, headers included.
    for name in ("boto3", "botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return found[0], found[1], found[2]


def _cloud_error(response: dict[str, Any], doing: str) -> CloudError:
    error, metadata = response.get("Error") or {}, response.get("ResponseMetadata") or {}
    seconds = str((metadata.get("HTTPHeaders") or {}).get("retry-after", ""))
    return CloudError(
        str(error.get("Message") or "no error message"),
        doing=doing,
        status=int(metadata.get("HTTPStatusCode") or 0),
        code=str(error.get("Code") or ""),
        retry_after=timedelta(seconds=int(seconds)) if seconds.isdigit() else None,
    )
