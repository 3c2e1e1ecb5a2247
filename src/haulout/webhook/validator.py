"""Validates AdmissionReviews of NodeMaintenances: looks up what `haulout.controllers.nodemaintenance.admission` needs.

All lookups are live, and together they end before the API server's timeout: a refusal that names the failed lookup is
better than "context deadline exceeded". A review that changes nothing relevant (finalizers, labels, the deletion of an
object) is allowed without lookups, so that it passes while the API server or the webhook has trouble.

An API server always sends a valid review. Any other client that reaches the port may send anything: its input is
validated first, and it gets a short text that says what is wrong.

Between our response and the moment at which the API server stores the object, a second NodeMaintenance for the same
node, or for another etcd member, would be validated against a list that shows neither. `RecentAdmissions` therefore
remembers each admission, and the second request waits for a list that shows the first object. A list begun
`STORED_WITHIN` after the admission is certain: it shows the object, or another admission plugin refused it.

A remembered admission alone never refuses a request, and delays it by at most `MAX_WAIT`: any client that reaches the
webhook can cause an admission to be remembered, and two replicas called at the same moment do not know of each other.
If two NodeMaintenances for one node are admitted, the controller executes one, and the other waits
(`haulout.controllers.nodemaintenance.decision`). Authenticated API servers share neither remembered admissions nor
lookup slots with unauthenticated callers, so that no other client can delay them.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec

from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import Base, Node, Object, RawObject
from haulout.api.resources import NODES
from haulout.controllers.nodemaintenance import admission, etcd_quorum
from haulout.controllers.nodemaintenance.admission import AdmissionObservation, AdmissionResult, LookupFailure
from haulout.controllers.nodemaintenance.etcd_quorum import QuorumResult, QuorumUnknown
from haulout.core import duration
from haulout.core.metrics import MetricVec, counter
from haulout.errors import KubeError
from haulout.kube.client import Client

log = logging.getLogger(__name__)

REVIEW_TIMEOUT = timedelta(seconds=15)  # of the API server, as registered
_TIMEOUT_SHARE = 0.9  # of the timeout: the rest is for the response
_RETRY_INTERVAL = timedelta(milliseconds=250)
_ALLOWED, _DENIED = "allowed", "denied"
# Users create a few objects at a time, and a flood of reviews must not flood the API server.
_MAX_CONCURRENT_LOOKUPS = 32

REVIEWS = counter(
    "haulout_webhook_reviews_total",
    "How many reviews of NodeMaintenances were answered.",
    "result",
    details="`result` is `allowed` or `denied`",
)

_API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
_FORBIDDEN = 403

STORED_WITHIN = timedelta(seconds=5)  # after our response, unless another admission plugin refuses
MAX_WAIT = timedelta(seconds=1)  # per request, for all remembered admissions together
_RETENTION = timedelta(minutes=1)  # longer than any list takes that a request waits for
_MAX_ADMISSIONS = 1000


class _Spec(Base, frozen=True):
    node_name: str = ""


class _Maintenance(Object, frozen=True):
    """The fields of other NodeMaintenances that the check reads; no other field can make decoding fail."""

    spec: _Spec = _Spec()


class _CallerState:
    """What the reviews of one kind of caller share: remembered admissions and lookup slots."""

    def __init__(self) -> None:
        self.recent_admissions = RecentAdmissions()
        self.lookups = asyncio.Semaphore(_MAX_CONCURRENT_LOOKUPS)


class AdmissionRequest(Base, frozen=True):
    """The fields of an AdmissionRequest that the webhook reads."""

    uid: str
    operation: str
    object: Any = None
    old_object: Any = None
    dry_run: bool | None = None


class _PendingCreate:
    """A CREATE request under validation, and what was found out about it so far."""

    def __init__(self, request: AdmissionRequest, caller_state: _CallerState) -> None:
        self.object: RawObject = request.object
        self.name = _name(self.object)
        self.node = admission.node_name(self.object)
        self.dry_run = bool(request.dry_run)
        self.caller_state = caller_state
        self.wait_deadline: float | None = None  # for lists that show the remembered admissions; None: not waiting yet
        self.provisional_decision: AdmissionResult | None = None  # by the last list, while waiting


class Validator:
    """Validates reviews; `guard_quorum` applies to clusters that are not OpenShift."""

    def __init__(self, client: Client, *, guard_quorum: bool = True) -> None:
        self._client = client
        self._guard_quorum = guard_quorum
        self._authenticated, self._unauthenticated = _CallerState(), _CallerState()
        self.reviews = MetricVec(REVIEWS)
        for label in (_ALLOWED, _DENIED):
            self.reviews.add(label, amount=0)

    async def review(
        self, body: bytes | RawObject, *, timeout: timedelta = REVIEW_TIMEOUT, authenticated: bool = False
    ) -> RawObject:
        """Answer a review; raise `InvalidReview` if the body is none. `authenticated`: the caller is an API server."""
        request = parse_request(body)
        caller_state = self._authenticated if authenticated else self._unauthenticated
        decision = await self._decide(request, caller_state, timeout * _TIMEOUT_SHARE)
        self.reviews.add(_ALLOWED if decision.refusal is None else _DENIED)
        if decision.refusal is not None:
            log.info("refused to %s a NodeMaintenance: %s", request.operation.lower(), decision.refusal)
        return build_response(request, decision)

    async def _decide(
        self, request: AdmissionRequest, caller_state: _CallerState, timeout: timedelta
    ) -> AdmissionResult:
        match request.operation:
            case "CREATE":
                refusal = admission.type_problem(request.object) or admission.problem_without_lookup(request.object)
                return (
                    AdmissionResult(refusal)
                    if refusal
                    else await self._decide_create(_PendingCreate(request, caller_state), timeout)
                )
            case "UPDATE":
                return self._decide_update(request, caller_state)
        return admission.ALLOWED

    def _decide_update(self, request: AdmissionRequest, caller_state: _CallerState) -> AdmissionResult:
        old, new = request.old_object, request.object
        refusal = admission.type_problem(new) or admission.type_problem(old)
        if refusal:
            return AdmissionResult(refusal)
        # An update proves that the API server has stored the object.
        caller_state.recent_admissions.mark_stored(_name(new), now=self._client.clock.monotonic())
        return admission.validate_update(old, new)

    async def _decide_create(self, pending: _PendingCreate, timeout: timedelta) -> AdmissionResult:
        timed_out = LookupFailure(f"the API server did not answer within {duration.format(timeout)}")
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await self._retry_until_decided(pending)
        except TimeoutError:
            # By a complete list, made for this request. Only remembered admissions kept it waiting.
            if pending.provisional_decision is not None:
                return pending.provisional_decision
            log.warning("checking NodeMaintenance %s for node %s: %s", pending.name, pending.node, timed_out.reason)
        return admission.validate_create(
            pending.object, AdmissionObservation(node=timed_out, nodes_in_maintenance=timed_out)
        )

    async def _retry_until_decided(self, pending: _PendingCreate) -> AdmissionResult:
        while True:
            async with pending.caller_state.lookups:
                decision = await self._try_decide(pending)
            if decision is not None:
                return decision
            await self._client.clock.sleep(_RETRY_INTERVAL)

    async def _try_decide(self, pending: _PendingCreate) -> AdmissionResult | None:
        """Decide by what the API server shows; None: a remembered admission is a reason to list again.

        Another admission plugin may have refused a remembered object, or its sender may never have called the API
        server. So a remembered admission refuses nothing, and this request waits at most `MAX_WAIT` for a list that
        shows it.
        """
        # Before the list: an object that is stored while it runs may not be in it.
        started_at = self._client.clock.monotonic()
        node, listed = await asyncio.gather(
            self._find_node(pending.node), self._nodes_in_maintenance(pending.caller_state)
        )
        decision = await self._check(pending, node, listed)
        if decision.refusal is not None or isinstance(listed, LookupFailure):
            return decision
        maintained = listed
        # No await between the last check of remembered admissions and adding one: no other request can interleave.
        while self._may_wait(pending):
            unlisted = pending.caller_state.recent_admissions.possibly_unlisted(
                list_started=started_at, excluding=pending.name
            )
            if unlisted.keys() <= maintained.keys():
                break
            maintained = {**unlisted, **maintained}
            if (await self._check(pending, node, maintained)).refusal is not None:
                pending.provisional_decision = decision
                return None
        self._remember_admission(pending)
        return decision

    def _may_wait(self, pending: _PendingCreate) -> bool:
        """Return whether the request may wait for remembered admissions; the first call starts the deadline."""
        now = self._client.clock.monotonic()
        if pending.wait_deadline is None:
            pending.wait_deadline = now + MAX_WAIT.total_seconds()
        return now < pending.wait_deadline

    async def _check(
        self, pending: _PendingCreate, node: Node | LookupFailure | None, maintained: Mapping[str, str] | LookupFailure
    ) -> AdmissionResult:
        facts = AdmissionObservation(node=node, nodes_in_maintenance=maintained)
        decision = admission.validate_create(pending.object, facts)
        if decision.refusal is not None or not isinstance(node, Node) or isinstance(maintained, LookupFailure):
            return decision
        quorum = await self._check_quorum(node, maintained)
        return admission.validate_create(pending.object, replace(facts, quorum=quorum))

    def _remember_admission(self, pending: _PendingCreate) -> None:
        # A dry run stores nothing, so no list will ever show it.
        if not pending.dry_run:
            pending.caller_state.recent_admissions.add(
                pending.name, node=pending.node, now=self._client.clock.monotonic()
            )

    async def _find_node(self, name: str) -> Node | LookupFailure | None:
        try:
            return await self._client.find(NODES, name)
        except KubeError as error:
            return LookupFailure(str(error))

    async def _nodes_in_maintenance(self, caller_state: _CallerState) -> Mapping[str, str] | LookupFailure:
        try:
            maintenances = await self._client.list(NODE_MAINTENANCES.with_model(_Maintenance))
        except KubeError as error:
            return LookupFailure(str(error))
        now = self._client.clock.monotonic()
        for maintenance in maintenances.items:
            caller_state.recent_admissions.mark_stored(maintenance.name, now=now)
        return {maintenance.spec.node_name: maintenance.name for maintenance in maintenances.items}

    async def _check_quorum(self, node: Node, maintained: Mapping[str, str]) -> QuorumResult | LookupFailure | None:
        try:
            return await etcd_quorum.check_quorum(
                self._client, node, nodes_in_maintenance=maintained, check_without_openshift=self._guard_quorum
            )
        except KubeError as error:
            return _unchecked(str(error))
        except QuorumUnknown as error:
            return LookupFailure(str(error))


def _unchecked(why: str) -> LookupFailure:
    return LookupFailure(f"could not check whether etcd keeps its quorum, please try again: {why}")


def _name(obj: RawObject) -> str:
    metadata = obj.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    return str(fields.get("name") or fields.get("uid") or "")


class InvalidReview(ValueError):
    """The body is not an AdmissionReview with a request; the message is for the sender."""


class _Review(Base, frozen=True):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


def parse_request(body: bytes | RawObject) -> AdmissionRequest:
    """Return the request of an AdmissionReview; raise `InvalidReview` if there is none."""
    try:
        review = msgspec.convert(body, _Review) if isinstance(body, dict) else msgspec.json.decode(body, type=_Review)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidReview(f"expected an {_KIND} in JSON: {error}") from None
    if (review.api_version, review.kind) != (_API_VERSION, _KIND):
        found = f"{review.kind or 'no kind'} of {review.api_version or 'no version'}"
        raise InvalidReview(f"expected an {_KIND} of {_API_VERSION}, found {found}")
    if review.request is None:
        raise InvalidReview(f"expected an {_KIND} with a request, found none")
    return review.request


def build_response(request: AdmissionRequest, decision: AdmissionResult) -> RawObject:
    # The API server rejects a response with another uid (VerifyAdmissionResponse in
    # staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/request/admissionreview.go).
    response: RawObject = {"uid": request.uid, "allowed": decision.refusal is None}
    if decision.refusal is not None:
        status = {"status": "Failure", "message": decision.refusal, "reason": "Forbidden", "code": _FORBIDDEN}
        response["status"] = status
    if decision.warnings:
        response["warnings"] = list(decision.warnings)
    return {"apiVersion": _API_VERSION, "kind": _KIND, "response": response}


@dataclass(slots=True)
class _Admission:
    node: str
    unlisted_until: float  # a list begun before this instant may not show the object


class RecentAdmissions:
    """Remembered admissions, the oldest evicted first; instants are those of `Clock.monotonic`."""

    def __init__(self, *, max_size: int = _MAX_ADMISSIONS) -> None:
        self._max_size = max_size
        self._admissions: OrderedDict[str, _Admission] = OrderedDict()  # by object name, the oldest first

    def __len__(self) -> int:
        return len(self._admissions)

    def add(self, name: str, *, node: str, now: float) -> None:
        self._admissions[name] = _Admission(node, now + STORED_WITHIN.total_seconds())
        self._admissions.move_to_end(name)
        oldest = now - _RETENTION.total_seconds()
        while len(self._admissions) > self._max_size or next(iter(self._admissions.values())).unlisted_until < oldest:
            self._admissions.popitem(last=False)

    def mark_stored(self, name: str, *, now: float) -> None:
        """Record that an object is stored: any later list shows it, unless it was deleted again."""
        if admission := self._admissions.get(name):
            admission.unlisted_until = min(admission.unlisted_until, now)

    def possibly_unlisted(self, *, list_started: float, excluding: str) -> dict[str, str]:
        """Return node → object name for objects that a list begun at `list_started` may not show.

        `excluding` is the name of an object to leave out.
        """
        unlisted = (
            (name, admission)
            for name, admission in self._admissions.items()
            if list_started <= admission.unlisted_until and name != excluding
        )
        return {admission.node: name for name, admission in unlisted}
