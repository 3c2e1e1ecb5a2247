"""What stands on nodes: the labels are those of the SAP maintenance-controller."""

from haulout.budget.away import DELETED_BY
from haulout.kube.objects import Node

NEEDS_UPDATE = "cloud.sap/kubelet-needs-update"  # a label: true or false
DELETE_NODE = "cloud.sap/delete-node"  # a label: `true` is the order
OWNER = DELETED_BY  # of our cordon
SERVER = "haulout.dev/kubernikus-server"  # an annotation: the server that is deleted, noted before it is

_YES = "true"


def is_ordered(node: Node) -> bool:
    """Tell whether somebody wants the node's server deleted."""
    return node.metadata.labels.get(DELETE_NODE) == _YES
