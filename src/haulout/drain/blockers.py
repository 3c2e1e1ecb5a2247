"""Why a pod does not leave: who says no, in numbers where there are any, and what a person can do about it.

    blocker = refused(pod, error)              # an eviction that was answered with "not now" or "no"
    blocker = lingering(pod, node_ready=…)     # one that was accepted, but the pod does not go

A blocker is a value. Status, events, the command line, metrics and the dashboard all show the same one. It does not
know since when it has been there: whoever keeps it does.

The texts it reads are those of the eviction subresource (`pkg/registry/core/pod/storage/eviction.go` of Kubernetes) and
of admission webhooks. What it does not recognise is shown as it came.
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
from haulout.kube.admission_errors import admission_failure_of

_PDB_MESSAGE = re.compile(r"The disruption budget (?P<name>\S+) (?P<rest>.*)", re.DOTALL)
_PDB_HEALTHY_PODS = re.compile(r"needs (?P<needed>[0-9]+) healthy pods and has (?P<healthy>[0-9]+) currently")
_WEBHOOK_DENIAL = re.compile(r'admission webhook "(?P<name>[^"]+)" denied the request: ?(?P<said>.*)', re.DOTALL)
_SEVERAL_PDBS_MESSAGE = "has more than one PodDisruptionBudget"
_KUBEVIRT_EVACUATION_MESSAGES = (
    "Eviction triggered evacuation",
    "Evacuation in progress",
)  # KubeVirt moves the machine, then the pod goes

# A kubelet kills what does not end within its grace period, and then needs a moment to say so.
_KUBELET_NEEDS = timedelta(seconds=15)


class BlockerKind(StrEnum):
    """What kind of thing stands in the way."""

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


PROGRESS_KINDS = (BlockerKind.MIGRATION, BlockerKind.THROTTLING, BlockerKind.COMPLETION, BlockerKind.RESPONDER)
"""Those with which things go their way, and waiting is all there is to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """What a pod waits for, or the drain as a whole. `object` is to blame, `workload` is who owns the pod."""

    kind: BlockerKind
    pod: str  # namespace/name; empty if it is not about a pod
    uid: str  # of the pod, or of what is waited for
    object: str = ""  # such as `PodDisruptionBudget shop/cart`
    workload: str = ""  # such as `ReplicaSet shop/cart-5d9`
    reason: str  # a sentence without an end mark
    advice: str = ""  # likewise; empty if there is nothing to do but wait

    @property
    def is_progress(self) -> bool:
        """Tell whether waiting is all there is to do."""
        return self.kind in PROGRESS_KINDS

    def __str__(self) -> str:
        """Return it in one line."""
        prefix = f"{self.pod}: " if self.pod else ""
        return prefix + self.reason + (f"; {self.advice}" if self.advice else "")


_POD_DELETION_FORBIDDEN = 'cannot delete resource "pods"'  # in a refusal of RBAC
GRANT_DELETION = (
    "the policy deletes pods, which whoever drains must be allowed to: an operator by `rbac.podDeletion` of the chart "
    "or `haulout manifests --allow-pod-deletion`"
)


def refusal_blocker(pod: Pod, error: KubeError) -> Blocker:
    """Return what stands in the way when an eviction of `pod` was answered with `error`."""
    if not isinstance(error, ApiError):
        return _new_blocker(BlockerKind.API, pod, object="API server", reason=str(error))
    pdb_message = next((cause.message for cause in error.causes if cause.reason == "DisruptionBudget"), None)
    if isinstance(error, TooManyRequests) and pdb_message is not None:
        return _pdb_blocker(pod, pdb_message)
    if denied := _WEBHOOK_DENIAL.search(error.message):
        return _webhook_blocker(pod, denied["name"], denied["said"])
    if admission := admission_failure_of(error):
        is_unavailable = isinstance(error, AdmissionWebhookUnavailable)
        return _new_blocker(
            BlockerKind.WEBHOOK_UNAVAILABLE if is_unavailable else BlockerKind.ADMISSION_POLICY,
            pod,
            object=admission.object,
            reason=f"{admission.object} does not let the pod be evicted: {admission.message}",
            advice=admission.advice,
        )
    if any(cause.reason == "NamespaceTerminating" for cause in error.causes):
        return _new_blocker(
            BlockerKind.NAMESPACE,
            pod,
            object=f"Namespace {pod.namespace}",
            reason=f"namespace {pod.namespace} is being deleted, and takes no evictions; its pods go with it",
        )
    return _api_error_blocker(pod, error)


