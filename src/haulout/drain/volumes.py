"""Which volumes are attached to a node, and for which a drain waits.

A deleted pod may leave its volume attached: the kubelet unmounts it, then the storage driver's controller detaches it
and removes its VolumeAttachment. Powering a machine off before that may corrupt the volume. It also delays the
replacement pod on another node: Kubernetes detaches a volume that was not unmounted only after six minutes
(`ReconcilerMaxWaitForUnmountDuration` in `pkg/controller/volume/attachdetach/attach_detach_controller.go`). Cluster API
waits for the detach as well (`nodeVolumeDetachTimeout`).

Volumes whose claims are in use by a pod on the node are not waited for: nothing detaches them.

`VolumeAttachmentInformer` watches the VolumeAttachments of a cluster, only while a drain waits for volumes:

    informer = VolumeAttachmentInformer(client)      # one for all drains of a process; the caller runs its `run`
    unsubscribe = informer.subscribe("n1", on_change=wake.set)
    informer.of_node("n1")                           # None until the first list is complete

The API server cannot select VolumeAttachments by node: `spec.nodeName` is no selectable field
(`pkg/registry/storage/volumeattachment` of Kubernetes 1.36 defines none). So one watch for all subscribers delivers all
of them, and only the fields in use are kept.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from haulout.api.objects import Base, Object, Pod
from haulout.api.resources import Resource
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.pod_filters import is_finished
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch

_MAX_ERROR_CHARACTERS = 300  # of a driver's error message
_PERMISSION_ADVICE = "grant the permission to list and watch volumeattachments.storage.k8s.io"

_BY_NODE = "node"


class VolumeSource(Base, frozen=True):
    """The attached volume; empty for an inline volume of a pod spec."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Base, frozen=True):
    """The driver, the node and the volume of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeSource = VolumeSource()


class VolumeError(Base, frozen=True):
    """An error reported by the driver, for example that the cloud refuses to detach."""

    message: str = ""


class VolumeAttachmentStatus(Base, frozen=True):
    """The state of an attachment, as the external attacher of the driver reports it."""

    attached: bool = False
    detach_error: VolumeError | None = None


class VolumeAttachment(Object, frozen=True):
    """A VolumeAttachment, reduced to what the wait for volumes needs."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()

    @property
    def volume(self) -> str:
        """The name of the PersistentVolume; empty if it has none."""
        return self.spec.source.persistent_volume_name


class ClaimReference(Base, frozen=True):
    """The claim that a volume is bound to."""

    namespace: str = ""
    name: str = ""


class PersistentVolumeSpec(Base, frozen=True):
    """The spec of a PersistentVolume, reduced to its claim."""

    claim_ref: ClaimReference | None = None


