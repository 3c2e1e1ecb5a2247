"""What EvictionRequests and Evictions look like to their controllers, and how those decide: pure functions.

Follows what is to be `pkg/controller/evictionrequest` of Kubernetes (KEP-4563): 1.37 has the API, and no controller for
it yet. A request that is wrong fails for good. All others share one Eviction for each pod: the newest that succeeded,
or the oldest that is under way, or else a new one. Its responders have their turn one after the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.kube import lifecycle
from haulout.kube.lifecycle import (
    EVICTED,
    FAILED,
    HEARTBEAT_WITHIN,
    LAST_PRIORITY,
    LAST_RESPONDER,
    Intent,
    Reason,
    ResponderState,
)
from haulout.kube.objects import EvictionResponder, RawObject
from haulout_sandbox.controllers import conditions
from haulout_sandbox.controllers.objects import Owned, Pod

GRACEFUL_COMPLETION = timedelta(seconds=5)  # for a responder to say that it is done after its pod went

_MOST_REQUESTERS = 100
_LONGEST_NAME = 253
_UNDONE = (ResponderState.INACTIVE, ResponderState.ACTIVE)


class RequestSpec(lifecycle.EvictionRequestSpec, frozen=True):
    """Who wants what to leave; the field was called `requesterName` before."""

    requester: str = ""
    requester_name: str = ""


class EvictionRequest(Owned, frozen=True):
    """A wish that a pod may leave."""

    spec: RequestSpec = RequestSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def requester(self) -> str:
        """Whose wish it is."""
        return self.spec.requester or self.spec.requester_name

    @property
    def wants_eviction(self) -> bool:
        """Whether it still is one."""
        return not self.deleting and self.spec.intent == Intent.EVICTION


class Eviction(Owned, frozen=True):
    """A pod on its way."""

    spec: lifecycle.EvictionSpec = lifecycle.EvictionSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether it succeeded or failed, which is final."""
        return conditions.is_true(self.status, EVICTED) or conditions.is_true(self.status, FAILED)


EVICTION_REQUESTS = lifecycle.EVICTION_REQUESTS.of(EvictionRequest)
EVICTIONS = lifecycle.EVICTIONS.of(Eviction)


def target_key(thing: EvictionRequest | Eviction) -> str:
    """Return what tells the pod that is meant from all others."""
    return f"{thing.namespace}/{thing.spec.target.pod.uid}"


# Requests


def problem_of(request: EvictionRequest, pod: Pod | None, *, has_evictions: bool) -> str:
    """Return what makes a request invalid for good; empty if nothing does."""
    uid = request.spec.target.pod.uid
    if not has_evictions and pod is None:
        return "Target pod not found."
    if not has_evictions and pod is not None and pod.uid != uid:
        return f"Target pod UID mismatch: expected {uid}, got {pod.uid}."
    if pod is not None and pod.uid == uid and pod.spec.scheduling_group is not None:
        return "Target pod references a SchedulingGroup. Eviction is currently not supported."
    return ""


def is_settled(request: EvictionRequest) -> bool:
    """Tell whether nothing more becomes of a request."""
    failed = conditions.find(request.status, FAILED) or {}
    invalid = (failed.get("status"), failed.get("reason")) == ("True", Reason.INVALID)
    return invalid or conditions.is_true(request.status, EVICTED)


def invalid_status(request: EvictionRequest, problem: str, now: datetime) -> RawObject:
    """Return the status of a request that is invalid."""
    return _request_status(
        request,
        _condition(FAILED, holds=True, reason=Reason.INVALID, message=problem),
        _condition(EVICTED, holds=False, reason=Reason.EVICTION_FAILED),
        now,
    )


def request_status(request: EvictionRequest, eviction: Eviction | None, now: datetime) -> RawObject:
    """Return the status of a request: its Eviction's conditions."""
    told = {} if eviction is None else eviction.status
    waiting = "waiting for an Eviction to report on progress"
    found = [
        conditions.find(told, kind) or _condition(kind, holds=False, reason=Reason.AWAITING, message=waiting)
        for kind in (FAILED, EVICTED)
    ]
    return _request_status(request, found[0], found[1], now)


def _request_status(request: EvictionRequest, failed: RawObject, evicted: RawObject, now: datetime) -> RawObject:
    told = _told(request.status.get("conditions") or [], (failed, evicted), now)
    return {"observedGeneration": request.metadata.generation, "conditions": told}


