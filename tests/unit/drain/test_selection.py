"""Which pods leave, by kubectl's rules and in its words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.drain.selection import DaemonSetAnswer, Fate, Filters, Verdict, aggregate, judge, select
from haulout.kube.objects import Pod

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
EXISTS = DaemonSetAnswer()
MISSING = DaemonSetAnswer('daemonsets.apps "agent" not found', is_missing=True)
BROKEN = DaemonSetAnswer("the server is out of order")
ALL = Filters(force=True, ignore_daemonsets=True, delete_emptydir_data=True)
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


def judged(pod: Pod, filters: Filters = Filters(), *, daemon_set: DaemonSetAnswer = EXISTS) -> Verdict:  # noqa: B008 - frozen
    return judge(pod, filters, daemon_set=lambda _: daemon_set, now=NOW)


def test_a_pod_that_somebody_replaces_leaves_without_a_word() -> None:
    verdict = judged(a_pod())
    assert (verdict.fate, verdict.warnings, verdict.problem) == (Fate.LEAVES, (), "")


def test_a_custom_controller_is_a_controller() -> None:
    assert judged(a_pod(owner="example.dev/v1 Database")).fate is Fate.LEAVES


def test_an_owner_that_does_not_control_is_nobody() -> None:
    pod = a_pod(meta={"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}]})
    assert judged(pod).fate is Fate.REFUSED


@pytest.mark.parametrize(
    ("pod", "allowing", "refusal", "warning"),
    [
        (
            a_pod(owner=""),
            Filters(force=True),
            "Pods that declare no controller (use --force to override)",
            "deleting Pods that declare no controller",
        ),
        (
            a_pod(volumes=STORAGE),
            Filters(delete_emptydir_data=True),
            "Pods with local storage (use --delete-emptydir-data to override)",
            "deleting Pods with local storage",
        ),
    ],
)
def test_what_would_be_lost_goes_only_when_told(pod: Pod, allowing: Filters, refusal: str, warning: str) -> None:
    assert judged(pod) == Verdict(pod, Fate.REFUSED, problem=refusal)
    assert judged(pod, allowing) == Verdict(pod, Fate.LEAVES, (warning,))


def test_all_warnings_about_a_pod_are_kept() -> None:
    """Kubectl keeps only the last one."""
    verdict = judged(a_pod(owner="", volumes=STORAGE), ALL)
    assert verdict.warnings == ("deleting Pods with local storage", "deleting Pods that declare no controller")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("owner", ["", A_DAEMON, "batch/v1 Job"])
def test_a_finished_pod_always_leaves(phase: str, owner: str) -> None:
    assert judged(a_pod(owner=owner, phase=phase, volumes=STORAGE), daemon_set=BROKEN).fate is Fate.LEAVES


@pytest.mark.parametrize(
    ("answer", "filters", "fate", "said"),
    [
        (EXISTS, Filters(), Fate.REFUSED, "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"),
        (EXISTS, Filters(force=True), Fate.REFUSED, "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"),
        (EXISTS, Filters(ignore_daemonsets=True), Fate.STAYS, "ignoring DaemonSet-managed Pods"),
        (MISSING, Filters(), Fate.REFUSED, 'daemonsets.apps "agent" not found'),
        (MISSING, Filters(ignore_daemonsets=True), Fate.REFUSED, 'daemonsets.apps "agent" not found'),
        (MISSING, Filters(force=True), Fate.LEAVES, 'daemonsets.apps "agent" not found'),
        (BROKEN, ALL, Fate.REFUSED, "the server is out of order"),
    ],
)
def test_pods_of_daemon_sets(answer: DaemonSetAnswer, filters: Filters, fate: Fate, said: str) -> None:
    verdict = judged(a_pod(owner=A_DAEMON), filters, daemon_set=answer)
    assert (verdict.fate, verdict.problem or verdict.warnings[0]) == (fate, said)


def test_a_daemon_set_of_another_group_is_a_controller_like_any() -> None:
    pod = a_pod(owner="apps.kruise.io/v1alpha1 DaemonSet")
    assert judged(pod, daemon_set=BROKEN).fate is Fate.LEAVES


def test_an_ignored_daemon_sets_pod_keeps_its_storage() -> None:
    verdict = judged(a_pod(owner=A_DAEMON, volumes=STORAGE), Filters(ignore_daemonsets=True))
    assert verdict.warnings == ("ignoring DaemonSet-managed Pods",)


def test_a_static_pod_stays_without_a_word() -> None:
    pod = a_pod(owner="", meta={"annotations": {"kubernetes.io/config.mirror": "abc"}})
    assert judged(pod) == Verdict(pod, Fate.STAYS)


@pytest.mark.parametrize(
    ("overdue_seconds", "patience_seconds", "given_up"),
    [(61, 60, True), (60, 60, False), (60.9, 60, False), (3600, 0, False), (-5, 1, False)],
)
def test_a_pod_that_does_not_end_is_given_up_after_a_while(
    overdue_seconds: float, patience_seconds: int, *, given_up: bool
) -> None:
    ended = NOW - timedelta(seconds=overdue_seconds)
    pod = a_pod(meta={"deletionTimestamp": ended.isoformat()})
    filters = Filters(skip_wait_for_delete=timedelta(seconds=patience_seconds))
    assert judged(pod, filters).fate is (Fate.STAYS if given_up else Fate.LEAVES)


def test_a_node_is_told_about_in_one_line_for_each_reason() -> None:
    pods = [a_pod("a", owner=""), a_pod("b", volumes=STORAGE), a_pod("c", owner=""), a_pod("d")]
    selected = select(pods, Filters(), daemon_set=lambda _: EXISTS, now=NOW)
    assert selected.refusals == (
        "cannot delete Pods that declare no controller (use --force to override): shop/a, shop/c",
        "cannot delete Pods with local storage (use --delete-emptydir-data to override): shop/b",
    )
    allowed = select(pods, ALL, daemon_set=lambda _: EXISTS, now=NOW)
    assert allowed.refusals == ()
    assert [pod.name for pod in allowed.leaving] == ["a", "b", "c", "d"]
    assert allowed.warning == (
        "deleting Pods that declare no controller: shop/a, shop/c; deleting Pods with local storage: shop/b"
    )


def test_problems_are_joined_as_kubernetes_joins_them() -> None:
    assert aggregate(["a"]) == "a"
    assert aggregate(["a", "b", "a"]) == "[a, b]"


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
@pytest.mark.parametrize("owner", [A_DAEMON, "apps.kruise.io/v1alpha1 DaemonSet"])
def test_whatever_calls_itself_a_daemon_set_can_be_spared_without_asking(owner: str, phase: str) -> None:
    sparing = Filters(force=True, delete_emptydir_data=True, spare_daemonsets=True)
    assert judged(a_pod(owner=owner, phase=phase), sparing, daemon_set=BROKEN).fate is Fate.STAYS
    assert judged(a_pod(owner="example.dev/v1 Database", phase=phase), sparing).fate is Fate.LEAVES