def overdue_blocker(pod: Pod, *, node_ready: bool, now: datetime) -> Blocker | None:
    """Return why a pod that was told to go is still there; None while it has the right to be."""
    ends_at, overdue_since = pod.metadata.deletion_timestamp, overdue_from(pod)
    if ends_at is None or overdue_since is None or now < overdue_since:
        return None
    overdue = f"it should have been gone since {ends_at:%H:%M:%S} UTC"
    if pod.metadata.finalizers:
        names = ", ".join(pod.metadata.finalizers)
        return _new_blocker(
            BlockerKind.FINALIZER,
            pod,
            reason=f"{overdue}, but finalizers hold it: {names}",
            advice="find out why their controller does not take them off",
        )
    reason = f"{overdue}, but its kubelet does not confirm that it ended"
    if node_ready:
        advice = f"look at the kubelet and the container runtime of node {pod.spec.node_name}"
    else:
        advice = f"node {pod.spec.node_name} is not ready: once it is known to be off, delete the pod with force"
    return _new_blocker(BlockerKind.KUBELET, pod, object=f"Node {pod.spec.node_name}", reason=reason, advice=advice)


def overdue_from(pod: Pod) -> datetime | None:
    """Return the instant from which on a pod that was told to go has no right to be there any more."""
    ends_at = pod.metadata.deletion_timestamp
    return None if ends_at is None else ends_at + _KUBELET_NEEDS


def policy_blocker(pod: Pod, problem: str) -> Blocker:
    """Return the blocker for a pod that came while its node was drained, and that the policy does not let go."""
    return _new_blocker(
        BlockerKind.POLICY,
        pod,
        reason=f"the policy does not let it go: {problem}",
        advice="delete it yourself, or allow it in the policy",
    )


def unknown_state_blocker(pod: Pod, problem: str) -> Blocker:
    """Return the blocker for a pod of which something must be known that the server does not tell."""
    return _new_blocker(BlockerKind.API, pod, reason=f"cannot tell what may be done with it: {problem}")


def completion_blocker(pod: Pod, rule: str, *, object: str = "", until: datetime | None = None) -> Blocker:  # noqa: A002 - the field's name
    """Return what is waited for when a rule lets a pod finish by itself, at most until it is evicted."""
    reason = f"{rule} lets it run until it has finished by itself"
    if until is not None:
        reason += f"; if it has not by {until:%Y-%m-%d %H:%M:%S} UTC, it is evicted"
    return _new_blocker(BlockerKind.COMPLETION, pod, object=object, reason=reason)


def invalid_rule_blocker(pod: Pod, rule: str, problem: str) -> Blocker:
    """Return the blocker for a pod about which a rule says something that cannot be read."""
    return _new_blocker(
        BlockerKind.RULE,
        pod,
        object=rule,
        reason=f"{rule} says something about it that cannot be read: {problem}",
        advice="repair it, or take it away",
    )


def responder_blocker(pod: Pod, eviction: Eviction, responder: ResponderStatus) -> Blocker:
    """Return who works on an Eviction of `pod`, and how far that is; what a budget says of it counts as its own."""
    if responder.name == IMPERATIVE_EVICTION_RESPONDER and _PDB_MESSAGE.search(responder.message):
        return _pdb_blocker(pod, responder.message)
    reason = f"responder {responder.name} makes it leave"
    if responder.message:
        reason += f": {responder.message.rstrip('.')}"
    if responder.expected_completion_time is not None:
        reason += f"; expected to be done at {responder.expected_completion_time:%H:%M:%S} UTC"
    if responder.heartbeat_time is None:
        reason += "; it has not reported yet"
    return _new_blocker(BlockerKind.RESPONDER, pod, object=f"Eviction {eviction.key}", reason=reason)


