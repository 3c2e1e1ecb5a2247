"""What stands on nodes: which host they run on, what is known of it, and how far we have come.

All but `SHUTDOWN_REQUESTED` are the SAP maintenance-controller's, and mean what they mean there.
"""

from haulout.budget.unavailable_nodes import ESX_OWNER

HOST = "kubernetes.cloud.sap/host"  # a label that others set
ZONE = "failure-domain.beta.kubernetes.io/zone"  # the same; its last letter says which vCenter knows the host

VERSION = "cloud.sap/esx-version"  # a label of ours
STATE = "cloud.sap/esx-in-maintenance"  # the same: a `HostState`
APPROVED = "cloud.sap/esx-reboot-ok"  # a label that people and profiles set
INITIATED = "cloud.sap/esx-reboot-initiated"  # an annotation of ours: the node is in our hands
SHUTDOWN_REQUESTED = "haulout.dev/esx-shutdown-asked"  # the same: since when the guest is asked to shut down

TRUE = "true"
CORDON_OWNER = ESX_OWNER  # of our part in a node's cordon
