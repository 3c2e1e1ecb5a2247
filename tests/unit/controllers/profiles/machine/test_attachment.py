"""Which profiles a node has: with `onNotice`, only while something is announced, and until they are done with it."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import (
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    MaintenanceNoticeStatus,
    NoticeStage,
)
from haulout.api.objects import ObjectMeta
from haulout.controllers.profiles import default_profile, permissions
from haulout.controllers.profiles.machine import transitions
from haulout.controllers.profiles.machine.attachment import AttachedProfiles, attached_profiles
from haulout.controllers.profiles.observation import DataUpdate
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, Need
from haulout.controllers.profiles.view import topics
from haulout.errors import HauloutError
from support.fakes.cluster_view import NOW, FakeClusterView
from support.fakes.profile_node import ProfileNode, load_configuration

HOUR = timedelta(hours=1)
ALONE = """
intervals: {requeue: 1m}
instances:
  check: [{name: due, type: notice}]
  trigger:
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: cloud
  onNotice: true
  SELECTOR
  operational: {transitions: [{check: due, next: maintenance-required}]}
  maintenance-required:
    transitions:
    - {check: "!due", next: operational, trigger: uncordon}
    - {check: due, next: in-maintenance, trigger: drain}
  in-maintenance: {transitions: [{check: "!due", next: operational, trigger: uncordon}]}
