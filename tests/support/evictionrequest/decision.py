"""Types and decisions of the EvictionRequest and Eviction controllers, as pure functions.

Follows the planned `pkg/controller/evictionrequest` of Kubernetes (KEP-4563): 1.37 has the API, but no controller yet.
An invalid request fails for good. All other requests for a pod share one Eviction: the newest that succeeded, or the
oldest in progress, or else a new one. Its responders take turns, one after the other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.api import evictionrequest
from haulout.api.evictionrequest import (
    EVICTED,
    FAILED,
    HEARTBEAT_TIMEOUT,
    IMPERATIVE_EVICTION_RESPONDER,
    Intent,
    Reason,
    ResponderState,
)
from haulout.api.objects import EvictionResponder, RawObject
from haulout.kube.indexer import IndexFunc
from haulout_sandbox.controllers import conditions
from haulout_sandbox.controllers.objects import OwnedObject, Pod

# how long a responder may take to report completion after the pod is deleted
COMPLETION_GRACE_PERIOD = timedelta(seconds=5)

_MAX_REQUESTERS = 100
_MAX_NAME_LENGTH = 253
_PENDING_STATES = (ResponderState.INACTIVE, ResponderState.ACTIVE)


class EvictionRequestSpec(evictionrequest.EvictionRequestSpec, frozen=True):
    """The spec of a request; `requester` was called `requesterName` before."""

    requester: str = ""
    requester_name: str = ""


class EvictionRequest(OwnedObject, frozen=True):
    """A request to evict a pod."""

    spec: EvictionRequestSpec = EvictionRequestSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def requester(self) -> str:
        return self.spec.requester or self.spec.requester_name

    @property
    def wants_eviction(self) -> bool:
        """Return whether the request has not been withdrawn."""
        return not self.is_being_deleted and self.spec.intent == Intent.EVICTION


class Eviction(OwnedObject, frozen=True):
    """The eviction of a pod, for all its requests."""

    spec: evictionrequest.EvictionSpec = evictionrequest.EvictionSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        """Return whether it succeeded or failed, which is final."""
        return conditions.is_true(self.status, EVICTED) or conditions.is_true(self.status, FAILED)


EVICTION_REQUESTS = evictionrequest.EVICTION_REQUESTS.with_model(EvictionRequest)
EVICTIONS = evictionrequest.EVICTIONS.with_model(Eviction)


def target_key(obj: EvictionRequest | Eviction) -> str:
    """Return a key that identifies the target pod."""
    return f"{obj.namespace}/{obj.spec.target.pod.uid}"


INDEXES: Mapping[str, IndexFunc[Any]] = {"target": lambda obj: (target_key(obj),)}


# Requests


def validation_problem(request: EvictionRequest, pod: Pod | None, *, has_evictions: bool) -> str:
    """Return why a request is invalid for good; empty if it is valid."""
    uid = request.spec.target.pod.uid
    if not has_evictions and pod is None:
        return "Target pod not found."
    if not has_evictions and pod is not None and pod.uid != uid:
        return f"Target pod UID mismatch: expected {uid}, got {pod.uid}."
    return ""


def is_final(request: EvictionRequest) -> bool:
    """Return whether the request's status is final."""
    failed = conditions.find(request.status, FAILED) or {}
    invalid = (failed.get("status"), failed.get("reason")) == ("True", Reason.INVALID)
    return invalid or conditions.is_true(request.status, EVICTED)


def invalid_status(request: EvictionRequest, problem: str, now: datetime) -> RawObject:
    return _request_status(
        request,
        _condition(FAILED, is_true=True, reason=Reason.INVALID, message=problem),
        _condition(EVICTED, is_true=False, reason=Reason.EVICTION_FAILED),
        now,
    )


def request_status(request: EvictionRequest, eviction: Eviction | None, now: datetime) -> RawObject:
    """Return the status of a request: the conditions of its Eviction."""
    eviction_status = {} if eviction is None else eviction.status
    message = "waiting for an Eviction to report on progress"
    status_conditions = [
        conditions.find(eviction_status, condition_type)
        or _condition(condition_type, is_true=False, reason=Reason.AWAITING, message=message)
        for condition_type in (FAILED, EVICTED)
    ]
    return _request_status(request, status_conditions[0], status_conditions[1], now)


def _request_status(request: EvictionRequest, failed: RawObject, evicted: RawObject, now: datetime) -> RawObject:
    status_conditions = _merge_conditions(request.status.get("conditions") or [], (failed, evicted), now)
    return {"observedGeneration": request.metadata.generation, "conditions": status_conditions}


