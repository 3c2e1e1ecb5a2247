"""The reasons of conditions and Events: the one place where each is defined, with its meaning.

The comment of a member is its meaning in one line. `docs/reference/reasons.md` is generated from these comments. Types
of conditions stand with their kinds, in the other modules of this package.
"""

from enum import StrEnum


class NodeMaintenanceConditionReason(StrEnum):
    """Reasons of the conditions of a NodeMaintenance."""

    ACQUIRED = "Acquired"  # Leased: the maintenance holds the lease of the node
    NOT_ACQUIRED = "NotAcquired"  # Leased: the lease is not requested yet
    HELD_BY_OTHER = "HeldByOther"  # Leased: somebody else holds the lease of the node
    LOST = "Lost"  # Leased: somebody else took the lease
    CORDONED = "Cordoned"  # Cordoned: the node is cordoned and tainted
    CORDON_NOT_HELD = "CordonNotHeld"  # Cordoned: the maintenance does not hold the cordon
    CORDON_ANNOTATION_LOST = "CordonAnnotationLost"  # Cordoned: the annotation haulout.dev/cordon was removed
    CORDON_ANNOTATION_INVALID = "CordonAnnotationInvalid"  # Cordoned: the annotation haulout.dev/cordon cannot be read
    DRAIN_COMPLETED = "DrainCompleted"  # Drained: all pods have left
    DRAIN_IN_PROGRESS = "DrainInProgress"  # Drained: pods are leaving
    WAITING = "Waiting"  # Drained: the drain has not started
    BLOCKED = "Blocked"  # Drained: something keeps a pod from leaving
    BUDGET_EXHAUSTED = "BudgetExhausted"  # Drained, WithinBudget: too many nodes are unavailable
    ADMITTED = "Admitted"  # WithinBudget: the budget allows this node to be unavailable
    RETRYING = "Retrying"  # Drained: a request failed and is retried
    RESUMED = "Resumed"  # Failed is False: the cause of the failure is gone, or the object was edited
    NODE_MISSING = "NodeMissing"  # Failed: the node does not exist
    NODE_UNNAMED = "NodeUnnamed"  # Failed: spec.nodeName is empty
    POLICY_INVALID = "PolicyInvalid"  # Failed: spec.drain is invalid
    LEASE_LOST = "LeaseLost"  # Failed: the lease of the node was lost
    DRAIN_TIMED_OUT = "DrainTimedOut"  # Failed: the drain did not end before its deadline
    DRAIN_REFUSED = "DrainRefused"  # Failed: the policy does not let a pod leave


class NodeMaintenanceEventReason(StrEnum):
    """Reasons of Events of a NodeMaintenance and of its node."""

    BEGIN_MAINTENANCE = "BeginMaintenance"  # the maintenance begins
    SUCCEED_MAINTENANCE = "SucceedMaintenance"  # the node is drained
    FAILED_MAINTENANCE = "FailedMaintenance"  # the maintenance has failed
    REMOVED_MAINTENANCE = "RemovedMaintenance"  # the maintenance has ended
    UNCORDON_NODE = "UncordonNode"  # the node is uncordoned
    CORDON_KEPT = "CordonKept"  # the node stays cordoned after the maintenance
    CORDON_RESTORED = "CordonRestored"  # another writer undid the cordon, and it was restored
    CORDON_ANNOTATION_LOST = "CordonAnnotationLost"  # the cordon annotation was removed or edited
    ORPHANED_CORDON = "OrphanedCordon"  # the node is cordoned for a NodeMaintenance that does not exist
    CONDITIONS_NOT_PUBLISHED = "ConditionsNotPublished"  # the conditions of the node cannot be written
    MAINTENANCE_WAITING = "MaintenanceWaiting"  # the maintenance waits for somebody else
    MAINTENANCE_ERROR = "MaintenanceError"  # a request failed and is retried
    BUDGET_EXHAUSTED = "BudgetExhausted"  # the maintenance waits for a slot of the budget
    DRAIN_BLOCKED = "DrainBlocked"  # something keeps a pod from leaving
    VOLUMES_STILL_ATTACHED = "VolumesStillAttached"  # the drain no longer waits for volumes to be detached
    WAITING_FOR_RECOVERY = "WaitingForRecovery"  # evicted workloads are not available again
    WORKLOADS_RECOVERED = "WorkloadsRecovered"  # the evicted workloads are available again
    RECOVERY_TIMED_OUT = "RecoveryTimedOut"  # the evicted workloads were not available again in time


