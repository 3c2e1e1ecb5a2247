"""Which API evicts a pod: the Eviction API or an EvictionRequest (`haulout.api.evictionrequest`).

    plan = plan_eviction(pod, tracked, policy=policy, view=view, now=now)
    plan.api         which API to use now; None: none, because a responder works on the pod or is about to
    plan.until       when that changes if nothing happens before

With `eviction_requests` in the policy, pods are evicted by requests. That needs a cluster that serves them and a
controller that acts on them. If either is missing, and for pods whose request fails, the Eviction API is used. Each
decision starts from the current state of the cluster, so requests are used as soon as that is possible.

Without `eviction_requests`, only one thing matters: while a responder that the pod itself names works on somebody
else's Eviction, the drain leaves the pod alone.

`eviction_request_cleanups` decides what happens to requests that are not needed any more. This module does no I/O.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.api.evictionrequest import (
    EVICTED,
    FAILED,
    HEARTBEAT_TIMEOUT,
    IMPERATIVE_EVICTION_RESPONDER,
    Eviction,
    EvictionRequest,
    Intent,
    Reason,
    ResponderState,
    ResponderStatus,
    true_condition,
)
from haulout.api.objects import Pod
from haulout.core import duration
from haulout.drain import blockers
from haulout.drain.blockers import Blocker
from haulout.drain.policy import DrainPolicy
from haulout.drain.state import TrackedPod

PICKUP_TIMEOUT = timedelta(seconds=30)  # then the pod is evicted directly
# The controller skips a responder without heartbeats. If that does not happen, the controller itself is gone.
_HEARTBEAT_TIMEOUT = HEARTBEAT_TIMEOUT + timedelta(minutes=1)


class EvictionApi(StrEnum):
    """The API by which a pod is evicted: its subresource, or an object that a controller acts on."""

    EVICTION = "Eviction"
    REQUEST = "EvictionRequest"


class EvictionRequestAvailability(StrEnum):
    """Whether EvictionRequests can be used: a lookup at the start of the drain, then the state of the watch."""

    UNKNOWN = "Unknown"  # the lookup has not finished
    READY = "Ready"
    UNAVAILABLE = "Out"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequestView:
    """The known EvictionRequests and Evictions at one moment, by pod UID."""

    availability: EvictionRequestAvailability = EvictionRequestAvailability.UNKNOWN
    unavailable_reason: str = ""  # why requests are unavailable
    requests: Mapping[str, EvictionRequest] = field(default_factory=dict)  # those of this drain
    evictions: Mapping[str, tuple[Eviction, ...]] = field(default_factory=dict)  # those of all requesters


UNKNOWN_EVICTION_REQUESTS = EvictionRequestView()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPlan:
    """How one pod is evicted now, or what its eviction waits for."""

    api: EvictionApi | None
    is_requested: bool = False  # an EvictionRequest or Eviction for the pod is pending
    until: datetime | None = None
    message: str = ""
    blocker: Blocker | None = None  # which responder works on it, and its progress
    since: datetime | None = None  # when the responder began


DIRECT_EVICTION = EvictionPlan(api=EvictionApi.EVICTION)


def uses_eviction_requests(pod: Pod, policy: DrainPolicy) -> bool:
    """Return whether EvictionRequests matter for this pod."""
    return bool(pod.spec.eviction_responders) or _may_request(pod, policy)


def plan_eviction(
    pod: Pod, tracked: TrackedPod, *, policy: DrainPolicy, view: EvictionRequestView, now: datetime
) -> EvictionPlan:
    """Return how to evict a pod whose turn has come."""
    if not uses_eviction_requests(pod, policy):
        return DIRECT_EVICTION
    if view.availability is EvictionRequestAvailability.UNKNOWN:
        return EvictionPlan(api=None, message="checking whether the cluster serves EvictionRequests")
    may_request = _may_request(pod, policy)
    if view.availability is EvictionRequestAvailability.UNAVAILABLE:
        return _direct_eviction(view.unavailable_reason) if may_request else DIRECT_EVICTION
    return _plan_by_request(pod, tracked, view, now) if may_request else _defer_to_responder(pod, view, now)


def _may_request(pod: Pod, policy: DrainPolicy) -> bool:
    # Kubernetes refuses EvictionRequests for pods with a scheduling group.
    return policy.eviction_requests and not policy.disable_eviction and pod.spec.scheduling_group is None


def _defer_to_responder(pod: Pod, view: EvictionRequestView, now: datetime) -> EvictionPlan:
    """Wait while a responder of the pod itself is at work, and evict the pod directly otherwise."""
    active = _active_eviction(view.evictions.get(pod.uid, ()))
    if (
        active is None
        or active[1].name == IMPERATIVE_EVICTION_RESPONDER
        or _last_heartbeat(*active) + HEARTBEAT_TIMEOUT <= now
    ):
        return DIRECT_EVICTION
    return _wait_for_responder(pod, *active, until=_last_heartbeat(*active) + HEARTBEAT_TIMEOUT)


def _plan_by_request(pod: Pod, tracked: TrackedPod, view: EvictionRequestView, now: datetime) -> EvictionPlan:
    request, evictions = view.requests.get(pod.uid), view.evictions.get(pod.uid, ())
    if tracked.request_problem:
        return _direct_eviction(tracked.request_problem)
    if request is None or request.spec.intent != Intent.EVICTION:
        return EvictionPlan(api=EvictionApi.REQUEST)
    if reason := _failure_reason(request, evictions):
        return _direct_eviction(reason)
    active = _active_eviction(evictions)
    if not _is_observed(request) or active is None:
        return _plan_until_pickup(request, tracked, now)
    until = _last_heartbeat(*active) + _HEARTBEAT_TIMEOUT
    if until <= now:
        return _direct_eviction(
            f"responder {active[1].name} has sent no heartbeat since {_last_heartbeat(*active):%H:%M:%S} UTC"
        )
    return _wait_for_responder(pod, *active, until=until)


def _failure_reason(request: EvictionRequest, evictions: Iterable[Eviction]) -> str:
    """Return why our request will not evict the pod; empty if it still may."""
    failed = true_condition(request.status.conditions, FAILED)
    if failed is not None and failed.reason == Reason.INVALID:
        return f"EvictionRequest {request.key} is refused: {failed.message}".rstrip(".")
    for eviction in evictions:
        failed = true_condition(eviction.status.conditions, FAILED)
        if failed is not None and failed.reason == Reason.EXHAUSTED:
            return f"all responders of Eviction {eviction.key} have ended without evicting the pod"
    return ""


def _plan_until_pickup(request: EvictionRequest, tracked: TrackedPod, now: datetime) -> EvictionPlan:
    requested_at = tracked.requested_at or request.metadata.creation_timestamp or now
    until = requested_at + PICKUP_TIMEOUT
    if until <= now:
        return _direct_eviction(
            f"no controller accepted EvictionRequest {request.key} within {duration.format(PICKUP_TIMEOUT)}"
        )
    fallback = f"the pod is evicted directly at {until:%H:%M:%S} UTC if none does"
    message = f"EvictionRequest {request.key} is not accepted by a controller yet; {fallback}"
    return EvictionPlan(api=None, is_requested=True, until=until, message=message)


def _wait_for_responder(pod: Pod, eviction: Eviction, responder: ResponderStatus, *, until: datetime) -> EvictionPlan:
    blocker = blockers.responder_blocker(pod, eviction, responder)
    since = responder.start_time or eviction.metadata.creation_timestamp
    return EvictionPlan(api=None, is_requested=True, until=until, message=blocker.reason, blocker=blocker, since=since)


def _direct_eviction(reason: str) -> EvictionPlan:
    return EvictionPlan(api=EvictionApi.EVICTION, message=f"is evicted directly: {reason}")


def _active_eviction(evictions: Iterable[Eviction]) -> tuple[Eviction, ResponderStatus] | None:
    """Return the Eviction in progress and its active responder."""
    for eviction in evictions:
        status = eviction.status
        if true_condition(status.conditions, FAILED) or true_condition(status.conditions, EVICTED):
            continue
        name = next(
            (responder.name for responder in status.target_responders if responder.state == ResponderState.ACTIVE), ""
        )
        found = next((responder for responder in status.responders if name and responder.name == name), None)
        if found is not None and (found.heartbeat_time or found.start_time):
            return eviction, found
    return None


def _last_heartbeat(eviction: Eviction, responder: ResponderStatus) -> datetime:
    heard_at = responder.heartbeat_time or responder.start_time
    if heard_at is None:
        raise ValueError(f"Eviction {eviction.key}: responder {responder.name} has not begun")
    return heard_at


def _is_observed(request: EvictionRequest) -> bool:
    return request.status.observed_generation >= max(request.metadata.generation, 1)


# Requests that are not needed any more


class CleanupVerb(StrEnum):
    """What to do with a request that is not needed any more."""

    WITHDRAW = "withdraw"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class EvictionRequestCleanup:
    """One request to withdraw or delete, because its pod is gone or should stay."""

    verb: CleanupVerb
    request: EvictionRequest


def eviction_request_cleanups(
    view: EvictionRequestView, *, wanted: Collection[str], present: Collection[str]
) -> tuple[EvictionRequestCleanup, ...]:
    """Return which requests to withdraw or delete.

    `wanted` are the UIDs of pods to evict by request, `present` those of all pods on the node. A request is withdrawn
    before it is deleted, so that its responders notice and can stop.
    """
    found: list[EvictionRequestCleanup] = []
    for uid, request in view.requests.items():
        if uid not in present:
            if is_final(request):
                found.append(EvictionRequestCleanup(CleanupVerb.DELETE, request))
        elif uid not in wanted and request.spec.intent == Intent.EVICTION:
            found.append(EvictionRequestCleanup(CleanupVerb.WITHDRAW, request))
        elif uid not in wanted and is_final(request):
            found.append(EvictionRequestCleanup(CleanupVerb.DELETE, request))
    return tuple(found)


def is_final(request: EvictionRequest) -> bool:
    """Return whether the controller is done with the request in its current generation."""
    conditions = request.status.conditions
    final_condition = true_condition(conditions, EVICTED) or true_condition(conditions, FAILED)
    return _is_observed(request) and (final_condition is not None or request.spec.intent == Intent.WITHDRAWN)
