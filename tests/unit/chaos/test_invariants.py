"""The judge of `make chaos`: it finds each violation in a recording that has one, and none in a clean one."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chaos.invariants import (
    CORDON_ANNOTATION,
    DRAIN_TAINT,
    EXCLUDE_LABEL,
    STATE_LABEL,
    Rules,
    Violation,
    find_violations,
    recovery,
)
from chaos.recording import AUDIT, WATCHED, AuditEvent, Recording, WatchEvent, load, read_audit, save_watched

RULES = Rules(
    replicas=frozenset({"haulout-0", "haulout-1"}),
    namespace="haulout",
    budget=2,
    leader_leases=frozenset({"leader", "profiles"}),
    ledger="haulout-budget",
)
START = datetime(2026, 1, 5, 9, tzinfo=UTC)
OWN_USER, OTHER, PERSON = "haulout-0", "haulout-1", "people"


class RecordingBuilder:
    """Records what users do, one revision and one second after the other."""

    def __init__(self) -> None:
        self.audit: list[AuditEvent] = []
        self.watched: list[WatchEvent] = []
        self.version = 0
        self.epoch = 0

    @property
    def now(self) -> datetime:
        """The instant of the last revision."""
        return START + timedelta(seconds=self.version)

    def writes(
        self, user: str, resource: str, obj: dict[str, Any], *, is_watched: bool = True, verb: str = "patch"
    ) -> None:
        """Let a user write an object; `is_watched` is whether the watch shows it."""
        self.version += 1
        metadata = obj["metadata"] | {"resourceVersion": str(self.version)}
        stored = obj | {"metadata": {"uid": f"uid-{obj['metadata']['name']}"} | metadata}
        self.acts(user, verb, resource, metadata["name"], namespace=metadata.get("namespace", ""), response=stored)
        if is_watched:
            self.shows(resource, stored)

    def acts(self, user: str, verb: str, resource: str, name: str, **more: Any) -> None:
        """Let a request be in the audit log."""
        times = {"received": self.now - timedelta(milliseconds=10), "completed": self.now}
        event: dict[str, Any] = {"code": 200, "epoch": self.epoch} | times | more
        self.audit.append(AuditEvent(user=user, verb=verb, resource=resource, name=name, **event))

    def shows(self, resource: str, obj: dict[str, Any], *, kind: str = "MODIFIED") -> None:
        """Let a watch show an object."""
        self.watched.append(WatchEvent(resource=resource, type=kind, object=obj, at=self.now, epoch=self.epoch))

    def removes(self, resource: str, obj: dict[str, Any]) -> None:
        """Let an object vanish."""
        self.version += 1
        metadata = {"uid": f"uid-{obj['metadata']['name']}"} | obj["metadata"] | {"resourceVersion": str(self.version)}
        self.shows(resource, obj | {"metadata": metadata}, kind="DELETED")

    def leads(self, user: str, lease: str = "leader") -> None:
        """Let a replica take a lease."""
        metadata = {"name": lease, "namespace": "haulout"}
        self.writes(user, "leases", {"metadata": metadata, "spec": {"holderIdentity": f"id-of-{user}"}})

    @property
    def recording(self) -> Recording:
        """What the judge sees."""
        return Recording(tuple(self.audit), tuple(self.watched))


@pytest.fixture
def story() -> RecordingBuilder:
    return RecordingBuilder()


def node(
    name: str,
    *owners: str,
    cordoned: bool | None = None,
    taints: tuple[str, ...] = (),
    labels: dict[str, str] | None = None,
) -> Any:
    mark = {CORDON_ANNOTATION: json.dumps({"owners": {item: {} for item in owners}})} if owners else {}
    spec: dict[str, Any] = {"taints": [{"key": item, "effect": "NoSchedule"} for item in taints]}
    if cordoned if cordoned is not None else owners:
        spec["unschedulable"] = True
    return {"metadata": {"name": name, "annotations": mark, "labels": labels or {}}, "spec": spec}


def order(name: str, on: str, phase: str = "", *, leaving: bool = False) -> Any:
    metadata = {"name": name} | ({"deletionTimestamp": "2026-01-05T09:00:00Z"} if leaving else {})
    return {"metadata": metadata, "spec": {"nodeName": on}, "status": {"phase": phase} if phase else {}}


def record(name: str, *steps: tuple[str, str], **more: str) -> Any:
    entries = [{"object": f"NodeMaintenance/{what}", "to": to, **more} for what, to in steps]
    return {"metadata": {"name": name}, "entries": entries}


def violations_of(story: RecordingBuilder, invariant: str) -> list[str]:
    return [item.what for item in find_violations(story.recording, RULES) if item.invariant == invariant]


# A whole maintenance


def record_maintenance(story: RecordingBuilder) -> None:
    story.leads(OWN_USER)
    story.writes(PERSON, "nodes", node("n1"), verb="create")
    story.writes(PERSON, "nodemaintenances", order("m1", "n1"), verb="create")
    story.writes(OWN_USER, "nodemaintenances", order("m1", "n1", "Running"))
    story.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1", taints=(DRAIN_TAINT,)))
    story.writes(PERSON, "pods", {"metadata": {"name": "p", "namespace": "shop"}, "spec": {"nodeName": "n1"}})
    story.acts(OWN_USER, "create", "pods", "p", namespace="shop", subresource="eviction", code=201)
    story.writes(OWN_USER, "nodemaintenances", order("m1", "n1", "Succeeded"))
    story.writes(PERSON, "nodemaintenances", order("m1", "n1", "Succeeded", leaving=True), verb="delete")
    story.writes(OWN_USER, "nodes", node("n1"))
    story.writes(OWN_USER, "maintenancerecords", record("n1", ("m1", "Running"), ("m1", "Succeeded"), ("m1", "Ended")))
    story.removes("nodemaintenances", order("m1", "n1", "Succeeded", leaving=True))


def test_a_maintenance_as_it_should_be_violates_nothing(story: RecordingBuilder) -> None:
    record_maintenance(story)
    assert find_violations(story.recording, RULES) == []


# Safety


def test_a_node_too_many_out_of_service_exceeds_the_budget(story: RecordingBuilder) -> None:
    for name in ("n1", "n2", "n3"):
        story.writes(OWN_USER, "nodes", node(name, f"NodeMaintenance/{name}"))
    assert violations_of(story, "budget") == ["3 of at most 2 nodes are out of service: n1, n2, n3"]


@pytest.mark.parametrize(
    "third",
    [node("n3", labels={STATE_LABEL: "in-maintenance"}), node("n3", taints=(DRAIN_TAINT,))],
    ids=["a profile has it", "its mark is lost"],
)
def test_every_way_to_be_out_of_service_counts(story: RecordingBuilder, third: Any) -> None:
    story.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    story.writes(OWN_USER, "nodes", node("n2", "NodeMaintenance/m2"))
    story.writes(OWN_USER, "nodes", third)
    assert violations_of(story, "budget")


def test_nodes_one_after_the_other_are_within_the_budget(story: RecordingBuilder) -> None:
    for name in ("n1", "n2", "n3"):
        story.writes(OWN_USER, "nodes", node(name, f"NodeMaintenance/{name}"))
        story.writes(OWN_USER, "nodes", node(name))
    assert violations_of(story, "budget") == []


def test_a_write_that_only_the_audit_log_shows_counts(story: RecordingBuilder) -> None:
    story.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    story.writes(OWN_USER, "nodes", node("n2", "NodeMaintenance/m2"))
    story.writes(OWN_USER, "nodes", node("n3", "NodeMaintenance/m3"), is_watched=False)
    assert violations_of(story, "budget")


def test_a_write_that_only_a_watch_shows_counts(story: RecordingBuilder) -> None:
    """The server was killed before it logged the request."""
    for name in ("n1", "n2", "n3"):
        story.version += 1
        taken = node(name, f"NodeMaintenance/{name}")
        story.shows("nodes", taken | {"metadata": taken["metadata"] | {"resourceVersion": str(story.version)}})
    assert violations_of(story, "budget")


def test_what_a_restored_etcd_brings_back_is_nobodys_violation(story: RecordingBuilder) -> None:
    story.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    story.writes(OWN_USER, "nodes", node("n2", "NodeMaintenance/m2"))
    story.writes(OWN_USER, "nodes", node("n2"))
    story.writes(OWN_USER, "nodes", node("n3", "NodeMaintenance/m3"))
    story.epoch = 1
    for name, version in (("n1", "1"), ("n2", "2")):
        copy = node(name, f"NodeMaintenance/{name}")
        story.shows("nodes", copy | {"metadata": copy["metadata"] | {"resourceVersion": version}}, kind="LISTED")
    assert violations_of(story, "budget") == []


def test_what_a_restore_took_is_not_left(story: RecordingBuilder) -> None:
    story.writes(PERSON, "nodemaintenances", order("m1", "n1"))
    story.epoch, story.version = 1, 0
    story.writes(PERSON, "nodes", node("n1"))
    assert violations_of(story, "convergence") == []


def test_to_uncordon_a_node_that_a_person_cordoned_is_a_violation(story: RecordingBuilder) -> None:
    story.writes(PERSON, "nodes", node("n1"))
    story.writes(PERSON, "nodes", node("n1", cordoned=True))
    story.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    story.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(story, "uncordon") == [f"{OWN_USER} uncordons n1, which a person cordoned"]


def test_to_uncordon_a_node_that_an_order_holds_is_a_violation(story: RecordingBuilder) -> None:
    story.writes(PERSON, "nodes", node("n1"))
    story.writes(PERSON, "nodemaintenances", order("m1", "n1"))
    story.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    story.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(story, "uncordon") == [f"{OWN_USER} uncordons n1, which NodeMaintenance/m1 holds"]


def test_a_cordon_that_a_restored_etcd_does_not_know_is_nobodys(story: RecordingBuilder) -> None:
    story.writes(PERSON, "nodes", node("n1"))
    story.writes(PERSON, "nodes", node("n1", cordoned=True))
    story.epoch, story.version = 1, 0
    restored = node("n1") | {"metadata": node("n1")["metadata"] | {"resourceVersion": "1"}}
    story.shows("nodes", restored, kind="LISTED")
    story.version = 1
    story.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    story.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(story, "uncordon") == []


def test_a_person_may_uncordon_what_they_like(story: RecordingBuilder) -> None:
    story.writes(PERSON, "nodes", node("n1", cordoned=True))
    story.writes(PERSON, "nodes", node("n1"))
    assert violations_of(story, "uncordon") == []


def test_a_patch_that_changes_nothing_is_not_taken_for_the_write_before_it(story: RecordingBuilder) -> None:
    story.writes(PERSON, "nodes", node("n1", cordoned=True))
    story.writes(PERSON, "nodes", node("n1"))
    stored = story.audit[-1].response
    story.acts(OWN_USER, "patch", "nodes", "n1", received=story.now, completed=story.now, response=stored)
    assert violations_of(story, "uncordon") == []


def test_a_write_after_another_took_the_lease_is_a_violation(story: RecordingBuilder) -> None:
    story.leads(OWN_USER)
    story.leads(OTHER)
    story.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(story, "deposed leader") == [f"{OWN_USER} writes patch nodes n1 though {OTHER} leads"]


def test_a_write_that_was_on_its_way_when_another_took_the_lease_is_none(story: RecordingBuilder) -> None:
    story.leads(OWN_USER)
    early = story.now
    story.leads(OTHER)
    story.version += 1
    story.acts(OWN_USER, "patch", "nodes", "n1", received=early)
    assert violations_of(story, "deposed leader") == []


def test_who_holds_the_lease_of_profiles_may_write(story: RecordingBuilder) -> None:
    story.leads(OWN_USER, "profiles")
    story.leads(OWN_USER)
    story.leads(OTHER)
    story.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(story, "deposed leader") == []


def test_a_lease_that_a_stranger_overwrote_deposes_nobody_until_a_replica_takes_it(story: RecordingBuilder) -> None:
    story.leads(OWN_USER)
    stranger = {"metadata": {"name": "leader", "namespace": "haulout"}, "spec": {"holderIdentity": "stranger"}}
    story.writes(PERSON, "leases", stranger)
    story.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(story, "deposed leader") == []


def test_to_delete_a_pod_instead_of_evicting_it_is_a_violation(story: RecordingBuilder) -> None:
    story.acts(OWN_USER, "delete", "pods", "cart", namespace="shop")
    story.acts(PERSON, "delete", "pods", "cart", namespace="shop")
    story.acts(OWN_USER, "delete", "pods", "refused", namespace="shop", code=403)
    assert violations_of(story, "eviction") == [f"{OWN_USER} deletes pod shop/cart around its budget"]


def test_to_evict_from_a_node_that_nobody_holds_is_a_violation(story: RecordingBuilder) -> None:
    story.writes(PERSON, "nodes", node("n1"))
    story.writes(PERSON, "pods", {"metadata": {"name": "p", "namespace": "shop"}, "spec": {"nodeName": "n1"}})
    story.acts(OWN_USER, "create", "pods", "p", namespace="shop", subresource="eviction", code=201)
    assert violations_of(story, "eviction") == [f"{OWN_USER} evicts shop/p from n1, which nobody holds"]


def test_two_maintenances_of_one_node_at_once_are_a_violation(story: RecordingBuilder) -> None:
    story.writes(OWN_USER, "nodemaintenances", order("m1", "n1", "Succeeded"))
    story.writes(OWN_USER, "nodemaintenances", order("m2", "n1", "Running"))
    story.writes(OWN_USER, "nodemaintenances", order("m3", "n2", "Succeeded"))
    assert violations_of(story, "one per node") == []
    story.writes(OWN_USER, "nodemaintenances", order("m2", "n1", "Succeeded"))
    assert violations_of(story, "one per node") == ["NodeMaintenance m2 of n1 succeeds beside m1"]


def test_a_maintenance_may_follow_one_that_is_being_deleted(story: RecordingBuilder) -> None:
    story.writes(OWN_USER, "nodemaintenances", order("m1", "n1", "Succeeded"))
    story.writes(PERSON, "nodemaintenances", order("m1", "n1", "Succeeded", leaving=True))
    story.writes(OWN_USER, "nodemaintenances", order("m2", "n1", "Succeeded"))
    assert violations_of(story, "one per node") == []


def test_to_change_what_belongs_to_others_is_a_violation(story: RecordingBuilder) -> None:
    story.writes(PERSON, "nodes", node("n1", taints=("example.com/gpu",), labels={"team": "shop"}))
    story.writes(OWN_USER, "nodes", node("n1", labels={EXCLUDE_LABEL: "true"}))
    assert violations_of(story, "foreign") == [
        f"{OWN_USER} changes label team of n1",
        f"{OWN_USER} changes taint example.com/gpu=:NoSchedule of n1",
    ]


# What is left


@pytest.mark.parametrize(
    "left",
    [
        node("n1", "NodeMaintenance/m1", cordoned=False),
        node("n1", taints=(DRAIN_TAINT,)),
        node("n1", labels={EXCLUDE_LABEL: "true"}),
        node("n1", labels={STATE_LABEL: "maintenance-required"}),
        node("n1") | {"status": {"conditions": [{"type": "Drained", "status": "True", "message": "Haulout: m1"}]}},
    ],
    ids=["mark", "taint", "label", "state", "condition"],
)
def test_what_stays_on_a_node_is_a_violation(story: RecordingBuilder, left: Any) -> None:
    story.writes(OWN_USER, "nodes", left)
    assert len(violations_of(story, "residue")) == 1


def test_a_copy_of_a_cordon_mark_that_stays_is_a_violation(story: RecordingBuilder) -> None:
    metadata = {"name": "haulout-cordons", "namespace": "haulout"}
    story.writes(OWN_USER, "configmaps", {"metadata": metadata, "data": {"u1.profiles": "{}"}})
    assert violations_of(story, "residue") == ["the copy u1.profiles of a cordon mark is still there"]


def test_a_slot_and_a_lease_that_stay_are_violations(story: RecordingBuilder) -> None:
    slots = json.dumps([{"name": "n1"}])
    metadata = {"name": "haulout-budget", "namespace": "haulout"}
    story.writes(OWN_USER, "configmaps", {"metadata": metadata, "data": {"slots": slots}})
    lease = {"metadata": {"name": "node-n1", "namespace": "medik8s-leases"}, "spec": {"holderIdentity": "x"}}
    story.writes(OWN_USER, "leases", lease)
    assert violations_of(story, "residue") == [
        "the budget still has a slot of node n1",
        "lease medik8s-leases/node-n1 is still held",
    ]


def test_a_node_that_stays_cordoned_is_a_violation_unless_a_person_cordoned_it(story: RecordingBuilder) -> None:
    story.writes(PERSON, "nodes", node("n1"))
    story.writes(PERSON, "nodes", node("n1", cordoned=True))
    story.writes(PERSON, "nodes", node("n2"))
    story.writes(OWN_USER, "nodes", node("n2", cordoned=True))
    story.writes(PERSON, "nodemaintenances", order("m1", "n1"))
    assert violations_of(story, "convergence") == [
        "NodeMaintenance m1 still exists",
        "node n2 stays cordoned, and no person cordoned it",
    ]


# The record


@pytest.mark.parametrize(
    "steps",
    [(), ("Running",), ("Running", "Ended"), ("Running", "Ended", "Succeeded"), ("Running", "Succeeded")],
    ids=lambda it: "-".join(it) or "nothing",
)
def test_an_entry_that_is_missing_or_in_another_place_is_a_violation(
    story: RecordingBuilder, steps: tuple[str, ...]
) -> None:
    record_maintenance(story)
    story.writes(OWN_USER, "maintenancerecords", record("n1", *(("m1", step) for step in steps)))
    assert len(violations_of(story, "history")) == 1


@pytest.mark.parametrize(
    ("recorded", "is_complete"),
    [
        (("maintenance-required", "in-maintenance", "operational"), True),
        (("operational", "maintenance-required", "in-maintenance", "operational"), True),
        (("maintenance-required", "operational"), False),
        (("in-maintenance", "maintenance-required", "operational"), False),
        ((), False),
    ],
)
def test_a_state_of_a_profile_that_the_record_lacks_is_a_violation(
    story: RecordingBuilder, recorded: tuple[str, ...], *, is_complete: bool
) -> None:
    for state in ("operational", "maintenance-required", "in-maintenance", "operational"):
        story.writes(OWN_USER, "nodes", node("n1", labels={STATE_LABEL: state}))
    entries = [{"object": "profile/os", "to": item} for item in recorded]
    story.writes(OWN_USER, "maintenancerecords", {"metadata": {"name": "n1"}, "entries": entries})
    assert (violations_of(story, "history") == []) is is_complete


def test_a_record_is_wanted_of_nodes_that_last(story: RecordingBuilder) -> None:
    for name in ("n2", "no-such-node"):
        story.writes(PERSON, "nodemaintenances", order(f"m-{name}", name, "Running"))
    story.writes(PERSON, "nodes", node("n2"))
    story.removes("nodes", node("n2"))
    story.writes(PERSON, "nodes", node("n2"))
    assert violations_of(story, "history") == []


def test_a_gap_that_the_record_shows_is_none(story: RecordingBuilder) -> None:
    record_maintenance(story)
    story.writes(OWN_USER, "maintenancerecords", record("n1", ("m1", "Running"), result="Gap"))
    assert violations_of(story, "history") == []


def test_an_event_that_is_recorded_twice_for_one_transition_is_a_violation(story: RecordingBuilder) -> None:
    record_maintenance(story)
    about = {"kind": "NodeMaintenance", "uid": "uid-m1"}
    for name in ("e1", "e2"):
        event = {"metadata": {"name": name, "namespace": "default"}, "regarding": about, "reason": "BeginMaintenance"}
        story.writes(OWN_USER, "events", event)
    assert violations_of(story, "events") == ["Event BeginMaintenance of NodeMaintenance m1 was recorded 2 times for 1"]


# Recovery, and the audit log


def test_recovery_is_the_time_until_an_operator_acts_on_orders_and_on_profiles(story: RecordingBuilder) -> None:
    since = story.now

    def measured() -> timedelta | None:
        return recovery(story.recording, RULES, since, maintenance="probe", node="n1")

    story.writes(PERSON, "nodemaintenances", order("probe", "n0"))
    story.writes(OTHER, "nodes", node("n1", labels={STATE_LABEL: "operational"}))
    story.writes(OTHER, "nodemaintenances", order("probe", "n0", "Running"))
    assert measured() is None
    story.writes(OWN_USER, "nodes", node("n1", labels={STATE_LABEL: "maintenance-required"}))
    assert measured() == timedelta(seconds=4)


def test_an_audit_log_that_breaks_off_is_read_as_far_as_it_goes() -> None:
    line = {
        "stage": "ResponseComplete",
        "verb": "patch",
        "user": {"username": OWN_USER},
        "objectRef": {"resource": "nodes", "name": "n1"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2026-01-05T09:00:00.000001Z",
        "stageTimestamp": "2026-01-05T09:00:00.000002Z",
        "responseObject": {"metadata": {"name": "n1", "resourceVersion": "7"}},
    }
    text = json.dumps(line)
    (event,) = read_audit([text, text[:40], json.dumps(line | {"stage": "Panic"})], restored=[START])
    assert (event.user, event.version, event.epoch, event.succeeded) == (OWN_USER, 7, 1, True)


def test_a_recording_that_was_kept_is_judged_alike(story: RecordingBuilder, tmp_path: Path) -> None:
    story.writes(PERSON, "nodes", node("n1"))
    story.writes(PERSON, "nodemaintenances", order("m1", "n1"))
    (tmp_path / AUDIT).write_text("")
    save_watched(tmp_path / WATCHED, story.watched, [START])
    kept = load(tmp_path)
    assert kept.watched == tuple(story.watched)
    assert [item.what for item in find_violations(kept, RULES)] == ["NodeMaintenance m1 still exists"]


def test_a_violation_says_what_and_when() -> None:
    assert str(Violation(invariant="budget", what="too many", at=START)) == (
        "budget: too many (at 2026-01-05T09:00:00+00:00)"
    )
