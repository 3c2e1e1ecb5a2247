"""A node comes back as it was, whatever people do to our annotations, taints and labels during its maintenance."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from haulout.budget.cordon_copies import CONFIG_MAP
from haulout.drain.cordon import BACKUP, MARK
from haulout.errors import AlreadyExists, NotFound
from haulout.kinds.notice import definition
from haulout.kube.objects import RawObject
from support import cordon_copies
from support.clusters import Plans
from support.listening import a_notice
from support.live import LiveCluster
from support.maintaining import (
    EXCLUDE_LABEL,
    blocked_on,
    countermand,
    entitled,
    events,
    has_lease,
    invariants,
    is_blocked,
    is_given_back,
    is_gone,
    is_taken,
    operate,
    order,
    over,
    status,
    succeeded,
    taints,
)
from support.profiled import BY_ANNOTATIONS, NAMESPACE, a_file, annotate, attach, operating, state

ON_NOTICE = BY_ANNOTATIONS.replace("- name: os\n", "- name: os\n  onNotice: true\n")
OTHER = {"since": "2026-01-01T00:00:00Z"}
GARBAGE = '{"owners": 7}'
UNSCHEDULABLE = "node.kubernetes.io/unschedulable:NoSchedule"

ANNOTATIONS: Mapping[str, Mapping[str, str | None]] = {
    "mark removed": {MARK: None},
    "mark emptied": {MARK: "{}"},
    "mark overwritten": {MARK: GARBAGE},
    "backup removed": {BACKUP: None},
    "both removed": {MARK: None, BACKUP: None},
    "both emptied": {MARK: "{}", BACKUP: "{}"},
    "both overwritten": {MARK: GARBAGE, BACKUP: "?"},
}
EDITS = (*ANNOTATIONS, "before edited", "wishes edited")


async def tamper(cluster: LiveCluster, node: str, how: str) -> None:
    """Edit our annotations, as a person does with kubectl."""
    edited = ANNOTATIONS.get(how) or {MARK: _edited(cluster.get("nodes", node), how)}
    await cluster.change("nodes", node, metadata={"annotations": dict(edited)})


def _edited(node: RawObject, how: str) -> str:
    mark = json.loads(node["metadata"]["annotations"][MARK])
    if how == "before edited":
        mark["before"] = {}
    else:
        mark["owners"] = {name: {"since": hold["since"]} for name, hold in mark["owners"].items()}
    return json.dumps(mark)


def is_cordoned(cluster: LiveCluster, node: str) -> bool:
    return bool(cluster.get("nodes", node)["spec"].get("unschedulable"))


def is_clean(cluster: LiveCluster, node: str) -> bool:
    """Tell whether nothing of ours is left on a node but its cordon, which may be a person's."""
    found = cluster.get("nodes", node)["metadata"]
    left = {MARK, BACKUP} & found.get("annotations", {}).keys()
    return not (
        left or EXCLUDE_LABEL in found.get("labels", {}) or "medik8s.io/drain:NoSchedule" in taints(cluster, node)
    )


def mark(cluster: LiveCluster, node: str) -> Any:
    """Return the mark on a node; None if there is none, or if it is not twice the same."""
    found = cluster.get("nodes", node)["metadata"].get("annotations", {})
    text = found.get(MARK)
    return json.loads(text) if text and text == found.get(BACKUP) and text not in ("{}", GARBAGE) else None


async def copies(cluster: LiveCluster) -> dict[str, str]:
    """Return the copies of cordon marks that are kept outside nodes."""
    return await cordon_copies.copies(cluster, NAMESPACE)


async def is_copied(cluster: LiveCluster) -> bool:
    return len(await copies(cluster)) == 1


# NodeMaintenances


@pytest.mark.parametrize("how", EDITS)
async def test_a_node_whose_marks_are_edited_during_its_drain_comes_back(a_cluster: Plans, how: str) -> None:
    plan = blocked_on(entitled(a_cluster()).with_nodes(2), "n1").upholding(*invariants())
    async with plan.running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        before = mark(cluster, "n1")
        await tamper(cluster, "n1", how)
        await cluster.eventually(lambda: mark(cluster, "n1") and is_taken(cluster, "n1"))
        assert mark(cluster, "n1")["before"] == before["before"]
        await over(cluster)
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")


@pytest.mark.parametrize("how", EDITS)
async def test_a_node_that_a_person_had_cordoned_stays_cordoned_though_its_marks_are_edited(
    a_cluster: Plans, how: str
) -> None:
    async with entitled(a_cluster()).with_nodes(1).upholding(*invariants()).running() as cluster:
        await cluster.cordon("n1")
        await cluster.eventually(lambda: UNSCHEDULABLE in taints(cluster, "n1"))
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        assert status(cluster)["nodeBefore"]["unschedulable"] is True
        await tamper(cluster, "n1", how)
        await cluster.eventually(lambda: mark(cluster, "n1"))
        await over(cluster)
        assert is_cordoned(cluster, "n1")
        assert is_clean(cluster, "n1")


