"""The imperative evictor: the last responder of every Eviction, which calls the eviction subresource.

PodDisruptionBudgets may refuse that call. The evictor then retries with growing intervals, up to 15 minutes, and
reports the obstacle in its message. It does not evict pods of DaemonSets and static pods: it reports so and completes.
"""

from datetime import datetime, timedelta
from random import Random

from haulout.api.evictionrequest import IMPERATIVE_EVICTION_RESPONDER
from haulout.api.objects import MIRROR_ANNOTATION, RawObject
from haulout.core.backoff import Backoff
from haulout.errors import ApiError, Conflict, NotFound
from haulout.kube.client import Client
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.controllers.objects import Pod
from support.evictionrequest import decision
from support.evictionrequest.decision import EVICTIONS, Eviction

_BACKOFF = Backoff(first=timedelta(seconds=10), factor=2, limit=timedelta(minutes=15), jitter=0.1)
_HEARTBEAT = timedelta(minutes=3)
_ENDING_MESSAGE = "The pod has been evicted and is ending."


class ImperativeEvictor(Controller[str]):
    """Evicts the pods of Evictions whose active responder it is."""

    name = "imperative-evictor"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._evictions, self._pods = informers.informer_for(EVICTIONS, indexes=decision.INDEXES), informers.pods
        self._rejections: dict[str, tuple[int, datetime]] = {}  # by uid: consecutive refusals, and when to retry
        self._evictions.subscribe(self._on_eviction_change)
        self._pods.subscribe(self._on_pod_change)

    def _on_eviction_change(self, old: Eviction | None, new: Eviction | None) -> None:
        if new is not None:
            self.queue.add(new.key)
        elif old is not None:
            self._rejections.pop(old.uid, None)

    def _on_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        if new is None and old is not None:
            for eviction in self._evictions.by_index("target", f"{old.namespace}/{old.uid}"):
                self.queue.add(eviction.key)

    async def sync(self, key: str) -> datetime | None:
        """Reconcile one Eviction."""
        eviction = self._evictions.get(key)
        if eviction is None or not _is_active_responder(eviction):
            return None
        target = eviction.spec.target.pod
        pod = self._pods.get(f"{eviction.namespace}/{target.name}")
        if pod is None or pod.uid != target.uid or (pod.is_finished and not pod.is_being_deleted):
            await self._report(eviction, "The pod has left.", is_completed=True)
            return None
        if reason := _not_evictable_reason(pod):
            await self._report(eviction, reason, is_completed=True)
            return None
        return (
            await self._heartbeat(eviction, _ENDING_MESSAGE)
            if pod.is_being_deleted
            else await self._try_eviction(eviction, pod)
        )

    async def _try_eviction(self, eviction: Eviction, pod: Pod) -> datetime:
        now = self.clock.now()
        rejections, retry_at = self._rejections.get(eviction.uid, (0, now))
        if retry_at > now:
            return retry_at
        problem = await self._evict(pod)
        if not problem:
            return await self._heartbeat(eviction, _ENDING_MESSAGE)
        retry_at = now + _BACKOFF.delay(rejections + 1, self.random)
        self._rejections[eviction.uid] = rejections + 1, retry_at
        await self._report(eviction, problem)
        return retry_at

    async def _evict(self, pod: Pod) -> str:
        """Evict a pod; return the reason if the eviction is refused."""
        try:
            await self.client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)
        except (NotFound, Conflict):
            return ""  # deleted or replaced: a watch event follows
        except ApiError as error:
            return " ".join((error.message, *(cause.message for cause in error.causes)))
        return ""

    async def _heartbeat(self, eviction: Eviction, message: str) -> datetime:
        """Update the heartbeat if the last one is old."""
        responder = decision.find_responder(eviction.status.get("responders") or [], IMPERATIVE_EVICTION_RESPONDER)
        last_heartbeat = responder.get("heartbeatTime")
        next_heartbeat = None if last_heartbeat is None else conditions.parse_time(last_heartbeat) + _HEARTBEAT
        if next_heartbeat is not None and responder.get("message") == message and next_heartbeat > self.clock.now():
            return next_heartbeat
        await self._report(eviction, message)
        return self.clock.now() + _HEARTBEAT

    async def _report(self, eviction: Eviction, message: str, *, is_completed: bool = False) -> None:
        now = conditions.format_time(self.clock.now())
        fields: RawObject = {"message": message, "heartbeatTime": now} | (
            {"completionTime": now} if is_completed else {}
        )
        async with object_control.WriteBarrier(self._evictions) as writes:
            writes.record(await update_responder(self.client, eviction, IMPERATIVE_EVICTION_RESPONDER, fields))


def _is_active_responder(eviction: Eviction) -> bool:
    if eviction.is_finished or decision.active_responder(eviction.status) != IMPERATIVE_EVICTION_RESPONDER:
        return False
    return "completionTime" not in decision.find_responder(
        eviction.status.get("responders") or [], IMPERATIVE_EVICTION_RESPONDER
    )


async def update_responder(client: Client, eviction: Eviction, responder: str, fields: RawObject) -> Eviction | None:
    """Write a responder's status fields, if the Eviction is unchanged."""
    responders = eviction.status.get("responders") or []
    desired = {"responders": [entry | fields if entry["name"] == responder else entry for entry in responders]}
    return await object_control.update_status(client, EVICTIONS, eviction, current=eviction.status, desired=desired)


def _not_evictable_reason(pod: Pod) -> str:
    owner = pod.controller
    if owner is not None and owner.kind == "DaemonSet":
        return "Pods of DaemonSets are not evicted."
    return "Static pods cannot be evicted." if MIRROR_ANNOTATION in pod.metadata.annotations else ""
