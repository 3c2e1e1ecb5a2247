"""Labels and annotations of Haulout: the one place where each key is defined, with its meaning.

The comment of a constant is its meaning in one line. `docs/reference/reasons.md` is generated from these comments. Keys
that predecessors defined, such as `cloud.sap/maintenance-state`, stand beside the code that is compatible with them.
"""

# Nodes
HOLD = "haulout.dev/hold"  # annotation: a person keeps new maintenance off the node
CORDON = "haulout.dev/cordon"  # annotation: the cordon owners of the node, and its state before the first of them
CORDON_BACKUP = "haulout.dev/cordon-backup"  # annotation: a copy of haulout.dev/cordon
RECOVERING = "haulout.dev/recovering"  # annotation: ended NodeMaintenances whose evicted workloads recover
TRANSITIONS = "haulout.dev/transitions"  # annotation: transitions that a profile has started and not finished
UNRECORDED_STATES = "haulout.dev/unrecorded-states"  # annotation: states of profiles that are not in the history yet
WORKLOADS_BEFORE = "haulout.dev/workloads-before"  # annotation: workloads with pods on the node before its drain
SLOT_WITHDRAWN = "haulout.dev/slot-withdrawn"  # annotation: another replica took the budget slot; removed at once
ESX_SHUTDOWN_REQUESTED = "haulout.dev/esx-shutdown-requested"  # annotation: when the guest was asked to shut down
KUBERNIKUS_SERVER = "haulout.dev/kubernikus-server"  # annotation: ID of the server, written before it is deleted
MACHINE_DELETION_REQUEST = "haulout.dev/machine-deletion-request"  # annotation: a hub asks to prepare for deletion
MACHINE_MAINTENANCE_REQUEST = (
    "haulout.dev/machine-maintenance-request"  # annotation: a hub asks to prepare for maintenance
)
MACHINE_DRAIN_RULES = "haulout.dev/machine-drain-rules"  # annotation: MachineDrainRules of the node's Machine, as JSON

# Machines of a hub
MACHINE_MAINTENANCE_APPROVED = "haulout.dev/machine-maintenance-approved"  # annotation: the approved request
MACHINE_DELETION_RELEASED = "haulout.dev/machine-deletion-released"  # annotation: why the deletion is not held

# Machines of OpenShift
REPLACING = "haulout.dev/replacing"  # annotation: the MachineMaintenance that replaces a Machine of the set
REPLACEMENT_WITHDRAWN = "haulout.dev/replacement-withdrawn"  # annotation: that claim was withdrawn; removed at once

# NodeMaintenances and MaintenanceNotices
NOTIFIED = "haulout.dev/notified"  # annotation: notifications that were sent about the object, and when
EARLY_START = "haulout.dev/early-start"  # annotation of a notice: the source was asked to begin early
MACHINE_ADDRESS = "haulout.dev/machine-address"  # annotation of a notice: the address of its machine
ADOPTED_FROM = "haulout.dev/adopted-from"  # annotation of a notice: the CronJob of the OCI handler

# MaintenanceRecords
LAST_STATES = "haulout.dev/last-states"  # annotation: the last recorded state of each object
NODE_UID = "haulout.dev/node-uid"  # annotation: UID of the node that the newest entries are about
NODE_DELETED = "haulout.dev/node-deleted"  # annotation: when that node was deleted; absent while it exists

# EvictionRequests and CronJobs
DRAIN = "haulout.dev/drain"  # the requester in EvictionRequests
DRAIN_OWNER = "haulout.dev/drain-owner"  # label of EvictionRequests: the drain that requested them
ADOPTED = "haulout.dev/adopted"  # label of CronJobs of the OCI handler that Haulout suspended
ADOPTED_NOTICE = "haulout.dev/notice"  # annotation of these CronJobs: the name of their notice

# MaintenanceNotices of clouds
AWS_INSTANCE_EVENT = "aws.haulout.dev/instance-event"  # annotation: EC2 InstanceEventId
AWS_HEALTH_EVENT = "aws.haulout.dev/health-event"  # annotation: AWS Health eventArn
AWS_SPOT_INTERRUPTION = "aws.haulout.dev/spot-interruption"  # annotation: ID of the message
AWS_REBALANCE_RECOMMENDATION = "aws.haulout.dev/rebalance-recommendation"  # annotation: ID of the message
AWS_STATE_CHANGE = "aws.haulout.dev/state-change"  # annotation: ID of the message
AWS_LIFECYCLE_TOKEN = "aws.haulout.dev/lifecycle-token"  # noqa: S105 - annotation: LifecycleActionToken of Auto Scaling
AWS_LIFECYCLE_TARGET_STATE = "aws.haulout.dev/lifecycle-target-state"  # annotation: from the instance metadata
AWS_LIFECYCLE_GROUP = "aws.haulout.dev/lifecycle-group"  # annotation: the Auto Scaling group
AWS_LIFECYCLE_HOOK = "aws.haulout.dev/lifecycle-hook"  # annotation: the lifecycle hook
AWS_METADATA = "aws.haulout.dev/metadata"  # annotation: the metadata service of the instance has shown the event
GCP_MAINTENANCE_EVENT = "gcp.haulout.dev/maintenance-event"  # annotation: the event in the metadata of the instance
GCP_BOOT = "gcp.haulout.dev/boot"  # annotation: boot ID of the node at the announcement
GCP_GONE_AT = "gcp.haulout.dev/gone-at"  # annotation: when the cloud no longer announced the maintenance
GKE_GONE_AT = "gke.haulout.dev/gone-at"  # annotation: when the labels of the node no longer announced it
OCI_MAINTENANCE = "oci.haulout.dev/maintenance"  # annotation: OCID of the maintenance, if the notice has another ID
OCI_LAST_MESSAGE_AT = "oci.haulout.dev/last-message-at"  # annotation: when the last message about it was read
OCI_ENDED_BY_MESSAGE = "oci.haulout.dev/ended-by-message"  # annotation: a message said that it has ended
OCI_OFFSET_PREFIX = "oci.haulout.dev/offset-"  # annotation, with the partition: offset of the last message

# Events
OPERATOR_REPORTER = "haulout.dev/operator"  # reportingController of Events of the operator
DASHBOARD_REPORTER = "haulout.dev/dashboard"  # reportingController of Events of dashboard users
