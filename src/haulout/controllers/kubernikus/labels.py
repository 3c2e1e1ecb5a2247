"""What stands on nodes: the labels are those of the SAP maintenance-controller."""

from haulout.api.objects import Node
from haulout.budget.unavailable_nodes import DELETE_NODE_OWNER

NEEDS_UPDATE = "cloud.sap/kubelet-needs-update"  # a label: true or false
DELETE_NODE = "cloud.sap/delete-node"  # a label: `true` is the order
CORDON_OWNER = DELETE_NODE_OWNER  # of our cordon
SERVER_ANNOTATION = "haulout.dev/kubernikus-server"  # an annotation: the server that is deleted, noted before it is

_TRUE = "true"


def is_deletion_ordered(node: Node) -> bool:
    """Tell whether somebody wants the node's server deleted."""
    return node.metadata.labels.get(DELETE_NODE) == _TRUE
