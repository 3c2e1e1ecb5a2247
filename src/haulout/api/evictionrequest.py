"""EvictionRequest and Eviction: cooperative eviction of pods (KEP-4563).

A requester creates an EvictionRequest. A controller combines all requests for a pod into one Eviction. It activates the
pod's responders (`spec.evictionResponders`) one after the other, the one with the highest priority first. The last one,
which every pod has, calls the classic eviction API. A responder without a heartbeat for twenty minutes is skipped.

The API is alpha: Kubernetes 1.37 has it, off by default, in the group `lifecycle.k8s.io`. This module has only the
fields that Haulout reads; the types are those of the 1.37 code (`staging/src/k8s.io/api/lifecycle/v1alpha1/types.go`).
"""

from datetime import datetime, timedelta
from enum import StrEnum

from haulout.api.objects import Base, Condition, Object
from haulout.api.resources import Resource

GROUP, VERSION = "lifecycle.k8s.io", "v1alpha1"
# Every pod has this responder: it calls the classic eviction API.
IMPERATIVE_EVICTION_RESPONDER = "imperative-eviction.k8s.io/evictor"
HEARTBEAT_TIMEOUT = timedelta(minutes=20)  # after which the next responder becomes active

EVICTED, FAILED = "TargetEvicted", "Failed"  # condition types of both kinds


class Intent(StrEnum):
    """What the requester wants now; it may change its mind until the pod is gone."""

    EVICTION = "Eviction"
    WITHDRAWN = "Withdrawn"


class Reason(StrEnum):
    """The reasons of the conditions of both kinds, as the eviction controller writes them."""

    AWAITING = "AwaitingEviction"
    INVALID = "EvictionInvalid"
    CANCELED = "CanceledDueToNoRequesters"
    SUCCEEDED = "Succeeded"
    EXHAUSTED = "NoFurtherResponder"
    POD_DELETED = "PodDeleted"
    POD_TERMINAL = "PodTerminal"
    EVICTION_FAILED = "EvictionFailed"


class ResponderState(StrEnum):
    """The state of one responder. At most one responder of an Eviction is active."""

    INACTIVE = "Inactive"
    ACTIVE = "Active"
    INTERRUPTED = "Interrupted"  # no heartbeat for too long
    CANCELED = "Canceled"
    COMPLETED = "Completed"


class PodTarget(Base, frozen=True):
    """The pod to evict. With the UID, a successor of the same name is not meant."""

    name: str = ""
    uid: str = ""


class Target(Base, frozen=True):
    """The target of an eviction. Only pods are supported for now."""

    pod: PodTarget = PodTarget()


class EvictionRequestSpec(Base, frozen=True):
    """What one requester wants. Several requesters may have requests for one pod."""

    target: Target = Target()
    intent: str = ""


class EvictionRequestStatus(Base, frozen=True):
    """The controller's answer. `observed_generation` tells for which intent."""

    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0


class EvictionRequest(Object, frozen=True):
    """One requester's request to evict a pod."""

    spec: EvictionRequestSpec = EvictionRequestSpec()
    status: EvictionRequestStatus = EvictionRequestStatus()


class EvictionSpec(Base, frozen=True):
    """The pod that all requests combined in this Eviction are about."""

    target: Target = Target()


class TargetResponder(Base, frozen=True):
    """The state of a responder, as the eviction controller sees it."""

    name: str = ""
    state: str = ""


class ResponderStatus(Base, frozen=True):
    """The state of a responder, as it reports it."""

    name: str = ""
    start_time: datetime | None = None
    heartbeat_time: datetime | None = None
    expected_completion_time: datetime | None = None
    message: str = ""


class EvictionStatus(Base, frozen=True):
    """The progress of an Eviction: its conditions, and each responder from both points of view."""

    conditions: tuple[Condition, ...] = ()
    target_responders: tuple[TargetResponder, ...] = ()
    responders: tuple[ResponderStatus, ...] = ()


class Eviction(Object, frozen=True):
    """The eviction of a pod, and its responders."""

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
