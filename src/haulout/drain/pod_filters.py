"""The pod filters of `kubectl drain`, in its order and with its messages.

Each pod passes the filters until one keeps it. `STAYS` is fine: a DaemonSet pod, a static pod, one past
skip-wait-for-delete. `REFUSED` refuses the drain: the pod would be lost without permission. kubectl keeps only the last
filter's result for a pod; here all warnings are kept, since a pod can have local storage and no controller.

Follows `kubectl/pkg/drain/filters.go` of Kubernetes 1.36.

`daemon_set_recreates_pod` tells whether the DaemonSet controller recreates an evicted pod on its node. It does unless
the node has a taint that the DaemonSet's template does not tolerate (`NodeShouldRunDaemonPod` in
`pkg/controller/daemon/daemon_controller.go` of Kubernetes). A cordon alone never prevents it: the controller adds a
toleration for it to all its pods (`AddOrUpdateDaemonPodTolerations` in `pkg/controller/daemon/util`).

In doubt the answer is yes, because evicting the pod would be useless then.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from haulout.api.objects import MIRROR_ANNOTATION, Base, OwnerReference, Pod, Taint

FINISHED = ("Succeeded", "Failed")

# The texts of staging/src/k8s.io/kubectl/pkg/drain/filters.go, because scripts look for them.
_DAEMON_SET_REFUSED = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"
_DAEMON_SET_STAYS = "ignoring DaemonSet-managed Pods"
_DAEMON_SET_RETURNS = "ignoring DaemonSet-managed Pods that tolerate all taints of the node and would come back"
_STORAGE_REFUSED = "Pods with local storage (use --delete-emptydir-data to override)"
_STORAGE_LOST = "deleting Pods with local storage"
_UNMANAGED_REFUSED = "Pods that declare no controller (use --force to override)"
_UNMANAGED_LOST = "deleting Pods that declare no controller"
_UNKNOWN = "unexpected error"

_REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
# Kubernetes itself sets and removes these as node conditions change. The DaemonSet controller adds tolerations for most
# of them (AddOrUpdateDaemonPodTolerations in pkg/controller/daemon/util/daemonset_util.go).
_KUBERNETES_TAINT_PREFIX = "node.kubernetes.io/"


class PodDisposition(StrEnum):
    """What happens to a pod: the result of the first filter that keeps it, or `LEAVES`."""

    LEAVES = "Leaves"
    STAYS = "Stays"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFilters:
    """The settings of the filters, named like kubectl's flags."""

    force: bool = False  # evict pods without a controller
    ignore_daemonsets: bool = False
    delete_emptydir_data: bool = False
    # Since deletionTimestamp; longer terminating pods are ignored; zero: never.
    skip_wait_for_delete: timedelta = timedelta()
    keep_any_daemonset: bool = False  # not in kubectl: see `is_owned_by_any_daemon_set`


class Toleration(Base, frozen=True):
    """A toleration of a pod spec, reduced to what decides about taints (`tolerationSeconds` only delays)."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether it tolerates a taint; an unknown operator counts as yes."""
        # As Toleration.ToleratesTaint in staging/src/k8s.io/api/core/v1/toleration.go: an empty effect or key matches
        # any.
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        # Exists has no value. A comparison operator, such as Gt and Lt of the feature
        # TaintTolerationComparisonOperators, counts as tolerated: the pod is then not evicted in vain.
        return self.operator not in ("", "Equal") or self.value == taint.value


@dataclass(frozen=True, slots=True)
class DaemonSetInfo:
    """The lookup result of a pod's DaemonSet; no problem if it exists."""

    problem: str = ""
    is_missing: bool = False
    tolerations: tuple[Toleration, ...] = ()  # of its pod template


class PodDeleteStatus(msgspec.Struct, frozen=True, gc=False):
    """What happens to a pod, with the warnings in the order of the filters."""

    pod: Pod
    disposition: PodDisposition
    warnings: tuple[str, ...] = ()
    problem: str = ""  # why it refuses the drain


