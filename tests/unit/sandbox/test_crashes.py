"""Crash points: an operator that can be stopped at any write is told from one that cannot."""

from datetime import timedelta

import pytest

from haulout.api.resources import NODES
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import Write
from support.builders.objects import a_node
from support.builders.write_history import WriteHistory
from support.clusters.cluster_plan import a_cluster
from support.expectations.end_state import end_state
from support.fakes.labeller import DONE_LABEL, crash_safe_labeller, crash_unsafe_labeller
from support.faults.crash_test import Crash, CrashesNotSurvived, CrashRun, assert_survives_crashes, counts_as_write
from support.invariants import ForeignMetadataUntouched

OURS = ForeignMetadataUntouched(operator={"operator"}, ours=("example.com/*",))


async def two_nodes(stage: CrashRun) -> None:
    async with a_cluster(stage.clock).with_nodes(2).on_the_sandbox() as cluster:
        stage.start_operator(cluster.cluster)
        await cluster.pass_time(minutes=1)


def test_an_operator_that_goes_on_where_it_stopped_survives_a_crash_at_any_write() -> None:
    assert assert_survives_crashes(two_nodes, operator=crash_safe_labeller, invariants=[OURS]) == 4


def test_one_that_forgets_is_caught_with_the_write_at_which_it_died() -> None:
    with pytest.raises(CrashesNotSurvived) as caught:
        assert_survives_crashes(two_nodes, operator=crash_unsafe_labeller)
    said = str(caught.value)
    assert said.startswith("4 of 8 crashes:")
    assert "a crash after write 1 (PATCH /api/v1/nodes/n1): it came to another end" in said
    assert "a crash before write 2 (PATCH /api/v1/nodes/n1): it came to another end" in said
    assert f"nodes n1.metadata.labels.{DONE_LABEL} gone" in said
    assert "a crash after write 2 " not in said


def test_of_crashes_that_leave_the_same_one_is_tried_where_nothing_matters_but_what_is_left() -> None:
    with pytest.raises(CrashesNotSurvived) as caught:
        assert_survives_crashes(two_nodes, operator=crash_unsafe_labeller, writes_only_to_api=True)
    said = str(caught.value)
    assert said.startswith("2 of 5 crashes:")
    assert "a crash after write 1 (PATCH /api/v1/nodes/n1): it came to another end" in said
    assert "a crash after write 3 (PATCH /api/v1/nodes/n2): it came to another end" in said


@pytest.mark.parametrize("meanwhile", ["another writes", "time passes", "it writes what is not counted"])
def test_a_crash_is_not_taken_for_the_one_before_if_something_happens_in_between(meanwhile: str) -> None:
    clients: list[Client] = []

    async def slow(client: Client) -> None:
        for number in range(2):
            if number and meanwhile == "time passes":
                await client.clock.sleep(timedelta(seconds=1))
            if number and meanwhile != "time passes":
                other = clients[-1] if meanwhile == "another writes" else client
                await other.patch(NODES, "n2", merge_patch({"metadata": {"labels": {DONE_LABEL: "true"}}}))
            await client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {f"{DONE_LABEL}-{number}": "true"}}}))
        await client.clock.sleep(timedelta(days=1))

    async def story(stage: CrashRun) -> None:
        async with a_cluster(stage.clock).with_nodes(2).on_the_sandbox() as cluster:
            clients.append(cluster.cluster.client("another"))
            stage.start_operator(cluster.cluster)
            await cluster.pass_time(minutes=1)

    def counts(request: Request) -> bool:
        return counts_as_write(request) and request.path.endswith("/n1")

    with pytest.raises(CrashesNotSurvived, match=r"^4 of 4 crashes"):
        assert_survives_crashes(
            story, operator=slow, counts=counts, compare=lambda _: object(), writes_only_to_api=True
        )


def test_one_crash_can_be_run_alone() -> None:
    assert_survives_crashes(two_nodes, operator=crash_unsafe_labeller, only=Crash(2))
    with pytest.raises(CrashesNotSurvived, match=r"alone: only=Crash\(number=1, before=False\)"):
        assert_survives_crashes(two_nodes, operator=crash_unsafe_labeller, only=Crash(1))


def test_invariants_are_checked_on_the_history_of_each_run() -> None:
    strict = ForeignMetadataUntouched(operator={"operator"}, ours=())
    with pytest.raises(
        CrashesNotSurvived, match="even without a crash: ForeignMetadataUntouched: nodes n1: the annotation"
    ):
        assert_survives_crashes(two_nodes, operator=crash_safe_labeller, invariants=[strict])


def test_a_failing_scenario_is_reported_with_its_crash() -> None:
    async def story(stage: CrashRun) -> None:
        async with a_cluster(stage.clock).with_nodes(1).on_the_sandbox() as cluster:
            stage.start_operator(cluster.cluster)
            await cluster.eventually(lambda: DONE_LABEL in cluster.get("nodes", "n1")["metadata"]["labels"])

    with pytest.raises(CrashesNotSurvived, match=r"a crash after write 1 .*: AssertionError: not within 0:05:00"):
        assert_survives_crashes(story, operator=crash_unsafe_labeller)


def test_a_story_that_does_not_repeat_itself_is_found_out() -> None:
    lives = iter(range(100))

    async def fickle(client: Client) -> None:
        if next(lives) == 0:
            await crash_safe_labeller(client)
        await client.clock.sleep(timedelta())

    with pytest.raises(CrashesNotSurvived, match="had only 0 writes: the story does not repeat itself"):
        assert_survives_crashes(two_nodes, operator=fickle)


@pytest.mark.parametrize(
    ("request_", "counted"),
    [
        (Request(method="PATCH", path="/api/v1/nodes/n1"), True),
        (Request(method="POST", path="/api/v1/namespaces/shop/pods/p/eviction"), True),
        (Request(method="GET", path="/api/v1/nodes/n1"), False),
        (Request(method="POST", path="/api/v1/namespaces/shop/pods/p/eviction", query=(("dryRun", "All"),)), False),
        (Request(method="PUT", path="/apis/coordination.k8s.io/v1/namespaces/shop/leases/lock"), False),
        (Request(method="POST", path="/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), False),
    ],
)
def test_what_counts_as_a_write(request_: Request, *, counted: bool) -> None:
    assert counts_as_write(request_) is counted


def a_history(*, uid: str, at: str, suffix: str) -> list[Write]:
    node = a_node(f"n-{suffix}").annotated({"at": at, "of": f"{suffix} {uid}"}).ready()
    return WriteHistory().put({**node, "metadata": {**node["metadata"], "uid": uid, "resourceVersion": suffix}})


def test_ends_are_compared_without_what_differs_from_run_to_run() -> None:
    one = a_history(uid="00000000-0000-4000-8000-000000000001", at="2026-01-05T09:00:00Z", suffix="xyz")
    other = a_history(uid="00000000-0000-4000-8000-000000000002", at="2026-01-05T10:00:00.5+01:00", suffix="abc")
    assert end_state(one) != end_state(other)

    def renamed(text: str) -> str:
        return text.replace("xyz", "SUFFIX").replace("abc", "SUFFIX")

    assert end_state(one, normalize_name=renamed) == end_state(other, normalize_name=renamed)
    assert end_state(WriteHistory().put(a_node("a")).delete("nodes", "a")) == {}
