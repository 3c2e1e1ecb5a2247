"""Who keeps a node cordoned, and how it was before: so that only what we did is undone, and only by the last of us.

    change = acquire(node, "NodeMaintenance/patch-n1", Wishes(taints=…, labels=…), now=now)
    change = release(node, "NodeMaintenance/patch-n1")

Both return a merge patch for the Node, or None if there is nothing to change. It carries the node's uid and
resourceVersion: cordon, taints, labels and our mark change together, or not at all, and never on a node that somebody
else has changed meanwhile.

The mark is an annotation on the node: all owners of the cordon with what each of them wishes, and how each thing that
any of them wishes was before the first one came. What was there before stays after the last one has left: a node that a
person had cordoned stays cordoned, and so do their taints and labels.

A person is no owner. What they do by hand counts as how the node was before: who cordons a node that is held finds it
cordoned when its holders have left, and who takes that back finds it free then (`cordon_by_hand`, `uncordon_by_hand`).
A node that has our mark and is schedulable was uncordoned by somebody, for instance with `kubectl uncordon`: its owners
cordon it again, and it is schedulable after the last of them has left.

People edit annotations. Every write of the mark writes the same text into a second annotation, the backup. If the mark
was removed, emptied or overwritten, the backup counts, as long as the node is still cordoned. What is missing in
`before` of things that an owner has requested is ours, not how the node was before. So is the cordon of a node that has
neither annotation and is tainted for a NodeMaintenance. For a node that has lost both annotations there is a third copy
outside the node: in the status of a NodeMaintenance, whose controller passes it as `before`, or in a ConfigMap
(`haulout.budget.cordon_copies`), whose controllers pass it as `copy`. `cordon_of` has the order of precedence.

A mark without a backup is one of an earlier version: it counts as it is.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import msgspec

from haulout.api.objects import Base, Node, RawObject, Taint
from haulout.errors import HauloutError

CORDON_ANNOTATION = "haulout.dev/cordon"
CORDON_BACKUP_ANNOTATION = "haulout.dev/cordon-backup"
DRAIN_TAINT = Taint(key="medik8s.io/drain", effect="NoSchedule")
EXCLUDE_LABEL = "remediation.medik8s.io/exclude-from-remediation"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNSCHEDULABLE_TAINT_ID = "node.kubernetes.io/unschedulable:NoSchedule"  # kept by the node lifecycle controller


class InvalidCordonAnnotation(HauloutError):
    """Somebody has written over our mark, so nobody knows any more how the node was before."""


class CordonRequest(Base, frozen=True):
    """What an owner of a cordon wants beside it."""

    taints: tuple[Taint, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


EMPTY_REQUEST = CordonRequest()


class CordonOwnership(Base, frozen=True):
    """One owner's part in a cordon."""

    since: datetime
    wishes: CordonRequest = EMPTY_REQUEST


class StateBeforeCordon(Base, frozen=True, omit_defaults=False):
    """How the node was, as far as we changed it. A taint is named `key:effect`; a label that was not there is null."""

    unschedulable: bool = False
    taints: dict[str, bool] = msgspec.field(default_factory=dict)
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)


class Cordon(Base, frozen=True):
    """Our mark: by whom a node is cordoned, and how it was before."""

    owners: dict[str, CordonOwnership] = msgspec.field(default_factory=dict)
    before: StateBeforeCordon = StateBeforeCordon()


class _CordonFields(Base, frozen=True):
    """Which fields of `before` a mark has."""

    before: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


def cordon_of(node: Node, copy: Cordon | None = None) -> Cordon | None:
    """Return who keeps a node cordoned, and how it was before.

    None if nobody does. Raise `InvalidCordonAnnotation` if nobody knows.

    The mark counts, or else the backup, or else `copy`, which is kept outside the node. Owners that only the copy knows
    were removed from the mark. If they held the node before all others, the copy tells whether it was cordoned before:
    the others took their cordon for a person's.
    """
    if copy is None:
        return _cordon_from_annotations(node)
    try:
        cordon = _cordon_from_annotations(node)
    except InvalidCordonAnnotation:
        cordon = None
    if cordon is None:
        was_cordoned = copy.before.unschedulable and node.spec.unschedulable
        return Cordon(owners=copy.owners, before=_with_unschedulable(copy.before, unschedulable=was_cordoned))
    before = _with_missing_entries(cordon.before, copy.before)
    removed = [owner.since for name, owner in copy.owners.items() if name not in cordon.owners]
    if removed and min(removed) < min(current_owner.since for current_owner in cordon.owners.values()):
        before = _with_unschedulable(before, unschedulable=copy.before.unschedulable)
    return Cordon(owners={**copy.owners, **cordon.owners}, before=before)