class PodEventReason(StrEnum):
    """Reasons of Events of pods that a drain removes."""

    EVICTING = "Evicting"  # the pod is evicted
    DELETING = "Deleting"  # the pod is deleted regardless of PodDisruptionBudgets
    FORCE_DELETING = "ForceDeleting"  # the pod is deleted with grace period 0


class ProfileEventReason(StrEnum):
    """Reasons of Events of nodes that the profiles record."""

    CHANGED_MAINTENANCE_STATE = "ChangedMaintenanceState"  # a profile entered another state
    CHANGE_MAINTENANCE_STATE_FAILED = "ChangeMaintenanceStateFailed"  # a check, trigger or notification failed
    MAINTENANCE_DATA_UNREADABLE = "MaintenanceDataUnreadable"  # the data annotation of the node cannot be read
    MAINTENANCE_STEP_FAILED = "MaintenanceStepFailed"  # a reconcile of the node failed and is retried
    PROFILE_TRANSITION_LOOP = "ProfileTransitionLoop"  # a profile enters and leaves maintenance again and again
    CORDON_RESTORED = "CordonRestored"  # another writer undid the cordon, and it was restored
    NOTIFICATION_FAILED = "NotificationFailed"  # a notification could not be sent
    RECOVERY_TIMED_OUT = "RecoveryTimedOut"  # the evicted workloads were not available again in time


class NodeConditionReason(StrEnum):
    """Reasons of the conditions of nodes that profiles and notices set."""

    PROFILE_REQUESTED = "ProfileRequested"  # DrainInProgress: a profile requested the drain
    DRAIN_COMPLETED = "DrainCompleted"  # Drained: all pods have left
    MAINTENANCE_ENDED = "MaintenanceEnded"  # all types: the maintenance is over


class NoticeConditionReason(StrEnum):
    """Reasons of the conditions of a MaintenanceNotice, except OnTime, EarlyStart and Rescheduled."""

    FOUND = "Found"  # NodeFound: the node exists
    NOT_FOUND = "NotFound"  # NodeFound: no node matches the notice
    EMPTY = "Empty"  # Emptied: the node is drained for this notice
    NOT_EMPTY = "NotEmpty"  # Emptied: pods are left on the node
    NODE_NOT_FOUND = "NodeNotFound"  # Emptied: no node matches the notice
    NOT_DUE = "NotDue"  # Emptied: the notice is not due yet
    NOT_CORDONED = "NotCordoned"  # Emptied: the node is schedulable
    CORDONED_BY_OTHERS = "CordonedByOthers"  # Emptied: the node is cordoned, but for no profile or NodeMaintenance
    MAINTENANCE_FAILED = "MaintenanceFailed"  # Stalled: the source reports that the maintenance failed
    NODE_GONE = "NodeGone"  # Ready: the node was deleted
    RETRYING = "Retrying"  # Reconciling: a request failed and is retried


class OnTimeReason(StrEnum):
    """Reasons of the condition OnTime of a MaintenanceNotice."""

    NOT_NEEDED = "NotNeeded"  # the node need not be drained for it
    NODE_NOT_FOUND = "NodeNotFound"  # no node matches the notice
    PLANNED = "Planned"  # it is not due yet
    NO_PROFILE_MATCHES = "NoProfileMatches"  # no profile drains the node for it
    PODS_UNKNOWN = "PodsUnknown"  # the pods of the node are not known
    ANY_MOMENT = "StartUnknown"  # no start is announced
    EMPTY = "Empty"  # the node is drained
    DRAINING = "Draining"  # the drain will end in time
    NOT_STARTED = "DrainNotStarted"  # the drain has not started, and will not end in time
    STARTED_TOO_LATE = "DrainStartedTooLate"  # the drain started too late to end in time
    BLOCKED = "PodsBlocked"  # pods that do not leave keep the drain from ending in time
    CATCHING_UP = "CatchingUp"  # the drain is late, but may still end in time
    OCCUPIED = "Occupied"  # the maintenance began while pods were left
    HELD = "Held"  # a hold keeps maintenance off the node


