"""Which way a pod is asked to leave: by the classic eviction, or by an EvictionRequest (`haulout.kube.lifecycle`).

    course = course_of(pod, trace, policy=policy, seen=evictions, now=now)
    course.way       how to ask it now; None: it is not asked, for somebody is at work on it or is about to be
    course.until     when that changes if nothing happens before

A policy that says so has pods asked by requests. That needs a cluster that serves them and a controller that takes them
up; if either is not there, and for pods that cannot leave this way, the classic eviction is what remains. All of this
is decided anew each time from what the cluster shows, so it turns to the better way as soon as that is open.

Without that policy only one thing counts: while a responder that the pod itself names works on an Eviction that
somebody else asked for, the pod is left alone.

What becomes of requests that are not needed any more is decided here too (`chores`). Nothing here does any of it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.core import duration
from haulout.drain import blockers
from haulout.drain.blockers import Blocker
from haulout.drain.memory import Trace
from haulout.drain.policy import Policy
from haulout.kube.lifecycle import (
    EVICTED,
    FAILED,
    HEARTBEAT_WITHIN,
    LAST_RESPONDER,
    Eviction,
    EvictionRequest,
    Intent,
    Reason,
    ResponderState,
    ResponderStatus,
    holds,
)
from haulout.kube.objects import Pod

TAKEN_UP_WITHIN = timedelta(seconds=30)  # or the pod is evicted directly
# The controller passes over a responder that is silent for too long. If that does not happen it is not there any more.
_GIVEN_UP_AFTER = HEARTBEAT_WITHIN + timedelta(minutes=1)


class Way(StrEnum):
    """How a pod is asked to leave."""

    EVICTION = "Eviction"
    REQUEST = "EvictionRequest"


class Reach(StrEnum):
    """Whether EvictionRequests can be used."""

    UNKNOWN = "Unknown"  # it is being found out
    READY = "Ready"
    OUT = "Out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictions:
    """What is known of EvictionRequests and Evictions at one moment, by the uid of the pod they are about."""

    reach: Reach = Reach.UNKNOWN
    why: str = ""  # they are out of reach
    requests: Mapping[str, EvictionRequest] = field(default_factory=dict)  # those of this drain
    evictions: Mapping[str, tuple[Eviction, ...]] = field(default_factory=dict)  # whoever asked for them


UNKNOWN = Evictions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How it stands with one pod that is to leave."""

    way: Way | None
    is_asked: bool = False  # somebody has been asked to make it leave, if not the pod's own eviction
    until: datetime | None = None
    words: str = ""
    blocker: Blocker | None = None  # who is at work, and how far that is
    since: datetime | None = None  # when that began


DIRECT = Course(way=Way.EVICTION)


def concerns(pod: Pod, policy: Policy) -> bool:
    """Tell whether EvictionRequests matter to how a pod leaves."""
    return bool(pod.spec.eviction_responders) or _may_be_requested(pod, policy)


def course_of(pod: Pod, trace: Trace, *, policy: Policy, seen: Evictions, now: datetime) -> Course:
    """Return the way for a pod whose turn to leave has come."""
    if not concerns(pod, policy):
        return DIRECT
    if seen.reach is Reach.UNKNOWN:
        return Course(way=None, words="waits until it is known whether the cluster takes EvictionRequests")
    requested = _may_be_requested(pod, policy)
    if seen.reach is Reach.OUT:
        return _direct(seen.why) if requested else DIRECT
    return _by_request(pod, trace, seen, now) if requested else _beside_others(pod, seen, now)


def _may_be_requested(pod: Pod, policy: Policy) -> bool:
    # Kubernetes refuses requests for pods that are scheduled as a group.
    return policy.eviction_requests and not policy.disable_eviction and pod.spec.scheduling_group is None


def _beside_others(pod: Pod, seen: Evictions, now: datetime) -> Course:
    """Leave a pod alone while a responder of its own is at work."""
    active = _active(seen.evictions.get(pod.uid, ()))
    if active is None or active[1].name == LAST_RESPONDER or _heard_at(*active) + HEARTBEAT_WITHIN <= now:
        return DIRECT
    return _waiting(pod, *active, until=_heard_at(*active) + HEARTBEAT_WITHIN)


