"""A node is restored in spite of edits of our annotations, taints and labels during its maintenance."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from haulout.api.maintenancenotice import definition
from haulout.api.objects import RawObject
from haulout.budget.cordon_copies import CONFIG_MAP
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION
from haulout.errors import AlreadyExists, NotFound
from support.clusters.cluster_plan import PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.expectations import cordon_copies
from support.operators.event_sources import a_notice
from support.operators.nodemaintenance import (
    EXCLUDE_LABEL,
    create_maintenance,
    delete_maintenance,
    end_maintenance,
    event_reasons,
    has_lease,
    has_maintenance_marks,
    invariants,
    is_gone,
    is_released,
    run_controller,
    status,
    taints_of,
    wait_for_success,
    wait_until_blocked,
    with_blocking_pods,
    with_operator_rbac,
)
from support.operators.profiles import (
    ANNOTATION_CONFIGURATION,
    NAMESPACE,
    a_configuration_file,
    annotate,
    operator_with_profiles,
    set_profiles,
    state,
)

ON_NOTICE = ANNOTATION_CONFIGURATION.replace("- name: os\n", "- name: os\n  onNotice: true\n")
OTHER_OWNER = {"since": "2026-01-01T00:00:00Z"}
GARBAGE = '{"owners": 7}'
UNSCHEDULABLE = "node.kubernetes.io/unschedulable:NoSchedule"

ANNOTATIONS: Mapping[str, Mapping[str, str | None]] = {
    "mark removed": {CORDON_ANNOTATION: None},
    "mark emptied": {CORDON_ANNOTATION: "{}"},
    "mark overwritten": {CORDON_ANNOTATION: GARBAGE},
    "backup removed": {CORDON_BACKUP_ANNOTATION: None},
    "both removed": {CORDON_ANNOTATION: None, CORDON_BACKUP_ANNOTATION: None},
    "both emptied": {CORDON_ANNOTATION: "{}", CORDON_BACKUP_ANNOTATION: "{}"},
    "both overwritten": {CORDON_ANNOTATION: GARBAGE, CORDON_BACKUP_ANNOTATION: "?"},
}
EDITS = (*ANNOTATIONS, "before edited", "wishes edited")


async def tamper(cluster: LiveCluster, node: str, edit: str) -> None:
    """Edit our annotations, as a person does with kubectl."""
    annotations = ANNOTATIONS.get(edit) or {CORDON_ANNOTATION: _edited(cluster.get("nodes", node), edit)}
    await cluster.patch("nodes", node, metadata={"annotations": dict(annotations)})


def _edited(node: RawObject, edit: str) -> str:
    mark = json.loads(node["metadata"]["annotations"][CORDON_ANNOTATION])
    if edit == "before edited":
        mark["before"] = {}
    else:
        mark["owners"] = {name: {"since": hold["since"]} for name, hold in mark["owners"].items()}
    return json.dumps(mark)


def is_cordoned(cluster: LiveCluster, node: str) -> bool:
    return bool(cluster.get("nodes", node)["spec"].get("unschedulable"))


def is_clean(cluster: LiveCluster, node: str) -> bool:
    """Return whether nothing of ours is left on a node, except its cordon, which may be a user's."""
    found = cluster.get("nodes", node)["metadata"]
    left = {CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION} & found.get("annotations", {}).keys()
    return not (
        left or EXCLUDE_LABEL in found.get("labels", {}) or "medik8s.io/drain:NoSchedule" in taints_of(cluster, node)
    )


def cordon_annotation(cluster: LiveCluster, node: str) -> Any:
    """Return the cordon annotation of a node; None if it is missing, or differs from its backup."""
    found = cluster.get("nodes", node)["metadata"].get("annotations", {})
    text = found.get(CORDON_ANNOTATION)
    return (
        json.loads(text)
        if text and text == found.get(CORDON_BACKUP_ANNOTATION) and text not in ("{}", GARBAGE)
        else None
    )


async def cordon_copies_of(cluster: LiveCluster) -> dict[str, str]:
    """Return the copies of cordon marks that are kept outside nodes."""
    return await cordon_copies.cordon_copies(cluster, NAMESPACE)


async def is_copied(cluster: LiveCluster) -> bool:
    return len(await cordon_copies_of(cluster)) == 1


# NodeMaintenances


@pytest.mark.parametrize("edit", EDITS)
async def test_node_is_restored_when_its_cordon_annotations_are_edited_during_the_drain(
    a_cluster: PlanFactory, edit: str
) -> None:
    plan = with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(2), "n1").with_invariants(*invariants())
    async with plan.running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        before = cordon_annotation(cluster, "n1")
        await tamper(cluster, "n1", edit)
        await cluster.eventually(lambda: cordon_annotation(cluster, "n1") and has_maintenance_marks(cluster, "n1"))
        assert cordon_annotation(cluster, "n1")["before"] == before["before"]
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")