@pytest.mark.parametrize("how", EDITS)
async def test_a_node_whose_marks_are_edited_while_nobody_operates_comes_back(a_cluster: Plans, how: str) -> None:
    """The maintenance is deleted before anybody can restore the mark."""
    async with entitled(a_cluster()).with_nodes(1).upholding(*invariants()).running() as cluster:
        operator = cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        operator.kill()
        await tamper(cluster, "n1", how)
        await countermand(cluster)
        operator.start()
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")


@pytest.mark.parametrize("how", ["mark removed", "mark emptied", "mark overwritten"])
async def test_a_mark_from_before_the_maintenance_does_no_harm(a_cluster: Plans, how: str) -> None:
    async with entitled(a_cluster()).with_nodes(1).upholding(*invariants()).running() as cluster:
        await cluster.change("nodes", "n1", metadata={"annotations": {BACKUP: "{}", **ANNOTATIONS[how]}})
        cluster.run(operate)
        await order(cluster, "n1")
        if how == "mark overwritten":
            await cluster.eventually(lambda: MARK in str(status(cluster).get("lastError")))
            assert not is_cordoned(cluster, "n1")
            await cluster.change("nodes", "n1", metadata={"annotations": {MARK: None}})
        await succeeded(cluster)
        await over(cluster)
        assert is_given_back(cluster, "n1")


