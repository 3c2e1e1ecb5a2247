"""Attachment of profiles: with `onNotice` while a notice is open, and until the node is released."""

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
    announced = {"kind": MaintenanceKind.REBOOT, "source": "oci", "stage": NoticeStage.SCHEDULED, **spec}
    return MaintenanceNotice(
        metadata=ObjectMeta(name="m1"),
        spec=MaintenanceNoticeSpec(**announced),
        status=MaintenanceNoticeStatus(node_name="n1"),
    )


def a_profile_node(text: str = ALONE, *notices: MaintenanceNotice, selector: str = "", **node: Any) -> ProfileNode:
    found = ProfileNode(text.replace("SELECTOR", selector), **node)
    found.cluster.announced_notices = list(notices)
    return found


def names(item: ProfileNode, **more: Any) -> tuple[str, ...]:
    return attachment_of(item, **more).names


def attachment_of(item: ProfileNode, **more: Any) -> AttachedProfiles:
    return attached_profiles(item.observation(**more), item.configuration.profiles)


@pytest.mark.parametrize(
    ("announced", "comes"),
    [
        pytest.param(notice(start=NOW + 500 * HOUR), True, id="weeks ahead"),
        pytest.param(notice(kind=MaintenanceKind.FREEZE, start=NOW + HOUR), True, id="of any kind"),
        pytest.param(notice(start=NOW - HOUR), True, id="late"),
        pytest.param(notice(stage=NoticeStage.ENDED), False, id="over"),
        pytest.param(notice(stage=NoticeStage.CANCELLED), False, id="cancelled"),
        pytest.param(notice(start=NOW - 2 * HOUR, end=NOW - HOUR), False, id="missed"),
    ],
)
def test_profile_is_attached_while_its_notice_is_open(announced: MaintenanceNotice, comes: bool) -> None:  # noqa: FBT001 - a table
    assert names(a_profile_node(ALONE, announced)) == (("cloud",) if comes else ())


def test_node_without_a_notice_has_no_profile_and_watches_notices() -> None:
    assert attachment_of(a_profile_node()) == AttachedProfiles((), None, frozenset({topics.notices("n1")}))


def test_default_profile_is_attached_only_without_others() -> None:
    assert names(a_profile_node(BESIDE)) == ("default",)
    assert names(a_profile_node(BESIDE, notice(start=NOW + HOUR))) == ("cloud",)
    assert names(a_profile_node(BESIDE, notice(start=NOW + HOUR), labels={"pool": "os"})) == ("cloud", "os")


def test_selector_must_match_too_and_the_profile_label_is_sufficient() -> None:
    announced = notice(start=NOW + HOUR)
    assert names(a_profile_node(ALONE, announced, selector="selector: pool=gpu")) == ()
    assert names(a_profile_node(ALONE, announced, selector="selector: pool=gpu", labels={"pool": "gpu"})) == ("cloud",)
    assert names(a_profile_node(ALONE, labels={PROFILE_LABEL: "cloud"})) == ("cloud",)


def test_attachment_is_rechecked_when_a_notice_ends() -> None:
    assert attachment_of(a_profile_node(ALONE, notice(start=NOW - HOUR, end=NOW + HOUR))).recheck_at == NOW + HOUR


def test_profile_stays_attached_until_it_releases_the_node_although_the_notice_is_gone() -> None:
    item = a_profile_node(ALONE, notice(start=NOW))
    item.reconcile()
    item.reconcile()  # it is cordoned, and the drain begins
    assert transitions.PENDING_ANNOTATION in item.node.metadata.annotations
    item.cluster.announced_notices = []
    assert names(item) == ("cloud",)
    item.reconcile()
    assert names(item) == ()
    assert not item.node.spec.unschedulable


def test_cancelled_notice_ends_a_running_drain() -> None:
    item = a_profile_node(ALONE, notice(start=NOW + timedelta(minutes=5)))
    item.reconcile()
    item.reconcile()
    item.cluster.announced_notices = [notice(stage=NoticeStage.CANCELLED)]
    result = item.reconcile()
    assert (result.reports[0].next, dict(result.drains), dict(result.pending)) == ("operational", {}, {})
    assert not item.node.spec.unschedulable


def test_cordon_of_others_is_kept_although_the_node_was_never_drained() -> None:
    item = a_profile_node(ALONE, notice(start=NOW))
    item.reconcile()
    item.cordon()
    item.cluster.announced_notices = []
    assert item.reconcile().reports[0].next == "operational"
    assert item.node.spec.unschedulable


def test_profile_stays_attached_until_its_history_is_recorded() -> None:
    item = a_profile_node(ALONE, notice(start=NOW + HOUR))
    item.reconcile()
    item.cluster.announced_notices = []
    behind = attachment_of(item, is_recorded=False)
    assert (behind.names, behind.recheck_at) == (("cloud",), item.now + timedelta(seconds=1))
    assert names(item) == ()


class UnreadCluster(FakeClusterView):
    """A cluster whose notices are not known yet."""

    def notices(self, node: str) -> Any:
        """Raise an error."""
        raise HauloutError(f"notices of {node} are being read")


def test_attachment_is_unchanged_while_notices_are_unknown() -> None:
    item = a_profile_node(ALONE, notice(start=NOW + HOUR))
    item.reconcile()
    there, new = a_profile_node(annotations=dict(item.node.metadata.annotations)), a_profile_node()
    there.cluster, new.cluster = UnreadCluster(), UnreadCluster()
    assert (names(there), names(new)) == (("cloud",), ())


def test_last_detached_profile_removes_the_data_and_keeps_foreign_data() -> None:
    item = a_profile_node(ALONE, notice(start=NOW + HOUR))
    assert item.reconcile().data_update is DataUpdate.WRITE
    item.cluster.announced_notices = []
    assert item.reconcile().data_update is DataUpdate.REMOVE
    foreign = '{"Profiles":{"os":{"Transition":"2024-05-01T09:00:00Z","Current":"in-maintenance"}}}'
    other = a_profile_node(annotations={DATA_ANNOTATION: foreign})
    assert other.reconcile().data_update is DataUpdate.NONE
    other = a_profile_node(ALONE, notice(start=NOW + HOUR), annotations={DATA_ANNOTATION: foreign})
    result = other.reconcile()
    assert (set(result.statuses), result.unmanaged_states) == ({"cloud", "os"}, ("in-maintenance",))


def test_on_notice_needs_notices_and_permissions_without_a_notice_check() -> None:
    found = load_configuration("intervals: {requeue: 1m}\nprofiles: [{name: cloud, onNotice: true}]\n")
    requested = permissions.plugin_permissions(found, namespace="haulout")
    assert found.needs == {Need.NOTICES}
    assert {(item.resource, names) for item, names in requested.items()} == {("maintenancenotices", ("profile cloud",))}


def test_default_profile_stays_only_on_unfinished_nodes_when_others_are_configured() -> None:
    item = a_profile_node(BESIDE, notice(start=NOW))
    in_force = default_profile.effective_configuration(item.configuration, has_unfinished_nodes=True)
    assert attached_profiles(item.observation(), in_force.profiles).names == ("cloud",)
    left = '{"Profiles":{"notices":{"Transition":"2024-05-01T09:00:00Z","Current":"in-maintenance","Previous":"X"}}}'
    item = a_profile_node(BESIDE, annotations={DATA_ANNOTATION: left.replace("X", "in-maintenance")})
    assert attached_profiles(item.observation(), in_force.profiles).names == ("notices",)
    assert default_profile.is_unfinished_on(item.node)
    assert default_profile.effective_configuration(item.configuration) is item.configuration
