"""Cordon ownership: who keeps a node cordoned, and the node's state before.

The last owner undoes what we did, and no more.

    change = acquire(node, "NodeMaintenance/patch-n1", CordonRequest(taints=…, labels=…), now=now)
    change = release(node, "NodeMaintenance/patch-n1")

Both return a merge patch for the Node, or None if there is nothing to change. The patch carries the node's UID and
resourceVersion: cordon, taints, labels and annotation change together or not at all, and never on a node that has
changed meanwhile.

The cordon annotation on the node lists all owners with what each requested, and the state before the first owner of
everything that any of them requested. What was there before stays after the last owner has left: a node that a person
had cordoned stays cordoned, and so do their taints and labels.

A person is no owner. What they do by hand becomes the state before the cordon: if a person cordons a node that has
owners, it stays cordoned after the owners have left; if they take that back, it becomes schedulable then
(`cordon_by_hand`, `uncordon_by_hand`). A schedulable node with our annotation was uncordoned by somebody, for instance
with `kubectl uncordon`: its owners cordon it again, and it is schedulable after the last of them has left.

People edit annotations. Every write of the annotation writes the same text into a second one, the backup. If the
annotation was removed, emptied or overwritten, the backup counts, as long as the node is still cordoned. If `before`
lacks something that an owner requested, that is ours, not the state before. The same holds for the cordon of a node
that has neither annotation and carries the taint of a NodeMaintenance. For a node that lost both annotations there is a
third copy outside the node: in the status of a NodeMaintenance, whose controller passes it as `before`, or in a
ConfigMap (`haulout.budget.cordon_copies`), whose controllers pass it as `copy`. `cordon_of` defines the precedence.

An annotation without a backup was written by an earlier version and counts as it is.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import msgspec

from haulout.api import annotations
from haulout.api.objects import Base, Node, RawObject, Taint
from haulout.errors import HauloutError

CORDON_ANNOTATION = annotations.CORDON
CORDON_BACKUP_ANNOTATION = annotations.CORDON_BACKUP
# Taint and label are those of the medik8s Node Maintenance Operator, because its remediators and its users look for
# them.
DRAIN_TAINT = Taint(key="medik8s.io/drain", effect="NoSchedule")
EXCLUDE_LABEL = "remediation.medik8s.io/exclude-from-remediation"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# pkg/controller/nodelifecycle/node_lifecycle_controller.go sets and removes it with `spec.unschedulable`.
_UNSCHEDULABLE_TAINT_ID = "node.kubernetes.io/unschedulable:NoSchedule"


class InvalidCordonAnnotation(HauloutError):
    """The cordon annotation was overwritten, so the state of the node before the cordon is unknown."""


class CordonRequest(Base, frozen=True):
    """The taints and labels that a cordon owner requests in addition to the cordon."""

    taints: tuple[Taint, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


EMPTY_REQUEST = CordonRequest()


class CordonOwnership(Base, frozen=True):
    """The entry of one owner in the cordon annotation."""

    since: datetime
    # Stored as `wishes`: nodes carry annotations that earlier versions wrote.
    requested: CordonRequest = msgspec.field(default=EMPTY_REQUEST, name="wishes")


# omit_defaults=False: a missing `unschedulable` shows that the annotation was edited (`_has_unschedulable_field`).
class StateBeforeCordon(Base, frozen=True, omit_defaults=False):
    """The node's state before we changed it.

    Taint keys are `key:effect`; the value null means that the label was absent.
    """

    unschedulable: bool = False
    taints: dict[str, bool] = msgspec.field(default_factory=dict)
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)


class Cordon(Base, frozen=True):
    """The content of the cordon annotation: the owners, and the node's state before the first of them."""

    owners: dict[str, CordonOwnership] = msgspec.field(default_factory=dict)
    before: StateBeforeCordon = StateBeforeCordon()


class _CordonFields(Base, frozen=True):
    """For decoding only: which fields of `before` an annotation contains."""

    before: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


