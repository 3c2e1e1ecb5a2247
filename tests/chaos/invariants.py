"""The invariants of a round, checked on its recording alone.

    violations = find_violations(recording, rules)

Each check is a pure function over the audit log and the watches. None queries the operator or trusts its logs, and none
knows which fault was injected. `recovery` measures how long the operator needed to act again.

A check must not excuse what it cannot explain: what looks wrong from outside is a violation.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from chaos.recording import AuditEvent, Raw, Recording, Revision

CORDON_ANNOTATION = "haulout.dev/cordon"
STATE_LABEL = "cloud.sap/maintenance-state"
DRAIN_TAINT = "medik8s.io/drain"
EXCLUDE_LABEL = "remediation.medik8s.io/exclude-from-remediation"
MAINTENANCE_OWNER = "NodeMaintenance/"
_PROFILE = "profile/"
_OWN_PREFIXES = ("haulout.dev/", "cloud.sap/")
_OWN_LABELS = (EXCLUDE_LABEL,)
_OWN_TAINTS = ("node.kubernetes.io/unschedulable", DRAIN_TAINT)
_CORDON_COPIES = "haulout-cordons"  # the ConfigMap that keeps copies of cordon marks
_NODE_LEASES = "medik8s-leases"
_HOLD_TOLERANCE = timedelta(seconds=15)  # an eviction may follow the end of a hold by its own time in flight
_OPERATOR_KINDS = frozenset(
    {"nodes", "pods", "configmaps", "nodemaintenances", "maintenancerecords", "maintenancenotices", "leases"}
)
_GAP = "Gap"
_PHASE_BY_EVENT_REASON = {
    "BeginMaintenance": "Running",
    "SucceedMaintenance": "Succeeded",
    "RemovedMaintenance": "Ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds in a round."""

    replicas: frozenset[str]  # the user names of the operator's processes
    namespace: str  # their namespace
    budget: int  # how many nodes may be out of service at once
    leader_leases: frozenset[str]
    ledger: str  # the ConfigMap that keeps the budget's slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One breach of an invariant."""

    invariant: str
    what: str
    at: datetime | None = None

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}" + (f" (at {self.at.isoformat()})" if self.at else "")


def find_violations(recording: Recording, rules: Rules) -> list[Violation]:
    """Return all violations, in the order of the checks."""
    return [found for check in CHECKS for found in check(recording, rules)]


