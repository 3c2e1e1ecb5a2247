"""Answers AdmissionReviews about NodeMaintenances: looks up what `haulout.maintenance.admission` wants to know.

All look-ups are live, and together they take no longer than the API server waits: a refusal that says what did not
answer is better than "context deadline exceeded". A review that says nothing new (finalizers, labels, the deletion of
an object) is answered without asking anybody, so that it passes while the API server, or we, are in trouble.

Only what the API server shows refuses an order. An admission that no list shows yet makes a later order wait for up to
a second (`haulout.web.promises`). Callers who prove that they are the API server share neither the memory nor the
look-ups of those who do not, so that nobody else delays them.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from haulout.core import duration
from haulout.core.metering import Metric, Tally
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.objects import Base, Node, Object, RawObject
from haulout.maintenance import admission, etcd
from haulout.maintenance.admission import Facts, Unknown, Verdict
from haulout.maintenance.quorum import Judgement, QuorumUnknown
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.web import reviews
from haulout.web.promises import MAX_WAIT, Promises
from haulout.web.reviews import Question

log = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=15)  # of an API server, by our registration
_SHARE = 0.9  # of that patience: the rest is for the way back
_LOOK_AGAIN = timedelta(milliseconds=250)
_ALLOWED, _REFUSED = "allowed", "refused"
_MOST_AT_ONCE = 32  # look-ups; people create a few at a time, and whoever floods us must not flood the API server


REVIEWS = Metric(
    "haulout_webhook_reviews_total",
    "How many reviews of NodeMaintenances were answered.",
    ("verdict",),
    more="`verdict` is `allowed` or `refused`",
)


class _Spec(Base, frozen=True):
    node_name: str = ""


class _Maintenance(Object, frozen=True):
    """What is looked at of other NodeMaintenances: whatever else one has, it must not be able to break the check."""

    spec: _Spec = _Spec()


class _Lane:
    """What reviews of one kind of caller share: remembered admissions, and turns for look-ups."""

    def __init__(self) -> None:
        self.promises = Promises()
        self.turns = asyncio.Semaphore(_MOST_AT_ONCE)


class _Order:
    """A new object that is being judged."""

    def __init__(self, question: Question, lane: _Lane) -> None:
        self.object: RawObject = question.object
        self.name = _name(self.object)
        self.node = admission.node_name(self.object)
        self.dry_run = bool(question.dry_run)
        self.lane = lane
        self.waits_until: float | None = None  # for lists that show what is remembered; None: it has not waited yet
        self.admission: Verdict | None = None  # by the last list, while it waits


class Validator:
    """Judges reviews with the knowledge of `client`; `guard_quorum` is about clusters that are not OpenShift."""

    def __init__(self, client: Client, *, guard_quorum: bool = True) -> None:
        self._client = client
        self._guard_quorum = guard_quorum
        self._authenticated, self._unauthenticated = _Lane(), _Lane()
        self.reviews = Tally(REVIEWS)
        for verdict in (_ALLOWED, _REFUSED):
            self.reviews.add(verdict, amount=0)

    async def review(
        self, body: bytes | RawObject, *, within: timedelta = PATIENCE, authenticated: bool = False
    ) -> RawObject:
        """Answer a review; raises `NotAReview` if it is none. `authenticated`: the caller is known as an API server."""
        question = reviews.read(body)
        lane = self._authenticated if authenticated else self._unauthenticated
        verdict = await self._judge(question, lane, within * _SHARE)
        self.reviews.add(_ALLOWED if verdict.refusal is None else _REFUSED)
        if verdict.refusal is not None:
            log.info("refused to %s a NodeMaintenance: %s", question.operation.lower(), verdict.refusal)
        return reviews.answer(question, verdict)

    async def _judge(self, question: Question, lane: _Lane, within: timedelta) -> Verdict:
        match question.operation:
            case "CREATE":
                refusal = admission.wrong_type(question.object) or admission.before_looking(question.object)
                return Verdict(refusal) if refusal else await self._judge_new(_Order(question, lane), within)
            case "UPDATE":
                return self._judge_change(question, lane)
        return admission.LET_IN

    def _judge_change(self, question: Question, lane: _Lane) -> Verdict:
        old, new = question.old_object, question.object
        refusal = admission.wrong_type(new) or admission.wrong_type(old)
        if refusal:
            return Verdict(refusal)
        lane.promises.stored(_name(new), now=self._client.clock.monotonic())
        return admission.on_update(old, new)

    async def _judge_new(self, order: _Order, within: timedelta) -> Verdict:
        late = Unknown(f"the API server did not answer within {duration.format(within)}")
        try:
            async with asyncio.timeout(within.total_seconds()):
                return await self._settle(order)
        except TimeoutError:
            if order.admission is not None:
                return order.admission
            log.warning("checking NodeMaintenance %s for node %s: %s", order.name, order.node, late.why)
        return admission.on_create(order.object, Facts(node=late, maintained=late))

    async def _settle(self, order: _Order) -> Verdict:
        while True:
            async with order.lane.turns:
                verdict = await self._look(order)
            if verdict is not None:
                return verdict
            await self._client.clock.sleep(_LOOK_AGAIN)

    async def _look(self, order: _Order) -> Verdict | None:
        """Judge by what the API server shows; None if a remembered admission is a reason to look again.

        Whoever was admitted a moment ago may have been refused by somebody else, or may never have asked the API
        server. So it does not refuse this order, and this order waits no longer than `MAX_WAIT` for a list to show it.
        """
        began = self._client.clock.monotonic()
        node, listed = await asyncio.gather(self._node(order.node), self._maintained(order.lane))
        verdict = await self._verdict(order, node, listed)
        if verdict.refusal is not None or isinstance(listed, Unknown):
            return verdict
        maintained = listed
        # Between the last look at what is remembered and adding to it nothing is awaited: no other order comes between.
        while self._may_wait(order):
            unseen = order.lane.promises.unseen(by=began, but=order.name)
            if unseen.keys() <= maintained.keys():
                break
            maintained = {**unseen, **maintained}
            if (await self._verdict(order, node, maintained)).refusal is not None:
                order.admission = verdict
                return None
        self._remember(order)
        return verdict

    def _may_wait(self, order: _Order) -> bool:
        """Tell whether an order may wait for remembered admissions; the first call starts its time."""
        now = self._client.clock.monotonic()
        if order.waits_until is None:
            order.waits_until = now + MAX_WAIT.total_seconds()
        return now < order.waits_until

    async def _verdict(
        self, order: _Order, node: Node | Unknown | None, maintained: Mapping[str, str] | Unknown
    ) -> Verdict:
        facts = Facts(node=node, maintained=maintained)
        verdict = admission.on_create(order.object, facts)
        if verdict.refusal is not None or not isinstance(node, Node) or isinstance(maintained, Unknown):
            return verdict
        quorum = await self._quorum(node, maintained)
        return admission.on_create(order.object, replace(facts, quorum=quorum))

    def _remember(self, order: _Order) -> None:
        if not order.dry_run:
            order.lane.promises.add(order.name, node=order.node, now=self._client.clock.monotonic())

    async def _node(self, name: str) -> Node | Unknown | None:
        try:
            return await etcd.find_node(self._client, name)
        except KubeError as error:
            return Unknown(str(error))

    async def _maintained(self, lane: _Lane) -> Mapping[str, str] | Unknown:
        try:
            found = await self._client.list(NODE_MAINTENANCES.of(_Maintenance))
        except KubeError as error:
            return Unknown(str(error))
        now = self._client.clock.monotonic()
        for it in found.items:
            lane.promises.stored(it.name, now=now)
        return {it.spec.node_name: it.name for it in found.items}

    async def _quorum(self, node: Node, maintained: Mapping[str, str]) -> Judgement | Unknown | None:
        try:
            return await etcd.judge(self._client, node, maintained=maintained, elsewhere=self._guard_quorum)
        except KubeError as error:
            return _unchecked(str(error))
        except QuorumUnknown as error:
            return Unknown(str(error))


def _unchecked(why: str) -> Unknown:
    return Unknown(f"could not check whether etcd keeps its quorum, please try again: {why}")


def _name(obj: RawObject) -> str:
    metadata = obj.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return str(known.get("name") or known.get("uid") or "")
