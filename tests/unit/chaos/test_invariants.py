"""The invariant checks of `make chaos`: they find each violation in a recording, and none in a correct one."""

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
    """Builds a recording of writes, one revision and one second after the other."""

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
        """Add a write of a user; `is_watched` is whether the watch contains it."""
        self.version += 1
        metadata = obj["metadata"] | {"resourceVersion": str(self.version)}
        stored = obj | {"metadata": {"uid": f"uid-{obj['metadata']['name']}"} | metadata}
        self.acts(user, verb, resource, metadata["name"], namespace=metadata.get("namespace", ""), response=stored)
        if is_watched:
            self.shows(resource, stored)

    def acts(self, user: str, verb: str, resource: str, name: str, **more: Any) -> None:
        """Add a request to the audit log."""
        times = {"received": self.now - timedelta(milliseconds=10), "completed": self.now}
        event: dict[str, Any] = {"code": 200, "epoch": self.epoch} | times | more
        self.audit.append(AuditEvent(user=user, verb=verb, resource=resource, name=name, **event))

    def shows(self, resource: str, obj: dict[str, Any], *, kind: str = "MODIFIED") -> None:
        """Add an object to the watch."""
        self.watched.append(WatchEvent(resource=resource, type=kind, object=obj, at=self.now, epoch=self.epoch))

    def removes(self, resource: str, obj: dict[str, Any]) -> None:
        """Add a deletion to the watch."""
        self.version += 1
        metadata = {"uid": f"uid-{obj['metadata']['name']}"} | obj["metadata"] | {"resourceVersion": str(self.version)}
        self.shows(resource, obj | {"metadata": metadata}, kind="DELETED")

    def leads(self, user: str, lease: str = "leader") -> None:
        """Add a write by which a replica acquires a lease."""
        metadata = {"name": lease, "namespace": "haulout"}
        self.writes(user, "leases", {"metadata": metadata, "spec": {"holderIdentity": f"id-of-{user}"}})

    @property
    def recording(self) -> Recording:
        """The recording to check."""
        return Recording(tuple(self.audit), tuple(self.watched))


@pytest.fixture
def scenario() -> RecordingBuilder:
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


def violations_of(scenario: RecordingBuilder, invariant: str) -> list[str]:
    return [item.what for item in find_violations(scenario.recording, RULES) if item.invariant == invariant]


# A whole maintenance


def record_maintenance(scenario: RecordingBuilder) -> None:
    scenario.leads(OWN_USER)
    scenario.writes(PERSON, "nodes", node("n1"), verb="create")
    scenario.writes(PERSON, "nodemaintenances", order("m1", "n1"), verb="create")
    scenario.writes(OWN_USER, "nodemaintenances", order("m1", "n1", "Running"))
    scenario.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1", taints=(DRAIN_TAINT,)))
    scenario.writes(PERSON, "pods", {"metadata": {"name": "p", "namespace": "shop"}, "spec": {"nodeName": "n1"}})
    scenario.acts(OWN_USER, "create", "pods", "p", namespace="shop", subresource="eviction", code=201)
    scenario.writes(OWN_USER, "nodemaintenances", order("m1", "n1", "Succeeded"))
    scenario.writes(PERSON, "nodemaintenances", order("m1", "n1", "Succeeded", leaving=True), verb="delete")
    scenario.writes(OWN_USER, "nodes", node("n1"))
    scenario.writes(
        OWN_USER, "maintenancerecords", record("n1", ("m1", "Running"), ("m1", "Succeeded"), ("m1", "Ended"))
    )
    scenario.removes("nodemaintenances", order("m1", "n1", "Succeeded", leaving=True))


def test_correct_maintenance_violates_no_invariant(scenario: RecordingBuilder) -> None:
    record_maintenance(scenario)
    assert find_violations(scenario.recording, RULES) == []


# Safety


def test_too_many_nodes_out_of_service_violate_the_budget(scenario: RecordingBuilder) -> None:
    for name in ("n1", "n2", "n3"):
        scenario.writes(OWN_USER, "nodes", node(name, f"NodeMaintenance/{name}"))
    assert violations_of(scenario, "budget") == ["3 of at most 2 nodes are out of service: n1, n2, n3"]