def _cordon_from_annotations(node: Node) -> Cordon | None:
    """Return what the annotations of a node say: the mark, or else the backup."""
    annotations = node.metadata.annotations
    if CORDON_ANNOTATION not in annotations and CORDON_BACKUP_ANNOTATION not in annotations:
        return None
    try:
        cordon = _decode(annotations.get(CORDON_ANNOTATION))
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        cordon = _cordon_from_backup(node)
        if cordon is None:
            problem = f"annotation {CORDON_ANNOTATION} of node {node.name} is not what was written there ({error})"
            raise InvalidCordonAnnotation(
                f"{problem}; remove it, and uncordon the node by hand when its maintenance is over"
            ) from None
    backup = _cordon_from_backup(node)
    if cordon and backup:
        cordon = _merge_backup(
            cordon, backup, has_unschedulable_field=_has_unschedulable_field(annotations.get(CORDON_ANNOTATION))
        )
    else:
        cordon = cordon or backup
    if cordon is None or node.spec.unschedulable:
        return cordon
    return msgspec.structs.replace(cordon, before=_with_unschedulable(cordon.before, unschedulable=False))


def acquire(
    node: Node,
    owner: str,
    requested: CordonRequest,
    *,
    now: datetime,
    adopting: bool = False,
    before: StateBeforeCordon | None = None,
) -> RawObject | None:
    """Return the change that makes `owner` one of those who keep the node cordoned, with what it wishes.

    With `adopting`, what `owner` wishes and is there already was done in its name by somebody who leaves no mark: it
    goes when `owner` goes. `before` is the owner's copy of how the node was; it counts if the node does not say that.
    """
    cordon = cordon_of(node, None if before is None else Cordon(before=before)) or Cordon(
        before=_state_without_annotation(node, requested, adopting=adopting)
    )
    previous = cordon.owners.get(owner)
    entry = CordonOwnership(since=now if previous is None else previous.since, wishes=requested)
    extended = Cordon(owners={**cordon.owners, owner: entry}, before=_complete_state_before(cordon, node, requested))
    return _node_patch(node, extended)


def release(
    node: Node,
    owner: str,
    *,
    requested: CordonRequest = EMPTY_REQUEST,
    before: StateBeforeCordon | None = None,
    others: Mapping[str, CordonOwnership] = {},
) -> RawObject | None:
    """Return the change that takes `owner` from those who keep the node cordoned; the last one restores the node.

    With `before`, somebody has removed `owner` from the mark: then this is how the node was, as far as the mark does
    not say it, `requested` is what `owner` has put there, and `changed_labels` are owners that may have been removed,
    too.
    """
    cordon = cordon_of(node, None if before is None else Cordon(owners=dict(others), before=before))
    if cordon is None or (before is None and owner not in cordon.owners):
        return None
    entry = cordon.owners.get(owner) or CordonOwnership(since=_EPOCH)
    released = CordonRequest(
        taints=(*entry.wishes.taints, *requested.taints), labels={**requested.labels, **entry.wishes.labels}
    )
    before_release = Cordon(
        owners={**cordon.owners, owner: msgspec.structs.replace(entry, wishes=released)}, before=cordon.before
    )
    remaining = {name: entry for name, entry in cordon.owners.items() if name != owner}
    return _node_patch(
        node,
        Cordon(owners=remaining, before=_complete_state_before(before_release, node, EMPTY_REQUEST)),
        released=released,
    )


def repair(node: Node, owners: Collection[str], *, copy: Cordon | None = None) -> RawObject | None:
    """Return the change that writes mark and backup of a cordoned node again, where one was lost or edited.

    Of `copy`, only `owners` count. None: nothing is lost, or the node is schedulable, or none of `owners` has a part in
    its cordon.
    """
    copied_owners = {} if copy is None else {name: owner for name, owner in copy.owners.items() if name in owners}
    cordon = cordon_of(
        node, Cordon(owners=copied_owners, before=copy.before) if copy is not None and copied_owners else None
    )
    if cordon is None or not node.spec.unschedulable or cordon.owners.keys().isdisjoint(owners):
        return None
    return _node_patch(node, cordon)


def state_before(node: Node, requested: CordonRequest) -> StateBeforeCordon:
    """Return how a node is before an owner with these wishes acquires it.

    Raise `InvalidCordonAnnotation` if nobody knows.
    """
    return _complete_state_before(
        cordon_of(node) or Cordon(before=_state_without_annotation(node, requested)), node, requested
    )


def describe_tampering(node: Node, requested: CordonRequest) -> list[str]:
    """Return what somebody has changed about a node that an owner with these wishes holds, in words."""
    found = [annotation_damage] if (annotation_damage := describe_annotation_damage(node)) else []
    if not node.spec.unschedulable:
        found.append("the node was uncordoned")
    present = {_taint_id(taint) for taint in node.spec.taints}
    found += [
        f"taint {requested_taint.key} was removed"
        for requested_taint in requested.taints
        if _taint_id(requested_taint) not in present
    ]
    labels = node.metadata.labels
    return found + [f"label {key} was changed" for key, value in requested.labels.items() if labels.get(key) != value]