def cordon_of(node: Node, copy: Cordon | None = None) -> Cordon | None:
    """Return the owners of a node's cordon and the node's state before; None if it has no owners.

    Raise `InvalidCordonAnnotation` if the annotation was overwritten and there is no other source.

    The annotation counts, or else the backup, or else `copy`, which is stored outside the node. Owners that only the
    copy contains were removed from the annotation. If they cordoned the node before all others, the copy tells whether
    it was cordoned before: the others took their cordon for that of a person.
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
    """Return the cordon by the node's annotation, or else by its backup."""
    annotations = node.metadata.annotations
    if CORDON_ANNOTATION not in annotations and CORDON_BACKUP_ANNOTATION not in annotations:
        return None
    try:
        cordon = _decode(annotations.get(CORDON_ANNOTATION))
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        cordon = _cordon_from_backup(node)
        if cordon is None:
            problem = f"annotation {CORDON_ANNOTATION} of node {node.name} is invalid ({error})"
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
    # Somebody ran `kubectl uncordon`. They want the node schedulable in the end, so an earlier cordon by a person is
    # over, too.
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
    """Return the patch that makes `owner` a cordon owner with this request.

    With `adopting`, what `owner` requests and the node already has was put there in its name by a tool without
    annotations: it is removed when `owner` releases the node. `before` is the owner's copy of the state before the
    cordon; it counts if the node's annotations do not tell.
    """
    cordon = cordon_of(node, None if before is None else Cordon(before=before)) or Cordon(
        before=_state_without_annotation(node, requested, adopting=adopting)
    )
    previous = cordon.owners.get(owner)
    entry = CordonOwnership(since=now if previous is None else previous.since, requested=requested)
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
    """Return the patch that removes `owner` from the cordon. The last owner restores the node.

    With `before`, `owner` was removed from the annotation: `before` is the node's state as far as the annotation does
    not tell, `requested` is what `owner` had put there, and `others` are owners that may have been removed, too.
    """
    cordon = cordon_of(node, None if before is None else Cordon(owners=dict(others), before=before))
    if cordon is None or (before is None and owner not in cordon.owners):
        return None
    # An owner whose entry is lost must still be able to undo what it did.
    entry = cordon.owners.get(owner) or CordonOwnership(since=_EPOCH)
    released = CordonRequest(
        taints=(*entry.requested.taints, *requested.taints), labels={**requested.labels, **entry.requested.labels}
    )
    before_release = Cordon(
        owners={**cordon.owners, owner: msgspec.structs.replace(entry, requested=released)}, before=cordon.before
    )
    remaining = {name: entry for name, entry in cordon.owners.items() if name != owner}
    return _node_patch(
        node,
        Cordon(owners=remaining, before=_complete_state_before(before_release, node, EMPTY_REQUEST)),
        released=released,
    )


def repair(node: Node, owners: Collection[str], *, copy: Cordon | None = None) -> RawObject | None:
    """Return the patch that restores the annotation and backup of a cordoned node if one was lost or edited.

    Of `copy`, only `owners` count. None if nothing is lost, the node is schedulable, or none of `owners` owns its
    cordon.
    """
    copied_owners = {} if copy is None else {name: owner for name, owner in copy.owners.items() if name in owners}
    cordon = cordon_of(
        node, Cordon(owners=copied_owners, before=copy.before) if copy is not None and copied_owners else None
    )
    # On a schedulable node, a copy may be outdated: the last owner may just have released it.
    if cordon is None or not node.spec.unschedulable or cordon.owners.keys().isdisjoint(owners):
        return None
    return _node_patch(node, cordon)


def state_before(node: Node, requested: CordonRequest) -> StateBeforeCordon:
    """Return the state of a node before an owner acquires it with this request.

    Raise `InvalidCordonAnnotation` if that is unknown.
    """
    return _complete_state_before(
        cordon_of(node) or Cordon(before=_state_without_annotation(node, requested)), node, requested
    )


def describe_tampering(node: Node, requested: CordonRequest) -> list[str]:
    """Return what others have changed of an owner's cordon, taints and labels, as phrases."""
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
    """Return the cordon by the annotation, completed by its backup if that belongs to the same ownership.

    Both are always written together, and the prior taints and labels never change while a node has owners. So an owner
    that is missing, or another prior taint or label, is an edit. The prior `unschedulable` may be edited but not
    removed: a person's cordon stays unless the annotation denies it.
    """
    if not any(
        name in cordon.owners and cordon.owners[name].since == owner.since for name, owner in backup.owners.items()
    ):
        return cordon  # written by an earlier version; the backup belongs to an earlier cordon
    was_cordoned = cordon.before.unschedulable if has_unschedulable_field else backup.before.unschedulable
    before = _with_missing_entries(_with_unschedulable(backup.before, unschedulable=was_cordoned), cordon.before)
    return Cordon(owners={**backup.owners, **cordon.owners}, before=before)