# Evictions


def relevant(evictions: Iterable[Eviction]) -> Eviction | None:
    """Return the Eviction that counts for a pod: one that succeeded, the oldest under way, or the last that failed."""
    oldest_first = sorted(evictions, key=lambda it: it.age_key)
    succeeded = [it for it in oldest_first if conditions.is_true(it.status, EVICTED)]
    active = [it for it in oldest_first if not it.is_over]
    failed = [it for it in oldest_first if conditions.is_true(it.status, FAILED)]
    return next(iter((*reversed(succeeded), *active, *reversed(failed))), None)


def new_eviction(name: str, request: EvictionRequest) -> RawObject:
    """Return the Eviction to be made because of a request."""
    pod = request.spec.target.pod
    return {
        "apiVersion": EVICTIONS.api_version,
        "kind": EVICTIONS.kind,
        "metadata": {
            "name": name,
            "namespace": request.namespace,
            "labels": {request.requester: "requester"},
            "ownerReferences": [owner_reference(request)],
        },
        "spec": {"target": {"pod": {"name": pod.name, "uid": pod.uid}}},
    }


def free_name(pod: str, taken: Iterable[str]) -> str:
    """Return a name for an Eviction of a pod that none has: `pod-1-NAME`, `pod-2-NAME`."""
    taken, number = set(taken), 1
    while (name := f"pod-{number}-{pod}"[:_LONGEST_NAME]) in taken:
        number += 1
    return name


def owner_reference(request: EvictionRequest) -> RawObject:
    """Return how an Eviction names a request that it belongs to."""
    resource = EVICTION_REQUESTS
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": request.name, "uid": request.uid}


def labels_of(requests: Iterable[EvictionRequest], responders: Iterable[str]) -> dict[str, str]:
    """Return the labels by which requesters and responders find their Evictions."""
    labels = dict.fromkeys((it.requester for it in requests), "requester")
    return labels | {name: "requester-responder" if name in labels else "responder" for name in responders}


def responders_of(pod: Pod) -> list[EvictionResponder]:
    """Return who helps a pod to leave, in the order of their turns, the last resort included."""
    last = EvictionResponder(name=LAST_RESPONDER, priority=LAST_PRIORITY)
    return sorted((*pod.spec.eviction_responders, last), key=_turn)


def _turn(responder: EvictionResponder) -> tuple[int, list[str], str]:
    """Sort the highest priority first, and then by domain, of which the top comes first."""
    domain, _, key = responder.name.partition("/")
    return -responder.priority, domain.split(".")[::-1], key


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is known of an Eviction's pod and requests at one moment."""

    pod: Pod | None  # None: it is gone
    requests: Sequence[EvictionRequest]
    waits_for_responder: bool = False  # the pod has just gone, and the responder may want to say so
    now: datetime


def progressed(eviction: Eviction, seen: Outlook) -> tuple[RawObject, datetime | None]:
    """Return the status that an Eviction should have, and when to look again."""
    ended = _ended(seen)
    if ended and seen.waits_for_responder and _unreported(eviction):
        return {}, None
    before = eviction.status.get("targetResponders") or []
    targets = [dict(it) for it in before] or _initial(seen.pod)
    exhausted = bool(targets) and targets[-1]["state"] not in _UNDONE
    canceled = not ended and not any(it.wants_eviction for it in seen.requests)
    wakes_at = None
    if ended or canceled:
        _close(targets, eviction.status, canceled=canceled)
    elif not exhausted:
        wakes_at = _advance(targets, eviction.status, seen.now)
    verdict = _verdict(ended, canceled=canceled, exhausted=exhausted)
    status = {
        "observedGeneration": eviction.metadata.generation,
        "requesters": _requesters(eviction, seen.requests),
        "targetResponders": targets,
        "responders": _started(targets, eviction.status, seen.now),
        "conditions": _told(eviction.status.get("conditions") or [], verdict, seen.now),
    }
    return {name: value for name, value in status.items() if value}, wakes_at


def find(listed: Iterable[RawObject], name: str) -> RawObject:
    """Return the entry of a responder; an empty one if there is none."""
    return next((it for it in listed if it["name"] == name), {})


def active_of(status: RawObject) -> str:
    """Return whose turn it is; empty if it is nobody's."""
    targets = status.get("targetResponders") or []
    return next((str(it["name"]) for it in targets if it["state"] == ResponderState.ACTIVE), "")