# Evictions


def current_eviction(evictions: Iterable[Eviction]) -> Eviction | None:
    """Return the current Eviction of a pod: one that succeeded, the oldest in progress, or the last that failed."""
    oldest_first = sorted(evictions, key=lambda eviction: eviction.creation_order)
    succeeded = [eviction for eviction in oldest_first if conditions.is_true(eviction.status, EVICTED)]
    active = [eviction for eviction in oldest_first if not eviction.is_finished]
    failed = [eviction for eviction in oldest_first if conditions.is_true(eviction.status, FAILED)]
    return next(iter((*reversed(succeeded), *active, *reversed(failed))), None)


def new_eviction(name: str, request: EvictionRequest) -> RawObject:
    """Return the Eviction to create for a request."""
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


def unused_eviction_name(pod: str, existing_names: Iterable[str]) -> str:
    """Return an unused name for an Eviction of a pod: `pod-1-NAME`, `pod-2-NAME`."""
    existing_names, number = set(existing_names), 1
    while (name := f"pod-{number}-{pod}"[:_MAX_NAME_LENGTH]) in existing_names:
        number += 1
    return name


def owner_reference(request: EvictionRequest) -> RawObject:
    """Return the owner reference of an Eviction to one of its requests."""
    resource = EVICTION_REQUESTS
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": request.name, "uid": request.uid}


def eviction_labels(requests: Iterable[EvictionRequest], responders: Iterable[str]) -> dict[str, str]:
    """Return the labels with which requesters and responders find their Evictions."""
    labels = dict.fromkeys((request.requester for request in requests), "requester")
    return labels | {name: "requester-responder" if name in labels else "responder" for name in responders}


def responders_in_order(pod: Pod) -> list[EvictionResponder]:
    """Return the responders of a pod in the order of their turns, the imperative evictor last."""
    imperative = EvictionResponder(name=IMPERATIVE_EVICTION_RESPONDER, priority=100)
    return sorted((*pod.spec.eviction_responders, imperative), key=_responder_sort_key)


def _responder_sort_key(responder: EvictionResponder) -> tuple[int, list[str], str]:
    """Sort by descending priority, then by domain, starting with the top-level domain."""
    domain, _, key = responder.name.partition("/")
    return -responder.priority, domain.split(".")[::-1], key


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionObservation:
    """The state of an Eviction's pod and requests at one moment."""

    pod: Pod | None  # None: deleted
    requests: Sequence[EvictionRequest]
    waits_for_responder: bool = False  # the pod was just deleted, and the responder may still report completion
    now: datetime


def next_status(eviction: Eviction, observation: EvictionObservation) -> tuple[RawObject, datetime | None]:
    """Return the status that an Eviction should have, and when to requeue it."""
    end_reason = _pod_end_reason(observation)
    if end_reason and observation.waits_for_responder and _has_unreported_completion(eviction):
        return {}, None
    existing = eviction.status.get("targetResponders") or []
    target_responders = [dict(element) for element in existing] or _initial_targets(observation.pod)
    exhausted = bool(target_responders) and target_responders[-1]["state"] not in _PENDING_STATES
    canceled = not end_reason and not any(element.wants_eviction for element in observation.requests)
    requeue_at = None
    if end_reason or canceled:
        _finish_active(target_responders, eviction.status, canceled=canceled)
    elif not exhausted:
        requeue_at = _advance_responders(target_responders, eviction.status, observation.now)
    status_conditions = _outcome_conditions(end_reason, canceled=canceled, exhausted=exhausted)
    status = {
        "observedGeneration": eviction.metadata.generation,
        "requesters": _requester_entries(eviction, observation.requests),
        "targetResponders": target_responders,
        "responders": _responder_entries(target_responders, eviction.status, observation.now),
        "conditions": _merge_conditions(eviction.status.get("conditions") or [], status_conditions, observation.now),
    }
    return {name: value for name, value in status.items() if value}, requeue_at


def find_responder(responders: Iterable[RawObject], name: str) -> RawObject:
    """Return the status entry of a responder, or an empty one."""
    return next((responder for responder in responders if responder["name"] == name), {})


def active_responder(status: RawObject) -> str:
    """Return the name of the active responder, or an empty string."""
    target_responders = status.get("targetResponders") or []
    return next((str(target["name"]) for target in target_responders if target["state"] == ResponderState.ACTIVE), "")


def _pod_end_reason(observation: EvictionObservation) -> str:
    if observation.pod is None:
        return Reason.POD_DELETED
    return Reason.POD_TERMINAL if observation.pod.is_finished else ""


