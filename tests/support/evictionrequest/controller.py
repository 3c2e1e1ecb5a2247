"""EvictionRequest controller: combines all requests for a pod into one Eviction, whose responders act in turn.

Its keys are pods (`namespace/uid`), not requests, so that everything about a pod is decided in one pass. The rules are
in `decision`. An Eviction is owned by its requests, and is garbage collected after the last of them is deleted.
"""

from datetime import datetime
from random import Random

from haulout.api.evictionrequest import EVICTED
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.informers import InformerFactory, in_namespace
from haulout_sandbox.controllers.objects import Pod
from support.evictionrequest import decision
from support.evictionrequest.decision import (
    EVICTION_REQUESTS,
    EVICTIONS,
    Eviction,
    EvictionObservation,
    EvictionRequest,
)


class EvictionRequestController(Controller[str]):
    """Coordinates evictions."""

    name = "evictionrequest"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._requests = informers.informer_for(EVICTION_REQUESTS, indexes=decision.INDEXES)
        self._evictions = informers.informer_for(EVICTIONS, indexes=decision.INDEXES)
        self._pods = informers.pods
        self._pod_gone_at: dict[str, datetime] = {}
        self._requests.subscribe(self._on_change)
        self._evictions.subscribe(self._on_change)
        self._pods.subscribe(self._on_pod_change)

    def _on_change(self, old: EvictionRequest | Eviction | None, new: EvictionRequest | Eviction | None) -> None:
        obj = new or old
        if obj is not None:
            self.queue.add(decision.target_key(obj))

    def _on_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is not None and self._evictions.by_index("target", f"{pod.namespace}/{pod.uid}"):
            self.queue.add(f"{pod.namespace}/{pod.uid}")

    async def sync(self, key: str) -> datetime | None:
        """Reconcile the requests and Evictions of one pod."""
        requests = sorted(self._requests.by_index("target", key), key=lambda element: element.creation_order)
        pod_evictions = list(self._evictions.by_index("target", key))
        if not requests and not pod_evictions:
            self._pod_gone_at.pop(key, None)
            return None
        pod = self._target_pod(key, requests, pod_evictions)
        valid = await self._reject_invalid(requests, pod, has_evictions=bool(pod_evictions))
        current = decision.current_eviction(pod_evictions)
        unserved = next((element for element in valid if element.wants_eviction), None)
        if unserved is not None and (current is None or (current.is_finished and not _succeeded(current))):
            current = await self._create_eviction(unserved)
            pod_evictions.append(current)
        for request in valid:
            await self._update_request_status(request, current)
        requeue_times = [
            await self._advance_eviction(element, requests, pod) for element in pod_evictions if not element.is_finished
        ]
        return min((requeue_time for requeue_time in requeue_times if requeue_time is not None), default=None)

    def _target_pod(self, key: str, requests: list[EvictionRequest], pod_evictions: list[Eviction]) -> Pod | None:
        name = next(element.spec.target.pod.name for group in (requests, pod_evictions) for element in group)
        return self._pods.get(f"{key.partition('/')[0]}/{name}")

    async def _reject_invalid(
        self, requests: list[EvictionRequest], pod: Pod | None, *, has_evictions: bool
    ) -> list[EvictionRequest]:
        """Mark invalid requests as failed; return the others."""
        valid = []
        for request in requests:
            if decision.is_final(request):
                continue
            problem = decision.validation_problem(request, pod, has_evictions=has_evictions)
            if problem:
                await self._write_request_status(request, decision.invalid_status(request, problem, self.clock.now()))
            else:
                valid.append(request)
        return valid

    async def _create_eviction(self, request: EvictionRequest) -> Eviction:
        existing_names = [existing.name for existing in in_namespace(self._evictions, request.namespace)]
        name = decision.unused_eviction_name(request.spec.target.pod.name, existing_names)
        async with object_control.WriteBarrier(self._evictions) as writes:
            eviction = await object_control.create(self.client, EVICTIONS, decision.new_eviction(name, request))
            writes.record(eviction)
        return eviction

    async def _update_request_status(self, request: EvictionRequest, eviction: Eviction | None) -> None:
        await self._write_request_status(request, decision.request_status(request, eviction, self.clock.now()))

    async def _write_request_status(self, request: EvictionRequest, desired: dict[str, object]) -> None:
        async with object_control.WriteBarrier(self._requests) as writes:
            writes.record(
                await object_control.update_status(
                    self.client, EVICTION_REQUESTS, request, current=request.status, desired=desired
                )
            )

    async def _advance_eviction(
        self, eviction: Eviction, requests: list[EvictionRequest], pod: Pod | None
    ) -> datetime | None:
        now = self.clock.now()
        if pod is not None and pod.uid != eviction.spec.target.pod.uid:
            pod = None
        key = decision.target_key(eviction)
        pod_ended_at = self._pod_gone_at.setdefault(key, now) if pod is None else pod.metadata.deletion_timestamp
        report_deadline = now if pod_ended_at is None else pod_ended_at + decision.COMPLETION_GRACE_PERIOD
        observation = EvictionObservation(
            pod=pod, requests=requests, waits_for_responder=report_deadline > now, now=now
        )
        desired, requeue_at = decision.next_status(eviction, observation)
        if not desired:
            return report_deadline
        async with object_control.WriteBarrier(self._evictions) as writes:
            eviction = await self._update_metadata(eviction, requests, desired, writes)
            writes.record(
                await object_control.update_status(
                    self.client, EVICTIONS, eviction, current=eviction.status, desired=desired
                )
            )
        return requeue_at

    async def _update_metadata(
        self,
        eviction: Eviction,
        requests: list[EvictionRequest],
        desired: dict[str, object],
        writes: object_control.WriteBarrier,
    ) -> Eviction:
        """Update the labels and owners of an Eviction."""
        targets = desired.get("targetResponders")
        names = [element["name"] for element in targets] if isinstance(targets, list) else []
        labels = decision.eviction_labels(requests, names)
        current_owners = [{"uid": element.uid} for element in eviction.metadata.owner_references]
        owners = [decision.owner_reference(element) for element in requests if not element.is_being_deleted]
        missing = [element for element in owners if {"uid": element["uid"]} not in current_owners]
        if not missing and labels.items() <= eviction.labels.items():
            return eviction
        kept_owners = [
            {"apiVersion": element.api_version, "kind": element.kind, "name": element.name, "uid": element.uid}
            for element in eviction.metadata.owner_references
        ]
        changes = {"metadata": {"labels": labels, "ownerReferences": [*kept_owners, *missing]}}
        changed = await object_control.patch(self.client, EVICTIONS, eviction, changes)
        writes.record(changed)
        return changed


def _succeeded(eviction: Eviction) -> bool:
    return conditions.is_true(eviction.status, EVICTED)