@pytest.mark.parametrize(
    "third",
    [node("n3", labels={STATE_LABEL: "in-maintenance"}), node("n3", taints=(DRAIN_TAINT,))],
    ids=["in maintenance by a profile", "without its cordon annotation"],
)
def test_each_kind_of_out_of_service_counts_against_the_budget(scenario: RecordingBuilder, third: Any) -> None:
    scenario.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    scenario.writes(OWN_USER, "nodes", node("n2", "NodeMaintenance/m2"))
    scenario.writes(OWN_USER, "nodes", third)
    assert violations_of(scenario, "budget")


def test_sequential_maintenance_is_within_the_budget(scenario: RecordingBuilder) -> None:
    for name in ("n1", "n2", "n3"):
        scenario.writes(OWN_USER, "nodes", node(name, f"NodeMaintenance/{name}"))
        scenario.writes(OWN_USER, "nodes", node(name))
    assert violations_of(scenario, "budget") == []


def test_write_only_in_the_audit_log_counts(scenario: RecordingBuilder) -> None:
    scenario.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    scenario.writes(OWN_USER, "nodes", node("n2", "NodeMaintenance/m2"))
    scenario.writes(OWN_USER, "nodes", node("n3", "NodeMaintenance/m3"), is_watched=False)
    assert violations_of(scenario, "budget")


def test_write_only_in_a_watch_counts(scenario: RecordingBuilder) -> None:
    """The API server was killed before it logged the request."""
    for name in ("n1", "n2", "n3"):
        scenario.version += 1
        taken = node(name, f"NodeMaintenance/{name}")
        scenario.shows("nodes", taken | {"metadata": taken["metadata"] | {"resourceVersion": str(scenario.version)}})
    assert violations_of(scenario, "budget")


def test_state_restored_with_etcd_is_no_violation(scenario: RecordingBuilder) -> None:
    scenario.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    scenario.writes(OWN_USER, "nodes", node("n2", "NodeMaintenance/m2"))
    scenario.writes(OWN_USER, "nodes", node("n2"))
    scenario.writes(OWN_USER, "nodes", node("n3", "NodeMaintenance/m3"))
    scenario.epoch = 1
    for name, version in (("n1", "1"), ("n2", "2")):
        copy = node(name, f"NodeMaintenance/{name}")
        scenario.shows("nodes", copy | {"metadata": copy["metadata"] | {"resourceVersion": version}}, kind="LISTED")
    assert violations_of(scenario, "budget") == []


def test_object_lost_by_a_restore_is_no_residue(scenario: RecordingBuilder) -> None:
    scenario.writes(PERSON, "nodemaintenances", order("m1", "n1"))
    scenario.epoch, scenario.version = 1, 0
    scenario.writes(PERSON, "nodes", node("n1"))
    assert violations_of(scenario, "convergence") == []


def test_uncordoning_a_node_cordoned_by_a_user_is_a_violation(scenario: RecordingBuilder) -> None:
    scenario.writes(PERSON, "nodes", node("n1"))
    scenario.writes(PERSON, "nodes", node("n1", cordoned=True))
    scenario.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    scenario.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(scenario, "uncordon") == [f"{OWN_USER} uncordons n1, which a person cordoned"]


def test_uncordoning_a_node_in_maintenance_is_a_violation(scenario: RecordingBuilder) -> None:
    scenario.writes(PERSON, "nodes", node("n1"))
    scenario.writes(PERSON, "nodemaintenances", order("m1", "n1"))
    scenario.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    scenario.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(scenario, "uncordon") == [f"{OWN_USER} uncordons n1, which NodeMaintenance/m1 holds"]


