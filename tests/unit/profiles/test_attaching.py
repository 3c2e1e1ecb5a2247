"""Which profiles a node has: with `onNotice`, only while something is announced, and until they are done with it."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.errors import HauloutError
from haulout.kinds.notice import Kind, MaintenanceNotice, Spec, Stage, Status
from haulout.kube.objects import Metadata
from haulout.profiles import begun, default, permissions, topics
from haulout.profiles.attaching import Attached, attached
from haulout.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, Need
from haulout.profiles.steps import Trace
from support.scenes import NOW, Cluster
from support.stepping import Walk, loaded

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
    said = {"kind": Kind.REBOOT, "source": "oci", "stage": Stage.SCHEDULED, **spec}
    return MaintenanceNotice(metadata=Metadata(name="m1"), spec=Spec(**said), status=Status(node_name="n1"))


def walk(text: str = ALONE, *notices: MaintenanceNotice, selector: str = "", **node: Any) -> Walk:
    found = Walk(text.replace("SELECTOR", selector), **node)
    found.cluster.announced = list(notices)
    return found


def names(it: Walk, **more: Any) -> tuple[str, ...]:
    return looked(it, **more).names


def looked(it: Walk, **more: Any) -> Attached:
    return attached(it.subject(**more), it.configuration.profiles)


@pytest.mark.parametrize(
    ("said", "comes"),
    [
        pytest.param(notice(start=NOW + 500 * HOUR), True, id="weeks ahead"),
        pytest.param(notice(kind=Kind.FREEZE, start=NOW + HOUR), True, id="of any kind"),
        pytest.param(notice(start=NOW - HOUR), True, id="late"),
        pytest.param(notice(stage=Stage.ENDED), False, id="over"),
        pytest.param(notice(stage=Stage.CANCELLED), False, id="cancelled"),
        pytest.param(notice(start=NOW - 2 * HOUR, end=NOW - HOUR), False, id="missed"),
    ],
)
def test_it_comes_with_a_notice_that_is_not_over(said: MaintenanceNotice, comes: bool) -> None:  # noqa: FBT001 - a table
    assert names(walk(ALONE, said)) == (("cloud",) if comes else ())


def test_without_a_notice_a_node_has_none_and_waits_for_the_first() -> None:
    assert looked(walk()) == Attached((), None, frozenset({topics.notices("n1")}))


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
    assert looked(walk(ALONE, notice(start=NOW - HOUR, end=NOW + HOUR))).until == NOW + HOUR


def test_it_stays_until_it_is_done_with_the_node_though_the_notice_is_gone() -> None:
    it = walk(ALONE, notice(start=NOW))
    it.step()
    it.step()  # it is cordoned, and the drain begins
    assert begun.ANNOTATION in it.node.metadata.annotations
    it.cluster.announced = []
    assert names(it) == ("cloud",)
    it.step()
    assert names(it) == ()
    assert not it.node.spec.unschedulable


def test_a_maintenance_that_is_cancelled_ends_a_drain_that_cannot_end() -> None:
    it = walk(ALONE, notice(start=NOW + timedelta(minutes=5)))
    it.step()
    it.step()
    it.cluster.announced = [notice(stage=Stage.CANCELLED)]
    result = it.step()
    assert (result.reports[0].next, dict(result.drains), dict(result.pending)) == ("operational", {}, {})
    assert not it.node.spec.unschedulable


def test_what_others_cordoned_stays_cordoned_though_it_was_never_drained() -> None:
    it = walk(ALONE, notice(start=NOW))
    it.step()
    it.cordon()
    it.cluster.announced = []
    assert it.step().reports[0].next == "operational"
    assert it.node.spec.unschedulable


def test_it_stays_until_the_history_knows_that_it_is_done() -> None:
    it = walk(ALONE, notice(start=NOW + HOUR))
    it.step()
    it.cluster.announced = []
    behind = looked(it, is_recorded=False)
    assert (behind.names, behind.until) == (("cloud",), it.now + timedelta(seconds=1))
    assert names(it) == ()


class Unread(Cluster):
    """A cluster whose notices are not known yet."""

    def notices(self, node: str) -> Any:
        """Tell so."""
        raise HauloutError(f"notices of {node} are being read")


def test_while_notices_are_not_known_all_stays_as_it_is() -> None:
    it = walk(ALONE, notice(start=NOW + HOUR))
    it.step()
    there, new = walk(annotations=dict(it.node.metadata.annotations)), walk()
    there.cluster, new.cluster = Unread(), Unread()
    assert (names(there), names(new)) == (("cloud",), ())


def test_the_last_that_leaves_takes_all_with_it_and_what_is_of_others_stays() -> None:
    it = walk(ALONE, notice(start=NOW + HOUR))
    assert it.step().trace is Trace.KEPT
    it.cluster.announced = []
    assert it.step().trace is Trace.ERASED
    foreign = '{"Profiles":{"os":{"Transition":"2024-05-01T09:00:00Z","Current":"in-maintenance"}}}'
    other = walk(annotations={DATA_ANNOTATION: foreign})
    assert other.step().trace is Trace.UNTOUCHED
    other = walk(ALONE, notice(start=NOW + HOUR), annotations={DATA_ANNOTATION: foreign})
    result = other.step()
    assert (set(result.entries), result.beside) == ({"cloud", "os"}, ("in-maintenance",))


def test_notices_are_followed_and_may_be_though_no_check_looks_at_them() -> None:
    found = loaded("intervals: {requeue: 1m}\nprofiles: [{name: cloud, onNotice: true}]\n")
    asked = permissions.wanted(found, namespace="haulout")
    assert found.needs == {Need.NOTICES}
    assert {(it.resource, names) for it, names in asked.items()} == {("maintenancenotices", ("profile cloud",))}


def test_where_other_profiles_are_configured_the_default_is_only_on_nodes_that_it_is_not_done_with() -> None:
    it = walk(BESIDE, notice(start=NOW))
    in_force = default.in_force(it.configuration, is_left=True)
    assert attached(it.subject(), in_force.profiles).names == ("cloud",)
    left = '{"Profiles":{"notices":{"Transition":"2024-05-01T09:00:00Z","Current":"in-maintenance","Previous":"X"}}}'
    it = walk(BESIDE, annotations={DATA_ANNOTATION: left.replace("X", "in-maintenance")})
    assert attached(it.subject(), in_force.profiles).names == ("notices",)
    assert default.is_unfinished_on(it.node)
    assert default.in_force(it.configuration) is it.configuration
