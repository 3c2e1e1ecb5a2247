"""Which volumes are attached to a node, and for which a drain waits.

A deleted pod may leave its volume attached: the kubelet unmounts it, then the storage driver's controller detaches it
and removes its VolumeAttachment. Powering a machine off before that may corrupt the volume, and delays the replacement
pod on another node for minutes. Cluster API waits for the detach as well (`nodeVolumeDetachTimeout`).

Volumes whose claims are in use by a pod on the node are not waited for: nothing detaches them.
"""

from collections.abc import Iterable, Iterator

from haulout.api.objects import Base, Object, Pod
from haulout.api.resources import Resource
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.pod_filters import is_finished

_MAX_ERROR_CHARACTERS = 300  # of a driver's error message
_PERMISSION_ADVICE = "grant the permission to list and watch volumeattachments.storage.k8s.io"


class VolumeSource(Base, frozen=True):
    """The attached volume; empty for an inline volume of a pod spec."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Base, frozen=True):
    """The driver, the node and the volume of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeSource = VolumeSource()


class VolumeError(Base, frozen=True):
    """An error reported by the driver."""

    message: str = ""


class VolumeAttachmentStatus(Base, frozen=True):
    """The state of an attachment."""

    attached: bool = False
    detach_error: VolumeError | None = None


class VolumeAttachment(Object, frozen=True):
    """A VolumeAttachment."""

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
    """A PersistentVolume, reduced to its claim."""

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
            elif volume.ephemeral is not None:  # the name that the ephemeral volume controller uses
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
        advice=(
            f"find out why {attachment.spec.attacher} does not detach "
            f"it: kubectl describe volumeattachment {attachment.name}"
        ),
    )


def unknown_volumes_blocker(node: str, problem: str, *, until: str) -> Blocker:
    """Return the blocker of a node whose VolumeAttachments are unknown."""
    reason = f"cannot list the volumes attached to node {node}: {problem}; {until}"
    return Blocker(
        kind=BlockerKind.VOLUME, pod="", uid="", object="VolumeAttachments", reason=reason, advice=_PERMISSION_ADVICE
    )


def describe_volume(attachment: VolumeAttachment, claim: str) -> str:
    """Return a text such as `PersistentVolume pv-1 (claim shop/data, driver ebs.csi.aws.com)`."""
    volume = (
        f"PersistentVolume {attachment.volume}"
        if attachment.volume
        else f"the volume of VolumeAttachment {attachment.name}"
    )
    return f"{volume} ({f'claim {claim}, ' if claim else ''}driver {attachment.spec.attacher})"