def _has_unreported_completion(eviction: Eviction) -> bool:
    name = active_responder(eviction.status)
    return bool(name) and "completionTime" not in find_responder(eviction.status.get("responders") or [], name)


def _initial_targets(pod: Pod | None) -> list[RawObject]:
    responders = [] if pod is None else responders_in_order(pod)
    return [
        {"name": responder.name, "priority": responder.priority, "state": str(ResponderState.INACTIVE)}
        for responder in responders
    ]


def _finish_active(targets: list[RawObject], status: RawObject, *, canceled: bool) -> None:
    for target in targets:
        if target["state"] == ResponderState.ACTIVE:
            done = "completionTime" in find_responder(status.get("responders") or [], target["name"])
            unfinished_state = ResponderState.CANCELED if canceled else ResponderState.INTERRUPTED
            target["state"] = str(ResponderState.COMPLETED if done and not canceled else unfinished_state)


def _advance_responders(targets: list[RawObject], status: RawObject, now: datetime) -> datetime | None:
    """Activate the next responder if the active one has completed, or has not reported for too long."""
    responders = status.get("responders") or []
    for target in targets:
        if target["state"] not in _PENDING_STATES:
            continue
        is_newly_active = target["state"] == ResponderState.INACTIVE
        target["state"] = str(ResponderState.ACTIVE)
        responder = find_responder(responders, target["name"])
        last_heartbeat = responder.get("heartbeatTime") or responder.get("startTime")
        heartbeat_deadline = (
            now if last_heartbeat is None else conditions.parse_time(last_heartbeat)
        ) + HEARTBEAT_TIMEOUT
        if is_newly_active or ("completionTime" not in responder and now < heartbeat_deadline):
            return heartbeat_deadline
        done = "completionTime" in responder
        target["state"] = str(ResponderState.COMPLETED if done else ResponderState.INTERRUPTED)
    return now  # all have had their turn; the next pass reports that


def _responder_entries(targets: Iterable[RawObject], status: RawObject, now: datetime) -> list[RawObject]:
    entries = []
    for target in targets:
        entry = {"name": target["name"]} | find_responder(status.get("responders") or [], target["name"])
        if target["state"] == ResponderState.ACTIVE:
            entry.setdefault("startTime", conditions.format_time(now))
        entries.append(entry)
    return entries


def _requester_entries(eviction: Eviction, requests: Sequence[EvictionRequest]) -> list[RawObject]:
    previous = [element["name"] for element in eviction.status.get("requesters") or []]
    active = [element.requester for element in requests if element.wants_eviction]
    names = dict.fromkeys((*active, *previous, *(element.requester for element in requests)))
    intents = {name: Intent.EVICTION if name in active else Intent.WITHDRAWN for name in names}
    return [{"name": name, "intent": str(intent)} for name, intent in intents.items()][:_MAX_REQUESTERS]


def _outcome_conditions(end_reason: str, *, canceled: bool, exhausted: bool) -> tuple[RawObject, RawObject]:
    if end_reason:
        message = (
            "Target pod has been deleted" if end_reason == Reason.POD_DELETED else "Pod has reached terminal state"
        )
        return (
            _condition(FAILED, is_true=False, reason=Reason.SUCCEEDED),
            _condition(EVICTED, is_true=True, reason=end_reason, message=message),
        )
    if canceled or exhausted:
        reason = Reason.CANCELED if canceled else Reason.EXHAUSTED
        message = (
            "No active requesters with eviction intent"
            if canceled
            else "All responders have completed without evicting the target"
        )
        return (
            _condition(FAILED, is_true=True, reason=reason, message=message),
            _condition(EVICTED, is_true=False, reason=Reason.EVICTION_FAILED),
        )
    return (
        _condition(FAILED, is_true=False, reason=Reason.AWAITING),
        _condition(EVICTED, is_true=False, reason=Reason.AWAITING),
    )


def _condition(condition_type: str, *, is_true: bool, reason: str, message: str = "") -> RawObject:
    return {"type": condition_type, "status": str(is_true), "reason": str(reason), "message": message}


def _merge_conditions(existing: list[RawObject], new: Iterable[RawObject], now: datetime) -> list[RawObject]:
    merged = existing
    for condition in new:
        without_times = {name: value for name, value in condition.items() if name != "lastTransitionTime"}
        merged = conditions.upsert(merged, without_times, now=now)
    return sorted(merged, key=lambda condition: str(condition["type"]))
