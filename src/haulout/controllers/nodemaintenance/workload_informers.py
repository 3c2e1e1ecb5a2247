"""Informers for workloads, which run only while a NodeMaintenance requests recovery."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from haulout.api import workloads
from haulout.api.nodemaintenance import NodeMaintenance, RecoveryStatus
from haulout.api.objects import Pod
from haulout.api.resources import PODS
from haulout.api.workloads import WORKLOAD_KINDS, ControlledPod, ScaledWorkload, WorkloadRecord, WorkloadReference
from haulout.controllers.nodemaintenance import recovery
from haulout.controllers.nodemaintenance.recovery import RecoveryObservation
from haulout.errors import HauloutError, KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.informer_set import InformerSet
from haulout.kube.reflector import ListWatch

_SYNC_TIMEOUT = timedelta(seconds=10)


class WorkloadInformers:
    """Informers for all workload kinds. `enqueue` is called with the names of maintenances whose workloads changed."""

    def __init__(self, client: Client, *, enqueue: Callable[[str], object]) -> None:
        self._client = client
        self._enqueue = enqueue
        # By maintenance: workloads whose recovery it waits for.
        self._wanted: dict[str, frozenset[WorkloadReference]] = {}
        self._waits_until = 0.0  # monotonic: until then, callers wait for the informers to sync
        self._sources: InformerSet[str] = InformerSet(
            client, new_informer=self._make_cache, on_synced=lambda _: self._enqueue_all()
        )

    async def run(self) -> None:
        """Run informers on demand, until cancelled."""
        await self._sources.run()

    @property
    def is_watching(self) -> bool:
        return bool(self._sources.keys())

    def track(self, maintenance: NodeMaintenance) -> None:
        """Start the informers if the maintenance requests recovery."""
        if maintenance.spec.recovery is None:
            self.forget(maintenance.name)
            return
        reported = maintenance.status.recovery
        waits_for = (
            ()
            if reported is None or not maintenance.is_being_deleted
            else (workload.reference for workload in reported.workloads)
        )
        if not self._wanted:
            self._waits_until = self._client.clock.monotonic() + _SYNC_TIMEOUT.total_seconds()
        self._wanted[maintenance.name] = frozenset(waits_for)
        self._sources.set_keys(WORKLOAD_KINDS)

    def forget(self, name: str) -> None:
        """Stop the informers if no other maintenance needs them."""
        if self._wanted.pop(name, None) is not None and not self._wanted:
            self._sources.set_keys(())

    async def on_node(self, node: str) -> RecoveryObservation:
        """Return the workloads with pods on a node."""
        try:
            await self._wait_synced()
            node_pods = (await self._client.list(PODS, fields=f"spec.nodeName={node}")).items
            return RecoveryObservation(record=workloads.record_workloads(map(_controlled_pod, node_pods), self._find))
        except HauloutError as error:
            return RecoveryObservation(problem=str(error))

    async def evicted_from(self, node: str, before: RecoveryStatus) -> WorkloadRecord:
        """Return the recorded workloads that lost a pod on the node; all of them if the pods cannot be listed."""
        known = recovery.record_of(before)
        try:
            pods = (await self._client.list(PODS, fields=f"spec.nodeName={node}")).items
        except KubeError:
            return known
        present = [pod.uid for pod in pods if pod.metadata.deletion_timestamp is None]
        return workloads.without_unaffected_workloads(known, present=present)

    async def degraded_workloads(self, before: RecoveryStatus) -> RecoveryObservation:
        """Return which of the evicted workloads are not available again."""
        try:
            await self._wait_synced()
            found = list(workloads.evicted_workloads(recovery.record_of(before), present=(), find=self._find))
        except HauloutError as error:
            return RecoveryObservation(problem=str(error))
        return RecoveryObservation(degraded=tuple(sorted(str(workload) for workload in found if workload.is_degraded)))

    async def _wait_synced(self) -> None:
        """Wait for the informers to sync, within the remaining time. Raise `InformerNotSynced` otherwise."""
        remaining = self._waits_until - self._client.clock.monotonic()
        if remaining > 0:
            await self._sources.wait_synced(timedelta(seconds=remaining))
        for kind in WORKLOAD_KINDS:
            self._sources.get(kind)

    def _find(self, reference: WorkloadReference) -> ScaledWorkload | None:
        cache = self._sources.get(reference.kind) if reference.kind in WORKLOAD_KINDS else None
        return None if cache is None else cache.get(reference.key)

    def _make_cache(self, kind: str) -> tuple[Informer[ScaledWorkload], bool]:
        cache: Informer[ScaledWorkload] = Informer(self._client, ListWatch(WORKLOAD_KINDS[kind]), transform=as_is)
        cache.subscribe(partial(self._handle_change, kind))
        return cache, False

    def _handle_change(self, kind: str, old: ScaledWorkload | None, new: ScaledWorkload | None) -> None:
        current = new or old
        if current is None or (
            old is not None and new is not None and (old.spec, old.status) == (new.spec, new.status)
        ):
            return
        changed = WorkloadReference(kind, current.key)
        for name, references in self._wanted.items():
            if changed in references:
                self._enqueue(name)

    def _enqueue_all(self) -> None:
        for name in self._wanted:
            self._enqueue(name)


def _controlled_pod(pod: Pod) -> ControlledPod:
    owner = next((reference for reference in pod.metadata.owner_references if reference.controller), None)
    return ControlledPod(
        pod.uid, None if owner is None else WorkloadReference(owner.kind, f"{pod.namespace}/{owner.name}")
    )
