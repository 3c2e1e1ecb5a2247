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

from haulout.errors import HauloutError
from haulout.kube.objects import Base, Node, RawObject, Taint

MARK = "haulout.dev/cordon"
BACKUP = "haulout.dev/cordon-backup"
DRAIN_TAINT = Taint(key="medik8s.io/drain", effect="NoSchedule")
EXCLUDE_LABEL = "remediation.medik8s.io/exclude-from-remediation"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OF_THE_UNSCHEDULABLE = "node.kubernetes.io/unschedulable:NoSchedule"  # kept by the node lifecycle controller


class BadMark(HauloutError):
    """Somebody has written over our mark, so nobody knows any more how the node was before."""


class Wishes(Base, frozen=True):
    """What an owner of a cordon wants beside it."""

    taints: tuple[Taint, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


NOTHING = Wishes()


class Hold(Base, frozen=True):
    """One owner's part in a cordon."""

    since: datetime
    wishes: Wishes = NOTHING


class Before(Base, frozen=True, omit_defaults=False):
    """How the node was, as far as we changed it. A taint is named `key:effect`; a label that was not there is null."""

    unschedulable: bool = False
    taints: dict[str, bool] = msgspec.field(default_factory=dict)
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)


class Cordon(Base, frozen=True):
    """Our mark: by whom a node is cordoned, and how it was before."""

    owners: dict[str, Hold] = msgspec.field(default_factory=dict)
    before: Before = Before()


class _Fields(Base, frozen=True):
    """Which fields of `before` a mark has."""

    before: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


def cordon_of(node: Node, copy: Cordon | None = None) -> Cordon | None:
    """Return who keeps a node cordoned, and how it was before; None if nobody does. Raise `BadMark` if nobody knows.

    The mark counts, or else the backup, or else `copy`, which is kept outside the node. Owners that only the copy knows
    were removed from the mark. If they held the node before all others, the copy tells whether it was cordoned before:
    the others took their cordon for a person's.
    """
    if copy is None:
        return _marked(node)
    try:
        mark = _marked(node)
    except BadMark:
        mark = None
    if mark is None:
        was_cordoned = copy.before.unschedulable and node.spec.unschedulable
        return Cordon(owners=copy.owners, before=_as_before(copy.before, unschedulable=was_cordoned))
    before = _filled(mark.before, copy.before)
    removed = [hold.since for name, hold in copy.owners.items() if name not in mark.owners]
    if removed and min(removed) < min(it.since for it in mark.owners.values()):
        before = _as_before(before, unschedulable=copy.before.unschedulable)
    return Cordon(owners={**copy.owners, **mark.owners}, before=before)


def _marked(node: Node) -> Cordon | None:
    """Return what the annotations of a node say: the mark, or else the backup."""
    annotations = node.metadata.annotations
    if MARK not in annotations and BACKUP not in annotations:
        return None
    try:
        mark = _decoded(annotations.get(MARK))
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        mark = _backup(node)
        if mark is None:
            problem = f"annotation {MARK} of node {node.name} is not what was written there ({error})"
            raise BadMark(f"{problem}; remove it, and uncordon the node by hand when its maintenance is over") from None
    backup = _backup(node)
    if mark and backup:
        mark = _merged(mark, backup, tells_cordon=_tells_cordon(annotations.get(MARK)))
    else:
        mark = mark or backup
    if mark is None or node.spec.unschedulable:
        return mark
    return msgspec.structs.replace(mark, before=_as_before(mark.before, unschedulable=False))


def acquire(
    node: Node,
    owner: str,
    wishes: Wishes,
    *,
    now: datetime,
    adopting: bool = False,
    before: Before | None = None,
) -> RawObject | None:
    """Return the change that makes `owner` one of those who keep the node cordoned, with what it wishes.

    With `adopting`, what `owner` wishes and is there already was done in its name by somebody who leaves no mark: it
    goes when `owner` goes. `before` is the owner's copy of how the node was; it counts if the node does not say that.
    """
    mark = cordon_of(node, None if before is None else Cordon(before=before)) or Cordon(
        before=_unmarked(node, wishes, adopting=adopting)
    )
    known = mark.owners.get(owner)
    hold = Hold(since=now if known is None else known.since, wishes=wishes)
    grown = Cordon(owners={**mark.owners, owner: hold}, before=_completed(mark, node, wishes))
    return _change(node, grown)


def release(
    node: Node, owner: str, *, wishes: Wishes = NOTHING, before: Before | None = None, others: Mapping[str, Hold] = {}
) -> RawObject | None:
    """Return the change that takes `owner` from those who keep the node cordoned; the last one restores the node.

    With `before`, somebody has removed `owner` from the mark: then this is how the node was, as far as the mark does
    not say it, `wishes` is what `owner` has put there, and `others` are owners that may have been removed, too.
    """
    mark = cordon_of(node, None if before is None else Cordon(owners=dict(others), before=before))
    if mark is None or (before is None and owner not in mark.owners):
        return None
    hold = mark.owners.get(owner) or Hold(since=_EPOCH)
    let_go = Wishes(taints=(*hold.wishes.taints, *wishes.taints), labels={**wishes.labels, **hold.wishes.labels})
    held = Cordon(owners={**mark.owners, owner: msgspec.structs.replace(hold, wishes=let_go)}, before=mark.before)
    left = {name: hold for name, hold in mark.owners.items() if name != owner}
    return _change(node, Cordon(owners=left, before=_completed(held, node, NOTHING)), let_go=let_go)


