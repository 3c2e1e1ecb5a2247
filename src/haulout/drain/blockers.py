"""Blockers: why a pod does not leave, who prevents it, with numbers if there are any, and what an operator can do.

    blocker = refusal_blocker(pod, error)                       # the eviction was refused
    blocker = overdue_blocker(pod, node_ready=…, now=now)       # the eviction was accepted, but the pod is still there

A blocker is a value. Status, events, CLI, metrics and dashboard all show the same one. It does not contain since when
it blocks; `ActiveBlocker` does.

The messages parsed here are those of the eviction subresource (`pkg/registry/core/pod/storage/eviction.go` of
Kubernetes) and of admission webhooks. An unknown message is shown unchanged.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.api.evictionrequest import IMPERATIVE_EVICTION_RESPONDER, Eviction, ResponderStatus
from haulout.api.objects import Pod
from haulout.drain.pod_filters import controller_of
from haulout.errors import (
    AdmissionWebhookUnavailable,
    ApiError,
    Forbidden,
    KubeError,
    ServerFailure,
    TooManyRequests,
)
from haulout.kube.responses import admission_failure_of

# The messages of pkg/registry/core/pod/storage/eviction.go. A Status has no field for the name and the numbers.
_PDB_MESSAGE = re.compile(r"The disruption budget (?P<name>\S+) (?P<rest>.*)", re.DOTALL)
_PDB_HEALTHY_PODS = re.compile(r"needs (?P<needed>[0-9]+) healthy pods and has (?P<healthy>[0-9]+) currently")
_WEBHOOK_DENIAL = re.compile(r'admission webhook "(?P<name>[^"]+)" denied the request: ?(?P<said>.*)', re.DOTALL)
_SEVERAL_PDBS_MESSAGE = "has more than one PodDisruptionBudget"
# KubeVirt's webhook denies the eviction of a running virt-launcher pod and migrates the virtual machine. The pod ends
# after the migration. The descheduler recognizes the first message, too (EvictionInBackgroundErrorText in its
# pkg/descheduler/evictions/evictions.go), so KubeVirt keeps its text.
_KUBEVIRT_EVACUATION_MESSAGES = (
    "Eviction triggered evacuation",
    "Evacuation in progress",
)

# A kubelet kills what does not end within its grace period, and then needs time to report that.
_KUBELET_NEEDS = timedelta(seconds=15)


class BlockerKind(StrEnum):
    """What kind of object or condition blocks a pod."""

    DISRUPTION_BUDGET = "DisruptionBudget"
    SEVERAL_DISRUPTION_BUDGETS = "SeveralDisruptionBudgets"
    WEBHOOK = "AdmissionWebhook"
    ADMISSION_POLICY = "AdmissionPolicy"
    WEBHOOK_UNAVAILABLE = "AdmissionWebhookUnavailable"
    MIGRATION = "Migration"
    NAMESPACE = "TerminatingNamespace"
    PERMISSION = "Permission"
    FINALIZER = "Finalizer"
    KUBELET = "Kubelet"
    THROTTLING = "Throttling"
    API = "ApiError"
    POLICY = "Policy"
    RULE = "DrainRule"
    COMPLETION = "Completion"
    RESPONDER = "EvictionResponder"
    VOLUME = "VolumeDetach"


# These end by themselves. Nobody needs to act, so they are no reason for a warning or an alert.
PROGRESS_KINDS = (BlockerKind.MIGRATION, BlockerKind.THROTTLING, BlockerKind.COMPLETION, BlockerKind.RESPONDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """What a pod or the whole drain waits for. `object` blocks it, `workload` is the pod's controller."""

    kind: BlockerKind
    pod: str  # namespace/name; empty if the blocker is not about a pod
    uid: str  # of the pod, or of the object that is waited for
    object: str = ""  # such as `PodDisruptionBudget shop/cart`
    workload: str = ""  # such as `ReplicaSet shop/cart-5d9`
    reason: str  # a sentence without a full stop
    remedy: str = ""  # likewise; empty if waiting is all there is to do

    @property
    def is_progress(self) -> bool:
        return self.kind in PROGRESS_KINDS

    def __str__(self) -> str:
        prefix = f"{self.pod}: " if self.pod else ""
        return prefix + self.reason + (f"; {self.remedy}" if self.remedy else "")


_POD_DELETION_FORBIDDEN = 'cannot delete resource "pods"'  # in the message of an RBAC refusal
GRANT_DELETION = (
    "the drain policy needs the permission to delete pods: give it to the operator with `rbac.podDeletion` of the "
    "chart or `haulout manifests --allow-pod-deletion`"
)


