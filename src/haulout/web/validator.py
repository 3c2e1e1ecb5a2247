"""Answers AdmissionReviews about NodeMaintenances: looks up what `haulout.maintenance.admission` wants to know.

All look-ups are live, and together they take no longer than the API server waits: a refusal that says what did not
answer is better than "context deadline exceeded". A review that says nothing new (finalizers, labels, the deletion of
an object) is answered without asking anybody, so that it passes while the API server, or we, are in trouble.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from haulout.core import duration
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
_MOST_AT_ONCE = 32  # look-ups; people create a few at a time, and whoever floods us must not flood the API server


class _Spec(Base, frozen=True):
    node_name: str = ""


class _Order(Object, frozen=True):
    """What is looked at of other NodeMaintenances: whatever else one has, it must not be able to break the check."""

    spec: _Spec = _Spec()


class Validator:
    """Judges reviews with the knowledge of `client`; `guard_quorum` is about clusters that are not OpenShift."""

    def __init__(self, client: Client, *, guard_quorum: bool = True) -> None:
        self._client = client
        self._guard_quorum = guard_quorum
        self._promises = Promises()
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    async def review(self, body: bytes | RawObject, *, within: timedelta = PATIENCE) -> RawObject:
        """Answer a review; raises `NotAReview` if it is none."""
        question = reviews.read(body)
        verdict = await self._judge(question, within * _SHARE)
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
        name, node = _name(question.object), admission.node_name(question.object)
        facts = await self._facts(name, node, within)
        verdict = admission.on_create(question.object, facts)
        # Nothing was waited for since the promises were last looked at, so nobody was let in meanwhile.
        if verdict.refusal is None and not question.dry_run:
            self._promises.add(name, node=node, now=self._client.clock.monotonic())
        return verdict

    async def _facts(self, name: str, node_name: str, within: timedelta) -> Facts:
        late = Unknown(f"the API server did not answer within {duration.format(within)}")
        facts = Facts(node=late, maintained=late)
        try:
            async with asyncio.timeout(within.total_seconds()), self._turns:
                began = self._client.clock.monotonic()
                node, listed = await asyncio.gather(self._node(node_name), self._maintained())
                facts = Facts(node=node, maintained=listed, quorum=_unchecked(late.why))
                if not isinstance(node, Node) or isinstance(listed, Unknown):
                    return facts
                while True:
                    maintained = {**self._promises.unseen(by=began, but=name), **listed}
                    quorum = None if node_name in maintained else await self._quorum(node, maintained)
                    facts = Facts(node=node, maintained=maintained, quorum=quorum)
                    # Whoever was let in while we looked may have taken what we counted on.
                    if {*self._promises.unseen(by=began, but=name)} <= {*maintained}:
                        return facts
        except TimeoutError:
            log.warning("checking NodeMaintenance %s for node %s: %s", name, node_name, late.why)
            return facts

    async def _node(self, name: str) -> Node | Unknown | None:
        try:
            return await etcd.find_node(self._client, name)
        except KubeError as error:
            return Unknown(str(error))

    async def _maintained(self) -> Mapping[str, str] | Unknown:
        try:
            found = await self._client.list(NODE_MAINTENANCES.of(_Order))
        except KubeError as error:
            return Unknown(str(error))
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