def repaired(node: Node, owners: Collection[str], *, copy: Cordon | None = None) -> RawObject | None:
    """Return the change that writes mark and backup of a cordoned node again, where one was lost or edited.

    Of `copy`, only `owners` count. None: nothing is lost, or the node is schedulable, or none of `owners` has a part in
    its cordon.
    """
    holds = {} if copy is None else {name: hold for name, hold in copy.owners.items() if name in owners}
    mark = cordon_of(node, Cordon(owners=holds, before=copy.before) if copy is not None and holds else None)
    if mark is None or not node.spec.unschedulable or mark.owners.keys().isdisjoint(owners):
        return None
    return _change(node, mark)


def before_of(node: Node, wishes: Wishes) -> Before:
    """Return how a node is before an owner with these wishes acquires it. Raise `BadMark` if nobody knows."""
    return _completed(cordon_of(node) or Cordon(before=_unmarked(node, wishes)), node, wishes)


def tampering(node: Node, wishes: Wishes) -> list[str]:
    """Return what somebody has changed about a node that an owner with these wishes holds, in words."""
    found = [how] if (how := damage(node)) else []
    if not node.spec.unschedulable:
        found.append("the node was uncordoned")
    present = {_name(taint) for taint in node.spec.taints}
    found += [f"taint {it.key} was removed" for it in wishes.taints if _name(it) not in present]
    labels = node.metadata.labels
    return found + [f"label {key} was changed" for key, value in wishes.labels.items() if labels.get(key) != value]


def _merged(mark: Cordon, backup: Cordon, *, tells_cordon: bool) -> Cordon:
    """Return a mark completed by its backup, if that is about the same hold of the node.

    Both are always written together, and taints and labels of before never change while a node is held: an owner that
    is missing, and another taint or label, was edited by somebody. Whether the node was cordoned before may be edited,
    but not left out: a person's cordon stays unless the mark says that there was none.
    """
    if not any(name in mark.owners and mark.owners[name].since == hold.since for name, hold in backup.owners.items()):
        return mark  # an earlier version has written this mark, and left a backup of another time
    was_cordoned = mark.before.unschedulable if tells_cordon else backup.before.unschedulable
    before = _filled(_as_before(backup.before, unschedulable=was_cordoned), mark.before)
    return Cordon(owners={**backup.owners, **mark.owners}, before=before)


def _tells_cordon(raw: str | None) -> bool:
    """Return whether a mark has the field that tells whether the node was cordoned before; we never omit it."""
    try:
        return "unschedulable" in msgspec.json.decode(raw or "", type=_Fields).before
    except (msgspec.ValidationError, msgspec.DecodeError):
        return False


def _filled(before: Before, more: Before) -> Before:
    """Return how a node was, with the taints and labels that only `more` knows of."""
    taints, labels = {**more.taints, **before.taints}, {**more.labels, **before.labels}
    return Before(unschedulable=before.unschedulable, taints=taints, labels=labels)


def damage(node: Node) -> str:
    """Return what somebody has done to the mark of a node that is held, in words; empty if it can be read."""
    raw = node.metadata.annotations.get(MARK)
    if raw is None:
        return f"annotation {MARK} was removed"
    try:
        return "" if _decoded(raw) else f"annotation {MARK} was emptied"
    except (msgspec.ValidationError, msgspec.DecodeError):
        return f"annotation {MARK} was overwritten"


def has_drain_taint(node: Node) -> bool:
    """Tell whether a node has the taint of NodeMaintenances."""
    return any((it.key, it.effect) == (DRAIN_TAINT.key, DRAIN_TAINT.effect) for it in node.spec.taints)


def _decoded(raw: str | None) -> Cordon | None:
    """Return a mark; None if it has no owners, since we write none without."""
    mark = Cordon() if raw is None else msgspec.json.decode(raw, type=Cordon)
    return mark if mark.owners else None


def _backup(node: Node) -> Cordon | None:
    """Return the mark by its backup; None if there is none that counts.

    An earlier version, which knows of no backup, releases a node and leaves it behind: a node that is schedulable and
    has no mark is held by nobody.
    """
    if not node.spec.unschedulable:
        return None
    try:
        return _decoded(node.metadata.annotations.get(BACKUP))
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def _unmarked(node: Node, wishes: Wishes, *, adopting: bool = False) -> Before:
    """Return how a node without a mark was before: as it is, unless it carries what an owner with these wishes did."""
    is_ours = DRAIN_TAINT in wishes.taints and has_drain_taint(node) and node.spec.unschedulable
    if not adopting and not is_ours:
        return Before(unschedulable=node.spec.unschedulable)
    ours, here = untouched(wishes), node.metadata.labels
    others = {key: here[key] for key, value in wishes.labels.items() if here.get(key, value) != value}
    return msgspec.structs.replace(ours, labels={**ours.labels, **others})