@pytest.mark.parametrize("edit", EDITS)
async def test_user_cordon_is_kept_when_the_cordon_annotations_are_edited(a_cluster: PlanFactory, edit: str) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        await cluster.cordon("n1")
        await cluster.eventually(lambda: UNSCHEDULABLE in taints_of(cluster, "n1"))
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert status(cluster)["nodeBefore"]["unschedulable"] is True
        await tamper(cluster, "n1", edit)
        await cluster.eventually(lambda: cordon_annotation(cluster, "n1"))
        await end_maintenance(cluster)
        assert is_cordoned(cluster, "n1")
        assert is_clean(cluster, "n1")


@pytest.mark.parametrize("edit", EDITS)
async def test_node_is_restored_when_its_cordon_annotations_are_edited_while_no_operator_runs(
    a_cluster: PlanFactory, edit: str
) -> None:
    """The maintenance is deleted before an operator can restore the annotation."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        operator.kill()
        await tamper(cluster, "n1", edit)
        await delete_maintenance(cluster)
        operator.start()
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")


@pytest.mark.parametrize("edit", ["mark removed", "mark emptied", "mark overwritten"])
async def test_cordon_annotation_from_before_the_maintenance_is_harmless(a_cluster: PlanFactory, edit: str) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        await cluster.patch(
            "nodes", "n1", metadata={"annotations": {CORDON_BACKUP_ANNOTATION: "{}", **ANNOTATIONS[edit]}}
        )
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        if edit == "mark overwritten":
            await cluster.eventually(lambda: CORDON_ANNOTATION in str(status(cluster).get("lastError")))
            assert not is_cordoned(cluster, "n1")
            await cluster.patch("nodes", "n1", metadata={"annotations": {CORDON_ANNOTATION: None}})
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


async def test_edited_cordon_annotation_is_reported_by_a_warning_event(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await tamper(cluster, "n1", "both removed")
        await cluster.eventually(lambda: "CordonRestored" in event_reasons(cluster))
        warning = next(event for event in cluster.by_key("events").values() if event["reason"] == "CordonRestored")
        assert warning["type"] == "Warning"
        assert "annotation haulout.dev/cordon was removed" in (warning.get("note") or warning["message"])


async def test_maintenance_removed_from_a_shared_cordon_annotation_is_added_again(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        edited = json.dumps({"owners": {"profile/os": OTHER_OWNER}, "before": {}})
        await cluster.patch("nodes", "n1", metadata={"annotations": {CORDON_ANNOTATION: edited}})
        await cluster.eventually(
            lambda: "NodeMaintenance/patch" in (cordon_annotation(cluster, "n1") or {"owners": ()})["owners"]
        )
        await end_maintenance(cluster)
        assert taints_of(cluster, "n1") <= {UNSCHEDULABLE}
        assert EXCLUDE_LABEL not in cluster.get("nodes", "n1")["metadata"].get("labels", {})


async def test_recreated_node_is_not_restored_from_the_record_of_the_earlier_node(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await cluster.cordon("n1")
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
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
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


# A person's uncordon


async def test_node_uncordoned_by_a_user_is_cordoned_again_and_schedulable_at_the_end(a_cluster: PlanFactory) -> None:
    """It had been cordoned by a person before: whoever uncordons it takes that back."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await cluster.cordon("n1")
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.uncordon("n1")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await cluster.eventually(lambda: "CordonRestored" in event_reasons(cluster))
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


async def test_node_uncordoned_by_a_user_at_the_end_is_not_cordoned_again(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await cluster.cordon("n1")
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        operator.kill()
        await delete_maintenance(cluster)
        await cluster.uncordon("n1")
        operator.start()
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_released(cluster, "n1")


# Profiles


@pytest.mark.parametrize("was_cordoned", [False, True])
@pytest.mark.parametrize("edit", ANNOTATIONS)
async def test_profile_restores_the_node_when_cordon_annotations_are_edited(
    a_cluster: PlanFactory, tmp_path: Path, edit: str, *, was_cordoned: bool
) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        if was_cordoned:
            await cluster.cordon("n1")
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await tamper(cluster, "n1", edit)
        await cluster.eventually(lambda: cordon_annotation(cluster, "n1"))
        assert list(cordon_annotation(cluster, "n1")["owners"]) == ["profile/os"]
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        assert is_clean(cluster, "n1")
        assert is_cordoned(cluster, "n1") == was_cordoned
        assert await cordon_copies_of(cluster) == {}


@pytest.mark.parametrize("was_cordoned", [False, True])
@pytest.mark.parametrize("is_operated", [False, True])
async def test_notice_profile_restores_a_node_that_lost_both_annotations(
    a_cluster: PlanFactory, tmp_path: Path, *, was_cordoned: bool, is_operated: bool
) -> None:
    """Also if no operator runs while they are removed, and while the maintenance ends."""
    plan = with_operator_rbac(a_cluster()).with_crd(definition()).with_nodes(1)
    async with plan.running() as cluster:
        if was_cordoned:
            await cluster.cordon("n1")
        await cluster.create(a_notice("disk", "n1", start=cluster.clock.now() + timedelta(minutes=5)))
        operator = cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ON_NOTICE)))
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await cluster.eventually(lambda: is_copied(cluster))
        if not is_operated:
            operator.kill()
        await tamper(cluster, "n1", "both removed")
        if is_operated:
            await cluster.eventually(lambda: cordon_annotation(cluster, "n1"))
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "yes")
        if not is_operated:
            operator.start()
        await cluster.eventually(lambda: state(cluster, "n1") in ("", "operational"))
        assert is_clean(cluster, "n1")
        assert is_cordoned(cluster, "n1") == was_cordoned
        await cluster.eventually(lambda: cordon_copies_of(cluster), becomes={})


