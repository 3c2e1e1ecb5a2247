"""Which volumes are attached to a node, and for which of them a drain waits.

A pod that is gone may leave its volume attached: the kubelet unmounts it, then a controller of the storage driver
detaches it, and removes its VolumeAttachment. Whoever switches a machine off before that may corrupt the volume, and a
replacement of the pod on another node waits for minutes. Cluster API waits for it as well (`nodeVolumeDetachTimeout`).

Volumes of claims that a pod on the node uses are not waited for: nobody detaches them.
"""

from collections.abc import Iterable, Iterator

from haulout.api.objects import Base, Object, Pod
from haulout.api.resources import Resource
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.pod_filters import is_finished

_MAX_ERROR_CHARACTERS = 300  # characters of what a driver says
_PERMISSION_ADVICE = "let whoever drains list and watch volumeattachments.storage.k8s.io"


class VolumeSource(Base, frozen=True):
    """What is attached; nothing here for a volume that a pod's spec describes in place."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Base, frozen=True):
    """Who attaches what, and where."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeSource = VolumeSource()


class VolumeError(Base, frozen=True):
    """What went wrong."""

    message: str = ""


class VolumeAttachmentStatus(Base, frozen=True):
    """How it stands."""

    attached: bool = False
    detach_error: VolumeError | None = None


class VolumeAttachment(Object, frozen=True):
    """A volume on its way to a node, there, or on its way back."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()

    @property
    def volume(self) -> str:
        """The name of its PersistentVolume; empty if it has none."""
        return self.spec.source.persistent_volume_name


class ClaimReference(Base, frozen=True):
    """The claim that a volume is bound to."""

    namespace: str = ""
    name: str = ""


class PersistentVolumeSpec(Base, frozen=True):
    """What a volume is."""

    claim_ref: ClaimReference | None = None


class PersistentVolume(Object, frozen=True):
    """A volume, of which only its claim is of interest."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()

    @property
    def claim(self) -> str:
        """Its claim, as namespace/name; empty if it has none."""
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
            elif volume.ephemeral is not None:  # the ephemeral volume controller names the claim so
                yield f"{pod.namespace}/{pod.name}-{volume.name}"


def attached_volume_blocker(attachment: VolumeAttachment, claim: str, *, until: str) -> Blocker:
    """Return the blocker for a volume that is still attached; `until` tells how long that is waited for."""
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
    """Return the blocker for a node of which cannot be told which volumes are attached to it."""
    reason = f"which volumes are attached to node {node} is not known: {problem}; {until}"
    return Blocker(
        kind=BlockerKind.VOLUME, pod="", uid="", object="VolumeAttachments", reason=reason, advice=_PERMISSION_ADVICE
    )


def describe_volume(attachment: VolumeAttachment, claim: str) -> str:
    """Return which volume it is: `PersistentVolume pv-1 (claim shop/data, driver ebs.csi.aws.com)`."""
    volume = (
        f"PersistentVolume {attachment.volume}"
        if attachment.volume
        else f"the volume of VolumeAttachment {attachment.name}"
    )
    return f"{volume} ({f'claim {claim}, ' if claim else ''}driver {attachment.spec.attacher})"