def _merge_backup(cordon: Cordon, backup: Cordon, *, has_unschedulable_field: bool) -> Cordon:
    """Return a mark completed by its backup, if that is about the same hold of the node.

    Both are always written together, and taints and labels of before never change while a node is held: an owner that
    is missing, and another taint or label, was edited by somebody. Whether the node was cordoned before may be edited,
    but not left out: a person's cordon stays unless the mark says that there was none.
    """
    if not any(
        name in cordon.owners and cordon.owners[name].since == owner.since for name, owner in backup.owners.items()
    ):
        return cordon  # an earlier version has written this mark, and left a backup of another time
    was_cordoned = cordon.before.unschedulable if has_unschedulable_field else backup.before.unschedulable
    before = _with_missing_entries(_with_unschedulable(backup.before, unschedulable=was_cordoned), cordon.before)
    return Cordon(owners={**backup.owners, **cordon.owners}, before=before)


def _has_unschedulable_field(raw: str | None) -> bool:
    """Return whether a mark has the field that tells whether the node was cordoned before; we never omit it."""
    try:
        return "unschedulable" in msgspec.json.decode(raw or "", type=_CordonFields).before
    except (msgspec.ValidationError, msgspec.DecodeError):
        return False


def _with_missing_entries(before: StateBeforeCordon, fallback: StateBeforeCordon) -> StateBeforeCordon:
    """Return how a node was, with the taints and labels that only `fallback` knows of."""
    taints, labels = {**fallback.taints, **before.taints}, {**fallback.labels, **before.labels}
    return StateBeforeCordon(unschedulable=before.unschedulable, taints=taints, labels=labels)


def describe_annotation_damage(node: Node) -> str:
    """Return what somebody has done to the mark of a node that is held, in words; empty if it can be read."""
    raw = node.metadata.annotations.get(CORDON_ANNOTATION)
    if raw is None:
        return f"annotation {CORDON_ANNOTATION} was removed"
    try:
        return "" if _decode(raw) else f"annotation {CORDON_ANNOTATION} was emptied"
    except (msgspec.ValidationError, msgspec.DecodeError):
        return f"annotation {CORDON_ANNOTATION} was overwritten"


def has_drain_taint(node: Node) -> bool:
    """Tell whether a node has the taint of NodeMaintenances."""
    return any((taint.key, taint.effect) == (DRAIN_TAINT.key, DRAIN_TAINT.effect) for taint in node.spec.taints)


def _decode(raw: str | None) -> Cordon | None:
    """Return a mark; None if it has no owners, since we write none without."""
    cordon = Cordon() if raw is None else msgspec.json.decode(raw, type=Cordon)
    return cordon if cordon.owners else None


def _cordon_from_backup(node: Node) -> Cordon | None:
    """Return the mark by its backup; None if there is none that counts.

    An earlier version, which knows of no backup, releases a node and leaves it behind: a node that is schedulable and
    has no mark is held by nobody.
    """
    if not node.spec.unschedulable:
        return None
    try:
        return _decode(node.metadata.annotations.get(CORDON_BACKUP_ANNOTATION))
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def _state_without_annotation(node: Node, requested: CordonRequest, *, adopting: bool = False) -> StateBeforeCordon:
    """Return how a node without a mark was before: as it is, unless it carries what an owner with these wishes did."""
    is_ours = DRAIN_TAINT in requested.taints and has_drain_taint(node) and node.spec.unschedulable
    if not adopting and not is_ours:
        return StateBeforeCordon(unschedulable=node.spec.unschedulable)
    unmodified, current_labels = unmodified_state(requested), node.metadata.labels
    changed_labels = {
        key: current_labels[key] for key, value in requested.labels.items() if current_labels.get(key, value) != value
    }
    return msgspec.structs.replace(unmodified, labels={**unmodified.labels, **changed_labels})


def unmodified_state(requested: CordonRequest) -> StateBeforeCordon:
    """Return how a node was that nobody had cordoned, and that had nothing of what is wished."""
    return StateBeforeCordon(
        taints={_taint_id(taint): False for taint in requested.taints}, labels=dict.fromkeys(requested.labels)
    )


def cordon_by_hand(node: Node) -> RawObject | None:
    """Return the change by which a person cordons a node: it lasts longer than the cordons of all who hold it."""
    cordon = cordon_of(node) or Cordon()
    return _node_patch(
        node, msgspec.structs.replace(cordon, before=_with_unschedulable(cordon.before, unschedulable=True))
    )


