"""Whether a round kept the invariants, by its recording alone.

    violations = judge(recording, rules)

Each check is a pure function over the audit log and the watches. None asks the operator or believes what it logs, and
none knows which fault was injected. `recovery` measures how long the operator needed to act again.

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

MARK = "haulout.dev/cordon"
STATE = "cloud.sap/maintenance-state"
DRAIN_TAINT = "medik8s.io/drain"
EXCLUDED = "remediation.medik8s.io/exclude-from-remediation"
ORDER = "NodeMaintenance/"
_PROFILE = "profile/"
_OUR_PREFIXES = ("haulout.dev/", "cloud.sap/")
_OUR_LABELS = (EXCLUDED,)
_OUR_TAINTS = ("node.kubernetes.io/unschedulable", DRAIN_TAINT)
_COPIES = "haulout-cordons"  # the ConfigMap that keeps copies of cordon marks
_NODE_LEASES = "medik8s-leases"
_HELD_LATELY = timedelta(seconds=15)  # an eviction may follow the end of a hold by its own time in flight
_ACTED_ON = frozenset(
    {"nodes", "pods", "configmaps", "nodemaintenances", "maintenancerecords", "maintenancenotices", "leases"}
)
_GAP = "Gap"
_ONCE = {"BeginMaintenance": "Running", "SucceedMaintenance": "Succeeded", "RemovedMaintenance": "Ended"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds in a round."""

    replicas: frozenset[str]  # the user names of the operator's processes
    home: str  # their namespace
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


def judge(recording: Recording, rules: Rules) -> list[Violation]:
    """Return all violations, in the order of the checks."""
    return [found for check in CHECKS for found in check(recording, rules)]


