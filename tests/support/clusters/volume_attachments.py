"""Attached volumes without a storage driver: deleting the VolumeAttachment detaches the volume."""

from haulout.kube.patches import merge_patch
from support.clusters.live_cluster import RESOURCES, LiveCluster

DRIVER = "disk.example.com"
ATTACHMENTS = "volumeattachments"


async def attach_volume(cluster: LiveCluster, volume: str, claim: str, *, node: str = "n1") -> None:
    """Attach a volume to a node."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": DRIVER, "volumeHandle": volume},
        "claimRef": {"namespace": "shop", "name": claim},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    await cluster.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec},
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": f"csi-{volume}"},
            "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}},
        },
    )
    patch = merge_patch({"status": {"attached": True}})
    await cluster.admin.patch(RESOURCES[ATTACHMENTS], f"csi-{volume}", patch, subresource="status")
