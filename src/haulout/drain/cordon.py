"""Who keeps a node cordoned, and how it was before: so that only what we did is undone, and only by the last of us.

    change = acquire(node, "NodeMaintenance/patch-n1", Wishes(taints=…, labels=…), now=now)
    change = release(node, "NodeMaintenance/patch-n1")

Both return a merge patch for the Node, or None if there is nothing to change. It carries the node's uid and
resourceVersion: cordon, taints, labels and our mark change together, or not at all, and never on a node that somebody
else has changed meanwhile.

The mark is an annotation on the node: all owners of the cordon with what each of them wishes, and how each thing that
any of them wishes was before the first one came. What was there before stays after the last one has left: a node that a
person had cordoned stays cordoned, and so do their taints and labels. Nothing about it is kept anywhere else.

A person is no owner. What they do by hand counts as how the node was before: who cordons a node that is held finds it
cordoned when its holders have left, and who takes that back finds it free then (`cordon_by_hand`, `uncordon_by_hand`).
"""

from collections.abc import Collection, Mapping
from datetime import datetime

import msgspec

from haulout.errors import HauloutError
from haulout.kube.objects import Base, Node, RawObject, Taint

MARK = "haulout.dev/cordon"
_OF_THE_UNSCHEDULABLE = "node.kubernetes.io/unschedulable:NoSchedule"  # kept by the node lifecycle controller


class BadMark(HauloutError):
    """Somebody has written over our mark, so nobody knows any more how the node was before."""


class Wishes(Base, frozen=True):
    """What an owner of a cordon wants beside it."""

    taints: tuple[Taint, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Hold(Base, frozen=True):
    """One owner's part in a cordon."""

    since: datetime
    wishes: Wishes = Wishes()


class Before(Base, frozen=True, omit_defaults=False):
    """How the node was, as far as we changed it. A taint is named `key:effect`; a label that was not there is null."""

    unschedulable: bool = False
    taints: dict[str, bool] = msgspec.field(default_factory=dict)
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)


class Cordon(Base, frozen=True):
    """Our mark: by whom a node is cordoned, and how it was before."""

    owners: dict[str, Hold] = msgspec.field(default_factory=dict)
    before: Before = Before()


def cordon_of(node: Node) -> Cordon | None:
    """Return our mark on a node; None if there is none."""
    raw = node.metadata.annotations.get(MARK)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Cordon)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        problem = f"annotation {MARK} of node {node.name} is not what was written there ({error})"
        raise BadMark(f"{problem}; remove it, and uncordon the node by hand when its maintenance is over") from None


def acquire(node: Node, owner: str, wishes: Wishes, *, now: datetime, adopting: bool = False) -> RawObject | None:
    """Return the change that makes `owner` one of those who keep the node cordoned, with what it wishes.

    With `adopting`, what `owner` wishes and is there already was done in its name by somebody who leaves no mark: it
    goes when `owner` goes.
    """
    mark = cordon_of(node)
    if mark is None:
        before = _without(wishes) if adopting else Before(unschedulable=node.spec.unschedulable)
        mark = Cordon(before=before)
    known = mark.owners.get(owner)
    hold = Hold(since=now if known is None else known.since, wishes=wishes)
    grown = Cordon(owners={**mark.owners, owner: hold}, before=_noted(mark.before, node, wishes))
    return _change(node, grown)


def release(node: Node, owner: str) -> RawObject | None:
    """Return the change that takes `owner` from those who keep the node cordoned; the last one restores the node."""
    mark = cordon_of(node)
    if mark is None or owner not in mark.owners:
        return None
    left = {name: hold for name, hold in mark.owners.items() if name != owner}
    return _change(node, Cordon(owners=left, before=mark.before), let_go=mark.owners[owner].wishes)


def _without(wishes: Wishes) -> Before:
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
    metadata = {"annotations": {MARK: None}, "uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata, "spec": {"unschedulable": None}}


def _as_before(before: Before, *, unschedulable: bool) -> Before:
    return msgspec.structs.replace(before, unschedulable=unschedulable)


def _noted(before: Before, node: Node, wishes: Wishes) -> Before:
    """Add how the node is now in what nobody has wished before."""
    here = {_name(taint) for taint in node.spec.taints}
    taints = {_name(taint): _name(taint) in here for taint in wishes.taints}
    labels = {key: node.metadata.labels.get(key) for key in wishes.labels}
    return Before(
        unschedulable=before.unschedulable,
        taints={**taints, **before.taints},
        labels={**labels, **before.labels},
    )


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
    if node.metadata.annotations.get(MARK) != written:
        metadata["annotations"] = {MARK: written}
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