def untouched(wishes: Wishes) -> Before:
    """Return how a node was that nobody had cordoned, and that had nothing of what is wished."""
    return Before(taints={_name(it): False for it in wishes.taints}, labels=dict.fromkeys(wishes.labels))


def cordon_by_hand(node: Node) -> RawObject | None:
    """Return the change by which a person cordons a node: it lasts longer than the cordons of all who hold it."""
    mark = cordon_of(node) or Cordon()
    return _change(node, msgspec.structs.replace(mark, before=_as_before(mark.before, unschedulable=True)))


def uncordon_by_hand(node: Node, *, without: Collection[str] = ()) -> RawObject | None:
    """Return the change by which a person takes their cordon back, and lets go for the owners `without`.

    If others hold the node it stays cordoned; else it is restored, and schedulable.
    """
    mark = cordon_of(node) or Cordon()
    left = {name: hold for name, hold in mark.owners.items() if name not in without}
    labels = {key: it for name in without if name in mark.owners for key, it in mark.owners[name].wishes.labels.items()}
    before = _as_before(mark.before, unschedulable=False)
    return _change(node, Cordon(owners=left, before=before), let_go=Wishes(labels=labels))


def forget(node: Node) -> RawObject:
    """Return the change that uncordons a node and takes our mark off, whatever that says; taints and labels stay."""
    metadata = {"annotations": {MARK: None, BACKUP: None}, "uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata, "spec": {"unschedulable": None}}


def _as_before(before: Before, *, unschedulable: bool) -> Before:
    return msgspec.structs.replace(before, unschedulable=unschedulable)


def _completed(mark: Cordon, node: Node, wishes: Wishes) -> Before:
    """Return how the node was in all that is wished: as the mark says, or as it is now in what nobody has wished yet.

    What an owner has wished before and the mark says nothing about is ours: somebody has edited the mark.
    """
    known, here = mark.before, {_name(taint) for taint in node.spec.taints}
    taints = {_name(it): _name(it) in here for it in wishes.taints}
    labels: dict[str, str | None] = {key: node.metadata.labels.get(key) for key in wishes.labels}
    for hold in mark.owners.values():
        ours = untouched(hold.wishes)
        taints, labels = {**taints, **ours.taints}, {**labels, **ours.labels}
    taints |= known.taints
    if _OF_THE_UNSCHEDULABLE in taints and not known.unschedulable:
        taints[_OF_THE_UNSCHEDULABLE] = False
    return Before(unschedulable=known.unschedulable, taints=taints, labels={**labels, **known.labels})


def _change(node: Node, mark: Cordon, *, let_go: Wishes | None = None) -> RawObject | None:
    holds = mark.owners.values()
    unschedulable = True if mark.owners else mark.before.unschedulable
    taints = _taints(node, mark, {_name(it): it for hold in holds for it in hold.wishes.taints})
    wished = {key: value for hold in holds for key, value in hold.wishes.labels.items()}
    labels = {**_restored(node, mark.before, {} if let_go is None else let_go.labels), **wished}
    written = msgspec.json.encode(mark, order="sorted").decode() if mark.owners else None
    spec: RawObject = {}
    if node.spec.unschedulable != unschedulable:
        spec["unschedulable"] = unschedulable or None
    if taints != node.spec.taints:
        spec["taints"] = msgspec.to_builtins(taints) or None
    metadata: RawObject = {}
    if changed := {key: value for key, value in labels.items() if node.metadata.labels.get(key) != value}:
        metadata["labels"] = changed
    if outdated := [it for it in (MARK, BACKUP) if node.metadata.annotations.get(it) != written]:
        metadata["annotations"] = dict.fromkeys(outdated, written)
    if not spec and not metadata:
        return None
    metadata |= {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata} | ({"spec": spec} if spec else {})


def _taints(node: Node, mark: Cordon, wished: Mapping[str, Taint]) -> tuple[Taint, ...]:
    """Return the node's taints as they should be: those wished first, then the others in their order.

    Kubernetes has a taint of its own on a node for as long as it is unschedulable: who took that away while others
    hold the node would see it come back at once, without an end.
    """
    present = {_name(taint): taint for taint in node.spec.taints}
    ours = [present.get(name, taint) for name, taint in wished.items()]
    let_go = {name for name, was_there in mark.before.taints.items() if not was_there and name not in wished}
    let_go -= {_OF_THE_UNSCHEDULABLE} if mark.owners else set()
    if all(name in present for name in wished):
        return tuple(taint for name, taint in present.items() if name not in let_go)
    return (*ours, *(taint for name, taint in present.items() if name not in wished and name not in let_go))


def _restored(node: Node, before: Before, let_go: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels that were set for one who leaves, as they were before; not those that others changed since."""
    here = node.metadata.labels
    return {key: before.labels.get(key) for key, value in let_go.items() if here.get(key) == value}


def _name(taint: Taint) -> str:
    return f"{taint.key}:{taint.effect}"
