"""The last responder of every Eviction: it calls the classic eviction, to which disruption budgets may say no.

Then it tries again, ever more rarely, up to every quarter of an hour, and says in its message what stands in the way.
It does not touch pods of DaemonSets and static pods: it says so, and has done what it can.
"""

from datetime import datetime, timedelta
from random import Random

from haulout.core.backoff import Backoff
from haulout.errors import ApiError, Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.lifecycle import LAST_RESPONDER
from haulout.kube.objects import RawObject
from haulout.kube.rows import MIRROR_ANNOTATION
from haulout_sandbox.controllers import conditions, edge, evictions
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.caches import Caches
from haulout_sandbox.controllers.evictions import EVICTIONS, Eviction
from haulout_sandbox.controllers.objects import Pod

_BACKOFF = Backoff(first=timedelta(seconds=10), factor=2, limit=timedelta(minutes=15), jitter=0.1)
_HEARTBEAT = timedelta(minutes=3)
_ENDING = "The pod has been evicted and is ending."


class ImperativeEvictor(Controller[str]):
    """Evicts the pods of Evictions that are its turn."""

    name = "imperative-evictor"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._evictions, self._pods = caches.of(EVICTIONS), caches.pods
        self._refusals: dict[str, tuple[int, datetime]] = {}  # by uid: how many in a row, when to try again
        self._evictions.subscribe(self._note)
        self._pods.subscribe(self._note_pod)

    def _note(self, old: Eviction | None, new: Eviction | None) -> None:
        if new is not None:
            self.queue.add(new.key)
        elif old is not None:
            self._refusals.pop(old.uid, None)

    def _note_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None and old is not None:
            for eviction in self._evictions.by("target", f"{old.namespace}/{old.uid}"):
                self.queue.add(eviction.key)

    async def sync(self, key: str) -> datetime | None:
        """Do what is to be done about one Eviction."""
        eviction = self._evictions.get(key)
        if eviction is None or not _has_turn(eviction):
            return None
        target = eviction.spec.target.pod
        pod = self._pods.get(f"{eviction.namespace}/{target.name}")
        if pod is None or pod.uid != target.uid or (pod.finished and not pod.deleting):
            await self._say(eviction, "The pod has left.", done=True)
            return None
        if reason := _untouchable(pod):
            await self._say(eviction, reason, done=True)
            return None
        return await self._beat(eviction, _ENDING) if pod.deleting else await self._try(eviction, pod)

    async def _try(self, eviction: Eviction, pod: Pod) -> datetime:
        now = self.clock.now()
        refusals, again_at = self._refusals.get(eviction.uid, (0, now))
        if again_at > now:
            return again_at
        problem = await self._evict(pod)
        if not problem:
            return await self._beat(eviction, _ENDING)
        again_at = now + _BACKOFF.delay(refusals + 1, self.random)
        self._refusals[eviction.uid] = refusals + 1, again_at
        await self._say(eviction, problem)
        return again_at

    async def _evict(self, pod: Pod) -> str:
        """Evict a pod; return why it does not go."""
        try:
            await self.client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)
        except (NotFound, Conflict):
            return ""  # it is gone, or is another one: the watch tells
        except ApiError as error:
            return " ".join((error.message, *(cause.message for cause in error.causes)))
        return ""

    async def _beat(self, eviction: Eviction, message: str) -> datetime:
        """Say that it is at work, if it has not said so for a while."""
        said = evictions.find(eviction.status.get("responders") or [], LAST_RESPONDER)
        last = said.get("heartbeatTime")
        due = None if last is None else conditions.instant(last) + _HEARTBEAT
        if due is not None and said.get("message") == message and due > self.clock.now():
            return due
        await self._say(eviction, message)
        return self.clock.now() + _HEARTBEAT

    async def _say(self, eviction: Eviction, message: str, *, done: bool = False) -> None:
        now = conditions.stamp(self.clock.now())
        more: RawObject = {"message": message, "heartbeatTime": now} | ({"completionTime": now} if done else {})
        async with edge.Writes(self._evictions) as writes:
            writes.made(await say(self.client, eviction, LAST_RESPONDER, more))


def _has_turn(eviction: Eviction) -> bool:
    if eviction.is_over or evictions.active_of(eviction.status) != LAST_RESPONDER:
        return False
    return "completionTime" not in evictions.find(eviction.status.get("responders") or [], LAST_RESPONDER)


async def say(client: Client, eviction: Eviction, responder: str, more: RawObject) -> Eviction | None:
    """Write what a responder says of itself, if the Eviction still is as it was seen."""
    told = eviction.status.get("responders") or []
    wanted = {"responders": [it | more if it["name"] == responder else it for it in told]}
    return await edge.write_status(client, EVICTIONS, eviction, seen=eviction.status, wanted=wanted)


def _untouchable(pod: Pod) -> str:
    owner = pod.controller
    if owner is not None and owner.kind == "DaemonSet":
        return "Pods of DaemonSets are not evicted."
    return "Static pods cannot be evicted." if MIRROR_ANNOTATION in pod.metadata.annotations else ""
