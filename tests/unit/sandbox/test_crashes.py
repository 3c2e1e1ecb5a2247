"""Crash points: an operator that can be stopped at any write is told from one that cannot."""

from datetime import timedelta

import pytest

from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import Write
from support.builders import a_node
from support.clusters import a_cluster
from support.crashes import Crash, CrashesNotSurvived, Stage, is_counted, survives_crashes
from support.endings import end_state
from support.histories import History
from support.invariants import ForeignThingsUntouched
from support.labeller import DONE, careful, hasty

OURS = ForeignThingsUntouched(operator={"operator"}, ours=("example.com/*",))


async def two_nodes(stage: Stage) -> None:
    async with a_cluster(stage.clock).with_nodes(2).on_the_sandbox() as cluster:
        stage.begin(cluster.cluster)
        await cluster.pass_time(minutes=1)


def test_an_operator_that_goes_on_where_it_stopped_survives_a_crash_at_any_write() -> None:
    assert survives_crashes(two_nodes, operator=careful, invariants=[OURS]) == 4


def test_one_that_forgets_is_caught_with_the_write_at_which_it_died() -> None:
    with pytest.raises(CrashesNotSurvived) as caught:
        survives_crashes(two_nodes, operator=hasty)
    said = str(caught.value)
    assert said.startswith("4 of 8 crashes:")
    assert "a crash after write 1 (PATCH /api/v1/nodes/n1): it came to another end" in said
    assert "a crash before write 2 (PATCH /api/v1/nodes/n1): it came to another end" in said
    assert f"nodes n1.metadata.labels.{DONE} gone" in said
    assert "a crash after write 2 " not in said


def test_of_crashes_that_leave_the_same_one_is_tried_where_nothing_matters_but_what_is_left() -> None:
    with pytest.raises(CrashesNotSurvived) as caught:
        survives_crashes(two_nodes, operator=hasty, inward=True)
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
                await other.patch(NODES, "n2", merge_patch({"metadata": {"labels": {DONE: "true"}}}))
            await client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {f"{DONE}-{number}": "true"}}}))
        await client.clock.sleep(timedelta(days=1))

    async def story(stage: Stage) -> None:
        async with a_cluster(stage.clock).with_nodes(2).on_the_sandbox() as cluster:
            clients.append(cluster.cluster.client("another"))
            stage.begin(cluster.cluster)
            await cluster.pass_time(minutes=1)

    def counts(request: Request) -> bool:
        return is_counted(request) and request.path.endswith("/n1")

    with pytest.raises(CrashesNotSurvived, match=r"^4 of 4 crashes"):
        survives_crashes(story, operator=slow, counts=counts, compare=lambda _: object(), inward=True)


def test_one_crash_can_be_run_alone() -> None:
    survives_crashes(two_nodes, operator=hasty, only=Crash(2))
    with pytest.raises(CrashesNotSurvived, match=r"alone: only=Crash\(number=1, before=False\)"):
        survives_crashes(two_nodes, operator=hasty, only=Crash(1))


def test_invariants_are_checked_on_the_history_of_each_run() -> None:
    strict = ForeignThingsUntouched(operator={"operator"}, ours=())
    with pytest.raises(
        CrashesNotSurvived, match="even without a crash: ForeignThingsUntouched: nodes n1: the annotation"
    ):
        survives_crashes(two_nodes, operator=careful, invariants=[strict])


def test_what_fails_in_a_story_is_told_with_its_crash() -> None:
    async def story(stage: Stage) -> None:
        async with a_cluster(stage.clock).with_nodes(1).on_the_sandbox() as cluster:
            stage.begin(cluster.cluster)
            await cluster.eventually(lambda: DONE in cluster.get("nodes", "n1")["metadata"]["labels"])

    with pytest.raises(CrashesNotSurvived, match=r"a crash after write 1 .*: AssertionError: not within 0:05:00"):
        survives_crashes(story, operator=hasty)


def test_a_story_that_does_not_repeat_itself_is_found_out() -> None:
    lives = iter(range(100))

    async def fickle(client: Client) -> None:
        if next(lives) == 0:
            await careful(client)
        await client.clock.sleep(timedelta())

    with pytest.raises(CrashesNotSurvived, match="had only 0 writes: the story does not repeat itself"):
        survives_crashes(two_nodes, operator=fickle)


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
    assert is_counted(request_) is counted


def a_history(*, uid: str, at: str, suffix: str) -> list[Write]:
    node = a_node(f"n-{suffix}").annotated({"at": at, "of": f"{suffix} {uid}"}).ready()
    return History().put({**node, "metadata": {**node["metadata"], "uid": uid, "resourceVersion": suffix}})


def test_ends_are_compared_without_what_differs_from_run_to_run() -> None:
    one = a_history(uid="00000000-0000-4000-8000-000000000001", at="2026-01-05T09:00:00Z", suffix="xyz")
    other = a_history(uid="00000000-0000-4000-8000-000000000002", at="2026-01-05T10:00:00.5+01:00", suffix="abc")
    assert end_state(one) != end_state(other)

    def renamed(text: str) -> str:
        return text.replace("xyz", "SUFFIX").replace("abc", "SUFFIX")

    assert end_state(one, renamed=renamed) == end_state(other, renamed=renamed)
    assert end_state(History().put(a_node("a")).lose("nodes", "a")) == {}
