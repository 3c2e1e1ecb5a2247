"""EvictionRequests: makes one Eviction of all requests for a pod, and has its responders act in turn.

Its keys are the pods that are meant (`namespace/uid`), not the requests: so what is decided about a pod is decided in
one place. How is in `evictions`. An Eviction belongs to its requests, and is garbage when the last of them is gone.
"""

from datetime import datetime
from random import Random

from haulout.kube.lifecycle import EVICTED
from haulout_sandbox.controllers import conditions, edge, evictions
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.caches import Caches, in_namespace
from haulout_sandbox.controllers.evictions import EVICTION_REQUESTS, EVICTIONS, Eviction, EvictionRequest, Outlook
from haulout_sandbox.controllers.objects import Pod


class EvictionRequests(Controller[str]):
    """Coordinates evictions."""

    name = "evictionrequest"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._requests, self._evictions = caches.of(EVICTION_REQUESTS), caches.of(EVICTIONS)
        self._pods = caches.pods
        self._gone_at: dict[str, datetime] = {}
        self._requests.subscribe(self._note)
        self._evictions.subscribe(self._note)
        self._pods.subscribe(self._note_pod)

    def _note(self, old: EvictionRequest | Eviction | None, new: EvictionRequest | Eviction | None) -> None:
        thing = new or old
        if thing is not None:
            self.queue.add(evictions.target_key(thing))

    def _note_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is not None and self._evictions.by("target", f"{pod.namespace}/{pod.uid}"):
            self.queue.add(f"{pod.namespace}/{pod.uid}")

    async def sync(self, key: str) -> datetime | None:
        """Look after one pod that is to leave."""
        requests = sorted(self._requests.by("target", key), key=lambda it: it.age_key)
        found = list(self._evictions.by("target", key))
        if not requests and not found:
            self._gone_at.pop(key, None)
            return None
        pod = self._pod(key, requests, found)
        valid = await self._refuse_invalid(requests, pod, has_evictions=bool(found))
        counts = evictions.relevant(found)
        wanted = next((it for it in valid if it.wants_eviction), None)
        if wanted is not None and (counts is None or (counts.is_over and not _succeeded(counts))):
            counts = await self._begin(wanted)
            found.append(counts)
        for request in valid:
            await self._tell_request(request, counts)
        wakes = [await self._progress(it, requests, pod) for it in found if not it.is_over]
        return min((at for at in wakes if at is not None), default=None)

    def _pod(self, key: str, requests: list[EvictionRequest], found: list[Eviction]) -> Pod | None:
        name = next(it.spec.target.pod.name for them in (requests, found) for it in them)
        return self._pods.get(f"{key.partition('/')[0]}/{name}")

    async def _refuse_invalid(
        self, requests: list[EvictionRequest], pod: Pod | None, *, has_evictions: bool
    ) -> list[EvictionRequest]:
        """Tell requests that make no sense so; return the others."""
        valid = []
        for request in requests:
            if evictions.is_settled(request):
                continue
            problem = evictions.problem_of(request, pod, has_evictions=has_evictions)
            if problem:
                await self._write_request(request, evictions.invalid_status(request, problem, self.clock.now()))
            else:
                valid.append(request)
        return valid

    async def _begin(self, request: EvictionRequest) -> Eviction:
        taken = [it.name for it in in_namespace(self._evictions, request.namespace)]
        name = evictions.free_name(request.spec.target.pod.name, taken)
        async with edge.Writes(self._evictions) as writes:
            made = await edge.create(self.client, EVICTIONS, evictions.new_eviction(name, request))
            writes.made(made)
        return made

    async def _tell_request(self, request: EvictionRequest, eviction: Eviction | None) -> None:
        await self._write_request(request, evictions.request_status(request, eviction, self.clock.now()))

    async def _write_request(self, request: EvictionRequest, wanted: dict[str, object]) -> None:
        async with edge.Writes(self._requests) as writes:
            writes.made(
                await edge.write_status(self.client, EVICTION_REQUESTS, request, seen=request.status, wanted=wanted)
            )

    async def _progress(self, eviction: Eviction, requests: list[EvictionRequest], pod: Pod | None) -> datetime | None:
        now = self.clock.now()
        if pod is not None and pod.uid != eviction.spec.target.pod.uid:
            pod = None
        key = evictions.target_key(eviction)
        ended_at = self._gone_at.setdefault(key, now) if pod is None else pod.metadata.deletion_timestamp
        reported_by = now if ended_at is None else ended_at + evictions.GRACEFUL_COMPLETION
        seen = Outlook(pod=pod, requests=requests, waits_for_responder=reported_by > now, now=now)
        wanted, wakes_at = evictions.progressed(eviction, seen)
        if not wanted:
            return reported_by
        async with edge.Writes(self._evictions) as writes:
            eviction = await self._describe(eviction, requests, wanted, writes)
            writes.made(await edge.write_status(self.client, EVICTIONS, eviction, seen=eviction.status, wanted=wanted))
        return wakes_at

    async def _describe(
        self, eviction: Eviction, requests: list[EvictionRequest], wanted: dict[str, object], writes: edge.Writes
    ) -> Eviction:
        """See to the labels and owners of an Eviction."""
        targets = wanted.get("targetResponders")
        names = [it["name"] for it in targets] if isinstance(targets, list) else []
        labels = evictions.labels_of(requests, names)
        known = [{"uid": it.uid} for it in eviction.metadata.owner_references]
        owners = [evictions.owner_reference(it) for it in requests if not it.deleting]
        missing = [it for it in owners if {"uid": it["uid"]} not in known]
        if not missing and labels.items() <= eviction.labels.items():
            return eviction
        kept = [
            {"apiVersion": it.api_version, "kind": it.kind, "name": it.name, "uid": it.uid}
            for it in eviction.metadata.owner_references
        ]
        change = {"metadata": {"labels": labels, "ownerReferences": [*kept, *missing]}}
        changed = await edge.change(self.client, EVICTIONS, eviction, change)
        writes.made(changed)
        return changed


def _succeeded(eviction: Eviction) -> bool:
    return conditions.is_true(eviction.status, EVICTED)