class RescheduledReason(StrEnum):
    """Reasons of the condition Rescheduled of a MaintenanceNotice."""

    REQUESTED = "Requested"  # the source was asked for another time
    ACCEPTED = "Accepted"  # the source accepted another time
    REFUSED = "Refused"  # the source refused another time
    NO_ANSWER = "NoAnswer"  # the source did not answer


class NoticeEventReason(StrEnum):
    """Reasons of Events of a MaintenanceNotice and of its node."""

    MAINTENANCE_ANNOUNCED = "MaintenanceAnnounced"  # a notice was received
    MAINTENANCE_RESCHEDULED = "MaintenanceRescheduled"  # the announced time changed
    MAINTENANCE_PLANNED = "MaintenancePlanned"  # phase Planned
    MAINTENANCE_DUE = "MaintenanceDue"  # phase Due: the drain of the node should begin
    MAINTENANCE_ACTIVE = "MaintenanceActive"  # phase Active: the maintenance is in progress
    MAINTENANCE_COMPLETED = "MaintenanceCompleted"  # phase Completed
    MAINTENANCE_CANCELLED = "MaintenanceCancelled"  # phase Cancelled
    MAINTENANCE_MISSED = "MaintenanceMissed"  # phase Missed: its time is over, and its source never reported a begin
    NODE_FOUND = "NodeFound"  # the node of the notice was found
    NODE_GONE = "NodeGone"  # the node of the notice was deleted
    DRAIN_STARTS_EARLIER = "DrainStartsEarlier"  # drains of this node took longer than the lead time
    MAINTENANCE_WILL_BE_LATE = "MaintenanceWillBeLate"  # the node will not be drained before the start
    MAINTENANCE_STARTED_ON_OCCUPIED_NODE = "MaintenanceStartedOnOccupiedNode"  # it began while pods were left
    EARLY_START_REQUESTED = "EarlyStartRequested"  # the node is drained, and the source is asked to begin early
    EARLY_START_ACCEPTED = "EarlyStartAccepted"  # the source begins early
    EARLY_START_REFUSED = "EarlyStartRefused"  # the source does not begin early
    RESCHEDULE_REQUESTED = "RescheduleRequested"  # the source is asked for another time
    RESCHEDULE_ACCEPTED = "RescheduleAccepted"  # the source accepted another time
    RESCHEDULE_REFUSED = "RescheduleRefused"  # the source refused another time
    RESCHEDULE_NO_ANSWER = "RescheduleNoAnswer"  # the source did not answer
    TOO_MANY_NOTICES = "TooManyNotices"  # the agent of a node wrote more notices than its quota allows
    LIFECYCLE_HOOK_NOT_COMPLETED = "LifecycleHookNotCompleted"  # AWS: nobody may complete the lifecycle hook


class MachineMaintenanceReason(StrEnum):
    """Reasons of conditions and Events of a MachineMaintenance and of its Machine."""

    ON_SCHEDULE = "OnSchedule"  # OnTime: the replacement will be ready before the event
    NEXT = "Next"  # its Machine is replaced next
    SURGING = "Surging"  # another Machine is created first
    NOT_YET = "NotYet"  # the event is still far away
    MACHINE_DELETED = "MachineDeleted"  # the Machine was deleted, and is replaced
    MACHINE_GONE = "MachineGone"  # the Machine no longer exists
    NO_MACHINE = "NoMachine"  # there is no such Machine
    NO_CONTROLLER = "NoController"  # no MachineSet would replace the Machine
    NO_INSTANCE = "NoInstance"  # the Machine has no instance
    INSTANCE_MISMATCH = "InstanceMismatch"  # the Machine has another instance than the event
    NO_CONTROL_PLANE_MACHINE_SET = "NoControlPlaneMachineSet"  # no active ControlPlaneMachineSet replaces the Machine
    CONTROL_PLANE_UNHEALTHY = "ControlPlaneUnhealthy"  # another Machine of the control plane is not healthy
    WAITING_FOR_OTHER_MACHINE = "WaitingForOtherMachine"  # another Machine of the set is replaced first
    MACHINE_SET_NOT_READY = "MachineSetNotReady"  # a Machine of the set is not ready
    EVENT_CANCELLED = "EventCancelled"  # the event of the cloud was cancelled
    FAILED = "Failed"  # a request failed and is retried
    MACHINE_COMPLETED = "MachineCompleted"  # phase Completed: the Machine was replaced
    MACHINE_CANCELLED = "MachineCancelled"  # phase Cancelled: the Machine is not replaced
    MACHINE_REFUSED = "MachineRefused"  # phase Refused: the Machine cannot be replaced