class PersistentVolume(Object, frozen=True):
    """A PersistentVolume, reduced to its claim, which names the volume for users."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()

    @property
    def claim(self) -> str:
        """The claim as namespace/name; empty if it has none."""
        claim = self.spec.claim_ref
        return "" if claim is None else f"{claim.namespace}/{claim.name}"


VOLUME_ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False, model=VolumeAttachment
)
PERSISTENT_VOLUMES = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, model=PersistentVolume
)


def claims_in_use(pods: Iterable[Pod]) -> Iterator[str]:
    """Yield the claims of pods that have not finished, as namespace/name."""
    for pod in pods:
        for volume in () if is_finished(pod) else pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                yield f"{pod.namespace}/{volume.persistent_volume_claim.get('claimName', '')}"
            # VolumeClaimName in staging/src/k8s.io/component-helpers/storage/ephemeral/ephemeral.go
            elif volume.ephemeral is not None:
                yield f"{pod.namespace}/{pod.name}-{volume.name}"


def attached_volume_blocker(attachment: VolumeAttachment, claim: str, *, until: str) -> Blocker:
    """Return the blocker of a volume that is still attached. `until` is a text with the end of the wait."""
    reason = f"{describe_volume(attachment, claim)} is still attached to node {attachment.spec.node_name}; {until}"
    error = attachment.status.detach_error
    if error is not None and error.message:
        reason += f"; it cannot be detached: {error.message[:_MAX_ERROR_CHARACTERS]}"
    return Blocker(
        kind=BlockerKind.VOLUME,
        pod="",
        uid=attachment.uid,
        object=f"PersistentVolume {attachment.volume}" if attachment.volume else f"VolumeAttachment {attachment.name}",
        reason=" ".join(reason.split()),
        remedy=(
            f"find out why {attachment.spec.attacher} does not detach "
            f"it: kubectl describe volumeattachment {attachment.name}"
        ),
    )


def unknown_volumes_blocker(node: str, problem: str, *, until: str) -> Blocker:
    reason = f"cannot list the volumes attached to node {node}: {problem}; {until}"
    return Blocker(
        kind=BlockerKind.VOLUME, pod="", uid="", object="VolumeAttachments", reason=reason, remedy=_PERMISSION_ADVICE
    )


def describe_volume(attachment: VolumeAttachment, claim: str) -> str:
    """Return a text such as `PersistentVolume pv-1 (claim shop/data, driver ebs.csi.aws.com)`."""
    volume = (
        f"PersistentVolume {attachment.volume}"
        if attachment.volume
        else f"the volume of VolumeAttachment {attachment.name}"
    )
    return f"{volume} ({f'claim {claim}, ' if claim else ''}driver {attachment.spec.attacher})"


class VolumeAttachmentInformer:
    """The VolumeAttachments of all nodes, while there are subscribers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._subscribers: dict[int, tuple[str, Callable[[], object]]] = {}  # by number: node and callback
        self._last_subscriber = 0
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._cache: Informer[VolumeAttachment] | None = None

    async def run(self) -> NoReturn:
        """Watch whenever there are subscribers, until cancelled."""
        while True:
            await self._wanted.wait()
            # A new informer each time: an old one would show what it knew hours ago until the first list is complete.
            self._cache = cache = Informer(
                self._client,
                ListWatch(VOLUME_ATTACHMENTS),
                transform=as_is,
                indexes={_BY_NODE: lambda attachment: (attachment.spec.node_name,)},
                on_health_change=lambda _: self._notify_all(),
            )
            cache.subscribe(self._notify)
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = group.create_task(cache.run()), group.create_task(self._notify_when_synced(cache))
                    await self._unwanted.wait()
                    for task in tasks:
                        task.cancel()
            finally:
                self._cache = None

    def subscribe(self, node: str, *, on_change: Callable[[], object]) -> Callable[[], None]:
        """Call `on_change` for changes on a node; return the function to unsubscribe."""
        self._last_subscriber += 1
        number = self._last_subscriber
        self._subscribers[number] = node, on_change
        self._wanted.set()
        self._unwanted.clear()
        return lambda: self._unsubscribe(number)

    def of_node(self, node: str) -> tuple[VolumeAttachment, ...] | None:
        """Return the VolumeAttachments of a node; None if they are not known yet."""
        if self._cache is None or not self._cache.health().has_synced:
            return None
        return tuple(sorted(self._cache.by_index(_BY_NODE, node), key=lambda attachment: attachment.name))

    @property
    def problem(self) -> str:
        """Why VolumeAttachments are unknown or may be stale."""
        return "" if self._cache is None else self._cache.health().problem or ""

    def _unsubscribe(self, number: int) -> None:
        self._subscribers.pop(number, None)
        if not self._subscribers:
            self._wanted.clear()
            self._unwanted.set()

    async def _notify_when_synced(self, cache: Informer[VolumeAttachment]) -> None:
        await cache.wait_synced()
        self._notify_all()

    def _notify_all(self) -> None:
        for _, on_change in tuple(self._subscribers.values()):
            on_change()

    def _notify(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        attachment = new or old
        for node, on_change in tuple(self._subscribers.values()):
            if attachment is not None and attachment.spec.node_name == node:
                on_change()