def test_cordon_lost_by_an_etcd_restore_is_no_violation(scenario: RecordingBuilder) -> None:
    scenario.writes(PERSON, "nodes", node("n1"))
    scenario.writes(PERSON, "nodes", node("n1", cordoned=True))
    scenario.epoch, scenario.version = 1, 0
    restored = node("n1") | {"metadata": node("n1")["metadata"] | {"resourceVersion": "1"}}
    scenario.shows("nodes", restored, kind="LISTED")
    scenario.version = 1
    scenario.writes(OWN_USER, "nodes", node("n1", "NodeMaintenance/m1"))
    scenario.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(scenario, "uncordon") == []


def test_uncordon_by_a_user_is_no_violation(scenario: RecordingBuilder) -> None:
    scenario.writes(PERSON, "nodes", node("n1", cordoned=True))
    scenario.writes(PERSON, "nodes", node("n1"))
    assert violations_of(scenario, "uncordon") == []


def test_empty_patch_is_not_attributed_the_previous_write(scenario: RecordingBuilder) -> None:
    scenario.writes(PERSON, "nodes", node("n1", cordoned=True))
    scenario.writes(PERSON, "nodes", node("n1"))
    stored = scenario.audit[-1].response
    scenario.acts(OWN_USER, "patch", "nodes", "n1", received=scenario.now, completed=scenario.now, response=stored)
    assert violations_of(scenario, "uncordon") == []


def test_write_by_a_deposed_leader_is_a_violation(scenario: RecordingBuilder) -> None:
    scenario.leads(OWN_USER)
    scenario.leads(OTHER)
    scenario.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(scenario, "deposed leader") == [f"{OWN_USER} writes patch nodes n1 though {OTHER} leads"]


def test_write_in_flight_during_a_leader_change_is_no_violation(scenario: RecordingBuilder) -> None:
    scenario.leads(OWN_USER)
    early = scenario.now
    scenario.leads(OTHER)
    scenario.version += 1
    scenario.acts(OWN_USER, "patch", "nodes", "n1", received=early)
    assert violations_of(scenario, "deposed leader") == []


def test_holder_of_the_profiles_lease_may_write(scenario: RecordingBuilder) -> None:
    scenario.leads(OWN_USER, "profiles")
    scenario.leads(OWN_USER)
    scenario.leads(OTHER)
    scenario.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(scenario, "deposed leader") == []


def test_lease_overwritten_by_a_stranger_deposes_no_leader(scenario: RecordingBuilder) -> None:
    scenario.leads(OWN_USER)
    stranger = {"metadata": {"name": "leader", "namespace": "haulout"}, "spec": {"holderIdentity": "stranger"}}
    scenario.writes(PERSON, "leases", stranger)
    scenario.writes(OWN_USER, "nodes", node("n1"))
    assert violations_of(scenario, "deposed leader") == []


def test_deleting_a_pod_instead_of_evicting_it_is_a_violation(scenario: RecordingBuilder) -> None:
    scenario.acts(OWN_USER, "delete", "pods", "cart", namespace="shop")
    scenario.acts(PERSON, "delete", "pods", "cart", namespace="shop")
    scenario.acts(OWN_USER, "delete", "pods", "refused", namespace="shop", code=403)
    assert violations_of(scenario, "eviction") == [f"{OWN_USER} deletes pod shop/cart around its budget"]


def test_eviction_from_a_node_without_a_cordon_owner_is_a_violation(scenario: RecordingBuilder) -> None:
    scenario.writes(PERSON, "nodes", node("n1"))
    scenario.writes(PERSON, "pods", {"metadata": {"name": "p", "namespace": "shop"}, "spec": {"nodeName": "n1"}})
    scenario.acts(OWN_USER, "create", "pods", "p", namespace="shop", subresource="eviction", code=201)
    assert violations_of(scenario, "eviction") == [f"{OWN_USER} evicts shop/p from n1, which nobody holds"]


def test_two_maintenances_of_one_node_are_a_violation(scenario: RecordingBuilder) -> None:
    scenario.writes(OWN_USER, "nodemaintenances", order("m1", "n1", "Succeeded"))
    scenario.writes(OWN_USER, "nodemaintenances", order("m2", "n1", "Running"))
    scenario.writes(OWN_USER, "nodemaintenances", order("m3", "n2", "Succeeded"))
    assert violations_of(scenario, "one per node") == []
    scenario.writes(OWN_USER, "nodemaintenances", order("m2", "n1", "Succeeded"))
    assert violations_of(scenario, "one per node") == ["NodeMaintenance m2 of n1 succeeds beside m1"]