def _has_unschedulable_field(raw: str | None) -> bool:
    """Return whether an annotation has the field `before.unschedulable`, which we never omit."""
    try:
        return "unschedulable" in msgspec.json.decode(raw or "", type=_CordonFields).before
    except (msgspec.ValidationError, msgspec.DecodeError):
        return False


def _with_missing_entries(before: StateBeforeCordon, fallback: StateBeforeCordon) -> StateBeforeCordon:
    """Return `before` with the taints and labels that only `fallback` has."""
    taints, labels = {**fallback.taints, **before.taints}, {**fallback.labels, **before.labels}
    return StateBeforeCordon(unschedulable=before.unschedulable, taints=taints, labels=labels)


def describe_annotation_damage(node: Node) -> str:
    """Return how the cordon annotation was damaged, as a phrase; empty if it can be read."""
    raw = node.metadata.annotations.get(CORDON_ANNOTATION)
    if raw is None:
        return f"annotation {CORDON_ANNOTATION} was removed"
    try:
        return "" if _decode(raw) else f"annotation {CORDON_ANNOTATION} was emptied"
    except (msgspec.ValidationError, msgspec.DecodeError):
        return f"annotation {CORDON_ANNOTATION} was overwritten"


def has_drain_taint(node: Node) -> bool:
    return any((taint.key, taint.effect) == (DRAIN_TAINT.key, DRAIN_TAINT.effect) for taint in node.spec.taints)


def _decode(raw: str | None) -> Cordon | None:
    """Decode a cordon annotation. None if it has no owners, since we never write one without."""
    cordon = Cordon() if raw is None else msgspec.json.decode(raw, type=Cordon)
    return cordon if cordon.owners else None


def _cordon_from_backup(node: Node) -> Cordon | None:
    """Return the cordon by the backup annotation; None if there is none or it does not count.

    An earlier version does not know the backup and leaves it behind when it releases a node. A schedulable node without
    the annotation therefore has no owners.
    """
    if not node.spec.unschedulable:
        return None
    try:
        return _decode(node.metadata.annotations.get(CORDON_BACKUP_ANNOTATION))
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def _state_without_annotation(node: Node, requested: CordonRequest, *, adopting: bool = False) -> StateBeforeCordon:
    """Return the prior state of a node without annotation: the current one, unless it carries what `requested` does."""
    # Such a node was left by a NodeMaintenance that lost its annotations, or by the Node Maintenance Operator. In both
    # cases the cordon is not a person's, and must not stay for ever.
    is_ours = DRAIN_TAINT in requested.taints and has_drain_taint(node) and node.spec.unschedulable
    if not adopting and not is_ours:
        return StateBeforeCordon(unschedulable=node.spec.unschedulable)
    unmodified, current_labels = unmodified_state(requested), node.metadata.labels
    changed_labels = {
        key: current_labels[key] for key, value in requested.labels.items() if current_labels.get(key, value) != value
    }
    return msgspec.structs.replace(unmodified, labels={**unmodified.labels, **changed_labels})


def unmodified_state(requested: CordonRequest) -> StateBeforeCordon:
    """Return the prior state of a node that was schedulable and had none of the requested taints and labels."""
    return StateBeforeCordon(
        taints={_taint_id(taint): False for taint in requested.taints}, labels=dict.fromkeys(requested.labels)
    )


def cordon_by_hand(node: Node) -> RawObject | None:
    """Return the patch of a person's cordon, which stays after all owners have released the node."""
    cordon = cordon_of(node) or Cordon()
    return _node_patch(
        node, msgspec.structs.replace(cordon, before=_with_unschedulable(cordon.before, unschedulable=True))
    )


