"""Labels and annotations of a Machine and its node, by table and by random sequences against a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.clusterapi import (
    APPROVE_DELETION,
    APPROVE_MAINTENANCE,
    APPROVED,
    DRAIN_RULES,
    ENABLED,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    MAINTENANCE,
    MAINTENANCE_STATE,
    PRE_DRAIN_HOOK,
    PRE_DRAIN_HOOK_OWNER,
    REQUESTED,
    Machine,
    MachineSpec,
    MachineStatus,
    NodeReference,
)
from haulout.api.maintenancefreeze import MaintenanceFreeze, MaintenanceFreezeSpec
from haulout.api.objects import Node, Object, ObjectMeta
from haulout.controllers.clusterapi.decision import decide, decide_withdrawal
from haulout.controllers.clusterapi.observation import (
    APPROVED_REQUEST,
    DELETION_RELEASED,
    DELETION_REQUEST,
    MAINTENANCE_REQUEST,
    Decision,
    MetadataChange,
    Observation,
)
from haulout.controllers.clusterapi.settings import ClusterApiSettings, OldApprovals
from haulout.controllers.clusterapi.status import RequestType
from haulout.runtime.freezes import Freezes, parse_freeze

REMOVE_IT = "remove the label, or let the profile that set it do so; then the node is prepared"
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
LIKE_PREDECESSOR = ClusterApiSettings(old_approvals=OldApprovals.HONOUR)
FOREIGN = {"example.org/mine": "x", "pre-drain.delete.hook.machine.cluster.x-k8s.io/other": "y"}
OURS = {
    PRE_DRAIN_HOOK,
    MAINTENANCE,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    DELETION_REQUEST,
    MAINTENANCE_REQUEST,
    APPROVED_REQUEST,
    DELETION_RELEASED,
}


def a_machine(
    *,
    enabled: str | None = "true",
    maintenance: str | None = None,
    leaving: datetime | None = None,
    node: str = "n1",
    hook: bool = False,
    uid: str = "u1",
    **annotations: str,
) -> Machine:
    labels = {ENABLED: enabled, MAINTENANCE: maintenance}
    return Machine(
        metadata=ObjectMeta(
            name="m1",
            namespace="team-a",
            uid=uid,
            resource_version="7",
            labels={key: value for key, value in labels.items() if value is not None},
            annotations={**FOREIGN, **annotations, **({PRE_DRAIN_HOOK: PRE_DRAIN_HOOK_OWNER} if hook else {})},
            deletion_timestamp=leaving,
        ),
        spec=MachineSpec(cluster_name="prod"),
        status=MachineStatus(node_ref=NodeReference(name=node) if node else None),
    )


def a_node(*labels: str, managed: bool = True, annotations: Mapping[str, str] | None = None) -> Node:
    there = dict.fromkeys(labels, "true") | ({MAINTENANCE_STATE: "operational"} if managed else {})
    return Node(
        metadata=ObjectMeta(
            name="n1", uid="nu", resource_version="3", labels=there, annotations=dict(annotations or {})
        )
    )


def decide_for(machine: Machine, node: Node | None, **more: Any) -> Decision:
    return decide(Observation(machine=machine, node=node, **{"now": NOW, **more}))


def applied(change: MetadataChange, to: Object) -> Any:
    """Return what an API server makes of a change."""
    metadata = to.metadata
    labels, annotations = dict(metadata.labels), dict(metadata.annotations)
    for values, have in ((change.labels, labels), (change.annotations, annotations)):
        for key, value in values.items():
            have.pop(key, None)
            have.update({} if value is None else {key: value})
    return msgspec.structs.replace(
        to, metadata=msgspec.structs.replace(metadata, labels=labels, annotations=annotations)
    )


# The four rules of the runtime-extension-maintenance-controller


@dataclass(frozen=True)
class Expected:
    """What its specification says, section 3."""

    hook: bool
    deleted: bool
    maintained: bool
    maintenance: str | None


def expected_by_specification(machine: Machine, node: Node) -> Expected:
    labels, state = node.metadata.labels, machine.metadata.labels.get(MAINTENANCE)
    coupled = MAINTENANCE_STATE in labels and machine.metadata.labels.get(ENABLED) == "true"
    requested, approved = state == "requested", state == "approved"
    return Expected(
        hook=coupled and labels.get(APPROVE_DELETION) != "true",
        deleted=coupled and machine.metadata.deletion_timestamp is not None,
        maintained=coupled and (requested or approved),
        maintenance="approved" if coupled and requested and labels.get(APPROVE_MAINTENANCE) == "true" else state,
    )


@given(
    enabled=st.sampled_from([None, "true", "True", "1", ""]),
    maintenance=st.sampled_from([None, "requested", "approved", "Requested", "x"]),
    leaving=st.sampled_from([None, NOW]),
    hook=st.booleans(),
    managed=st.booleans(),
    there=st.sets(st.sampled_from([APPROVE_DELETION, APPROVE_MAINTENANCE, MACHINE_DELETED, MACHINE_MAINTENANCE])),
)
def test_with_honour_decisions_match_the_specification(
    *,
    enabled: str | None,
    maintenance: str | None,
    leaving: datetime | None,
    hook: bool,
    managed: bool,
    there: set[str],
) -> None:
    machine = a_machine(enabled=enabled, maintenance=maintenance, leaving=leaving, hook=hook)
    node = a_node(*there, managed=managed)
    outcome = decide_for(machine, node, settings=LIKE_PREDECESSOR)
    after, on_node = applied(outcome.machine, machine), applied(outcome.node, node)
    found = Expected(
        hook=after.metadata.annotations.get(PRE_DRAIN_HOOK) == PRE_DRAIN_HOOK_OWNER,
        deleted=on_node.metadata.labels.get(MACHINE_DELETED) == "true",
        maintained=on_node.metadata.labels.get(MACHINE_MAINTENANCE) == "true",
        maintenance=after.metadata.labels.get(MAINTENANCE),
    )
    assert found == expected_by_specification(machine, node)
    assert (PRE_DRAIN_HOOK in after.metadata.annotations) is found.hook
    untouched = {APPROVE_DELETION, APPROVE_MAINTENANCE, MAINTENANCE_STATE}
    assert untouched.isdisjoint((*outcome.node.labels, *outcome.node.annotations))


# Whatever the settings


@given(
    enabled=st.sampled_from([None, "true"]),
    maintenance=st.sampled_from([None, "requested", "approved"]),
    leaving=st.sampled_from([None, NOW, NOW - timedelta(days=1)]),
    hook=st.booleans(),
    managed=st.booleans(),
    there=st.sets(st.sampled_from([APPROVE_DELETION, APPROVE_MAINTENANCE, MACHINE_DELETED, MACHINE_MAINTENANCE])),
    notes=st.dictionaries(
        st.sampled_from([DELETION_REQUEST, MAINTENANCE_REQUEST]),
        st.sampled_from(
            [
                "",
                "[]",
                '{"machine":"u1","since":"2026-11-16T11:00:00Z"}',
                '{"machine":"u1","since":"2026-11-16T11:00:00"}',
                '{"machine":"another","since":"2026-11-16T11:00:00Z"}',
            ]
        ),
    ),
    known=st.sampled_from(["node", "gone", "connecting", "unreachable"]),
    settings=st.builds(
        ClusterApiSettings,
        old_approvals=st.sampled_from(OldApprovals),
        approval_timeout=st.sampled_from([None, timedelta(hours=2)]),
        unreachable_after=st.sampled_from([None, timedelta(hours=2)]),
    ),
    barred=st.sampled_from(["", "2 of 2 clusters are in maintenance"]),
    is_cluster_leaving=st.booleans(),
)
def test_decision_settles_and_changes_only_own_labels_and_annotations(  # noqa: PLR0913 - all that may be so
    *,
    enabled: str | None,
    maintenance: str | None,
    leaving: datetime | None,
    hook: bool,
    managed: bool,
    there: set[str],
    notes: dict[str, str],
    known: str,
    settings: ClusterApiSettings,
    barred: str,
    is_cluster_leaving: bool,
) -> None:
    observation = Observation(
        machine=a_machine(enabled=enabled, maintenance=maintenance, leaving=leaving, hook=hook),
        node=a_node(*there, managed=managed, annotations=notes) if known == "node" else None,
        now=NOW,
        is_node_known=known in ("node", "gone"),
        unreachable_since=NOW - timedelta(hours=1) if known == "unreachable" else None,
        settings=settings,
        budget_refusal=barred,
        is_cluster_being_deleted=is_cluster_leaving,
    )
    may_clear = settings.old_approvals is OldApprovals.CLEAR
    ours = OURS | ({APPROVE_DELETION, APPROVE_MAINTENANCE} if may_clear else set())
    for _ in range(4):
        outcome = decide(observation)
        touched = {*outcome.node.labels, *outcome.node.annotations}
        assert touched | {*outcome.machine.labels, *outcome.machine.annotations} <= ours
        assert outcome.requeue_at is None or outcome.requeue_at > observation.now
        assert not (barred and outcome.is_new_request)
        if not outcome.node and not outcome.machine:
            break
        node = None if observation.node is None else applied(outcome.node, observation.node)
        observation = replace(observation, machine=applied(outcome.machine, observation.machine), node=node)
    else:
        raise AssertionError(f"it does not come to rest: {outcome}")
    has_hook = PRE_DRAIN_HOOK in observation.machine.metadata.annotations
    assert not has_hook or hook or (enabled and managed)
    assert not has_hook or enabled or known == "connecting"


# Approvals count only for their request


@dataclass
class Story:
    """A Machine and its node, with a hub that sometimes crashes between its two writes."""

    machine: Machine = field(default_factory=lambda: a_machine(hook=True))
    node: Node = field(default_factory=a_node)
    now: datetime = NOW
    answered: set[RequestType] = field(default_factory=set)  # what was approved since it was asked for

    def person(self, what: str) -> None:
        """Request or withdraw maintenance, or delete the Machine."""
        match what:
            case "request":
                self._set_maintenance_label(REQUESTED)
            case "withdraw":
                self._set_maintenance_label(None)
            case "delete" if self.machine.metadata.deletion_timestamp is None:
                metadata = msgspec.structs.replace(self.machine.metadata, deletion_timestamp=self.now)
                self.machine = msgspec.structs.replace(self.machine, metadata=metadata)

    def _set_maintenance_label(self, state: str | None) -> None:
        self.machine = applied(MetadataChange(labels={MAINTENANCE: state}), self.machine)

    def profile(self, label: str, *, there: bool) -> None:
        """Set or remove an approval, whatever was asked."""
        why = RequestType.DELETION if label == APPROVE_DELETION else RequestType.MAINTENANCE
        rises = there and label not in self.node.metadata.labels
        request_label = MACHINE_DELETED if why is RequestType.DELETION else MACHINE_MAINTENANCE
        if rises and request_label in self.node.metadata.labels:
            self.answered.add(why)
        if not there:
            self.answered.discard(why)
        self.node = applied(MetadataChange(labels={label: "true" if there else None}), self.node)

    def reconcile(self, *, dies: bool) -> None:
        """Reconcile; if the hub `dies`, apply only the change of the node."""
        outcome = decide(Observation(machine=self.machine, node=self.node, now=self.now))
        held, state = PRE_DRAIN_HOOK in self.machine.metadata.annotations, self.machine.metadata.labels.get(MAINTENANCE)
        node = applied(outcome.node, self.node)
        for why, label in ((RequestType.DELETION, MACHINE_DELETED), (RequestType.MAINTENANCE, MACHINE_MAINTENANCE)):
            if label not in node.metadata.labels:
                self.answered.discard(why)
        self.node = node
        if dies:
            return
        self.machine = applied(outcome.machine, self.machine)
        if held and PRE_DRAIN_HOOK not in self.machine.metadata.annotations:
            assert RequestType.DELETION in self.answered, "a deletion was released by an approval for something else"
        if state == REQUESTED and self.machine.metadata.labels.get(MAINTENANCE) == APPROVED:
            assert RequestType.MAINTENANCE in self.answered, (
                "maintenance was approved by an approval for something else"
            )
            self.answered.discard(RequestType.MAINTENANCE)  # who asks again needs another one


RECONCILES = st.sampled_from([("look", False), ("look", False), ("look", True)])
OF_MAINTENANCE = st.one_of(
    st.sampled_from(["request", "request", "withdraw"]),
    st.tuples(st.just(APPROVE_MAINTENANCE), st.booleans()),
    RECONCILES,
)
OF_DELETION = st.one_of(st.just("delete"), st.tuples(st.just(APPROVE_DELETION), st.booleans()), RECONCILES)


def run_story(steps: list[Any]) -> Story:
    """Return a story to its end."""
    story = Story()
    for step in steps:
        story.now += timedelta(seconds=1)
        match step:
            case str():
                story.person(step)
            case ("look", dies):
                story.reconcile(dies=dies)
            case (label, there):
                story.profile(label, there=there)
    return story


@given(st.one_of(st.lists(OF_MAINTENANCE, max_size=40), st.lists(OF_DELETION, max_size=20)))
def test_approval_counts_only_for_the_request_it_was_given_for(steps: list[Any]) -> None:
    run_story(steps)


@given(st.lists(st.one_of(OF_DELETION, OF_MAINTENANCE), max_size=20), st.booleans())
def test_cooperating_profile_completes_every_request(steps: list[Any], is_deleted: bool) -> None:  # noqa: FBT001 - drawn
    story = run_story(steps)
    story.person("delete" if is_deleted else "request")
    for _ in range(12):
        story.now += timedelta(seconds=1)
        story.reconcile(dies=False)
        labels = story.node.metadata.labels
        for requested, approval in ((MACHINE_DELETED, APPROVE_DELETION), (MACHINE_MAINTENANCE, APPROVE_MAINTENANCE)):
            story.profile(approval, there=requested in labels)
    if is_deleted:
        assert PRE_DRAIN_HOOK not in story.machine.metadata.annotations
    else:
        assert story.machine.metadata.labels[MAINTENANCE] == APPROVED


# One by one


def test_request_patch_requires_the_observed_node_version() -> None:
    outcome = decide_for(a_machine(leaving=NOW, hook=True), a_node())
    patch = msgspec.json.decode(outcome.node.to_patch(a_node()).body)
    assert patch["metadata"]["resourceVersion"] == "3"
    assert patch["metadata"]["uid"] == "nu"
    assert patch["metadata"]["labels"] == {MACHINE_DELETED: "true"}
    assert list(patch["metadata"]["annotations"]) == [DELETION_REQUEST]


def test_withdrawal_patch_requires_only_the_node_uid() -> None:
    node = a_node(MACHINE_MAINTENANCE)
    patch = msgspec.json.decode(decide_for(a_machine(), node).node.to_patch(node).body)
    assert patch == {"metadata": {"uid": "nu", "labels": {MACHINE_MAINTENANCE: None}}}


def test_hook_removal_records_its_reason() -> None:
    requested = {DELETION_REQUEST: '{"machine":"u1","since":"2026-11-16T11:00:00Z"}'}
    machine = a_machine(leaving=NOW, hook=True)
    outcome = decide_for(machine, a_node(MACHINE_DELETED, APPROVE_DELETION, annotations=requested))
    assert outcome.machine.annotations == {PRE_DRAIN_HOOK: None, DELETION_RELEASED: "DeletionApproved"}
    patch = msgspec.json.decode(outcome.machine.to_patch(machine).body)
    assert patch["metadata"]["resourceVersion"] == "7"


def test_budget_refusal_delays_a_new_request_and_its_approval_timeout() -> None:
    limit = ClusterApiSettings(approval_timeout=timedelta(hours=1))
    machine = a_machine(leaving=NOW - timedelta(days=1), hook=True)
    outcome = decide_for(
        machine, a_node(), budget_refusal="2 of 2 clusters are in maintenance: a/prod, b/prod", settings=limit
    )
    assert not outcome.node
    assert not outcome.machine
    assert outcome.statuses[0].reason == "2 of 2 clusters are in maintenance: a/prod, b/prod"
    assert outcome.statuses[0].until is None


@pytest.mark.parametrize("settings", [ClusterApiSettings(), LIKE_PREDECESSOR])
def test_approval_timeout_starts_with_the_request_on_the_node(settings: ClusterApiSettings) -> None:
    limited = replace(settings, approval_timeout=timedelta(hours=1))
    outcome = decide_for(a_machine(leaving=NOW - timedelta(days=1), hook=True), a_node(), settings=limited)
    assert outcome.is_new_request  # the budget is asked before anything else
    assert not outcome.machine


def test_with_honour_a_deleted_cluster_does_not_wait_for_the_budget() -> None:
    outcome = decide_for(
        a_machine(leaving=NOW, hook=True),
        a_node(),
        budget_refusal="full",
        is_cluster_being_deleted=True,
        settings=LIKE_PREDECESSOR,
    )
    assert not outcome.is_new_request
    assert outcome.machine.annotations[PRE_DRAIN_HOOK] is None


def test_budget_refusal_does_not_affect_a_started_request() -> None:
    requested = {DELETION_REQUEST: '{"machine":"u1","since":"2026-11-16T11:00:00Z"}'}
    node = a_node(MACHINE_DELETED, APPROVE_DELETION, annotations=requested)
    outcome = decide_for(a_machine(leaving=NOW, hook=True), node, budget_refusal="full")
    assert outcome.machine.annotations[PRE_DRAIN_HOOK] is None


def a_freeze(**spec: Any) -> Freezes:
    metadata = ObjectMeta(name="black-friday")
    return Freezes((parse_freeze(MaintenanceFreeze(metadata=metadata, spec=MaintenanceFreezeSpec(**spec))),))


@pytest.mark.parametrize("settings", [ClusterApiSettings(), LIKE_PREDECESSOR])
@pytest.mark.parametrize("machine", [a_machine(leaving=NOW, hook=True), a_machine(maintenance=REQUESTED, hook=True)])
def test_freeze_of_the_management_cluster_holds_new_requests(machine: Machine, settings: ClusterApiSettings) -> None:
    until = NOW + timedelta(hours=1)
    outcome = decide_for(machine, a_node(), freezes=a_freeze(until=until), settings=settings)
    assert outcome.node.labels.get(MACHINE_DELETED) is None
    assert outcome.node.labels.get(MACHINE_MAINTENANCE) is None
    assert PRE_DRAIN_HOOK not in outcome.machine.annotations
    assert outcome.statuses[0].reason == "node n1 is frozen until 2026-11-16 13:00 UTC"
    assert [event.reason for event in outcome.status_events] == ["Frozen"]
    assert outcome.requeue_at == until
    assert decide_for(machine, a_node(), freezes=a_freeze(until=until), settings=settings, now=until).is_new_request
    elsewhere = a_freeze(selector={"matchLabels": {"pool": "a"}})
    assert decide_for(machine, a_node(), freezes=elsewhere, settings=settings).is_new_request


def test_freeze_does_not_affect_a_started_request() -> None:
    requested = {DELETION_REQUEST: '{"machine":"u1","since":"2026-11-16T11:00:00Z"}'}
    node = a_node(MACHINE_DELETED, APPROVE_DELETION, annotations=requested)
    outcome = decide_for(a_machine(leaving=NOW, hook=True), node, freezes=a_freeze())
    assert outcome.machine.annotations[PRE_DRAIN_HOOK] is None


def test_drain_rules_are_written_and_removed_with_the_request() -> None:
    outcome = decide_for(a_machine(hook=True), a_node(), drain_rules="[]")
    assert outcome.node.annotations == {DRAIN_RULES: "[]"}
    ruled = a_node(annotations={DRAIN_RULES: "[]"})
    assert decide_for(a_machine(hook=True), ruled, drain_rules="").node.annotations == {DRAIN_RULES: None}
    assert not decide_for(a_machine(hook=True), ruled, drain_rules=None).node
    assert decide_for(a_machine(enabled=None), ruled).node.annotations == {DRAIN_RULES: None}


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        ({}, "waiting for label {deletion}=true on node n1, which a maintenance profile of its cluster sets"),
        ({"is_cluster_being_deleted": True}, "cluster team-a/prod is being deleted: no approval is needed"),
        (
            {"there": APPROVE_DELETION},
            f"node n1 had label {APPROVE_DELETION} before it was requested, which does not count: {REMOVE_IT}",
        ),
        ({"node": None}, "node n1 is gone: no approval is needed"),
        ({"node": None, "is_node_known": False}, "connecting to cluster team-a/prod"),
        (
            {"node": None, "is_node_known": False, "unreachable_since": NOW},
            "cluster team-a/prod cannot be reached since 2026-11-16 12:00 UTC",
        ),
    ],
)
def test_waiting_machine_states_its_reason(observed: dict[str, Any], reason: str) -> None:
    there = [observed.pop("there")] if "there" in observed else []
    node = observed.pop("node", a_node(*there))
    status = decide_for(a_machine(leaving=NOW, hook=True), node, **observed).statuses[0]
    assert status.reason == reason.format(deletion=APPROVE_DELETION)
    assert status.request_type is RequestType.DELETION
    assert status.since == NOW


def test_withdrawal_patch_requires_the_observed_node_version() -> None:
    """Another hub, to which the cluster moves, may request something meanwhile."""
    metadata = ObjectMeta(name="n1", uid="u1", resource_version="7", labels={MACHINE_MAINTENANCE: "true"})
    decision = decide_withdrawal(node := Node(metadata=metadata), is_gone=lambda _: True, is_claimed=False)
    sent = msgspec.json.decode(decision.node.to_patch(node).body)["metadata"]
    assert sent == {"uid": "u1", "resourceVersion": "7", "labels": {MACHINE_MAINTENANCE: None}}