def refusal_blocker(pod: Pod, error: KubeError) -> Blocker:
    """Return the blocker of a pod whose eviction or deletion was answered with `error`."""
    if not isinstance(error, ApiError):
        return _new_blocker(BlockerKind.API, pod, object="API server", reason=str(error))
    # A 429 without this cause (DisruptionBudgetCause in staging/src/k8s.io/api/policy/v1/types.go) comes from API
    # priority and fairness or from a webhook, and says nothing about a PodDisruptionBudget.
    pdb_message = next((cause.message for cause in error.causes if cause.reason == "DisruptionBudget"), None)
    if isinstance(error, TooManyRequests) and pdb_message is not None:
        return _pdb_blocker(pod, pdb_message)
    # Before `admission_failure_of`: webhooks may answer with any code, and KubeVirt's is progress, not a denial.
    if denied := _WEBHOOK_DENIAL.search(error.message):
        return _webhook_blocker(pod, denied["name"], denied["said"])
    if admission := admission_failure_of(error):
        is_unavailable = isinstance(error, AdmissionWebhookUnavailable)
        return _new_blocker(
            BlockerKind.WEBHOOK_UNAVAILABLE if is_unavailable else BlockerKind.ADMISSION_POLICY,
            pod,
            object=admission.object,
            reason=f"{admission.object} prevents the eviction of the pod: {admission.message}",
            remedy=admission.advice,
        )
    # An eviction is a create request, which the plugin NamespaceLifecycle refuses in a namespace that is being deleted
    # (staging/src/k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go).
    if any(cause.reason == "NamespaceTerminating" for cause in error.causes):
        return _new_blocker(
            BlockerKind.NAMESPACE,
            pod,
            object=f"Namespace {pod.namespace}",
            reason=f"namespace {pod.namespace} is being deleted and accepts no evictions; its pods are deleted with it",
        )
    return _api_error_blocker(pod, error)


def overdue_blocker(pod: Pod, *, node_ready: bool, now: datetime) -> Blocker | None:
    """Return why a terminating pod is still there; None until it is overdue."""
    ends_at, overdue_since = pod.metadata.deletion_timestamp, overdue_from(pod)
    if ends_at is None or overdue_since is None or now < overdue_since:
        return None
    overdue = f"its grace period ended at {ends_at:%H:%M:%S} UTC"
    # First, because the kubelet may have stopped the pod long ago, and a finalizer alone keeps the object.
    if pod.metadata.finalizers:
        names = ", ".join(pod.metadata.finalizers)
        return _new_blocker(
            BlockerKind.FINALIZER,
            pod,
            reason=f"{overdue}, but finalizers keep the pod: {names}",
            remedy="find out why their controllers do not remove them",
        )
    reason = f"{overdue}, but the kubelet has not confirmed that the pod has stopped"
    if node_ready:
        remedy = f"check the kubelet and the container runtime of node {pod.spec.node_name}"
    else:
        remedy = (
            f"node {pod.spec.node_name} is not ready: once you are sure that it is powered off, force-delete the pod"
        )
    return _new_blocker(BlockerKind.KUBELET, pod, object=f"Node {pod.spec.node_name}", reason=reason, remedy=remedy)


def overdue_from(pod: Pod) -> datetime | None:
    """Return from when on a terminating pod is overdue; None if it is not terminating."""
    ends_at = pod.metadata.deletion_timestamp
    return None if ends_at is None else ends_at + _KUBELET_NEEDS


def policy_blocker(pod: Pod, problem: str) -> Blocker:
    """Return the blocker of a pod that was created during the drain and that the policy must not evict."""
    return _new_blocker(
        BlockerKind.POLICY,
        pod,
        reason=f"the drain policy does not allow to evict it: {problem}",
        remedy="delete the pod yourself, or allow it in the policy",
    )


def unknown_state_blocker(pod: Pod, problem: str) -> Blocker:
    """Return the blocker of a pod whose lookups failed."""
    return _new_blocker(BlockerKind.API, pod, reason=f"cannot decide whether to evict it: {problem}")


def completion_blocker(pod: Pod, rule: str, *, object: str = "", until: datetime | None = None) -> Blocker:  # noqa: A002 - the field's name
    """Return the blocker of a pod that a rule lets run to completion; at `until`, it is evicted."""
    reason = f"{rule} waits until the pod has completed"
    if until is not None:
        reason += f"; it is evicted at {until:%Y-%m-%d %H:%M:%S} UTC if it has not"
    return _new_blocker(BlockerKind.COMPLETION, pod, object=object, reason=reason)


def invalid_rule_blocker(pod: Pod, rule: str, problem: str) -> Blocker:
    """Return the blocker of a pod to which an invalid rule applies."""
    return _new_blocker(
        BlockerKind.RULE,
        pod,
        object=rule,
        reason=f"{rule} is invalid: {problem}",
        remedy="correct it or remove it",
    )