def _by_request(pod: Pod, trace: Trace, seen: Evictions, now: datetime) -> Course:
    request, evictions = seen.requests.get(pod.uid), seen.evictions.get(pod.uid, ())
    if trace.unrequestable:
        return _direct(trace.unrequestable)
    if request is None or request.spec.intent != Intent.EVICTION:
        return Course(way=Way.REQUEST)
    if reason := _given_up(request, evictions):
        return _direct(reason)
    active = _active(evictions)
    if not _is_observed(request) or active is None:
        return _not_taken_up(request, trace, now)
    until = _heard_at(*active) + _GIVEN_UP_AFTER
    if until <= now:
        return _direct(f"responder {active[1].name} has said nothing since {_heard_at(*active):%H:%M:%S} UTC")
    return _waiting(pod, *active, until=until)


def _given_up(request: EvictionRequest, evictions: Iterable[Eviction]) -> str:
    """Return why nobody will make a pod leave because of our request; empty if somebody may."""
    failed = holds(request.status.conditions, FAILED)
    if failed is not None and failed.reason == Reason.INVALID:
        return f"EvictionRequest {request.key} is refused: {failed.message}".rstrip(".")
    for each in evictions:
        failed = holds(each.status.conditions, FAILED)
        if failed is not None and failed.reason == Reason.EXHAUSTED:
            return f"all responders of Eviction {each.key} had their turn"
    return ""


def _not_taken_up(request: EvictionRequest, trace: Trace, now: datetime) -> Course:
    asked_at = trace.requested_at or request.metadata.creation_timestamp or now
    until = asked_at + TAKEN_UP_WITHIN
    if until <= now:
        return _direct(f"nobody took up EvictionRequest {request.key} within {duration.format(TAKEN_UP_WITHIN)}")
    words = f"EvictionRequest {request.key} waits to be taken up; the pod is evicted directly at {until:%H:%M:%S} UTC"
    return Course(way=None, is_asked=True, until=until, words=f"{words} if nobody does")


def _waiting(pod: Pod, eviction: Eviction, responder: ResponderStatus, *, until: datetime) -> Course:
    blocker = blockers.responding(pod, eviction, responder)
    since = responder.start_time or eviction.metadata.creation_timestamp
    return Course(way=None, is_asked=True, until=until, words=blocker.reason, blocker=blocker, since=since)


def _direct(why: str) -> Course:
    return Course(way=Way.EVICTION, words=f"is evicted directly: {why}")


def _active(evictions: Iterable[Eviction]) -> tuple[Eviction, ResponderStatus] | None:
    """Return the Eviction that is under way, and whose turn it is."""
    for each in evictions:
        status = each.status
        if holds(status.conditions, FAILED) or holds(status.conditions, EVICTED):
            continue
        name = next((it.name for it in status.target_responders if it.state == ResponderState.ACTIVE), "")
        found = next((it for it in status.responders if name and it.name == name), None)
        if found is not None and (found.heartbeat_time or found.start_time):
            return each, found
    return None


def _heard_at(eviction: Eviction, responder: ResponderStatus) -> datetime:
    heard_at = responder.heartbeat_time or responder.start_time
    if heard_at is None:
        raise ValueError(f"Eviction {eviction.key}: responder {responder.name} has not begun")
    return heard_at


def _is_observed(request: EvictionRequest) -> bool:
    return request.status.observed_generation >= max(request.metadata.generation, 1)


# Requests that are not needed any more


class Verb(StrEnum):
    """What is to be done with a request."""

    WITHDRAW = "withdraw"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Chore:
    """One request that is to be withdrawn or deleted."""

    verb: Verb
    request: EvictionRequest


def chores(seen: Evictions, *, wanted: Collection[str], present: Collection[str]) -> tuple[Chore, ...]:
    """Return what to do with requests, given the uids of pods that are to leave by request and of those that are here.

    A request is withdrawn before it is deleted, so that its responders hear of it and can stop.
    """
    found: list[Chore] = []
    for uid, request in seen.requests.items():
        if uid not in present:
            if is_settled(request):
                found.append(Chore(Verb.DELETE, request))
        elif uid not in wanted and request.spec.intent == Intent.EVICTION:
            found.append(Chore(Verb.WITHDRAW, request))
        elif uid not in wanted and is_settled(request):
            found.append(Chore(Verb.DELETE, request))
    return tuple(found)


def is_settled(request: EvictionRequest) -> bool:
    """Tell whether the controller has said its last word on a request, as it is now."""
    conditions = request.status.conditions
    over = holds(conditions, EVICTED) or holds(conditions, FAILED)
    return _is_observed(request) and (over is not None or request.spec.intent == Intent.WITHDRAWN)