def _ended(seen: Outlook) -> str:
    if seen.pod is None:
        return Reason.POD_DELETED
    return Reason.POD_TERMINAL if seen.pod.finished else ""


def _unreported(eviction: Eviction) -> bool:
    name = active_of(eviction.status)
    return bool(name) and "completionTime" not in find(eviction.status.get("responders") or [], name)


def _initial(pod: Pod | None) -> list[RawObject]:
    found = [] if pod is None else responders_of(pod)
    return [{"name": it.name, "priority": it.priority, "state": str(ResponderState.INACTIVE)} for it in found]


def _close(targets: list[RawObject], status: RawObject, *, canceled: bool) -> None:
    for it in targets:
        if it["state"] == ResponderState.ACTIVE:
            done = "completionTime" in find(status.get("responders") or [], it["name"])
            otherwise = ResponderState.CANCELED if canceled else ResponderState.INTERRUPTED
            it["state"] = str(ResponderState.COMPLETED if done and not canceled else otherwise)


def _advance(targets: list[RawObject], status: RawObject, now: datetime) -> datetime | None:
    """Let the next responder have its turn if the one before has completed, or has been silent for too long."""
    told = status.get("responders") or []
    for it in targets:
        if it["state"] not in _UNDONE:
            continue
        is_first_look = it["state"] == ResponderState.INACTIVE
        it["state"] = str(ResponderState.ACTIVE)
        responder = find(told, it["name"])
        last = responder.get("heartbeatTime") or responder.get("startTime")
        silent_at = (now if last is None else conditions.instant(last)) + HEARTBEAT_WITHIN
        if is_first_look or ("completionTime" not in responder and now < silent_at):
            return silent_at
        done = "completionTime" in responder
        it["state"] = str(ResponderState.COMPLETED if done else ResponderState.INTERRUPTED)
    return now  # all had their turn: the next look says so


def _started(targets: Iterable[RawObject], status: RawObject, now: datetime) -> list[RawObject]:
    entries = []
    for it in targets:
        entry = {"name": it["name"]} | find(status.get("responders") or [], it["name"])
        if it["state"] == ResponderState.ACTIVE:
            entry.setdefault("startTime", conditions.stamp(now))
        entries.append(entry)
    return entries


def _requesters(eviction: Eviction, requests: Sequence[EvictionRequest]) -> list[RawObject]:
    before = [it["name"] for it in eviction.status.get("requesters") or []]
    wanted = [it.requester for it in requests if it.wants_eviction]
    names = dict.fromkeys((*wanted, *before, *(it.requester for it in requests)))
    intents = {name: Intent.EVICTION if name in wanted else Intent.WITHDRAWN for name in names}
    return [{"name": name, "intent": str(intent)} for name, intent in intents.items()][:_MOST_REQUESTERS]


def _verdict(ended: str, *, canceled: bool, exhausted: bool) -> tuple[RawObject, RawObject]:
    if ended:
        words = "Target pod has been deleted" if ended == Reason.POD_DELETED else "Pod has reached terminal state"
        return (
            _condition(FAILED, holds=False, reason=Reason.SUCCEEDED),
            _condition(EVICTED, holds=True, reason=ended, message=words),
        )
    if canceled or exhausted:
        reason = Reason.CANCELED if canceled else Reason.EXHAUSTED
        words = (
            "No active requesters with eviction intent"
            if canceled
            else "All responders have completed without evicting the target"
        )
        return (
            _condition(FAILED, holds=True, reason=reason, message=words),
            _condition(EVICTED, holds=False, reason=Reason.EVICTION_FAILED),
        )
    return (
        _condition(FAILED, holds=False, reason=Reason.AWAITING),
        _condition(EVICTED, holds=False, reason=Reason.AWAITING),
    )


def _condition(kind: str, *, holds: bool, reason: str, message: str = "") -> RawObject:
    return {"type": kind, "status": str(holds), "reason": str(reason), "message": message}


def _told(before: list[RawObject], new: Iterable[RawObject], now: datetime) -> list[RawObject]:
    told = before
    for condition in new:
        bare = {name: value for name, value in condition.items() if name != "lastTransitionTime"}
        told = conditions.put(told, bare, now=now)
    return sorted(told, key=lambda it: str(it["type"]))