async def test_deleted_copy_of_a_cordon_is_written_again_after_a_restart(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        operator = cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: is_copied(cluster))
        before = await cordon_copies_of(cluster)
        operator.kill()
        await cluster.delete("configmaps", f"{NAMESPACE}/{CONFIG_MAP}")
        operator.start()
        await cluster.eventually(lambda: cordon_copies_of(cluster), becomes=before)


async def test_ended_maintenance_does_not_uncordon_a_node_that_a_profile_holds_by_its_copy(
    a_cluster: PlanFactory,
) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        operator.kill()
        uid = cluster.get("nodes", "n1")["metadata"]["uid"]
        with suppress(AlreadyExists):
            await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        with suppress(NotFound):  # what an earlier test left on this server
            await cluster.delete("configmaps", f"{NAMESPACE}/{CONFIG_MAP}")
        copy = json.dumps({"node": "n1", "owners": {"profile/os": OTHER_OWNER}, "before": {}})
        metadata = {"name": CONFIG_MAP, "namespace": NAMESPACE}
        data = {f"{uid}.profiles": copy}
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        await tamper(cluster, "n1", "both removed")
        await delete_maintenance(cluster)
        operator.start()
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_cordoned(cluster, "n1"), "the profile holds it"
        assert list((cordon_annotation(cluster, "n1") or {"owners": ()})["owners"]) == ["profile/os"]
        assert taints_of(cluster, "n1") <= {UNSCHEDULABLE}


async def test_both_owners_are_restored_when_both_annotations_are_lost(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        held = cordon_annotation(cluster, "n1")
        await tamper(cluster, "n1", "both removed")
        await cluster.eventually(
            lambda: cordon_annotation(cluster, "n1") != held
        )  # a real server tells of it after a while
        both = ["NodeMaintenance/patch", "profile/os"]
        await cluster.eventually(
            lambda: sorted((cordon_annotation(cluster, "n1") or {"owners": ()})["owners"]), becomes=both
        )
        assert has_maintenance_marks(cluster, "n1")
        await end_maintenance(cluster)
        assert is_cordoned(cluster, "n1"), "the profile has it in maintenance"
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        assert is_clean(cluster, "n1")
        assert not is_cordoned(cluster, "n1")


@pytest.mark.parametrize("edit", [it for it in ANNOTATIONS if it.startswith("both")])
async def test_profile_without_annotation_and_copy_uncordons_as_configured(
    a_cluster: PlanFactory, tmp_path: Path, edit: str
) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        operator = cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: is_copied(cluster))
        operator.kill()
        await cluster.delete("configmaps", f"{NAMESPACE}/{CONFIG_MAP}")
        await tamper(cluster, "n1", edit)
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "yes")
        operator.start()
        if edit == "both overwritten":
            await cluster.pass_time(seconds=2)
            assert state(cluster, "n1") == "in-maintenance", "it waits for a person, or for haulout doctor"
            return
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        assert is_clean(cluster, "n1")
        assert not is_cordoned(cluster, "n1")


async def test_profile_removed_from_the_cordon_annotation_is_added_again(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await annotate(cluster, "n1", "wanted", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        held = cordon_annotation(cluster, "n1")
        assert sorted(held["owners"]) == ["NodeMaintenance/patch", "profile/os"]
        del held["owners"]["profile/os"]
        await cluster.patch("nodes", "n1", metadata={"annotations": {CORDON_ANNOTATION: json.dumps(held)}})
        await cluster.eventually(lambda: "profile/os" in (cordon_annotation(cluster, "n1") or {"owners": ()})["owners"])
        await end_maintenance(cluster)
        assert is_cordoned(cluster, "n1"), "the profile has it in maintenance"
