"""The calls of AWS that we make, as interfaces: `boto` makes them by boto3, the sandbox has a model of them.

Documents are as boto3 gives them: names as in the API, instants as aware datetimes. Whatever goes wrong is a
`CloudError` with the code of AWS; a `status` of 0 is no answer, after which nobody knows whether the call took effect.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from haulout.errors import CloudError
from haulout.providers.retry import is_transient

Document = dict[str, Any]

TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
MAX_INSTANCES = 100  # in one call of DescribeInstanceStatus
MAX_MESSAGES = 10  # in one call of ReceiveMessage

_RETRYABLE_CODES = (
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TooManyRequestsException",
    "RequestThrottled",
)
_UNKNOWN_INSTANCE_CODES = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")
_HINTS = {
    "ExpiredToken": "the credentials have expired, and nobody has renewed them",
    "ExpiredTokenException": "the credentials have expired, and nobody has renewed them",
    "RequestExpired": "the credentials have expired, or the clock of this machine is wrong",
    "SignatureDoesNotMatch": "the secret key is wrong, or the clock of this machine is",
    "InvalidSignatureException": "the secret key is wrong, or the clock of this machine is",
    "AuthFailure": "these credentials are not known, or the clock of this machine is wrong",
    "InvalidClientTokenId": "these credentials are not known",
    "UnrecognizedClientException": "these credentials are not known",
    "UnauthorizedOperation": "the IAM policy does not allow it",
    "AccessDenied": "the IAM policy does not allow it",
    "AccessDeniedException": "the IAM policy does not allow it",
    "AWS.SimpleQueueService.NonExistentQueue": "there is no such queue in this region",
    "QueueDoesNotExist": "there is no such queue in this region",
}


class Ec2(Protocol):
    """Instances."""

    async def statuses(self, instances: Sequence[str], *, page: str = "") -> tuple[Sequence[Document], str]:
        """Return how instances are, in whatever state, and the name of the next page; empty: it was the last."""
        ...

    async def instances(self, instances: Sequence[str]) -> Sequence[Document]:
        """Return instances, with their tags."""
        ...

    async def move_event(self, instance: str, event: str, *, to: datetime) -> Document:
        """Have an event begin at another time; return it."""
        ...


class Sqs(Protocol):
    """The queue."""

    async def receive(self, *, max_messages: int, wait: timedelta, visibility_timeout: timedelta) -> Sequence[Document]:
        """Wait for messages and return some; for a time nobody else gets them."""
        ...

    async def change_visibility(self, receipt: str, *, visibility_timeout: timedelta) -> None:
        """Have nobody get a message for some time from now on."""
        ...

    async def delete(self, receipt: str) -> None:
        """Have nobody get a message any more."""
        ...


class AutoScaling(Protocol):
    """Lifecycle actions."""

    async def heartbeat(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Have Auto Scaling wait longer for us; without a token the hook tells which action is meant."""
        ...

    async def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Have Auto Scaling continue with what it was about to do."""
        ...

    async def termination_hooks(self, instance: str) -> tuple[str, Sequence[str]]:
        """Return the group of an instance and the hooks that its termination waits for; empty if there is no such."""
        ...

    async def heartbeat_timeout(self, *, group: str, hook: str) -> timedelta | None:
        """Return how long Auto Scaling waits for a heartbeat; None if it has no such hook."""
        ...


def is_retryable(error: CloudError) -> bool:
    """Tell whether it may go well in a moment."""
    return error.code in _RETRYABLE_CODES or is_transient(error)


def is_unknown_instance(error: CloudError) -> bool:
    """Tell whether one of the instances is not known."""
    return error.code in _UNKNOWN_INSTANCE_CODES


def explain_error(error: CloudError) -> str:
    """Return an error in words, with what is behind it."""
    hint = _HINTS.get(error.code)
    return f"{error} ({hint})" if hint else str(error)