def uncordon_by_hand(node: Node, *, without: Collection[str] = ()) -> RawObject | None:
    """Return the change by which a person takes their cordon back, and lets go for the owners `without`.

    If others hold the node it stays cordoned; else it is restored, and schedulable.
    """
    cordon = cordon_of(node) or Cordon()
    remaining = {name: owner for name, owner in cordon.owners.items() if name not in without}
    labels = {
        key: value
        for name in without
        if name in cordon.owners
        for key, value in cordon.owners[name].wishes.labels.items()
    }
    before = _with_unschedulable(cordon.before, unschedulable=False)
    return _node_patch(node, Cordon(owners=remaining, before=before), released=CordonRequest(labels=labels))


def clear_cordon(node: Node) -> RawObject:
    """Return the change that uncordons a node and takes our mark off, whatever that says; taints and labels stay."""
    metadata = {
        "annotations": {CORDON_ANNOTATION: None, CORDON_BACKUP_ANNOTATION: None},
        "uid": node.uid,
        "resourceVersion": node.resource_version,
    }
    return {"metadata": metadata, "spec": {"unschedulable": None}}


def _with_unschedulable(before: StateBeforeCordon, *, unschedulable: bool) -> StateBeforeCordon:
    return msgspec.structs.replace(before, unschedulable=unschedulable)


def _complete_state_before(cordon: Cordon, node: Node, requested: CordonRequest) -> StateBeforeCordon:
    """Return how the node was in all that is wished: as the mark says, or as it is now in what nobody has wished yet.

    What an owner has wished before and the mark says nothing about is ours: somebody has edited the mark.
    """
    known, present = cordon.before, {_taint_id(taint) for taint in node.spec.taints}
    taints = {_taint_id(requested_taint): _taint_id(requested_taint) in present for requested_taint in requested.taints}
    labels: dict[str, str | None] = {key: node.metadata.labels.get(key) for key in requested.labels}
    for owner in cordon.owners.values():
        unmodified = unmodified_state(owner.wishes)
        taints, labels = {**taints, **unmodified.taints}, {**labels, **unmodified.labels}
    taints |= known.taints
    if _UNSCHEDULABLE_TAINT_ID in taints and not known.unschedulable:
        taints[_UNSCHEDULABLE_TAINT_ID] = False
    return StateBeforeCordon(unschedulable=known.unschedulable, taints=taints, labels={**labels, **known.labels})


def _node_patch(node: Node, cordon: Cordon, *, released: CordonRequest | None = None) -> RawObject | None:
    owners = cordon.owners.values()
    unschedulable = True if cordon.owners else cordon.before.unschedulable
    taints = _desired_taints(
        node, cordon, {_taint_id(entry): entry for owner in owners for entry in owner.wishes.taints}
    )
    requested_labels = {key: value for owner in owners for key, value in owner.wishes.labels.items()}
    labels = {**_restored_labels(node, cordon.before, {} if released is None else released.labels), **requested_labels}
    encoded = msgspec.json.encode(cordon, order="sorted").decode() if cordon.owners else None
    spec: RawObject = {}
    if node.spec.unschedulable != unschedulable:
        spec["unschedulable"] = unschedulable or None
    if taints != node.spec.taints:
        spec["taints"] = msgspec.to_builtins(taints) or None
    metadata: RawObject = {}
    if changed := {key: value for key, value in labels.items() if node.metadata.labels.get(key) != value}:
        metadata["labels"] = changed
    if outdated := [
        entry
        for entry in (CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION)
        if node.metadata.annotations.get(entry) != encoded
    ]:
        metadata["annotations"] = dict.fromkeys(outdated, encoded)
    if not spec and not metadata:
        return None
    metadata |= {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata} | ({"spec": spec} if spec else {})


def _desired_taints(node: Node, cordon: Cordon, requested: Mapping[str, Taint]) -> tuple[Taint, ...]:
    """Return the node's taints as they should be: those wished first, then the others in their order.

    Kubernetes has a taint of its own on a node for as long as it is unschedulable: who took that away while others
    hold the node would see it come back at once, without an end.
    """
    present = {_taint_id(taint): taint for taint in node.spec.taints}
    requested_taints = [present.get(name, taint) for name, taint in requested.items()]
    released = {name for name, was_there in cordon.before.taints.items() if not was_there and name not in requested}
    released -= {_UNSCHEDULABLE_TAINT_ID} if cordon.owners else set()
    if all(name in present for name in requested):
        return tuple(taint for name, taint in present.items() if name not in released)
    return (
        *requested_taints,
        *(taint for name, taint in present.items() if name not in requested and name not in released),
    )


def _restored_labels(node: Node, before: StateBeforeCordon, released: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels that were set for one who leaves, as they were before; not those that others changed since."""
    current = node.metadata.labels
    return {key: before.labels.get(key) for key, value in released.items() if current.get(key) == value}


def _taint_id(taint: Taint) -> str:
    return f"{taint.key}:{taint.effect}"