def test_maintenance_after_a_terminating_one_is_no_violation(scenario: RecordingBuilder) -> None:
    scenario.writes(OWN_USER, "nodemaintenances", order("m1", "n1", "Succeeded"))
    scenario.writes(PERSON, "nodemaintenances", order("m1", "n1", "Succeeded", leaving=True))
    scenario.writes(OWN_USER, "nodemaintenances", order("m2", "n1", "Succeeded"))
    assert violations_of(scenario, "one per node") == []


def test_changing_foreign_labels_or_taints_is_a_violation(scenario: RecordingBuilder) -> None:
    scenario.writes(PERSON, "nodes", node("n1", taints=("example.com/gpu",), labels={"team": "shop"}))
    scenario.writes(OWN_USER, "nodes", node("n1", labels={EXCLUDE_LABEL: "true"}))
    assert violations_of(scenario, "foreign") == [
        f"{OWN_USER} changes label team of n1",
        f"{OWN_USER} changes taint example.com/gpu=:NoSchedule of n1",
    ]


# Leftovers


@pytest.mark.parametrize(
    "leftover",
    [
        node("n1", "NodeMaintenance/m1", cordoned=False),
        node("n1", taints=(DRAIN_TAINT,)),
        node("n1", labels={EXCLUDE_LABEL: "true"}),
        node("n1", labels={STATE_LABEL: "maintenance-required"}),
        node("n1") | {"status": {"conditions": [{"type": "Drained", "status": "True", "message": "Haulout: m1"}]}},
    ],
    ids=["mark", "taint", "label", "state", "condition"],
)
def test_leftovers_on_a_node_are_a_violation(scenario: RecordingBuilder, leftover: Any) -> None:
    scenario.writes(OWN_USER, "nodes", leftover)
    assert len(violations_of(scenario, "residue")) == 1


def test_remaining_copy_of_a_cordon_annotation_is_a_violation(scenario: RecordingBuilder) -> None:
    metadata = {"name": "haulout-cordons", "namespace": "haulout"}
    scenario.writes(OWN_USER, "configmaps", {"metadata": metadata, "data": {"u1.profiles": "{}"}})
    assert violations_of(scenario, "residue") == ["the copy u1.profiles of a cordon mark is still there"]


def test_remaining_slot_and_lease_are_violations(scenario: RecordingBuilder) -> None:
    slots = json.dumps([{"name": "n1"}])
    metadata = {"name": "haulout-budget", "namespace": "haulout"}
    scenario.writes(OWN_USER, "configmaps", {"metadata": metadata, "data": {"slots": slots}})
    lease = {"metadata": {"name": "node-n1", "namespace": "medik8s-leases"}, "spec": {"holderIdentity": "x"}}
    scenario.writes(OWN_USER, "leases", lease)
    assert violations_of(scenario, "residue") == [
        "the budget still has a slot of node n1",
        "lease medik8s-leases/node-n1 is still held",
    ]


def test_remaining_cordon_is_a_violation_unless_set_by_a_user(scenario: RecordingBuilder) -> None:
    scenario.writes(PERSON, "nodes", node("n1"))
    scenario.writes(PERSON, "nodes", node("n1", cordoned=True))
    scenario.writes(PERSON, "nodes", node("n2"))
    scenario.writes(OWN_USER, "nodes", node("n2", cordoned=True))
    scenario.writes(PERSON, "nodemaintenances", order("m1", "n1"))
    assert violations_of(scenario, "convergence") == [
        "NodeMaintenance m1 still exists",
        "node n2 stays cordoned, and no person cordoned it",
    ]


# The record