"""
BESIDE = ALONE + "- {name: os, selector: pool=os}\n"


def notice(**spec: Any) -> MaintenanceNotice:
    said = {"kind": MaintenanceKind.REBOOT, "source": "oci", "stage": NoticeStage.SCHEDULED, **spec}
    return MaintenanceNotice(
        metadata=ObjectMeta(name="m1"),
        spec=MaintenanceNoticeSpec(**said),
        status=MaintenanceNoticeStatus(node_name="n1"),
    )


def walk(text: str = ALONE, *notices: MaintenanceNotice, selector: str = "", **node: Any) -> ProfileNode:
    found = ProfileNode(text.replace("SELECTOR", selector), **node)
    found.cluster.announced_notices = list(notices)
    return found


def names(item: ProfileNode, **more: Any) -> tuple[str, ...]:
    return attachment_of(item, **more).names


def attachment_of(item: ProfileNode, **more: Any) -> AttachedProfiles:
    return attached_profiles(item.observation(**more), item.configuration.profiles)


@pytest.mark.parametrize(
    ("said", "comes"),
    [
        pytest.param(notice(start=NOW + 500 * HOUR), True, id="weeks ahead"),
        pytest.param(notice(kind=MaintenanceKind.FREEZE, start=NOW + HOUR), True, id="of any kind"),
        pytest.param(notice(start=NOW - HOUR), True, id="late"),
        pytest.param(notice(stage=NoticeStage.ENDED), False, id="over"),
        pytest.param(notice(stage=NoticeStage.CANCELLED), False, id="cancelled"),
        pytest.param(notice(start=NOW - 2 * HOUR, end=NOW - HOUR), False, id="missed"),
    ],
)
def test_it_comes_with_a_notice_that_is_not_over(said: MaintenanceNotice, comes: bool) -> None:  # noqa: FBT001 - a table
    assert names(walk(ALONE, said)) == (("cloud",) if comes else ())


def test_without_a_notice_a_node_has_none_and_waits_for_the_first() -> None:
    assert attachment_of(walk()) == AttachedProfiles((), None, frozenset({topics.notices("n1")}))


def test_beside_other_profiles_the_default_profile_is_there_as_ever() -> None:
    assert names(walk(BESIDE)) == ("default",)
    assert names(walk(BESIDE, notice(start=NOW + HOUR))) == ("cloud",)
    assert names(walk(BESIDE, notice(start=NOW + HOUR), labels={"pool": "os"})) == ("cloud", "os")


def test_the_selector_must_match_as_well_and_a_label_is_enough_as_ever() -> None:
    said = notice(start=NOW + HOUR)
    assert names(walk(ALONE, said, selector="selector: pool=gpu")) == ()
    assert names(walk(ALONE, said, selector="selector: pool=gpu", labels={"pool": "gpu"})) == ("cloud",)
    assert names(walk(ALONE, labels={PROFILE_LABEL: "cloud"})) == ("cloud",)


def test_it_is_looked_at_again_when_a_notice_is_over_by_the_clock() -> None:
    assert attachment_of(walk(ALONE, notice(start=NOW - HOUR, end=NOW + HOUR))).recheck_at == NOW + HOUR


def test_it_stays_until_it_is_done_with_the_node_though_the_notice_is_gone() -> None:
    item = walk(ALONE, notice(start=NOW))
    item.reconcile()
    item.reconcile()  # it is cordoned, and the drain begins
    assert transitions.PENDING_ANNOTATION in item.node.metadata.annotations
    item.cluster.announced_notices = []
    assert names(item) == ("cloud",)
    item.reconcile()
    assert names(item) == ()
    assert not item.node.spec.unschedulable


def test_a_maintenance_that_is_cancelled_ends_a_drain_that_cannot_end() -> None:
    item = walk(ALONE, notice(start=NOW + timedelta(minutes=5)))
    item.reconcile()
    item.reconcile()
    item.cluster.announced_notices = [notice(stage=NoticeStage.CANCELLED)]
    result = item.reconcile()
    assert (result.reports[0].next, dict(result.drains), dict(result.pending)) == ("operational", {}, {})
    assert not item.node.spec.unschedulable


def test_what_others_cordoned_stays_cordoned_though_it_was_never_drained() -> None:
    item = walk(ALONE, notice(start=NOW))
    item.reconcile()
    item.cordon()
    item.cluster.announced_notices = []
    assert item.reconcile().reports[0].next == "operational"
    assert item.node.spec.unschedulable


def test_it_stays_until_the_history_knows_that_it_is_done() -> None:
    item = walk(ALONE, notice(start=NOW + HOUR))
    item.reconcile()
    item.cluster.announced_notices = []
    behind = attachment_of(item, is_recorded=False)
    assert (behind.names, behind.recheck_at) == (("cloud",), item.now + timedelta(seconds=1))
    assert names(item) == ()


class UnreadCluster(FakeClusterView):
    """A cluster whose notices are not known yet."""

    def notices(self, node: str) -> Any:
        """Tell so."""
        raise HauloutError(f"notices of {node} are being read")


def test_while_notices_are_not_known_all_stays_as_it_is() -> None:
    item = walk(ALONE, notice(start=NOW + HOUR))
    item.reconcile()
    there, new = walk(annotations=dict(item.node.metadata.annotations)), walk()
    there.cluster, new.cluster = UnreadCluster(), UnreadCluster()
    assert (names(there), names(new)) == (("cloud",), ())


def test_the_last_that_leaves_takes_all_with_it_and_what_is_of_others_stays() -> None:
    item = walk(ALONE, notice(start=NOW + HOUR))
    assert item.reconcile().data_update is DataUpdate.WRITE
    item.cluster.announced_notices = []
    assert item.reconcile().data_update is DataUpdate.REMOVE
    foreign = '{"Profiles":{"os":{"Transition":"2024-05-01T09:00:00Z","Current":"in-maintenance"}}}'
    other = walk(annotations={DATA_ANNOTATION: foreign})
    assert other.reconcile().data_update is DataUpdate.NONE
    other = walk(ALONE, notice(start=NOW + HOUR), annotations={DATA_ANNOTATION: foreign})
    result = other.reconcile()
    assert (set(result.statuses), result.unmanaged_states) == ({"cloud", "os"}, ("in-maintenance",))


def test_notices_are_followed_and_may_be_though_no_check_looks_at_them() -> None:
    found = load_configuration("intervals: {requeue: 1m}\nprofiles: [{name: cloud, onNotice: true}]\n")
    asked = permissions.plugin_permissions(found, namespace="haulout")
    assert found.needs == {Need.NOTICES}
    assert {(item.resource, names) for item, names in asked.items()} == {("maintenancenotices", ("profile cloud",))}


def test_where_other_profiles_are_configured_the_default_is_only_on_nodes_that_it_is_not_done_with() -> None:
    item = walk(BESIDE, notice(start=NOW))
    in_force = default_profile.effective_configuration(item.configuration, has_unfinished_nodes=True)
    assert attached_profiles(item.observation(), in_force.profiles).names == ("cloud",)
    left = '{"Profiles":{"notices":{"Transition":"2024-05-01T09:00:00Z","Current":"in-maintenance","Previous":"X"}}}'
    item = walk(BESIDE, annotations={DATA_ANNOTATION: left.replace("X", "in-maintenance")})
    assert attached_profiles(item.observation(), in_force.profiles).names == ("notices",)
    assert default_profile.is_unfinished_on(item.node)
    assert default_profile.effective_configuration(item.configuration) is item.configuration