def responder_blocker(pod: Pod, eviction: Eviction, responder: ResponderStatus) -> Blocker:
    """Return the blocker for an Eviction that a responder works on.

    If the responder is Kubernetes' imperative eviction and a PodDisruptionBudget refuses it, return the blocker of
    that.
    """
    if responder.name == IMPERATIVE_EVICTION_RESPONDER and _PDB_MESSAGE.search(responder.message):
        return _pdb_blocker(pod, responder.message)
    reason = f"responder {responder.name} is evicting it"
    if responder.message:
        reason += f": {responder.message.rstrip('.')}"
    if responder.expected_completion_time is not None:
        reason += f"; expected to be done at {responder.expected_completion_time:%H:%M:%S} UTC"
    if responder.heartbeat_time is None:
        reason += "; it has not reported yet"
    return _new_blocker(BlockerKind.RESPONDER, pod, object=f"Eviction {eviction.key}", reason=reason)


def workload_of(pod: Pod) -> str:
    """Return the pod's controller as `Kind namespace/name`; empty if it has none."""
    owner = controller_of(pod)
    return "" if owner is None else f"{owner.kind} {pod.namespace}/{owner.name}"


def blocker_fields(blocker: Blocker) -> dict[str, str]:
    names = ("kind", "pod", "object", "workload", "reason", "remedy")
    return {name: str(getattr(blocker, name)) for name in names}


def _pdb_blocker(pod: Pod, message: str) -> Blocker:
    found = _PDB_MESSAGE.search(message)
    if found is None:
        return _new_blocker(BlockerKind.DISRUPTION_BUDGET, pod, reason=message)
    name = f"PodDisruptionBudget {pod.namespace}/{found['name'].rstrip('.')}"
    numbers = _PDB_HEALTHY_PODS.search(found["rest"])
    # createTooManyRequestsError of eviction.go: the disruption controller has not processed the latest spec yet, so the
    # message has no numbers.
    if numbers is None:
        return _new_blocker(
            BlockerKind.DISRUPTION_BUDGET, pod, object=name, reason=f"{name} {found['rest'].rstrip('.')}"
        )
    needed, healthy = int(numbers["needed"]), int(numbers["healthy"])
    reason = f"{name} needs {needed} healthy pods and has {healthy}"
    # With too few healthy pods, the budget blocks because of a fault; otherwise because it leaves no room by design.
    if healthy < needed:
        remedy = "find out why pods of this workload are not ready"
    else:
        remedy = "run more replicas, or relax the PodDisruptionBudget"
    return _new_blocker(BlockerKind.DISRUPTION_BUDGET, pod, object=name, reason=reason, remedy=remedy)


def _webhook_blocker(pod: Pod, name: str, message: str) -> Blocker:
    if message.startswith(_KUBEVIRT_EVACUATION_MESSAGES):
        return _new_blocker(BlockerKind.MIGRATION, pod, object=f"webhook {name}", reason=message)
    return _new_blocker(
        BlockerKind.WEBHOOK,
        pod,
        object=f"webhook {name}",
        reason=f"webhook {name} denies the eviction: {message or 'no reason given'}",
        remedy="ask the owner of the webhook, or wait if its message says that it is working on it",
    )


def _api_error_blocker(pod: Pod, error: ApiError) -> Blocker:
    if isinstance(error, TooManyRequests):
        return _new_blocker(BlockerKind.THROTTLING, pod, reason=f"the API server is throttling: {error.message}")
    # EvictionREST.Create of eviction.go answers 500 here. It is no failure of the server, and no retry helps.
    if isinstance(error, ServerFailure) and _SEVERAL_PDBS_MESSAGE in error.message:
        return _new_blocker(
            BlockerKind.SEVERAL_DISRUPTION_BUDGETS,
            pod,
            reason="more than one PodDisruptionBudget selects the pod, and Kubernetes evicts no such pod",
            remedy=f"change the selectors in namespace {pod.namespace}, so that one budget selects it",
        )
    if isinstance(error, Forbidden):
        is_deletion = _POD_DELETION_FORBIDDEN in error.message
        return _new_blocker(
            BlockerKind.PERMISSION,
            pod,
            reason=f"not allowed: {error.message}",
            remedy=GRANT_DELETION if is_deletion else "`haulout cluster-info` shows what is missing",
        )
    return _new_blocker(BlockerKind.API, pod, reason=error.message)


def _new_blocker(kind: BlockerKind, pod: Pod, *, reason: str, object: str = "", remedy: str = "") -> Blocker:  # noqa: A002 - the field's name
    return Blocker(
        kind=kind,
        pod=pod.key,
        uid=pod.uid,
        object=object,
        workload=workload_of(pod),
        reason=" ".join(reason.split()),
        remedy=remedy,
    )