def leftovers(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield what is not as it should be when everything is over: also what a round waits for until it has converged."""
    for name in recording.final("nodemaintenances"):
        yield Violation(invariant="convergence", what=f"NodeMaintenance {name} still exists")
    cordoned_by_people = _cordoned_by_people(recording, rules)
    for name, node in recording.final("nodes").items():
        for left in _left_on(node):
            yield Violation(invariant="residue", what=f"node {name} still has {left}")
        if _is_cordoned(node) and name not in cordoned_by_people:
            yield Violation(invariant="convergence", what=f"node {name} stays cordoned, and no person cordoned it")
    ledger = recording.final("configmaps").get(f"{rules.home}/{rules.ledger}", {})
    for slot in _parsed((ledger.get("data") or {}).get("slots", "[]")) or []:
        yield Violation(invariant="residue", what=f"the budget still has a slot of node {slot.get('name')}")
    copies = recording.final("configmaps").get(f"{rules.home}/{_COPIES}", {})
    for key in copies.get("data") or {}:
        yield Violation(invariant="residue", what=f"the copy {key} of a cordon mark is still there")
    for key, lease in recording.final("leases").items():
        if key.startswith(f"{_NODE_LEASES}/") and (lease.get("spec") or {}).get("holderIdentity"):
            yield Violation(invariant="residue", what=f"lease {key} is still held")


def recovery(recording: Recording, rules: Rules, since: datetime, *, order: str, node: str) -> timedelta | None:
    """Return how long after `since` an operator had acted on a NodeMaintenance and on an announced node; None: never.

    Orders and profiles may be led by different leases: both must be led again.
    """
    acted: dict[str, timedelta] = {}
    for event in recording.writes(rules.replicas):
        is_order = (event.resource, event.name) == ("nodemaintenances", order)
        is_node = (event.resource, event.name) == ("nodes", node) and _is_taken_by_profile(event.response)
        if event.completed >= since and (is_order or is_node):
            acted.setdefault(event.resource, event.completed - since)
    return max(acted.values()) if len(acted) == 2 else None


def _is_taken_by_profile(node: Raw | None) -> bool:
    labels = (node or {}).get("metadata", {}).get("labels") or {}
    return labels.get(STATE) not in (None, "operational")


# Safety


def exceeded_budget(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each revision at which more nodes are out of service than the budget allows."""
    out: set[str] = set()
    epoch = 0
    for it in recording.revisions("nodes"):
        if it.epoch != epoch:
            out, epoch = _restored(recording, it.epoch), it.epoch
        before = len(out)
        if it.deleted or not is_out_of_service(it.object):
            out.discard(it.key)
        else:
            out.add(it.key)
        if len(out) > max(before, rules.budget):
            what = f"{len(out)} of at most {rules.budget} nodes are out of service: {', '.join(sorted(out))}"
            yield Violation(invariant="budget", what=what, at=it.at)


def wrong_uncordons(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each uncordon by the operator of a node that a person cordoned, or that an order still holds."""
    orders = _Orders(recording)
    for before, it, cordoned_by_people in _with_cordons(recording, rules):
        orders.advance(it)
        if it.deleted or it.user not in rules.replicas or not _is_cordoned(before) or _is_cordoned(it.object):
            continue
        if it.key in cordoned_by_people:
            what = f"{it.user} uncordons {it.key}, which a person cordoned"
            yield Violation(invariant="uncordon", what=what, at=it.at)
        for owner in _owners(before):
            if owner.startswith(ORDER) and orders.wants(owner.removeprefix(ORDER), it.key):
                what = f"{it.user} uncordons {it.key}, which {owner} holds"
                yield Violation(invariant="uncordon", what=what, at=it.at)


def deposed_writes(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each write of a replica that the server received after another replica had taken its leases."""
    terms = _Terms(recording, rules)
    for event in recording.writes(rules.replicas):
        if event.resource not in _ACTED_ON or (event.resource == "leases" and event.namespace == rules.home):
            continue
        if (leader := terms.deposed_by(event)) is not None:
            what = f"{event.user} writes {_described(event)} though {leader} leads"
            yield Violation(invariant="deposed leader", what=what, at=event.received)


def deleted_pods(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each pod that the operator deletes instead of evicting it."""
    for event in recording.writes(rules.replicas):
        if event.resource == "pods" and event.verb in ("delete", "deletecollection"):
            what = f"{event.user} deletes pod {event.namespace}/{event.name} around its budget"
            yield Violation(invariant="eviction", what=what, at=event.received)


def wrong_evictions(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each eviction from a node that the operator did not hold in the seconds before."""
    placed = {it.key: str(it.object["spec"].get("nodeName", "")) for it in recording.revisions("pods")}
    held: dict[str, list[tuple[datetime, bool]]] = {}
    for it in recording.revisions("nodes"):
        held.setdefault(it.key, []).append(
            (it.at, not it.deleted and (is_out_of_service(it.object) or bool(_owners(it.object))))
        )
    for event in recording.writes(rules.replicas):
        if (event.resource, event.subresource) != ("pods", "eviction"):
            continue
        node = placed.get(f"{event.namespace}/{event.name}", "")
        known = held.get(node, [])
        if node and not _held_lately(known, event.received):
            what = f"{event.user} evicts {event.namespace}/{event.name} from {node}, which nobody holds"
            yield Violation(invariant="eviction", what=what, at=event.received)


def shared_nodes(recording: Recording, rules: Rules) -> Iterator[Violation]:  # noqa: ARG001 - all checks are alike
    """Yield each revision at which two NodeMaintenances of one node have succeeded, and neither is being deleted.

    The younger one may hold the node along with the older one, but its own turn comes after the older one's deletion.
    """
    done: dict[str, str] = {}
    epoch = 0
    for it in recording.revisions("nodemaintenances"):
        if it.epoch != epoch:
            done, epoch = {}, it.epoch
        is_over = it.deleted or bool(it.object["metadata"].get("deletionTimestamp"))
        was_done = done.pop(it.key, None) is not None
        if is_over or (it.object.get("status") or {}).get("phase") != "Succeeded":
            continue
        node = str(it.object["spec"].get("nodeName", ""))
        others = sorted(name for name, of in done.items() if of == node)
        if others and not was_done:
            what = f"NodeMaintenance {it.key} of {node} succeeds beside {', '.join(others)}"
            yield Violation(invariant="one per node", what=what, at=it.at)
        done[it.key] = node


def foreign_changes(recording: Recording, rules: Rules) -> Iterator[Violation]:
    """Yield each change by the operator of a label, annotation, taint or finalizer that is not its own."""
    for before, it in _steps(recording.revisions("nodes")):
        if it.user not in rules.replicas or it.deleted or before is None:
            continue
        changed = [
            *(f"label {key}" for key in _changed(before, it.object, "labels") if not _is_ours(key, _OUR_LABELS)),
            *(f"annotation {key}" for key in _changed(before, it.object, "annotations") if not _is_ours(key, ())),
            *(f"taint {key}" for key in _changed_taints(before, it.object) if key.partition("=")[0] not in _OUR_TAINTS),
        ]
        if before["metadata"].get("finalizers") != it.object["metadata"].get("finalizers"):
            changed.append("finalizers")
        for what in changed:
            yield Violation(invariant="foreign", what=f"{it.user} changes {what} of {it.key}", at=it.at)


# Record


def missing_history(recording: Recording, rules: Rules) -> Iterator[Violation]:  # noqa: ARG001 - all checks are alike
    """Yield each transition of a NodeMaintenance that its node's record lacks, or has in another order."""
    records = recording.final("maintenancerecords")
    lasting = _lasting_nodes(recording)
    was_restored = any(it.epoch for it in recording.watched)
    for uid, seen in _transitions(recording).items():
        if seen.node not in lasting or not seen.phases:
            continue
        entries = (records.get(seen.node) or {}).get("entries") or []
        own = [it for it in entries if it.get("what") == f"{ORDER}{seen.name}"]
        if any(it.get("result") == _GAP for it in entries):
            continue
        recorded = [it["to"] for it in own if it.get("to")]
        # What led to the first phase after a restore was seen before it, and may be in the copy or not.
        if (recorded[-len(seen.phases) :] if was_restored else recorded) != seen.phases:
            what = (
                f"NodeMaintenance {seen.name} ({uid}) went {_arrows(seen.phases)}, its record says {_arrows(recorded)}"
            )
            yield Violation(invariant="history", what=what)


def missing_profile_history(recording: Recording, rules: Rules) -> Iterator[Violation]:  # noqa: ARG001 - the same
    """Yield each node whose record lacks a state that its label has shown, or has the states in another order.

    A profile may pass a state within one write, so the record may have more than the label has shown.
    """
    records = recording.final("maintenancerecords")
    for name in _lasting_nodes(recording):
        entries = (records.get(name) or {}).get("entries") or []
        if any(it.get("result") == _GAP for it in entries):
            continue
        recorded = [it["to"] for it in entries if it.get("to") and str(it.get("what")).startswith(_PROFILE)]
        seen = _states(recording, name)
        rest = iter(recorded)
        if not all(state in rest for state in seen):
            what = f"node {name} was {_arrows(seen)}, its record says {_arrows(recorded)}"
            yield Violation(invariant="history", what=what)


def _states(recording: Recording, node: str) -> list[str]:
    """Return the states that the label of a node has gone to in the last epoch."""
    revisions = [it for it in recording.revisions("nodes") if it.key == node]
    epoch = max((it.epoch for it in revisions), default=0)
    labels = [(it.object["metadata"].get("labels") or {}).get(STATE) for it in revisions if it.epoch == epoch]
    shown = [str(it) for it in labels if it]
    return [state for before, state in pairwise(shown) if before != state]


def repeated_events(recording: Recording, rules: Rules) -> Iterator[Violation]:  # noqa: ARG001 - all checks are alike
    """Yield each transition that has more Events than it happened times."""
    recorded: Counter[tuple[str, str]] = Counter()
    for event in recording.final("events").values():
        about, reason = event.get("regarding") or {}, event.get("reason", "")
        if about.get("kind") == "NodeMaintenance" and reason in _ONCE:
            recorded[str(about.get("uid")), reason] += int((event.get("series") or {}).get("count", 1))
    seen = _transitions(recording)
    for (uid, reason), count in recorded.items():
        if uid not in seen:
            continue
        happened = max(seen[uid].phases.count(_ONCE[reason]), 1)
        if count > happened:
            what = f"Event {reason} of NodeMaintenance {seen[uid].name} was recorded {count} times for {happened}"
            yield Violation(invariant="events", what=what)


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
    ordered = any(it.startswith(ORDER) for it in _owners(node)) or DRAIN_TAINT in _taint_keys(node)
    return ordered or labels.get(STATE) == "in-maintenance"


def _owners(node: Raw | None) -> tuple[str, ...]:
    raw = ((node or {}).get("metadata", {}).get("annotations") or {}).get(MARK)
    mark = _parsed(raw) if raw else None
    owners = mark.get("owners") if isinstance(mark, dict) else None
    return tuple(owners) if isinstance(owners, dict) else ()


def _left_on(node: Raw) -> Iterator[str]:
    metadata = node["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    yield from (f"annotation {key}" for key in annotations if key.startswith("haulout.dev/"))
    if EXCLUDED in labels:
        yield f"label {EXCLUDED}"
    if labels.get(STATE) not in (None, "operational"):
        yield f"label {STATE}={labels[STATE]}"
    if DRAIN_TAINT in _taint_keys(node):
        yield f"taint {DRAIN_TAINT}"
    for it in (node.get("status") or {}).get("conditions") or []:
        if it.get("status") == "True" and str(it.get("message", "")).startswith("Haulout: "):
            yield f"condition {it['type']}"


def _is_cordoned(node: Raw | None) -> bool:
    return bool(((node or {}).get("spec") or {}).get("unschedulable"))


def _taint_keys(node: Raw) -> set[str]:
    return {str(it["key"]) for it in (node.get("spec") or {}).get("taints") or []}


def _changed(before: Raw, after: Raw, part: str) -> list[str]:
    old, new = before["metadata"].get(part) or {}, after["metadata"].get(part) or {}
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


def _changed_taints(before: Raw, after: Raw) -> list[str]:
    old, new = _taints(before), _taints(after)
    return sorted(old ^ new)


def _taints(node: Raw) -> set[str]:
    found = (node.get("spec") or {}).get("taints") or []
    return {f"{it['key']}={it.get('value', '')}:{it.get('effect', '')}" for it in found}


def _is_ours(key: str, known: Sequence[str]) -> bool:
    return key in known or key.startswith(_OUR_PREFIXES)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# The course of things


def _steps(revisions: Sequence[Revision]) -> Iterator[tuple[Raw | None, Revision]]:
    """Yield each revision with the object as it was before it; None: the object is new, or etcd was restored."""
    last: dict[str, Revision] = {}
    for it in revisions:
        before = last.get(it.key)
        is_known = before is not None and not before.deleted and before.epoch == it.epoch
        yield (before.object if before is not None and is_known else None), it
        last[it.key] = it


def _restored(recording: Recording, epoch: int) -> set[str]:
    """Return which nodes were out of service in the copy that an epoch began with: those of its first list."""
    first = [it for it in recording.watched if it.resource == "nodes" and it.epoch == epoch and it.type == "LISTED"]
    return {str(it.object["metadata"]["name"]) for it in first if is_out_of_service(it.object)}


def _with_cordons(recording: Recording, rules: Rules) -> Iterator[tuple[Raw | None, Revision, set[str]]]:
    """Yield each revision of a node with the node before it, and the nodes that people have cordoned by then."""
    cordoned: set[str] = set()
    for before, it in _steps(recording.revisions("nodes")):
        if it.deleted:
            cordoned.discard(it.key)
        elif before is None:
            (cordoned.add if _was_cordoned(it.object) else cordoned.discard)(it.key)
        elif it.user not in rules.replicas and _is_cordoned(before) != _is_cordoned(it.object):
            (cordoned.add if _is_cordoned(it.object) else cordoned.discard)(it.key)
        yield before, it, cordoned


def _was_cordoned(node: Raw) -> bool:
    """Tell whether a person cordoned a node whose past is unknown: if an order holds it, its mark says how it was."""
    if not _owners(node):
        return _is_cordoned(node)
    mark = _parsed(node["metadata"]["annotations"][MARK])
    return bool((mark.get("before") or {}).get("unschedulable"))


def _cordoned_by_people(recording: Recording, rules: Rules) -> set[str]:
    cordoned: set[str] = set()
    for _, _, cordoned in _with_cordons(recording, rules):  # noqa: B007 - the last one is wanted
        pass
    return cordoned


class _Orders:
    """Which NodeMaintenances want which node, as of a revision."""

    def __init__(self, recording: Recording) -> None:
        self._coming = list(reversed(recording.revisions("nodemaintenances")))
        self._wanted: dict[str, str] = {}

    def advance(self, until: Revision) -> None:
        while self._coming and self._coming[-1].order <= until.order:
            it = self._coming.pop()
            if it.deleted or it.object["metadata"].get("deletionTimestamp"):
                self._wanted.pop(it.key, None)
            else:
                self._wanted[it.key] = str(it.object["spec"].get("nodeName", ""))

    def wants(self, name: str, node: str) -> bool:
        return self._wanted.get(name) == node


class _Terms:
    """Who led when, by the leases' own revisions."""

    def __init__(self, recording: Recording, rules: Rules) -> None:
        revisions = [it for it in recording.revisions("leases") if it.key.partition("/")[0] == rules.home]
        users = {_holder(it.object): it.user for it in revisions if it.user in rules.replicas and _holder(it.object)}
        self._terms: dict[str, list[tuple[datetime, str]]] = {name: [] for name in rules.leader_leases}
        for it in revisions:
            terms = self._terms.get(it.key.partition("/")[2])
            user = users.get(_holder(it.object), "")
            if terms is None or it.deleted or not user:
                continue  # nobody takes over by deleting a lease, or by releasing it
            if not terms or terms[-1][1] != user:
                terms.append((it.at, user))

    def deposed_by(self, event: AuditEvent) -> str | None:
        """Return who led when the server received a write, if its sender led nothing; None if it did."""
        leaders = [leader for terms in self._terms.values() if (leader := _leader_at(terms, event.received))]
        return None if not leaders or event.user in leaders else leaders[0]


def _leader_at(terms: Sequence[tuple[datetime, str]], at: datetime) -> str:
    return next((user for since, user in reversed(terms) if since < at), "")


def _holder(lease: Raw) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _held_lately(known: Sequence[tuple[datetime, bool]], at: datetime) -> bool:
    """Tell whether a node was held at an instant, or shortly before."""
    is_held = False
    for since, held in known:
        if since > at:
            break
        if is_held and not held and since > at - _HELD_LATELY:
            return True
        is_held = held
    return is_held


@dataclass(frozen=True, slots=True)
class _Seen:
    name: str
    node: str
    phases: list[str]


def _transitions(recording: Recording) -> dict[str, _Seen]:
    """Return the phases of each NodeMaintenance in the last epoch, by uid; `Ended` follows its deletion."""
    revisions = recording.revisions("nodemaintenances")
    epoch = max((it.epoch for it in revisions), default=0)
    seen: dict[str, _Seen] = {}
    for it in revisions:
        if it.epoch != epoch:
            continue
        metadata = it.object["metadata"]
        found = seen.setdefault(metadata["uid"], _Seen(it.key, str(it.object["spec"].get("nodeName", "")), []))
        phase = (it.object.get("status") or {}).get("phase")
        if phase and phase != (found.phases[-1] if found.phases else "") and "Ended" not in found.phases:
            found.phases.append(phase)
        if metadata.get("deletionTimestamp") and found.phases and "Ended" not in found.phases:
            found.phases.append("Ended")
    return seen


def _lasting_nodes(recording: Recording) -> set[str]:
    """Return the nodes that exist and were never replaced: a record is about one node, and goes with it."""
    return set(recording.final("nodes")) - {it.key for it in recording.revisions("nodes") if it.deleted}


def _arrows(phases: Sequence[str]) -> str:
    return " → ".join(phases) or "nothing"


def _described(event: AuditEvent) -> str:
    subresource = f"/{event.subresource}" if event.subresource else ""
    return f"{event.verb} {event.resource}{subresource} {event.name}"