@pytest.mark.parametrize(
    "steps",
    [(), ("Running",), ("Running", "Ended"), ("Running", "Ended", "Succeeded"), ("Running", "Succeeded")],
    ids=lambda it: "-".join(it) or "nothing",
)
def test_missing_or_misplaced_history_entry_is_a_violation(scenario: RecordingBuilder, steps: tuple[str, ...]) -> None:
    record_maintenance(scenario)
    scenario.writes(OWN_USER, "maintenancerecords", record("n1", *(("m1", step) for step in steps)))
    assert len(violations_of(scenario, "history")) == 1


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
def test_profile_state_missing_in_the_record_is_a_violation(
    scenario: RecordingBuilder, recorded: tuple[str, ...], *, is_complete: bool
) -> None:
    for state in ("operational", "maintenance-required", "in-maintenance", "operational"):
        scenario.writes(OWN_USER, "nodes", node("n1", labels={STATE_LABEL: state}))
    entries = [{"object": "profile/os", "to": item} for item in recorded]
    scenario.writes(OWN_USER, "maintenancerecords", {"metadata": {"name": "n1"}, "entries": entries})
    assert (violations_of(scenario, "history") == []) is is_complete


def test_record_is_required_only_for_nodes_that_still_exist(scenario: RecordingBuilder) -> None:
    for name in ("n2", "no-such-node"):
        scenario.writes(PERSON, "nodemaintenances", order(f"m-{name}", name, "Running"))
    scenario.writes(PERSON, "nodes", node("n2"))
    scenario.removes("nodes", node("n2"))
    scenario.writes(PERSON, "nodes", node("n2"))
    assert violations_of(scenario, "history") == []


def test_recorded_gap_is_no_violation(scenario: RecordingBuilder) -> None:
    record_maintenance(scenario)
    scenario.writes(OWN_USER, "maintenancerecords", record("n1", ("m1", "Running"), result="Gap"))
    assert violations_of(scenario, "history") == []


def test_duplicate_event_of_one_transition_is_a_violation(scenario: RecordingBuilder) -> None:
    record_maintenance(scenario)
    about = {"kind": "NodeMaintenance", "uid": "uid-m1"}
    for name in ("e1", "e2"):
        event = {"metadata": {"name": name, "namespace": "default"}, "regarding": about, "reason": "BeginMaintenance"}
        scenario.writes(OWN_USER, "events", event)
    assert violations_of(scenario, "events") == [
        "Event BeginMaintenance of NodeMaintenance m1 was recorded 2 times for 1"
    ]


# Recovery, and the audit log


def test_recovery_time_ends_with_writes_to_maintenances_and_profiles(scenario: RecordingBuilder) -> None:
    since = scenario.now

    def measured() -> timedelta | None:
        return recovery(scenario.recording, RULES, since, maintenance="probe", node="n1")

    scenario.writes(PERSON, "nodemaintenances", order("probe", "n0"))
    scenario.writes(OTHER, "nodes", node("n1", labels={STATE_LABEL: "operational"}))
    scenario.writes(OTHER, "nodemaintenances", order("probe", "n0", "Running"))
    assert measured() is None
    scenario.writes(OWN_USER, "nodes", node("n1", labels={STATE_LABEL: "maintenance-required"}))
    assert measured() == timedelta(seconds=4)


def test_truncated_audit_log_is_read_up_to_its_end() -> None:
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


def test_saved_recording_has_the_same_violations(scenario: RecordingBuilder, tmp_path: Path) -> None:
    scenario.writes(PERSON, "nodes", node("n1"))
    scenario.writes(PERSON, "nodemaintenances", order("m1", "n1"))
    (tmp_path / AUDIT).write_text("")
    save_watched(tmp_path / WATCHED, scenario.watched, [START])
    kept = load(tmp_path)
    assert kept.watched == tuple(scenario.watched)
    assert [item.what for item in find_violations(kept, RULES)] == ["NodeMaintenance m1 still exists"]


def test_violation_text_has_invariant_message_and_time() -> None:
    assert str(Violation(invariant="budget", what="too many", at=START)) == (
        "budget: too many (at 2026-01-05T09:00:00+00:00)"
    )