class HubEventReason(StrEnum):
    """Reasons of Events of Machines, BareMetalHosts and MachineDrainRules, which a hub records."""

    DELETION_REQUESTED = "DeletionRequested"  # the node is asked to prepare for the deletion of its Machine
    MAINTENANCE_REQUESTED = "MaintenanceRequested"  # the node is asked to prepare for maintenance
    MAINTENANCE_REQUESTED_AGAIN = "MaintenanceRequestedAgain"  # another maintenance was requested
    MAINTENANCE_APPROVED = "MaintenanceApproved"  # the node is ready for maintenance
    APPROVAL_OVERDUE = "ApprovalOverdue"  # the node was not ready in time
    CLUSTER_BUDGET_EXHAUSTED = "ClusterBudgetExhausted"  # too many clusters are in maintenance
    FROZEN = "Frozen"  # a MaintenanceFreeze of the management cluster keeps requests off the node
    STALE_APPROVAL = "StaleApproval"  # the approval on the node is that of an earlier request
    REQUEST_WITHDRAWN = "RequestWithdrawn"  # the node need not prepare any more
    OPTED_OUT = "OptedOut"  # the Machine no longer has the label that enables it
    DELETION_APPROVED = "DeletionApproved"  # the node is ready, and the Machine is deleted
    APPROVAL_TIMED_OUT = "ApprovalTimedOut"  # the Machine is deleted, because its node was not ready in time
    CLUSTER_DELETED = "ClusterDeleted"  # the Machine is deleted with its Cluster
    CLUSTER_UNREACHABLE = "ClusterUnreachable"  # the Machine is deleted, because its cluster is unreachable
    NO_NODE = "NoNode"  # the Machine is deleted; it has no node
    NOT_MANAGED = "NotManaged"  # the Machine is deleted; no profile of its node waits for it
    HOST_POWERED_OFF = "HostPoweredOff"  # the BareMetalHost is powered off
    HOST_POWER_OFF_WITHDRAWN = "HostPowerOffWithdrawn"  # the BareMetalHost may be powered on again
    DRAIN_RULE_UNREADABLE = "DrainRuleUnreadable"  # the MachineDrainRule cannot be decoded


class EsxEventReason(StrEnum):
    """Reasons of Events of nodes on ESX hosts."""

    ESX_MAINTENANCE_STARTED = "EsxMaintenanceStarted"  # the host enters maintenance, and the node is drained
    ESX_MAINTENANCE_ENDED = "EsxMaintenanceEnded"  # the host has left maintenance, and the node is back
    ESX_DRAIN_BLOCKED = "EsxDrainBlocked"  # something keeps a pod from leaving
    ESX_SHUT_DOWN = "EsxShutDown"  # the node is empty, and its virtual machine is shut down
    ESX_POWER_OFF = "EsxPowerOff"  # the virtual machine is powered off
    ESX_POWER_ON = "EsxPowerOn"  # the virtual machine is powered on
    CORDON_RESTORED = "CordonRestored"  # another writer undid the cordon, and it was restored