@dataclass(frozen=True, slots=True)
class PodDeleteList:
    """The results for all pods of a node."""

    statuses: tuple[PodDeleteStatus, ...]

    @property
    def pods(self) -> tuple[Pod, ...]:
        return tuple(status.pod for status in self.statuses if status.disposition is PodDisposition.LEAVES)

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why the drain must not begin, one sentence per reason; empty if it may."""
        problems = (
            (status.problem or _UNKNOWN, status.pod)
            for status in self.statuses
            if status.disposition is PodDisposition.REFUSED
        )
        return tuple(f"cannot delete {text}: {pods}" for text, pods in _group_by_text(problems))

    @property
    def warning(self) -> str:
        """The warning before the drain begins, in one line; empty if there is none."""
        warnings = ((text, status.pod) for status in self.statuses for text in status.warnings)
        return "; ".join(f"{text}: {pods}" for text, pods in _group_by_text(warnings))


def filter_pod(
    pod: Pod,
    filters: PodFilters,
    *,
    daemon_set: Callable[[Pod], DaemonSetInfo],
    now: datetime,
    taints: Sequence[Taint] | None = None,
) -> PodDeleteStatus:
    """Filter one pod.

    Beyond kubectl: with the node's `taints`, DaemonSet pods leave if these taints keep the DaemonSet from recreating
    them.
    """
    warnings: list[str] = []
    for disposition, text in _filter_results(pod, filters, daemon_set=daemon_set, now=now, taints=taints):
        if disposition is PodDisposition.STAYS:
            return PodDeleteStatus(pod, disposition, (text,) if text else ())
        if disposition is PodDisposition.REFUSED:
            return PodDeleteStatus(pod, disposition, tuple(warnings), text)
        warnings.append(text)
    return PodDeleteStatus(pod, PodDisposition.LEAVES, tuple(warnings))


def _filter_results(
    pod: Pod,
    filters: PodFilters,
    *,
    daemon_set: Callable[[Pod], DaemonSetInfo],
    now: datetime,
    taints: Sequence[Taint] | None,
) -> Iterator[tuple[PodDisposition, str]]:
    """Yield the result of each filter in order. A caller that continues after a result has accepted it."""
    # The order of makeFilters in filters.go: a later filter must not overrule an earlier one.
    if is_past_wait_for_delete(pod, filters.skip_wait_for_delete, now=now):
        yield PodDisposition.STAYS, ""
    is_running = not is_finished(pod)
    is_daemon = is_running and belongs_to_daemon_set(pod)
    if is_owned_by_any_daemon_set(pod, filters) and (taints is None or not is_daemon):
        yield PodDisposition.STAYS, _DAEMON_SET_STAYS
    if is_daemon:
        yield from _daemon_set_results(daemon_set(pod), filters, taints)
    if is_static(pod):
        yield PodDisposition.STAYS, ""
    if is_running and has_local_storage(pod):
        yield (
            (PodDisposition.LEAVES, _STORAGE_LOST)
            if filters.delete_emptydir_data
            else (PodDisposition.REFUSED, _STORAGE_REFUSED)
        )
    if is_running and controller_of(pod) is None:
        yield (
            (PodDisposition.LEAVES, _UNMANAGED_LOST) if filters.force else (PodDisposition.REFUSED, _UNMANAGED_REFUSED)
        )


def _daemon_set_results(
    info: DaemonSetInfo, filters: PodFilters, taints: Sequence[Taint] | None
) -> Iterator[tuple[PodDisposition, str]]:
    if info.problem:
        orphaned = info.is_missing and filters.force
        yield (PodDisposition.LEAVES if orphaned else PodDisposition.REFUSED), info.problem
    elif taints is None or daemon_set_recreates_pod(info.tolerations, taints):
        warning = _DAEMON_SET_STAYS if taints is None else _DAEMON_SET_RETURNS
        yield (
            (PodDisposition.STAYS, warning)
            if filters.ignore_daemonsets
            else (PodDisposition.REFUSED, _DAEMON_SET_REFUSED)
        )


def is_finished(pod: Pod) -> bool:
    return pod.status.phase in FINISHED


def is_static(pod: Pod) -> bool:
    """Return whether the pod is a mirror pod, which only its kubelet can stop."""
    return MIRROR_ANNOTATION in pod.metadata.annotations


def has_local_storage(pod: Pod) -> bool:
    """Return whether the pod has an emptyDir volume, whose data is lost with it."""
    return any(volume.empty_dir is not None for volume in pod.spec.volumes)


def controller_of(pod: Pod) -> OwnerReference | None:
    """Return the controller of the pod, which creates its replacement."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return owner
    return None


def belongs_to_daemon_set(pod: Pod) -> bool:
    """Return whether a DaemonSet of API group apps controls the pod; other groups do not count."""
    owner = controller_of(pod)
    return owner is not None and (owner.api_version, owner.kind) == ("apps/v1", "DaemonSet")


def is_owned_by_any_daemon_set(pod: Pod, filters: PodFilters) -> bool:
    """Return whether a pod stays because any of its owners has the kind DaemonSet.

    This is the rule of controllers without the permission to read DaemonSets: any API group, existing or not, and also
    for finished pods.
    """
    return filters.keep_any_daemonset and any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def is_past_wait_for_delete(pod: Pod, timeout: timedelta, *, now: datetime) -> bool:
    """Return whether a pod is terminating for longer than `timeout`, in whole seconds; never if that is zero.

    The deletionTimestamp is the end of the grace period, and `timeout` counts from there.
    """
    ended = pod.metadata.deletion_timestamp
    return bool(timeout) and ended is not None and (now - ended) // _SECOND > timeout // _SECOND


def aggregate_errors(problems: Sequence[str]) -> str:
    """Return several problems in one line, in the format of Kubernetes' error aggregates."""
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


_SECOND = timedelta(seconds=1)


def _group_by_text(texts: Iterable[tuple[str, Pod]]) -> Iterator[tuple[str, str]]:
    """Yield each text once with its pods, in the order of the input."""
    groups: dict[str, list[str]] = {}
    for text, pod in texts:
        groups.setdefault(text, []).append(f"{pod.namespace}/{pod.name}")
    for text, names in groups.items():
        yield text, ", ".join(names)


def daemon_set_recreates_pod(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Return whether a DaemonSet with these tolerations recreates its pod on a node with these taints."""
    known = tuple(tolerations)
    return all(
        taint.effect not in _REPELLING_EFFECTS
        or taint.key.startswith(_KUBERNETES_TAINT_PREFIX)
        or any(toleration.tolerates(taint) for toleration in known)
        for taint in taints
    )
