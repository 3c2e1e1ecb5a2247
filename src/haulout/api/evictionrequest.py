"""EvictionRequest and Eviction: somebody wants a pod to leave, and others help it on its way (KEP-4563).

Whoever wants a pod to leave creates an EvictionRequest. A controller makes one Eviction of all requests for the same
pod. It lets the pod's responders (`spec.evictionResponders`) act one after the other, the one with the highest priority
first, and last of all the one that every pod has, which calls the classic eviction. A responder that is silent for
twenty minutes is passed over.

The API is alpha: Kubernetes 1.37 has it, off by default, in the group `lifecycle.k8s.io`. Here is only what is read of
it; the types are those of the 1.37 code (`staging/src/k8s.io/api/lifecycle/v1alpha1/types.go`).
"""

from datetime import datetime, timedelta
from enum import StrEnum

from haulout.api.objects import Base, Condition, Object
from haulout.api.resources import Resource

GROUP, VERSION = "lifecycle.k8s.io", "v1alpha1"
IMPERATIVE_EVICTION_RESPONDER = (
    "imperative-eviction.k8s.io/evictor"  # which every pod has: it calls the classic eviction
)
IMPERATIVE_EVICTION_PRIORITY = 100
HEARTBEAT_TIMEOUT = timedelta(minutes=20)  # or the next responder has its turn

EVICTED, FAILED = "TargetEvicted", "Failed"  # conditions of both kinds


class Intent(StrEnum):
    """What a requester wants."""

    EVICTION = "Eviction"
    WITHDRAWN = "Withdrawn"


class Reason(StrEnum):
    """Why a condition is as it is."""

    AWAITING = "AwaitingEviction"
    INVALID = "EvictionInvalid"
    CANCELED = "CanceledDueToNoRequesters"
    SUCCEEDED = "Succeeded"
    EXHAUSTED = "NoFurtherResponder"
    POD_DELETED = "PodDeleted"
    POD_TERMINAL = "PodTerminal"
    EVICTION_FAILED = "EvictionFailed"


class ResponderState(StrEnum):
    """Whether a responder has its turn, or had it."""

    INACTIVE = "Inactive"
    ACTIVE = "Active"
    INTERRUPTED = "Interrupted"  # it was silent for too long
    CANCELED = "Canceled"
    COMPLETED = "Completed"


class PodTarget(Base, frozen=True):
    """Which pod."""

    name: str = ""
    uid: str = ""


class Target(Base, frozen=True):
    """What is to leave; only pods for now."""

    pod: PodTarget = PodTarget()


class EvictionRequestSpec(Base, frozen=True):
    """Who wants what to leave."""

    target: Target = Target()
    intent: str = ""


class EvictionRequestStatus(Base, frozen=True):
    """What became of a request."""

    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0


class EvictionRequest(Object, frozen=True):
    """A wish that a pod may leave."""

    spec: EvictionRequestSpec = EvictionRequestSpec()
    status: EvictionRequestStatus = EvictionRequestStatus()


class EvictionSpec(Base, frozen=True):
    """What leaves."""

    target: Target = Target()


class TargetResponder(Base, frozen=True):
    """Whose turn it is, by the controller."""

    name: str = ""
    state: str = ""


class ResponderStatus(Base, frozen=True):
    """What a responder says of itself."""

    name: str = ""
    start_time: datetime | None = None
    heartbeat_time: datetime | None = None
    expected_completion_time: datetime | None = None
    message: str = ""


class EvictionStatus(Base, frozen=True):
    """How far an eviction is."""

    conditions: tuple[Condition, ...] = ()
    target_responders: tuple[TargetResponder, ...] = ()
    responders: tuple[ResponderStatus, ...] = ()


class Eviction(Object, frozen=True):
    """A pod on its way, and who helps it."""

    spec: EvictionSpec = EvictionSpec()
    status: EvictionStatus = EvictionStatus()


EVICTION_REQUESTS = Resource(
    GROUP, VERSION, "evictionrequests", "EvictionRequest", namespaced=True, model=EvictionRequest
)
EVICTIONS = Resource(GROUP, VERSION, "evictions", "Eviction", namespaced=True, model=Eviction)


def true_condition(conditions: tuple[Condition, ...], condition_type: str) -> Condition | None:
    """Return the condition of this type if it is true."""
    return next(
        (condition for condition in conditions if condition.type == condition_type and condition.status == "True"), None
    )