async def test_an_edit_is_told_as_a_warning_that_says_what_was_changed(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        await tamper(cluster, "n1", "both removed")
        await cluster.eventually(lambda: "CordonRestored" in events(cluster))
        told = next(it for it in cluster.all("events").values() if it["reason"] == "CordonRestored")
        assert told["type"] == "Warning"
        assert "annotation haulout.dev/cordon was removed" in (told.get("note") or told["message"])


async def test_a_maintenance_that_is_edited_out_of_a_shared_mark_holds_its_node_again(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(1).upholding(*invariants()).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        edited = json.dumps({"owners": {"profile/os": OTHER}, "before": {}})
        await cluster.change("nodes", "n1", metadata={"annotations": {MARK: edited}})
        await cluster.eventually(lambda: "NodeMaintenance/patch" in (mark(cluster, "n1") or {"owners": ()})["owners"])
        await over(cluster)
        assert taints(cluster, "n1") <= {UNSCHEDULABLE}
        assert EXCLUDE_LABEL not in cluster.get("nodes", "n1")["metadata"].get("labels", {})


async def test_a_node_that_was_created_again_is_not_restored_to_what_another_was(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        await cluster.cordon("n1")
        operator = cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        operator.kill()
        node = cluster.get("nodes", "n1")
        labels = {key: value for key, value in node["metadata"]["labels"].items() if key != EXCLUDE_LABEL}
        await cluster.delete("nodes", "n1")
        fresh: RawObject = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "labels": labels},
            "spec": {},
        }
        await cluster.create(fresh)
        operator.start()
        await cluster.eventually(lambda: is_taken(cluster, "n1"))
        await over(cluster)
        assert is_given_back(cluster, "n1")


# A person's uncordon


async def test_a_node_uncordoned_by_a_person_is_held_and_schedulable_in_the_end(a_cluster: Plans) -> None:
    """It had been cordoned by a person before: whoever uncordons it takes that back."""
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        await cluster.cordon("n1")
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        await cluster.uncordon("n1")
        await cluster.eventually(lambda: is_taken(cluster, "n1"))
        await cluster.eventually(lambda: "CordonRestored" in events(cluster))
        await over(cluster)
        assert is_given_back(cluster, "n1")


async def test_a_node_uncordoned_by_a_person_at_the_end_is_not_cordoned_again(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        await cluster.cordon("n1")
        operator = cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        operator.kill()
        await countermand(cluster)
        await cluster.uncordon("n1")
        operator.start()
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_given_back(cluster, "n1")


# Profiles


@pytest.mark.parametrize("was_cordoned", [False, True])
@pytest.mark.parametrize("how", ANNOTATIONS)
async def test_a_profile_gives_a_node_back_whose_marks_are_edited(
    a_cluster: Plans, tmp_path: Path, how: str, *, was_cordoned: bool
) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        if was_cordoned:
            await cluster.cordon("n1")
        cluster.run(operating(a_file(tmp_path, BY_ANNOTATIONS)))
        await attach(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await tamper(cluster, "n1", how)
        await cluster.eventually(lambda: mark(cluster, "n1"))
        assert list(mark(cluster, "n1")["owners"]) == ["profile/os"]
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        assert is_clean(cluster, "n1")
        assert is_cordoned(cluster, "n1") == was_cordoned
        assert await copies(cluster) == {}


@pytest.mark.parametrize("was_cordoned", [False, True])
@pytest.mark.parametrize("is_operated", [False, True])
async def test_a_profile_for_notices_gives_a_node_back_that_has_lost_both_annotations(
    a_cluster: Plans, tmp_path: Path, *, was_cordoned: bool, is_operated: bool
) -> None:
    """Also if nobody operates while they are removed, and while the maintenance ends."""
    plan = entitled(a_cluster()).with_definition(definition()).with_nodes(1)
    async with plan.running() as cluster:
        if was_cordoned:
            await cluster.cordon("n1")
        await cluster.create(a_notice("disk", "n1", start=cluster.clock.now() + timedelta(minutes=5)))
        operator = cluster.run(operating(a_file(tmp_path, ON_NOTICE)))
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await cluster.eventually(lambda: is_copied(cluster))
        if not is_operated:
            operator.kill()
        await tamper(cluster, "n1", "both removed")
        if is_operated:
            await cluster.eventually(lambda: mark(cluster, "n1"))
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "yes")
        if not is_operated:
            operator.start()
        await cluster.eventually(lambda: state(cluster, "n1") in ("", "operational"))
        assert is_clean(cluster, "n1")
        assert is_cordoned(cluster, "n1") == was_cordoned
        await cluster.eventually(lambda: copies(cluster), becomes={})


async def test_a_copy_that_was_deleted_is_written_again_by_the_next_process(a_cluster: Plans, tmp_path: Path) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        operator = cluster.run(operating(a_file(tmp_path, BY_ANNOTATIONS)))
        await attach(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: is_copied(cluster))
        before = await copies(cluster)
        operator.kill()
        await cluster.delete("configmaps", f"{NAMESPACE}/{CONFIG_MAP}")
        operator.start()
        await cluster.eventually(lambda: copies(cluster), becomes=before)


async def test_a_maintenance_that_ends_does_not_uncordon_a_node_that_a_profile_holds_by_its_copy(
    a_cluster: Plans,
) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        operator = cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        operator.kill()
        uid = cluster.get("nodes", "n1")["metadata"]["uid"]
        with suppress(AlreadyExists):
            await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        with suppress(NotFound):  # what an earlier test left on this server
            await cluster.delete("configmaps", f"{NAMESPACE}/{CONFIG_MAP}")
        copy = json.dumps({"node": "n1", "owners": {"profile/os": OTHER}, "before": {}})
        metadata = {"name": CONFIG_MAP, "namespace": NAMESPACE}
        data = {f"{uid}.profiles": copy}
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        await tamper(cluster, "n1", "both removed")
        await countermand(cluster)
        operator.start()
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_cordoned(cluster, "n1"), "the profile holds it"
        assert list((mark(cluster, "n1") or {"owners": ()})["owners"]) == ["profile/os"]
        assert taints(cluster, "n1") <= {UNSCHEDULABLE}


async def test_two_owners_both_hold_a_node_again_that_has_lost_both_annotations(
    a_cluster: Plans, tmp_path: Path
) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(operating(a_file(tmp_path, BY_ANNOTATIONS)))
        await attach(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await order(cluster, "n1")
        await succeeded(cluster)
        held = mark(cluster, "n1")
        await tamper(cluster, "n1", "both removed")
        await cluster.eventually(lambda: mark(cluster, "n1") != held)  # a real server tells of it after a while
        both = ["NodeMaintenance/patch", "profile/os"]
        await cluster.eventually(lambda: sorted((mark(cluster, "n1") or {"owners": ()})["owners"]), becomes=both)
        assert is_taken(cluster, "n1")
        await over(cluster)
        assert is_cordoned(cluster, "n1"), "the profile has it in maintenance"
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        assert is_clean(cluster, "n1")
        assert not is_cordoned(cluster, "n1")


@pytest.mark.parametrize("how", [it for it in ANNOTATIONS if it.startswith("both")])
async def test_a_profile_that_finds_neither_mark_nor_copy_uncordons_as_its_file_says(
    a_cluster: Plans, tmp_path: Path, how: str
) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        operator = cluster.run(operating(a_file(tmp_path, BY_ANNOTATIONS)))
        await attach(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: is_copied(cluster))
        operator.kill()
        await cluster.delete("configmaps", f"{NAMESPACE}/{CONFIG_MAP}")
        await tamper(cluster, "n1", how)
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "yes")
        operator.start()
        if how == "both overwritten":
            await cluster.pass_time(seconds=2)
            assert state(cluster, "n1") == "in-maintenance", "it waits for a person, or for haulout doctor"
            return
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        assert is_clean(cluster, "n1")
        assert not is_cordoned(cluster, "n1")


async def test_a_profile_that_is_edited_out_of_the_mark_holds_its_node_again(a_cluster: Plans, tmp_path: Path) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(operating(a_file(tmp_path, BY_ANNOTATIONS)))
        await attach(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await order(cluster, "n1")
        await succeeded(cluster)
        held = mark(cluster, "n1")
        assert sorted(held["owners"]) == ["NodeMaintenance/patch", "profile/os"]
        del held["owners"]["profile/os"]
        await cluster.change("nodes", "n1", metadata={"annotations": {MARK: json.dumps(held)}})
        await cluster.eventually(lambda: "profile/os" in (mark(cluster, "n1") or {"owners": ()})["owners"])
        await over(cluster)
        assert is_cordoned(cluster, "n1"), "the profile has it in maintenance"
