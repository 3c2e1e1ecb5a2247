"""Which API a drain uses for a pod, depending on the EvictionRequests in the cluster."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.evictionrequest import IMPERATIVE_EVICTION_RESPONDER, Eviction, EvictionRequest
from haulout.api.objects import Pod, RawObject
from haulout.drain.blockers import BlockerKind
from haulout.drain.eviction_api import (
    CleanupVerb,
    EvictionApi,
    EvictionRequestAvailability,
    EvictionRequestView,
    eviction_request_cleanups,
    plan_eviction,
)
from haulout.drain.policy import DrainPolicy
from haulout.drain.state import TrackedPod

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
CLASSIC = DrainPolicy.like_nmo()
BY_REQUEST = replace(CLASSIC, eviction_requests=True)
MOVER = "acme.io/mover"
TARGET: RawObject = {"pod": {"name": "cart-0", "uid": "u1"}}


def a_pod(**spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "cart-0", "namespace": "shop", "uid": "u1"}, "spec": spec}, Pod)


PLAIN = a_pod()
HELPED = a_pod(evictionResponders=[{"name": MOVER, "priority": 10_000}])


def a_trace(**more: Any) -> TrackedPod:
    return TrackedPod(uid="u1", owner="o", first_observed_at=NOW, **more)


def a_request(
    *, intent: str = "Eviction", generation: int = 1, observed: int = 1, age: timedelta = SECOND, failed: str = ""
) -> EvictionRequest:
    conditions = [{"type": "Failed", "status": "True", "reason": failed, "message": "because."}] if failed else []
    raw = {
        "metadata": {"name": "r", "namespace": "shop", "generation": generation, "creationTimestamp": NOW - age},
        "spec": {"target": TARGET, "intent": intent},
        "status": {"observedGeneration": observed, "conditions": conditions},
    }
    return msgspec.convert(raw, EvictionRequest)


def an_eviction(
    active: str = MOVER,
    *,
    heartbeat_age: timedelta | None = MINUTE,
    failed: str = "",
    evicted: bool = False,
    message: str = "",
) -> Eviction:
    conditions = [{"type": "Failed", "status": "True", "reason": failed}] if failed else []
    conditions += [{"type": "TargetEvicted", "status": "True", "reason": "PodDeleted"}] if evicted else []
    entry = {"name": active, "startTime": NOW - timedelta(hours=1), "message": message}
    if heartbeat_age is not None:
        entry["heartbeatTime"] = NOW - heartbeat_age
    raw = {
        "metadata": {"name": "e", "namespace": "shop", "creationTimestamp": NOW - timedelta(hours=1)},
        "spec": {"target": TARGET},
        "status": {
            "conditions": conditions,
            "targetResponders": [{"name": active, "state": "Completed" if failed else "Active"}],
            "responders": [entry],
        },
    }
    return msgspec.convert(raw, Eviction)


def a_view(request: EvictionRequest | None = None, *evictions: Eviction) -> EvictionRequestView:
    requests = {} if request is None else {"u1": request}
    return EvictionRequestView(
        availability=EvictionRequestAvailability.READY,
        requests=requests,
        evictions={"u1": evictions} if evictions else {},
    )


UNKNOWN, OUT = (
    EvictionRequestView(),
    EvictionRequestView(availability=EvictionRequestAvailability.UNAVAILABLE, unavailable_reason="there are none"),
)
DIRECT, BY_ASKING, NOT_NOW = EvictionApi.EVICTION, EvictionApi.REQUEST, None


@pytest.mark.parametrize(
    ("case", "policy", "pod", "known", "way"),
    [
        ("nobody wants requests", CLASSIC, PLAIN, UNKNOWN, DIRECT),
        ("it is not known whether there are any", BY_REQUEST, PLAIN, UNKNOWN, NOT_NOW),
        ("there are none", BY_REQUEST, PLAIN, OUT, DIRECT),
        ("it was not asked yet", BY_REQUEST, PLAIN, a_view(), BY_ASKING),
        ("it is of a group", BY_REQUEST, a_pod(schedulingGroup={"podGroupName": "all"}), a_view(), DIRECT),
        ("pods are to be deleted", replace(BY_REQUEST, disable_eviction=True), PLAIN, a_view(), DIRECT),
        ("a predecessor withdrew", BY_REQUEST, PLAIN, a_view(a_request(intent="Withdrawn")), BY_ASKING),
        ("the request is new", BY_REQUEST, PLAIN, a_view(a_request(observed=0)), NOT_NOW),
        ("nobody took it up", BY_REQUEST, PLAIN, a_view(a_request(observed=0, age=30 * SECOND)), DIRECT),
        (
            "only what it was before was taken up",
            BY_REQUEST,
            PLAIN,
            a_view(a_request(generation=2, age=30 * SECOND), an_eviction()),
            DIRECT,
        ),
        ("seen, but nothing follows", BY_REQUEST, PLAIN, a_view(a_request(age=30 * SECOND)), DIRECT),
        ("it is refused", BY_REQUEST, PLAIN, a_view(a_request(failed="EvictionInvalid")), DIRECT),
        ("a responder is at work", BY_REQUEST, PLAIN, a_view(a_request(), an_eviction()), NOT_NOW),
        (
            "one that has just begun",
            BY_REQUEST,
            PLAIN,
            a_view(a_request(), an_eviction(heartbeat_age=-MINUTE)),
            NOT_NOW,
        ),
        (
            "silent, but not for long",
            BY_REQUEST,
            PLAIN,
            a_view(a_request(), an_eviction(heartbeat_age=20 * MINUTE)),
            NOT_NOW,
        ),
        (
            "nobody is passed over",
            BY_REQUEST,
            PLAIN,
            a_view(a_request(), an_eviction(heartbeat_age=21 * MINUTE)),
            DIRECT,
        ),
        (
            "the last one is at work",
            BY_REQUEST,
            PLAIN,
            a_view(a_request(), an_eviction(IMPERATIVE_EVICTION_RESPONDER)),
            NOT_NOW,
        ),
        (
            "all had their turn, and begin anew",
            BY_REQUEST,
            PLAIN,
            a_view(a_request(), an_eviction(failed="NoFurtherResponder"), an_eviction()),
            DIRECT,
        ),
        (
            "one was called off, and another begun",
            BY_REQUEST,
            PLAIN,
            a_view(a_request(), an_eviction(failed="CanceledDueToNoRequesters"), an_eviction()),
            NOT_NOW,
        ),
        ("its own responder, not known yet", CLASSIC, HELPED, UNKNOWN, NOT_NOW),
        ("its own responder, no such API", CLASSIC, HELPED, OUT, DIRECT),
        ("its own responder has nothing to do", CLASSIC, HELPED, a_view(), DIRECT),
        ("its own responder is at work", CLASSIC, HELPED, a_view(None, an_eviction()), NOT_NOW),
        ("its own responder is silent", CLASSIC, HELPED, a_view(None, an_eviction(heartbeat_age=20 * MINUTE)), DIRECT),
        ("its own responder never spoke", CLASSIC, HELPED, a_view(None, an_eviction(heartbeat_age=None)), DIRECT),
        (
            "the last one does what we do",
            CLASSIC,
            HELPED,
            a_view(None, an_eviction(IMPERATIVE_EVICTION_RESPONDER)),
            DIRECT,
        ),
        ("that is over", CLASSIC, HELPED, a_view(None, an_eviction(evicted=True)), DIRECT),
        ("it declares nobody", CLASSIC, PLAIN, a_view(None, an_eviction()), DIRECT),
    ],
)
def test_plan_eviction_chooses_the_eviction_api(
    case: str, policy: DrainPolicy, pod: Pod, known: EvictionRequestView, way: EvictionApi | None
) -> None:
    eviction_plan = plan_eviction(pod, a_trace(), policy=policy, view=known, now=NOW)
    assert eviction_plan.api is way, case
    if way is NOT_NOW and known is not UNKNOWN:
        assert eviction_plan.until is not None
        assert eviction_plan.until > NOW, "every wait has an end"
        assert eviction_plan.is_requested


def test_eviction_request_sent_again_gets_its_full_waiting_time() -> None:
    known = a_view(a_request(generation=2, age=10 * MINUTE))
    eviction_plan = plan_eviction(PLAIN, a_trace(requested_at=NOW - SECOND), policy=BY_REQUEST, view=known, now=NOW)
    assert (eviction_plan.api, eviction_plan.until) == (None, NOW + 29 * SECOND)


def test_fallback_to_direct_eviction_states_the_reason() -> None:
    eviction_plan = plan_eviction(
        PLAIN, a_trace(request_problem="it is forbidden"), policy=BY_REQUEST, view=a_view(), now=NOW
    )
    assert (eviction_plan.api, eviction_plan.message) == (EvictionApi.EVICTION, "is evicted directly: it is forbidden")


def test_active_responder_is_reported_with_its_message() -> None:
    known = a_view(a_request(), an_eviction(message="copied 40 %."))
    blocker = plan_eviction(PLAIN, a_trace(), policy=BY_REQUEST, view=known, now=NOW).blocker
    assert blocker is not None
    assert (blocker.kind, blocker.is_progress, blocker.object) == (BlockerKind.RESPONDER, True, "Eviction shop/e")
    assert blocker.reason == "responder acme.io/mover is evicting it: copied 40 %"


def test_pdb_that_stops_the_last_responder_is_reported_as_pdb_blocker() -> None:
    message = "Cannot evict pod. The disruption budget cart needs 2 healthy pods and has 2 currently"
    known = a_view(a_request(), an_eviction(IMPERATIVE_EVICTION_RESPONDER, message=message))
    blocker = plan_eviction(PLAIN, a_trace(), policy=BY_REQUEST, view=known, now=NOW).blocker
    assert blocker is not None
    assert (blocker.kind, blocker.is_progress) == (BlockerKind.DISRUPTION_BUDGET, False)
    assert blocker.reason == "PodDisruptionBudget shop/cart needs 2 healthy pods and has 2"


EVICTED = msgspec.convert(
    {
        "metadata": {"generation": 1},
        "spec": {"target": TARGET, "intent": "Eviction"},
        "status": {"observedGeneration": 1, "conditions": [{"type": "TargetEvicted", "status": "True"}]},
    },
    EvictionRequest,
)


@pytest.mark.parametrize(
    ("case", "request_", "wanted", "present", "verb"),
    [
        ("it is needed", a_request(), {"u1"}, {"u1"}, None),
        ("the pod is gone and nobody has said so yet", a_request(), set(), set(), None),
        ("the pod is gone", EVICTED, {"u1"}, set(), CleanupVerb.DELETE),
        ("the pod stays after all", a_request(), set(), {"u1"}, CleanupVerb.WITHDRAW),
        ("responders do not know yet", a_request(intent="Withdrawn", generation=2), set(), {"u1"}, None),
        ("responders know", a_request(intent="Withdrawn", generation=2, observed=2), set(), {"u1"}, CleanupVerb.DELETE),
        ("it is refused, and so nobody asks again", a_request(failed="EvictionInvalid"), {"u1"}, {"u1"}, None),
        ("it is refused, and not needed", a_request(failed="EvictionInvalid"), set(), set(), CleanupVerb.DELETE),
    ],
)
def test_eviction_request_is_kept_withdrawn_or_deleted(
    case: str, request_: EvictionRequest, wanted: set[str], present: set[str], verb: CleanupVerb | None
) -> None:
    found = eviction_request_cleanups(a_view(request_), wanted=wanted, present=present)
    assert [it.verb for it in found] == ([verb] if verb else []), case
