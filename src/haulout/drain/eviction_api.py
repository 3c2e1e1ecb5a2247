"""Which way a pod is asked to leave: by the classic eviction, or by an EvictionRequest (`haulout.api.evictionrequest`).

    course = course_of(pod, trace, policy=policy, seen=evictions, now=now)
    course.way       how to ask it now; None: it is not asked, for somebody is at work on it or is about to be
    course.until     when that changes if nothing happens before

A policy that says so has pods asked by requests. That needs a cluster that serves them and a controller that takes them
up; if either is not there, and for pods that cannot leave this way, the classic eviction is what remains. All of this
is decided anew each time from what the cluster shows, so it turns to the better way as soon as that is open.

Without that policy only one thing counts: while a responder that the pod itself names works on an Eviction that
somebody else asked for, the pod is left alone.

What becomes of requests that are not needed any more is decided here too (`eviction_request_cleanups`). Nothing here
does any of it.
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

PICKUP_TIMEOUT = timedelta(seconds=30)  # or the pod is evicted directly
# The controller passes over a responder that is silent for too long. If that does not happen it is not there any more.
_HEARTBEAT_TIMEOUT = HEARTBEAT_TIMEOUT + timedelta(minutes=1)


class EvictionApi(StrEnum):
    """How a pod is asked to leave."""

    EVICTION = "Eviction"
    REQUEST = "EvictionRequest"


class EvictionRequestAvailability(StrEnum):
    """Whether EvictionRequests can be used."""

    UNKNOWN = "Unknown"  # it is being found out
    READY = "Ready"
    UNAVAILABLE = "Out"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequestView:
    """What is known of EvictionRequests and Evictions at one moment, by the uid of the pod they are about."""

    availability: EvictionRequestAvailability = EvictionRequestAvailability.UNKNOWN
    unavailable_reason: str = ""  # they are out of reach
    requests: Mapping[str, EvictionRequest] = field(default_factory=dict)  # those of this drain
    evictions: Mapping[str, tuple[Eviction, ...]] = field(default_factory=dict)  # whoever asked for them


UNKNOWN_EVICTION_REQUESTS = EvictionRequestView()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPlan:
    """How it stands with one pod that is to leave."""

    api: EvictionApi | None
    is_requested: bool = False  # somebody has been asked to make it leave, if not the pod's own eviction
    until: datetime | None = None
    message: str = ""
    blocker: Blocker | None = None  # who is at work, and how far that is
    since: datetime | None = None  # when that began


DIRECT_EVICTION = EvictionPlan(api=EvictionApi.EVICTION)


def uses_eviction_requests(pod: Pod, policy: DrainPolicy) -> bool:
    """Tell whether EvictionRequests matter to how a pod leaves."""
    return bool(pod.spec.eviction_responders) or _may_request(pod, policy)


def plan_eviction(
    pod: Pod, tracked: TrackedPod, *, policy: DrainPolicy, view: EvictionRequestView, now: datetime
) -> EvictionPlan:
    """Return the way for a pod whose turn to leave has come."""
    if not uses_eviction_requests(pod, policy):
        return DIRECT_EVICTION
    if view.availability is EvictionRequestAvailability.UNKNOWN:
        return EvictionPlan(api=None, message="waits until it is known whether the cluster takes EvictionRequests")
    may_request = _may_request(pod, policy)
    if view.availability is EvictionRequestAvailability.UNAVAILABLE:
        return _direct_eviction(view.unavailable_reason) if may_request else DIRECT_EVICTION
    return _plan_by_request(pod, tracked, view, now) if may_request else _defer_to_responder(pod, view, now)


def _may_request(pod: Pod, policy: DrainPolicy) -> bool:
    # Kubernetes refuses requests for pods that are scheduled as a group.
    return policy.eviction_requests and not policy.disable_eviction and pod.spec.scheduling_group is None


def _defer_to_responder(pod: Pod, view: EvictionRequestView, now: datetime) -> EvictionPlan:
    """Leave a pod alone while a responder of its own is at work."""
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
            f"responder {active[1].name} has said nothing since {_last_heartbeat(*active):%H:%M:%S} UTC"
        )
    return _wait_for_responder(pod, *active, until=until)


def _failure_reason(request: EvictionRequest, evictions: Iterable[Eviction]) -> str:
    """Return why nobody will make a pod leave because of our request; empty if somebody may."""
    failed = true_condition(request.status.conditions, FAILED)
    if failed is not None and failed.reason == Reason.INVALID:
        return f"EvictionRequest {request.key} is refused: {failed.message}".rstrip(".")
    for eviction in evictions:
        failed = true_condition(eviction.status.conditions, FAILED)
        if failed is not None and failed.reason == Reason.EXHAUSTED:
            return f"all responders of Eviction {eviction.key} had their turn"
    return ""


def _plan_until_pickup(request: EvictionRequest, tracked: TrackedPod, now: datetime) -> EvictionPlan:
    requested_at = tracked.requested_at or request.metadata.creation_timestamp or now
    until = requested_at + PICKUP_TIMEOUT
    if until <= now:
        return _direct_eviction(
            f"nobody took up EvictionRequest {request.key} within {duration.format(PICKUP_TIMEOUT)}"
        )
    message = f"EvictionRequest {request.key} waits to be taken up; the pod is evicted directly at {until:%H:%M:%S} UTC"
    return EvictionPlan(api=None, is_requested=True, until=until, message=f"{message} if nobody does")


def _wait_for_responder(pod: Pod, eviction: Eviction, responder: ResponderStatus, *, until: datetime) -> EvictionPlan:
    blocker = blockers.responder_blocker(pod, eviction, responder)
    since = responder.start_time or eviction.metadata.creation_timestamp
    return EvictionPlan(api=None, is_requested=True, until=until, message=blocker.reason, blocker=blocker, since=since)


def _direct_eviction(reason: str) -> EvictionPlan:
    return EvictionPlan(api=EvictionApi.EVICTION, message=f"is evicted directly: {reason}")


def _active_eviction(evictions: Iterable[Eviction]) -> tuple[Eviction, ResponderStatus] | None:
    """Return the Eviction that is under way, and whose turn it is."""
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
    """What is to be done with a request."""

    WITHDRAW = "withdraw"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class EvictionRequestCleanup:
    """One request that is to be withdrawn or deleted."""

    verb: CleanupVerb
    request: EvictionRequest


def eviction_request_cleanups(
    view: EvictionRequestView, *, wanted: Collection[str], present: Collection[str]
) -> tuple[EvictionRequestCleanup, ...]:
    """Return what to do with requests, given the uids of pods that are to leave by request and of those that are here.

    A request is withdrawn before it is deleted, so that its responders hear of it and can stop.
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
    """Tell whether the controller has said its last word on a request, as it is now."""
    conditions = request.status.conditions
    final_condition = true_condition(conditions, EVICTED) or true_condition(conditions, FAILED)
    return _is_observed(request) and (final_condition is not None or request.spec.intent == Intent.WITHDRAWN)