def uncordon_by_hand(node: Node, *, without: Collection[str] = ()) -> RawObject | None:
    """Return the patch that takes a person's cordon back, and removes the owners in `without`.

    With further owners, the node stays cordoned. Otherwise it is restored and schedulable.
    """
    cordon = cordon_of(node) or Cordon()
    remaining = {name: owner for name, owner in cordon.owners.items() if name not in without}
    labels = {
        key: value
        for name in without
        if name in cordon.owners
        for key, value in cordon.owners[name].requested.labels.items()
    }
    before = _with_unschedulable(cordon.before, unschedulable=False)
    return _node_patch(node, Cordon(owners=remaining, before=before), released=CordonRequest(labels=labels))


def clear_cordon(node: Node) -> RawObject:
    """Return the patch that uncordons a node and removes our annotations, whatever they contain.

    Taints and labels stay.
    """
    metadata = {
        # In one patch: an annotation that outlived the cordon would be taken for a cordon that a person removed.
        "annotations": {CORDON_ANNOTATION: None, CORDON_BACKUP_ANNOTATION: None},
        "uid": node.uid,
        "resourceVersion": node.resource_version,
    }
    return {"metadata": metadata, "spec": {"unschedulable": None}}


def _with_unschedulable(before: StateBeforeCordon, *, unschedulable: bool) -> StateBeforeCordon:
    return msgspec.structs.replace(before, unschedulable=unschedulable)


def _complete_state_before(cordon: Cordon, node: Node, requested: CordonRequest) -> StateBeforeCordon:
    """Return the prior state of everything requested: by the annotation, or the current state for new requests.

    If an owner requested it before and the annotation does not have it, the annotation was edited, and it is ours.
    """
    known, present = cordon.before, {_taint_id(taint) for taint in node.spec.taints}
    taints = {_taint_id(requested_taint): _taint_id(requested_taint) in present for requested_taint in requested.taints}
    labels: dict[str, str | None] = {key: node.metadata.labels.get(key) for key in requested.labels}
    for owner in cordon.owners.values():
        # Not the current state: it contains what the owner itself has put there.
        unmodified = unmodified_state(owner.requested)
        taints, labels = {**taints, **unmodified.taints}, {**labels, **unmodified.labels}
    taints |= known.taints
    if _UNSCHEDULABLE_TAINT_ID in taints and not known.unschedulable:
        taints[_UNSCHEDULABLE_TAINT_ID] = False
    return StateBeforeCordon(unschedulable=known.unschedulable, taints=taints, labels={**labels, **known.labels})


def _node_patch(node: Node, cordon: Cordon, *, released: CordonRequest | None = None) -> RawObject | None:
    owners = cordon.owners.values()
    unschedulable = True if cordon.owners else cordon.before.unschedulable
    taints = _desired_taints(
        node, cordon, {_taint_id(entry): entry for owner in owners for entry in owner.requested.taints}
    )
    requested_labels = {key: value for owner in owners for key, value in owner.requested.labels.items()}
    labels = {**_restored_labels(node, cordon.before, {} if released is None else released.labels), **requested_labels}
    # Sorted, so that an equal cordon is an equal text, and no patch is sent for it.
    encoded = msgspec.json.encode(cordon, order="sorted").decode() if cordon.owners else None
    spec: RawObject = {}
    if node.spec.unschedulable != unschedulable:
        # None deletes the field, as `kubectl uncordon` does: the API omits it if it is false.
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
    # A merge patch replaces a list as a whole (RFC 7386): from a stale cache it would remove taints that others added.
    metadata |= node.preconditions
    return {"metadata": metadata} | ({"spec": spec} if spec else {})


def _desired_taints(node: Node, cordon: Cordon, requested: Mapping[str, Taint]) -> tuple[Taint, ...]:
    """Return the desired taints: requested ones first, then the others in their order.

    Kubernetes keeps its own unschedulable taint on a cordoned node. It is not removed while the node has owners,
    because it would come back at once, again and again.
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
    """Return the prior values of a released owner's labels. Labels that others changed since are left alone."""
    current = node.metadata.labels
    return {key: before.labels.get(key) for key, value in released.items() if current.get(key) == value}


def _taint_id(taint: Taint) -> str:
    return f"{taint.key}:{taint.effect}"
