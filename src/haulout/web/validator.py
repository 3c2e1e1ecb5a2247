"""Answers AdmissionReviews about NodeMaintenances: looks up what `haulout.maintenance.admission` wants to know.

All look-ups are live, and together they take no longer than the API server waits: a refusal that says what did not
answer is better than "context deadline exceeded". A review that says nothing new (finalizers, labels, the deletion of
an object) is answered without asking anybody, so that it passes while the API server, or we, are in trouble.
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
from haulout.web.promises import Promises
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


class _Order:
    """A new object that is being judged."""

    def __init__(self, obj: RawObject, *, dry_run: bool) -> None:
        self.object = obj
        self.name = _name(obj)
        self.node = admission.node_name(obj)
        self.dry_run = dry_run
        self.verdict: Verdict | None = None  # so far
        self.is_settled = False


class Validator:
    """Judges reviews with the knowledge of `client`; `guard_quorum` is about clusters that are not OpenShift."""

    def __init__(self, client: Client, *, guard_quorum: bool = True) -> None:
        self._client = client
        self._guard_quorum = guard_quorum
        self._promises = Promises()
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        self.reviews = Tally(REVIEWS)
        for verdict in (_ALLOWED, _REFUSED):
            self.reviews.add(verdict, amount=0)

    async def review(self, body: bytes | RawObject, *, within: timedelta = PATIENCE) -> RawObject:
        """Answer a review; raises `NotAReview` if it is none."""
        question = reviews.read(body)
        verdict = await self._judge(question, within * _SHARE)
        self.reviews.add(_ALLOWED if verdict.refusal is None else _REFUSED)
        if verdict.refusal is not None:
            log.info("refused to %s a NodeMaintenance: %s", question.operation.lower(), verdict.refusal)
        return reviews.answer(question, verdict)

    async def _judge(self, question: Question, within: timedelta) -> Verdict:
        match question.operation:
            case "CREATE":
                refusal = admission.wrong_type(question.object) or admission.before_looking(question.object)
                return Verdict(refusal) if refusal else await self._judge_new(question, within)
            case "UPDATE":
                return self._judge_change(question)
        return admission.LET_IN

    def _judge_change(self, question: Question) -> Verdict:
        old, new = question.old_object, question.object
        refusal = admission.wrong_type(new) or admission.wrong_type(old)
        if refusal:
            return Verdict(refusal)
        self._promises.stored(_name(new), now=self._client.clock.monotonic())
        return admission.on_update(old, new)

    async def _judge_new(self, question: Question, within: timedelta) -> Verdict:
        late = Unknown(f"the API server did not answer within {duration.format(within)}")
        order = _Order(question.object, dry_run=bool(question.dry_run))
        try:
            async with asyncio.timeout(within.total_seconds()), self._turns:
                while not order.is_settled:
                    await self._look(order)
        except TimeoutError:
            log.warning("checking NodeMaintenance %s for node %s: %s", order.name, order.node, late.why)
        return order.verdict or admission.on_create(question.object, Facts(node=late, maintained=late))

    async def _look(self, order: "_Order") -> None:
        """Judge by what is there, and then by what may be there in a moment.

        Who was let in a moment ago, and is not to be seen yet, may have been refused by somebody else. So if that is
        all that stands in the way, it is waited for.
        """
        clock = self._client.clock
        began = clock.monotonic()
        node, listed = await asyncio.gather(self._node(order.node), self._maintained())
        maintained = listed
        while True:
            order.verdict = await self._verdict(order, node, maintained)
            if order.verdict.refusal is not None:
                order.is_settled = maintained is listed
                break
            # From here on nothing is waited for until the promise is given: nobody comes in between.
            unseen = self._promises.unseen(by=began, but=order.name)
            if isinstance(maintained, Unknown) or unseen.keys() <= maintained.keys():
                self._promise(order)
                break
            maintained = {**unseen, **maintained}
        if not order.is_settled:
            await clock.sleep(_LOOK_AGAIN)

    async def _verdict(
        self, order: "_Order", node: Node | Unknown | None, maintained: Mapping[str, str] | Unknown
    ) -> Verdict:
        facts = Facts(node=node, maintained=maintained)
        verdict = admission.on_create(order.object, facts)
        if verdict.refusal is not None or not isinstance(node, Node) or isinstance(maintained, Unknown):
            return verdict
        quorum = await self._quorum(node, maintained)
        return admission.on_create(order.object, replace(facts, quorum=quorum))

    def _promise(self, order: "_Order") -> None:
        order.is_settled = True
        if not order.dry_run:
            self._promises.add(order.name, node=order.node, now=self._client.clock.monotonic())

    async def _node(self, name: str) -> Node | Unknown | None:
        try:
            return await etcd.find_node(self._client, name)
        except KubeError as error:
            return Unknown(str(error))

    async def _maintained(self) -> Mapping[str, str] | Unknown:
        try:
            found = await self._client.list(NODE_MAINTENANCES.of(_Maintenance))
        except KubeError as error:
            return Unknown(str(error))
        now = self._client.clock.monotonic()
        for it in found.items:
            self._promises.stored(it.name, now=now)
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