def workload_of(pod: Pod) -> str:
    """Return who owns a pod, as `Kind namespace/name`; empty if nobody does."""
    owner = controller_of(pod)
    return "" if owner is None else f"{owner.kind} {pod.namespace}/{owner.name}"


def blocker_fields(blocker: Blocker) -> dict[str, str]:
    """Return what is told of a blocker to people and programs, by the names that it has there."""
    names = ("kind", "pod", "object", "workload", "reason", "advice")
    return {name: str(getattr(blocker, name)) for name in names}


def _pdb_blocker(pod: Pod, message: str) -> Blocker:
    found = _PDB_MESSAGE.search(message)
    if found is None:
        return _new_blocker(BlockerKind.DISRUPTION_BUDGET, pod, reason=message)
    name = f"PodDisruptionBudget {pod.namespace}/{found['name'].rstrip('.')}"
    numbers = _PDB_HEALTHY_PODS.search(found["rest"])
    if numbers is None:
        return _new_blocker(
            BlockerKind.DISRUPTION_BUDGET, pod, object=name, reason=f"{name} {found['rest'].rstrip('.')}"
        )
    needed, healthy = int(numbers["needed"]), int(numbers["healthy"])
    reason = f"{name} needs {needed} healthy pods and has {healthy}"
    if healthy < needed:
        advice = "find out why pods of this workload are not ready"
    else:
        advice = "run more replicas, or let the budget allow a disruption"
    return _new_blocker(BlockerKind.DISRUPTION_BUDGET, pod, object=name, reason=reason, advice=advice)


def _webhook_blocker(pod: Pod, name: str, message: str) -> Blocker:
    if message.startswith(_KUBEVIRT_EVACUATION_MESSAGES):
        return _new_blocker(BlockerKind.MIGRATION, pod, object=f"webhook {name}", reason=message)
    return _new_blocker(
        BlockerKind.WEBHOOK,
        pod,
        object=f"webhook {name}",
        reason=f"webhook {name} denies the eviction: {message or 'it does not say why'}",
        advice="ask those who run the webhook, or wait if it says that it is at work",
    )


def _api_error_blocker(pod: Pod, error: ApiError) -> Blocker:
    if isinstance(error, TooManyRequests):
        return _new_blocker(BlockerKind.THROTTLING, pod, reason=f"the API server is throttling: {error.message}")
    if isinstance(error, ServerFailure) and _SEVERAL_PDBS_MESSAGE in error.message:
        return _new_blocker(
            BlockerKind.SEVERAL_DISRUPTION_BUDGETS,
            pod,
            reason="more than one PodDisruptionBudget selects the pod, and Kubernetes evicts no such pod",
            advice=f"change the selectors in namespace {pod.namespace}, so that one budget selects it",
        )
    if isinstance(error, Forbidden):
        is_deletion = _POD_DELETION_FORBIDDEN in error.message
        return _new_blocker(
            BlockerKind.PERMISSION,
            pod,
            reason=f"not allowed: {error.message}",
            advice=GRANT_DELETION if is_deletion else "`haulout cluster-info` shows what is missing",
        )
    return _new_blocker(BlockerKind.API, pod, reason=error.message)


def _new_blocker(kind: BlockerKind, pod: Pod, *, reason: str, object: str = "", advice: str = "") -> Blocker:  # noqa: A002 - the field's name
    return Blocker(
        kind=kind,
        pod=pod.key,
        uid=pod.uid,
        object=object,
        workload=workload_of(pod),
        reason=" ".join(reason.split()),
        advice=advice,
    )
