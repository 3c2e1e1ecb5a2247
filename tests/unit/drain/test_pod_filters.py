"""Pod filters with the rules and messages of kubectl."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Pod
from haulout.drain.pod_filters import (
    DaemonSetInfo,
    PodDeleteList,
    PodDeleteStatus,
    PodDisposition,
    PodFilters,
    aggregate_errors,
    filter_pod,
)

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
EXISTS = DaemonSetInfo()
MISSING = DaemonSetInfo('daemonsets.apps "agent" not found', is_missing=True)
BROKEN = DaemonSetInfo("the server is out of order")
ALL = PodFilters(force=True, ignore_daemonsets=True, delete_emptydir_data=True)
STORAGE = ({"name": "scratch", "emptyDir": {}},)


def a_pod(name: str = "cart", *, owner: str = "apps/v1 ReplicaSet", phase: str = "Running", **more: Any) -> Pod:
    api_version, _, kind = owner.partition(" ")
    owners = [{"apiVersion": api_version, "kind": kind, "name": "agent", "uid": "u", "controller": True}]
    raw = {
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": owners if owner else []}
        | more.get("meta", {}),
        "spec": {"volumes": more.get("volumes", ())},
        "status": {"phase": phase},
    }
    return msgspec.convert(raw, Pod)


A_DAEMON = "apps/v1 DaemonSet"


def filter_one_pod(
    pod: Pod,
    filters: PodFilters = PodFilters(),  # noqa: B008 - frozen
    *,
    daemon_set: DaemonSetInfo = EXISTS,
) -> PodDeleteStatus:
    return filter_pod(pod, filters, daemon_set=lambda _: daemon_set, now=NOW)


def test_managed_pod_leaves_without_a_warning() -> None:
    status = filter_one_pod(a_pod())
    assert (status.disposition, status.warnings, status.problem) == (PodDisposition.LEAVES, (), "")


def test_custom_controller_counts_as_controller() -> None:
    assert filter_one_pod(a_pod(owner="example.dev/v1 Database")).disposition is PodDisposition.LEAVES


def test_owner_that_is_not_the_controller_does_not_count() -> None:
    pod = a_pod(meta={"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}]})
    assert filter_one_pod(pod).disposition is PodDisposition.REFUSED


@pytest.mark.parametrize(
    ("pod", "allowing", "refusal", "warning"),
    [
        (
            a_pod(owner=""),
            PodFilters(force=True),
            "Pods that declare no controller (use --force to override)",
            "deleting Pods that declare no controller",
        ),
        (
            a_pod(volumes=STORAGE),
            PodFilters(delete_emptydir_data=True),
            "Pods with local storage (use --delete-emptydir-data to override)",
            "deleting Pods with local storage",
        ),
    ],
)
def test_pod_with_data_or_without_controller_leaves_only_with_the_flag(
    pod: Pod, allowing: PodFilters, refusal: str, warning: str
) -> None:
    assert filter_one_pod(pod) == PodDeleteStatus(pod, PodDisposition.REFUSED, problem=refusal)
    assert filter_one_pod(pod, allowing) == PodDeleteStatus(pod, PodDisposition.LEAVES, (warning,))


def test_all_warnings_about_a_pod_are_kept() -> None:
    """Kubectl keeps only the last one."""
    status = filter_one_pod(a_pod(owner="", volumes=STORAGE), ALL)
    assert status.warnings == ("deleting Pods with local storage", "deleting Pods that declare no controller")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("owner", ["", A_DAEMON, "batch/v1 Job"])
def test_finished_pod_always_leaves(phase: str, owner: str) -> None:
    assert (
        filter_one_pod(a_pod(owner=owner, phase=phase, volumes=STORAGE), daemon_set=BROKEN).disposition
        is PodDisposition.LEAVES
    )


@pytest.mark.parametrize(
    ("answer", "filters", "disposition", "message"),
    [
        (EXISTS, PodFilters(), PodDisposition.REFUSED, "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"),
        (
            EXISTS,
            PodFilters(force=True),
            PodDisposition.REFUSED,
            "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)",
        ),
        (EXISTS, PodFilters(ignore_daemonsets=True), PodDisposition.STAYS, "ignoring DaemonSet-managed Pods"),
        (MISSING, PodFilters(), PodDisposition.REFUSED, 'daemonsets.apps "agent" not found'),
        (MISSING, PodFilters(ignore_daemonsets=True), PodDisposition.REFUSED, 'daemonsets.apps "agent" not found'),
        (MISSING, PodFilters(force=True), PodDisposition.LEAVES, 'daemonsets.apps "agent" not found'),
        (BROKEN, ALL, PodDisposition.REFUSED, "the server is out of order"),
    ],
)
def test_daemon_set_pods_are_filtered_like_in_kubectl(
    answer: DaemonSetInfo, filters: PodFilters, disposition: PodDisposition, message: str
) -> None:
    status = filter_one_pod(a_pod(owner=A_DAEMON), filters, daemon_set=answer)
    assert (status.disposition, status.problem or status.warnings[0]) == (disposition, message)


def test_daemon_set_of_another_api_group_counts_as_controller() -> None:
    pod = a_pod(owner="apps.kruise.io/v1alpha1 DaemonSet")
    assert filter_one_pod(pod, daemon_set=BROKEN).disposition is PodDisposition.LEAVES


def test_pod_of_an_ignored_daemon_set_has_no_storage_warning() -> None:
    status = filter_one_pod(a_pod(owner=A_DAEMON, volumes=STORAGE), PodFilters(ignore_daemonsets=True))
    assert status.warnings == ("ignoring DaemonSet-managed Pods",)


def test_static_pod_stays_without_a_warning() -> None:
    pod = a_pod(owner="", meta={"annotations": {"kubernetes.io/config.mirror": "abc"}})
    assert filter_one_pod(pod) == PodDeleteStatus(pod, PodDisposition.STAYS)


@pytest.mark.parametrize(
    ("overdue_seconds", "patience_seconds", "given_up"),
    [(61, 60, True), (60, 60, False), (60.9, 60, False), (3600, 0, False), (-5, 1, False)],
)
def test_terminating_pod_is_skipped_after_skip_wait_for_delete(
    overdue_seconds: float, patience_seconds: int, *, given_up: bool
) -> None:
    ended = NOW - timedelta(seconds=overdue_seconds)
    pod = a_pod(meta={"deletionTimestamp": ended.isoformat()})
    filters = PodFilters(skip_wait_for_delete=timedelta(seconds=patience_seconds))
    assert filter_one_pod(pod, filters).disposition is (PodDisposition.STAYS if given_up else PodDisposition.LEAVES)


def test_pod_delete_list_reports_one_line_per_reason() -> None:
    pods = [a_pod("a", owner=""), a_pod("b", volumes=STORAGE), a_pod("c", owner=""), a_pod("d")]
    selected = PodDeleteList(tuple(filter_one_pod(pod, PodFilters()) for pod in pods))
    assert selected.refusals == (
        "cannot delete Pods that declare no controller (use --force to override): shop/a, shop/c",
        "cannot delete Pods with local storage (use --delete-emptydir-data to override): shop/b",
    )
    allowed = PodDeleteList(tuple(filter_one_pod(pod, ALL) for pod in pods))
    assert allowed.refusals == ()
    assert [pod.name for pod in allowed.pods] == ["a", "b", "c", "d"]
    assert allowed.warning == (
        "deleting Pods that declare no controller: shop/a, shop/c; deleting Pods with local storage: shop/b"
    )


def test_aggregate_errors_joins_like_kubernetes() -> None:
    assert aggregate_errors(["a"]) == "a"
    assert aggregate_errors(["a", "b", "a"]) == "[a, b]"


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
@pytest.mark.parametrize("owner", [A_DAEMON, "apps.kruise.io/v1alpha1 DaemonSet"])
def test_keep_any_daemonset_keeps_pods_of_any_daemon_set_kind_without_a_lookup(owner: str, phase: str) -> None:
    sparing = PodFilters(force=True, delete_emptydir_data=True, keep_any_daemonset=True)
    assert (
        filter_one_pod(a_pod(owner=owner, phase=phase), sparing, daemon_set=BROKEN).disposition is PodDisposition.STAYS
    )
    assert (
        filter_one_pod(a_pod(owner="example.dev/v1 Database", phase=phase), sparing).disposition
        is PodDisposition.LEAVES
    )
