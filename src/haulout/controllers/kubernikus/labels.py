"""Labels and annotations of Kubernikus nodes; the labels are those of the SAP maintenance-controller."""

from haulout.api import annotations
from haulout.api.objects import Node

NEEDS_UPDATE = "cloud.sap/kubelet-needs-update"  # a label: true or false
DELETE_NODE = "cloud.sap/delete-node"  # a label: `true` orders the deletion
CORDON_OWNER = "Kubernikus/delete-node"  # owner of our cordon
SERVER_ANNOTATION = annotations.KUBERNIKUS_SERVER  # an annotation: ID of the server, written before it is deleted

_TRUE = "true"


def is_deletion_ordered(node: Node) -> bool:
    """Return whether the node has the label that orders its deletion."""
    return node.metadata.labels.get(DELETE_NODE) == _TRUE
