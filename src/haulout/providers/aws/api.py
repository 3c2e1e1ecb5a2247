"""The AWS calls in use, as protocols: `boto` implements them with boto3; the sandbox has a model of them.

Documents are as boto3 returns them: names as in the API, instants as aware datetimes. Every failure is a `CloudError`
with the AWS error code. A `status` of 0 means no response: it is unknown whether the call took effect.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from haulout.errors import CloudError
from haulout.providers.cloud_calls import is_transient

Document = dict[str, Any]

TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
MAX_INSTANCES = 100  # per call of DescribeInstanceStatus
MAX_MESSAGES = 10  # per call of ReceiveMessage

# Codes of throttling come with status 400 or 503, so the status alone does not tell.
_RETRYABLE_CODES = (
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TooManyRequestsException",
    "RequestThrottled",
)
_UNKNOWN_INSTANCE_CODES = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")
_HINTS = {
    "ExpiredToken": "the credentials have expired and were not renewed",
    "ExpiredTokenException": "the credentials have expired and were not renewed",
    "RequestExpired": "the credentials have expired, or the clock of this machine is wrong",
    "SignatureDoesNotMatch": "the secret key or the clock of this machine is wrong",
    "InvalidSignatureException": "the secret key or the clock of this machine is wrong",
    "AuthFailure": "AWS does not know these credentials, or the clock of this machine is wrong",
    "InvalidClientTokenId": "AWS does not know these credentials",
    "UnrecognizedClientException": "AWS does not know these credentials",
    "UnauthorizedOperation": "the IAM policy does not allow it",
    "AccessDenied": "the IAM policy does not allow it",
    "AccessDeniedException": "the IAM policy does not allow it",
    "AWS.SimpleQueueService.NonExistentQueue": "there is no such queue in this region",
    "QueueDoesNotExist": "there is no such queue in this region",
}


class Ec2(Protocol):
    """Instances and their scheduled events: DescribeInstanceStatus, DescribeInstances, ModifyInstanceEventStartTime."""

    async def statuses(self, instances: Sequence[str], *, page: str = "") -> tuple[Sequence[Document], str]:
        """Return the statuses of instances in any state, and the token of the next page; empty: last page."""
        ...

    async def instances(self, instances: Sequence[str]) -> Sequence[Document]: ...

    async def move_event(self, instance: str, event: str, *, to: datetime) -> Document:
        """Move an event to another start; return the event."""
        ...


class Sqs(Protocol):
    """One queue. A message that was received stays in it, hidden, until it is deleted."""

    async def receive(self, *, max_messages: int, wait: timedelta, visibility_timeout: timedelta) -> Sequence[Document]:
        """Wait for messages and return some; each stays hidden from other consumers for `visibility_timeout`."""
        ...

    async def change_visibility(self, receipt: str, *, visibility_timeout: timedelta) -> None:
        """Hide a message from other consumers for this time from now on."""
        ...

    async def delete(self, receipt: str) -> None: ...


class AutoScaling(Protocol):
    """Lifecycle actions, which keep an instance from being terminated until they are completed or time out."""

    async def heartbeat(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Extend the lifecycle action; without a token it is identified by the hook."""
        ...

    async def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Complete the lifecycle action with CONTINUE, so that Auto Scaling terminates the instance now."""
        ...

    async def termination_hooks(self, instance: str) -> tuple[str, Sequence[str]]:
        """Return the Auto Scaling group of an instance and its termination hooks; empty if there are none."""
        ...

    async def heartbeat_timeout(self, *, group: str, hook: str) -> timedelta | None:
        """Return the heartbeat timeout of a hook; None if the hook does not exist."""
        ...


def is_retryable(error: CloudError) -> bool:
    return error.code in _RETRYABLE_CODES or is_transient(error)


def is_unknown_instance(error: CloudError) -> bool:
    """Return whether one of the requested instances does not exist."""
    return error.code in _UNKNOWN_INSTANCE_CODES


def explain_error(error: CloudError) -> str:
    """Format an error, with a hint about its usual cause."""
    hint = _HINTS.get(error.code)
    return f"{error} ({hint})" if hint else str(error)
