"""The workloads of the cluster: followed while a NodeMaintenance asks for recovery, and not otherwise."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from haulout.drain import workloads
from haulout.drain.workloads import KINDS, Controlled, Record, Reference, Scaled
from haulout.errors import HauloutError, KubeError
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Pod
from haulout.kube.resources import PODS
from haulout.kube.sources import Sources
from haulout.maintenance import recovery
from haulout.maintenance.recovery import RecoverySeen
from haulout.maintenance.resource import NodeMaintenance, RecoveryStatus

_KNOWN_WITHIN = timedelta(seconds=10)


class Workloads:
    """What is known of workloads; `wake` hears the names of maintenances whose workloads have changed."""

    def __init__(self, client: Client, *, wake: Callable[[str], object]) -> None:
        self._client = client
        self._wake = wake
        self._wanted: dict[str, frozenset[Reference]] = {}  # by maintenance: whose recovery it waits for
        self._waits_until = 0.0  # by the monotonic clock: so long a look waits for what is not known yet
        self._sources: Sources[str] = Sources(client, make=self._make, settled=lambda _: self._wake_all())

    async def run(self) -> None:
        """Follow what is wanted, until cancelled."""
        await self._sources.run()

    @property
    def is_following(self) -> bool:
        """Whether workloads are followed."""
        return bool(self._sources.wanted())

    def note(self, maintenance: NodeMaintenance) -> None:
        """Follow workloads if the maintenance asks for recovery."""
        if maintenance.spec.recovery is None:
            self.forget(maintenance.name)
            return
        said = maintenance.status.recovery
        waits_for = () if said is None or not maintenance.is_leaving else (it.reference for it in said.workloads)
        if not self._wanted:
            self._waits_until = self._client.clock.monotonic() + _KNOWN_WITHIN.total_seconds()
        self._wanted[maintenance.name] = frozenset(waits_for)
        self._sources.want(KINDS)

    def forget(self, name: str) -> None:
        """Follow workloads no longer, if this was the last maintenance that needs them."""
        if self._wanted.pop(name, None) is not None and not self._wanted:
            self._sources.want(())

    async def on_node(self, node: str) -> RecoverySeen:
        """Return the workloads that have pods on a node."""
        try:
            await self._known()
            pods = (await self._client.list(PODS, fields=f"spec.nodeName={node}")).items
            return RecoverySeen(record=workloads.record(map(_controlled, pods), self._find))
        except HauloutError as error:
            return RecoverySeen(problem=str(error))

    async def evicted_from(self, node: str, before: RecoveryStatus) -> Record:
        """Return those of the workloads that were recorded which have lost a pod on a node; all, if nobody knows."""
        known = recovery.record_of(before)
        try:
            pods = (await self._client.list(PODS, fields=f"spec.nodeName={node}")).items
        except KubeError:
            return known
        there = [it.uid for it in pods if it.metadata.deletion_timestamp is None]
        return workloads.reduced(known, present=there)

    async def short_of(self, before: RecoveryStatus) -> RecoverySeen:
        """Return which of the workloads that were evicted are not available again."""
        try:
            await self._known()
            found = list(workloads.evicted_of(recovery.record_of(before), present=(), find=self._find))
        except HauloutError as error:
            return RecoverySeen(problem=str(error))
        return RecoverySeen(short=tuple(sorted(str(it) for it in found if it.is_short)))

    async def _known(self) -> None:
        """Wait a while for workloads to be known; raises `NotKnown`."""
        left = self._waits_until - self._client.clock.monotonic()
        if left > 0:
            await self._sources.wait_settled(timedelta(seconds=left))
        for kind in KINDS:
            self._sources.get(kind)

    def _find(self, reference: Reference) -> Scaled | None:
        cache = self._sources.get(reference.kind) if reference.kind in KINDS else None
        return None if cache is None else cache.get(reference.key)

    def _make(self, kind: str) -> tuple[Cache[Scaled], bool]:
        cache: Cache[Scaled] = Cache(self._client, Selection(KINDS[kind]), row=as_is)
        cache.subscribe(partial(self._note_change, kind))
        return cache, False

    def _note_change(self, kind: str, old: Scaled | None, new: Scaled | None) -> None:
        seen = new or old
        if seen is None or (old is not None and new is not None and (old.spec, old.status) == (new.spec, new.status)):
            return
        changed = Reference(kind, seen.key)
        for name, references in self._wanted.items():
            if changed in references:
                self._wake(name)

    def _wake_all(self) -> None:
        for name in self._wanted:
            self._wake(name)


def _controlled(pod: Pod) -> Controlled:
    owner = next((it for it in pod.metadata.owner_references if it.controller), None)
    return Controlled(pod.uid, None if owner is None else Reference(owner.kind, f"{pod.namespace}/{owner.name}"))
