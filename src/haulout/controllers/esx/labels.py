"""Labels and annotations of nodes on ESX hosts: the host, its state, and the progress of the maintenance.

All except `SHUTDOWN_REQUESTED` are those of the SAP maintenance-controller, with the same meaning.
"""

from enum import StrEnum

from haulout.api import annotations
from haulout.api.objects import Node

HOST = "kubernetes.cloud.sap/host"  # a label that others set
ZONE = "failure-domain.beta.kubernetes.io/zone"  # a label that others set; its last letter selects the vCenter

VERSION = "cloud.sap/esx-version"  # a label that we set
STATE = "cloud.sap/esx-in-maintenance"  # a label that we set: a `HostState`
APPROVED = "cloud.sap/esx-reboot-ok"  # a label that users and profiles set
INITIATED = "cloud.sap/esx-reboot-initiated"  # an annotation that we set: the node is in maintenance
SHUTDOWN_REQUESTED = annotations.ESX_SHUTDOWN_REQUESTED  # an annotation that we set: time of the request

TRUE = "true"
CORDON_OWNER = "ESX"  # our owner of the node's cordon


class HostState(StrEnum):
    """The state of a host, as the value of the label `STATE`."""

    IN_MAINTENANCE = "true"
    HEALTHY = "false"
    ALARM = "alarm"


def is_initiated(node: Node) -> bool:
    """Return whether our annotation marks the node as in maintenance."""
    return node.metadata.annotations.get(INITIATED) == TRUE


def is_approved(node: Node) -> bool:
    """Return whether the restart of the node is approved."""
    return node.metadata.labels.get(APPROVED) == TRUE