def leftovers(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield what is left over at the end of a round, which waits until nothing is."""
    for name in recording.final("nodemaintenances"):
        yield Violation(invariant="convergence", what=f"NodeMaintenance {name} still exists")
    manually_cordoned = _manually_cordoned(recording, rules)
    for name, node in recording.final("nodes").items():
        for left in _residue_on(node):
            yield Violation(invariant="residue", what=f"node {name} still has {left}")
        if _is_cordoned(node) and name not in manually_cordoned:
            yield Violation(invariant="convergence", what=f"node {name} stays cordoned, and no person cordoned it")
    ledger = recording.final("configmaps").get(f"{rules.namespace}/{rules.ledger}", {})
    for slot in _parsed((ledger.get("data") or {}).get("slots", "[]")) or []:
        yield Violation(invariant="residue", what=f"the budget still has a slot of node {slot.get('name')}")
    copies = recording.final("configmaps").get(f"{rules.namespace}/{_CORDON_COPIES}", {})
    for key in copies.get("data") or {}:
        yield Violation(invariant="residue", what=f"the copy {key} of a cordon mark is still there")
    for key, lease in recording.final("leases").items():
        if key.startswith(f"{_NODE_LEASES}/") and (lease.get("spec") or {}).get("holderIdentity"):
            yield Violation(invariant="residue", what=f"lease {key} is still held")


def recovery(recording: Recording, rules: Rules, since: datetime, *, maintenance: str, node: str) -> timedelta | None:
    """Return how long after `since` an operator had acted on a NodeMaintenance and on an announced node; None: never.

    Orders and profiles may be led by different leases: both must be led again.
    """
    first_writes: dict[str, timedelta] = {}
    for event in recording.writes(rules.replicas):
        is_order = (event.resource, event.name) == ("nodemaintenances", maintenance)
        is_node = (event.resource, event.name) == ("nodes", node) and _is_taken_by_profile(event.response)
        if event.completed >= since and (is_order or is_node):
            first_writes.setdefault(event.resource, event.completed - since)
    return max(first_writes.values()) if len(first_writes) == 2 else None


def _is_taken_by_profile(node: Raw | None) -> bool:
    labels = (node or {}).get("metadata", {}).get("labels") or {}
    return labels.get(STATE_LABEL) not in (None, "operational")


# Safety


def exceeded_budget(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each revision at which more nodes are out of service than the budget allows."""
    unavailable: set[str] = set()
    epoch = 0
    for node in recording.revisions("nodes"):
        if node.epoch != epoch:
            unavailable, epoch = _restored(recording, node.epoch), node.epoch
        before = len(unavailable)
        if node.deleted or not is_out_of_service(node.object):
            unavailable.discard(node.key)
        else:
            unavailable.add(node.key)
        if len(unavailable) > max(before, rules.budget):
            message = (
                f"{len(unavailable)} of at most {rules.budget} nodes "
                f"are out of service: {', '.join(sorted(unavailable))}"
            )
            yield Violation(invariant="budget", what=message, at=node.at)


def wrong_uncordons(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each uncordon by the operator of a node that a person cordoned, or that an order still holds."""
    maintenances = _ActiveMaintenances(recording)
    for before, revision, manually_cordoned in _with_cordons(recording, rules):
        maintenances.advance(revision)
        if (
            revision.deleted
            or revision.user not in rules.replicas
            or not _is_cordoned(before)
            or _is_cordoned(revision.object)
        ):
            continue
        if revision.key in manually_cordoned:
            message = f"{revision.user} uncordons {revision.key}, which a person cordoned"
            yield Violation(invariant="uncordon", what=message, at=revision.at)
        for owner in _owners(before):
            if owner.startswith(MAINTENANCE_OWNER) and maintenances.holds(
                owner.removeprefix(MAINTENANCE_OWNER), revision.key
            ):
                message = f"{revision.user} uncordons {revision.key}, which {owner} holds"
                yield Violation(invariant="uncordon", what=message, at=revision.at)


def deposed_writes(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each write of a replica that the server received after another replica had taken its leases."""
    terms = _LeaderTerms(recording, rules)
    for event in recording.writes(rules.replicas):
        if event.resource not in _OPERATOR_KINDS or (event.resource == "leases" and event.namespace == rules.namespace):
            continue
        if (leader := terms.deposed_by(event)) is not None:
            message = f"{event.user} writes {_described(event)} though {leader} leads"
            yield Violation(invariant="deposed leader", what=message, at=event.received)


def deleted_pods(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each pod that the operator deletes instead of evicting it."""
    for event in recording.writes(rules.replicas):
        if event.resource == "pods" and event.verb in ("delete", "deletecollection"):
            message = f"{event.user} deletes pod {event.namespace}/{event.name} around its budget"
            yield Violation(invariant="eviction", what=message, at=event.received)


def wrong_evictions(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each eviction from a node that the operator did not hold in the seconds before."""
    node_by_pod = {
        revision.key: str(revision.object["spec"].get("nodeName", "")) for revision in recording.revisions("pods")
    }
    hold_history: dict[str, list[tuple[datetime, bool]]] = {}
    for revision in recording.revisions("nodes"):
        hold_history.setdefault(revision.key, []).append(
            (
                revision.at,
                not revision.deleted and (is_out_of_service(revision.object) or bool(_owners(revision.object))),
            )
        )
    for event in recording.writes(rules.replicas):
        if (event.resource, event.subresource) != ("pods", "eviction"):
            continue
        node = node_by_pod.get(f"{event.namespace}/{event.name}", "")
        known = hold_history.get(node, [])
        if node and not _was_held_recently(known, event.received):
            message = f"{event.user} evicts {event.namespace}/{event.name} from {node}, which nobody holds"
            yield Violation(invariant="eviction", what=message, at=event.received)


def shared_nodes(recording: Recording, rules: Rules) -> Iterator[Violation]:  # noqa: ARG001 - all checks are alike
    """Yield each revision at which two NodeMaintenances of one node have succeeded, and neither is being deleted.

    The younger one may hold the node along with the older one, but its own turn comes after the older one's deletion.
    """
    succeeded: dict[str, str] = {}
    epoch = 0
    for maintenance in recording.revisions("nodemaintenances"):
        if maintenance.epoch != epoch:
            succeeded, epoch = {}, maintenance.epoch
        is_over = maintenance.deleted or bool(maintenance.object["metadata"].get("deletionTimestamp"))
        was_done = succeeded.pop(maintenance.key, None) is not None
        if is_over or (maintenance.object.get("status") or {}).get("phase") != "Succeeded":
            continue
        node = str(maintenance.object["spec"].get("nodeName", ""))
        others = sorted(name for name, of in succeeded.items() if of == node)
        if others and not was_done:
            message = f"NodeMaintenance {maintenance.key} of {node} succeeds beside {', '.join(others)}"
            yield Violation(invariant="one per node", what=message, at=maintenance.at)
        succeeded[maintenance.key] = node


def foreign_changes(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each change by the operator of a label, annotation, taint or finalizer that is not its own."""
    for before, item in _with_previous(recording.revisions("nodes")):
        if item.user not in rules.replicas or item.deleted or before is None:
            continue
        changed = [
            *(f"label {key}" for key in _changed(before, item.object, "labels") if not _is_ours(key, _OWN_LABELS)),
            *(f"annotation {key}" for key in _changed(before, item.object, "annotations") if not _is_ours(key, ())),
            *(
                f"taint {key}"
                for key in _changed_taints(before, item.object)
                if key.partition("=")[0] not in _OWN_TAINTS
            ),
        ]
        if before["metadata"].get("finalizers") != item.object["metadata"].get("finalizers"):
            changed.append("finalizers")
        for change in changed:
            yield Violation(invariant="foreign", what=f"{item.user} changes {change} of {item.key}", at=item.at)


# Record


def missing_history(recording: Recording, rules: Rules) -> Iterator[Violation]:  # noqa: ARG001 - all checks are alike
    """Yield each transition of a NodeMaintenance that its node's record lacks, or has in another order."""
    records = recording.final("maintenancerecords")
    permanent_nodes = _never_replaced_nodes(recording)
    was_restored = any(entry.epoch for entry in recording.watched)
    for uid, maintenance in _transitions(recording).items():
        if maintenance.node not in permanent_nodes or not maintenance.phases:
            continue
        entries = (records.get(maintenance.node) or {}).get("entries") or []
        own_entries = [entry for entry in entries if entry.get("object") == f"{MAINTENANCE_OWNER}{maintenance.name}"]
        if any(entry.get("result") == _GAP for entry in entries):
            continue
        recorded = [entry["to"] for entry in own_entries if entry.get("to")]
        # What led to the first phase after a restore was seen before it, and may be in the copy or not.
        if (recorded[-len(maintenance.phases) :] if was_restored else recorded) != maintenance.phases:
            message = (
                f"NodeMaintenance {maintenance.name} ({uid}) went "
                f"{_join_phases(maintenance.phases)}, its record says {_join_phases(recorded)}"
            )
            yield Violation(invariant="history", what=message)


def missing_profile_history(recording: Recording, rules: Rules) -> Iterator[Violation]:  # noqa: ARG001 - the same
    """Yield each node whose record lacks a state that its label has shown, or has the states in another order.

    A profile may pass a state within one write, so the record may have more than the label has shown.
    """
    records = recording.final("maintenancerecords")
    for name in _never_replaced_nodes(recording):
        entries = (records.get(name) or {}).get("entries") or []
        if any(entry.get("result") == _GAP for entry in entries):
            continue
        of_profiles = [entry for entry in entries if str(entry.get("object")).startswith(_PROFILE)]
        recorded = [entry["to"] for entry in of_profiles if entry.get("to")]
        observed_states = _states(recording, name)
        remaining = iter(recorded)
        if not all(state in remaining for state in observed_states):
            message = f"node {name} was {_join_phases(observed_states)}, its record says {_join_phases(recorded)}"
            yield Violation(invariant="history", what=message)


def _states(recording: Recording, node: str) -> list[str]:
    """Return the states that the label of a node has gone to in the last epoch."""
    revisions = [revision for revision in recording.revisions("nodes") if revision.key == node]
    epoch = max((revision.epoch for revision in revisions), default=0)
    labels = [
        (revision.object["metadata"].get("labels") or {}).get(STATE_LABEL)
        for revision in revisions
        if revision.epoch == epoch
    ]
    observed = [str(revision) for revision in labels if revision]
    return [state for before, state in pairwise(observed) if before != state]


def repeated_events(recording: Recording, rules: Rules) -> Iterator[Violation]:  # noqa: ARG001 - all checks are alike
    """Yield each transition that has more Events than it happened times."""
    recorded: Counter[tuple[str, str]] = Counter()
    for event in recording.final("events").values():
        regarding, reason = event.get("regarding") or {}, event.get("reason", "")
        if regarding.get("kind") == "NodeMaintenance" and reason in _PHASE_BY_EVENT_REASON:
            recorded[str(regarding.get("uid")), reason] += int((event.get("series") or {}).get("count", 1))
    maintenances = _transitions(recording)
    for (uid, reason), count in recorded.items():
        if uid not in maintenances:
            continue
        expected = max(maintenances[uid].phases.count(_PHASE_BY_EVENT_REASON[reason]), 1)
        if count > expected:
            message = (
                f"Event {reason} of NodeMaintenance {maintenances[uid].name} was recorded {count} times for {expected}"
            )
            yield Violation(invariant="events", what=message)


CHECKS: Sequence[Callable[[Recording, Rules], Iterator[Violation]]] = (
    exceeded_budget,
    wrong_uncordons,
    deposed_writes,
    deleted_pods,
    wrong_evictions,
    shared_nodes,
    foreign_changes,
    leftovers,
    missing_history,
    missing_profile_history,
    repeated_events,
)


# What is on a node


def is_out_of_service(node: Raw) -> bool:
    """Tell whether the operator has a node out of service: by an order, or by a profile."""
    labels = node["metadata"].get("labels") or {}
    ordered = any(owner.startswith(MAINTENANCE_OWNER) for owner in _owners(node)) or DRAIN_TAINT in _taint_keys(node)
    return ordered or labels.get(STATE_LABEL) == "in-maintenance"


def _owners(node: Raw | None) -> tuple[str, ...]:
    raw = ((node or {}).get("metadata", {}).get("annotations") or {}).get(CORDON_ANNOTATION)
    mark = _parsed(raw) if raw else None
    owners = mark.get("owners") if isinstance(mark, dict) else None
    return tuple(owners) if isinstance(owners, dict) else ()


def _residue_on(node: Raw) -> Iterator[str]:
    metadata = node["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    yield from (f"annotation {key}" for key in annotations if key.startswith("haulout.dev/"))
    if EXCLUDE_LABEL in labels:
        yield f"label {EXCLUDE_LABEL}"
    if labels.get(STATE_LABEL) not in (None, "operational"):
        yield f"label {STATE_LABEL}={labels[STATE_LABEL]}"
    if DRAIN_TAINT in _taint_keys(node):
        yield f"taint {DRAIN_TAINT}"
    for condition in (node.get("status") or {}).get("conditions") or []:
        if condition.get("status") == "True" and str(condition.get("message", "")).startswith("Haulout: "):
            yield f"condition {condition['type']}"


def _is_cordoned(node: Raw | None) -> bool:
    return bool(((node or {}).get("spec") or {}).get("unschedulable"))


def _taint_keys(node: Raw) -> set[str]:
    return {str(taint["key"]) for taint in (node.get("spec") or {}).get("taints") or []}


def _changed(before: Raw, after: Raw, part: str) -> list[str]:
    old, new = before["metadata"].get(part) or {}, after["metadata"].get(part) or {}
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


def _changed_taints(before: Raw, after: Raw) -> list[str]:
    old, new = _taints(before), _taints(after)
    return sorted(old ^ new)


def _taints(node: Raw) -> set[str]:
    found = (node.get("spec") or {}).get("taints") or []
    return {f"{taint['key']}={taint.get('value', '')}:{taint.get('effect', '')}" for taint in found}


def _is_ours(key: str, known: Sequence[str]) -> bool:
    return key in known or key.startswith(_OWN_PREFIXES)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# The course of things


def _with_previous(revisions: Sequence[Revision]) -> Iterator[tuple[Raw | None, Revision]]:
    """Yield each revision with the object as it was before it; None: the object is new, or etcd was restored."""
    last: dict[str, Revision] = {}
    for revision in revisions:
        before = last.get(revision.key)
        is_known = before is not None and not before.deleted and before.epoch == revision.epoch
        yield (before.object if before is not None and is_known else None), revision
        last[revision.key] = revision


def _restored(recording: Recording, epoch: int) -> set[str]:
    """Return which nodes were out of service in the copy that an epoch began with: those of its first list."""
    first = [
        event
        for event in recording.watched
        if event.resource == "nodes" and event.epoch == epoch and event.type == "LISTED"
    ]
    return {str(event.object["metadata"]["name"]) for event in first if is_out_of_service(event.object)}


def _with_cordons(recording: Recording, rules: Rules) -> Iterator[tuple[Raw | None, Revision, set[str]]]:
    """Yield each revision of a node with the node before it, and the nodes that people have cordoned by then."""
    cordoned: set[str] = set()
    for before, revision in _with_previous(recording.revisions("nodes")):
        if revision.deleted:
            cordoned.discard(revision.key)
        elif before is None:
            (cordoned.add if _was_cordoned_by_person(revision.object) else cordoned.discard)(revision.key)
        elif revision.user not in rules.replicas and _is_cordoned(before) != _is_cordoned(revision.object):
            (cordoned.add if _is_cordoned(revision.object) else cordoned.discard)(revision.key)
        yield before, revision, cordoned


def _was_cordoned_by_person(node: Raw) -> bool:
    """Tell whether a person cordoned a node whose past is unknown: if an order holds it, its mark says how it was."""
    if not _owners(node):
        return _is_cordoned(node)
    mark = _parsed(node["metadata"]["annotations"][CORDON_ANNOTATION])
    return bool((mark.get("before") or {}).get("unschedulable"))


def _manually_cordoned(recording: Recording, rules: Rules) -> set[str]:
    cordoned: set[str] = set()
    for _, _, cordoned in _with_cordons(recording, rules):  # noqa: B007 - the last one is wanted
        pass
    return cordoned


class _ActiveMaintenances:
    """Which NodeMaintenances want which node, as of a revision."""

    def __init__(self, recording: Recording) -> None:
        self._remaining = list(reversed(recording.revisions("nodemaintenances")))
        self._node_by_maintenance: dict[str, str] = {}

    def advance(self, until: Revision) -> None:
        while self._remaining and self._remaining[-1].order <= until.order:
            revision = self._remaining.pop()
            if revision.deleted or revision.object["metadata"].get("deletionTimestamp"):
                self._node_by_maintenance.pop(revision.key, None)
            else:
                self._node_by_maintenance[revision.key] = str(revision.object["spec"].get("nodeName", ""))

    def holds(self, name: str, node: str) -> bool:
        return self._node_by_maintenance.get(name) == node


class _LeaderTerms:
    """Who led when, by the leases' own revisions."""

    def __init__(self, recording: Recording, rules: Rules) -> None:
        revisions = [
            revision for revision in recording.revisions("leases") if revision.key.partition("/")[0] == rules.namespace
        ]
        users = {
            _holder(revision.object): revision.user
            for revision in revisions
            if revision.user in rules.replicas and _holder(revision.object)
        }
        self._terms: dict[str, list[tuple[datetime, str]]] = {name: [] for name in rules.leader_leases}
        for revision in revisions:
            terms = self._terms.get(revision.key.partition("/")[2])
            user = users.get(_holder(revision.object), "")
            if terms is None or revision.deleted or not user:
                continue  # nobody takes over by deleting a lease, or by releasing it
            if not terms or terms[-1][1] != user:
                terms.append((revision.at, user))

    def deposed_by(self, event: AuditEvent) -> str | None:
        """Return who led when the server received a write, if its sender led nothing; None if it did."""
        leaders = [leader for terms in self._terms.values() if (leader := _leader_at(terms, event.received))]
        return None if not leaders or event.user in leaders else leaders[0]


def _leader_at(terms: Sequence[tuple[datetime, str]], at: datetime) -> str:
    return next((user for since, user in reversed(terms) if since < at), "")


def _holder(lease: Raw) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _was_held_recently(hold_history: Sequence[tuple[datetime, bool]], at: datetime) -> bool:
    """Tell whether a node was held at an instant, or shortly before."""
    is_held = False
    for since, held in hold_history:
        if since > at:
            break
        if is_held and not held and since > at - _HOLD_TOLERANCE:
            return True
        is_held = held
    return is_held


@dataclass(frozen=True, slots=True)
class _ObservedMaintenance:
    name: str
    node: str
    phases: list[str]


def _transitions(recording: Recording) -> dict[str, _ObservedMaintenance]:
    """Return the phases of each NodeMaintenance in the last epoch, by uid; `Ended` follows its deletion."""
    revisions = recording.revisions("nodemaintenances")
    epoch = max((revision.epoch for revision in revisions), default=0)
    maintenances: dict[str, _ObservedMaintenance] = {}
    for revision in revisions:
        if revision.epoch != epoch:
            continue
        metadata = revision.object["metadata"]
        maintenance = maintenances.setdefault(
            metadata["uid"], _ObservedMaintenance(revision.key, str(revision.object["spec"].get("nodeName", "")), [])
        )
        phase = (revision.object.get("status") or {}).get("phase")
        if (
            phase
            and phase != (maintenance.phases[-1] if maintenance.phases else "")
            and "Ended" not in maintenance.phases
        ):
            maintenance.phases.append(phase)
        if metadata.get("deletionTimestamp") and maintenance.phases and "Ended" not in maintenance.phases:
            maintenance.phases.append("Ended")
    return maintenances


def _never_replaced_nodes(recording: Recording) -> set[str]:
    """Return the nodes that exist and were never replaced: a record is about one node, and goes with it."""
    return set(recording.final("nodes")) - {node.key for node in recording.revisions("nodes") if node.deleted}


def _join_phases(phases: Sequence[str]) -> str:
    return " → ".join(phases) or "nothing"


def _described(event: AuditEvent) -> str:
    subresource = f"/{event.subresource}" if event.subresource else ""
    return f"{event.verb} {event.resource}{subresource} {event.name}"