class KubernikusEventReason(StrEnum):
    """Reasons of Events of nodes that Kubernikus deletes."""

    DRAINING = "Draining"  # the node is drained
    DRAIN_BLOCKED = "DrainBlocked"  # something keeps a pod from leaving
    DRAIN_FAILED = "DrainFailed"  # the drain failed and is repeated
    CORDON_UNREADABLE = "CordonUnreadable"  # the cordon annotation cannot be read
    CORDON_REMOVED_REPEATEDLY = "CordonRemovedRepeatedly"  # another writer uncordons the node again and again
    NODE_DELETING = "NodeDeleting"  # the Node object is being deleted
    NOT_AN_OPENSTACK_SERVER = "NotAnOpenStackServer"  # the providerID is not that of an OpenStack server
    SERVER_DELETED = "ServerDeleted"  # the deletion of the server is requested
    SERVER_DELETING = "ServerDeleting"  # the server is being deleted
    SERVER_GONE = "ServerGone"  # the server no longer exists
    SERVER_NOT_FOUND = "ServerNotFound"  # no server matches the node
    SERVER_REPLACED = "ServerReplaced"  # the server of the node is another one now
    SERVER_AMBIGUOUS = "ServerAmbiguous"  # several servers have the name of the node
    SERVER_ID_MISMATCH = "ServerIDMismatch"  # the server with the name of the node has another ID
    CLOUD_REQUEST_FAILED = "CloudRequestFailed"  # a request to OpenStack failed and is retried


class FreezeReason(StrEnum):
    """Reasons of the conditions of MaintenanceFreezes, and of their Events."""

    PENDING = "Pending"  # it has not begun
    ACTIVE = "Active"  # no new maintenance begins on the selected nodes
    ENDED = "Ended"  # it has no effect any more
    SELECTOR_INVALID = "SelectorInvalid"  # its selector is invalid, so it selects every node
    STARTED = "FreezeStarted"  # Event: it has begun
    FINISHED = "FreezeEnded"  # Event: it has ended, or was deleted while it was active


class OperatorEventReason(StrEnum):
    """Reasons of Events of the operator's namespace."""

    CONFIGURATION_REFUSED = "ConfigurationRefused"  # the configuration file is invalid
    PERMISSIONS_MISSING = "PermissionsMissing"  # profiles need permissions that the operator does not have
    HISTORY_FORBIDDEN = "HistoryForbidden"  # the operator may not write MaintenanceRecords
    NOTICE_UNREADABLE = "NoticeUnreadable"  # a message of a cloud cannot be parsed
    NODE_MAINTENANCES_FAILED = "NodeMaintenancesFailed"  # the NodeMaintenance component failed and is restarted
    HISTORY_FAILED = "HistoryFailed"  # the history component failed and is restarted
    DASHBOARD_FAILED = "DashboardFailed"  # the dashboard component failed and is restarted
    PROFILES_FAILED = "ProfilesFailed"  # the profiles component failed and is restarted
    NOTICES_FAILED = "NoticesFailed"  # the notices component failed and is restarted
    MACHINES_FAILED = "MachinesFailed"  # the machines component failed and is restarted
    NOTIFICATIONS_FAILED = "NotificationsFailed"  # the notifications component failed and is restarted
    ESX_FAILED = "EsxFailed"  # the ESX component failed and is restarted
    KUBERNIKUS_FAILED = "KubernikusFailed"  # the Kubernikus component failed and is restarted
    FREEZES_FAILED = "FreezesFailed"  # the component of MaintenanceFreezes failed and is restarted
    HUB_FAILED = "HubFailed"  # a component of the hub failed and is restarted
    NOTIFICATION_FAILED = "NotificationFailed"  # a notification about a NodeMaintenance or notice could not be sent


class DashboardEventReason(StrEnum):
    """Reasons of Events of nodes: actions of dashboard users."""

    MAINTENANCE_CREATED = "MaintenanceCreatedFromDashboard"  # a user created a NodeMaintenance
    CANCELLED = "CancelledFromDashboard"  # a user deleted a NodeMaintenance or cancelled a notice
    APPROVED = "ApprovedFromDashboard"  # a user approved a check of a profile
    HELD = "HeldFromDashboard"  # a user put a hold on the node
    RELEASED = "ReleasedFromDashboard"  # a user removed the hold


class AdmissionReason(StrEnum):
    """Reasons of conditions and Events of any object: the API server refused a write for a policy or a webhook."""

    ADMISSION_DENIED = "AdmissionDenied"  # a ValidatingAdmissionPolicy or webhook denied it
    ADMISSION_WEBHOOK_UNAVAILABLE = "AdmissionWebhookUnavailable"  # the webhook does not answer
