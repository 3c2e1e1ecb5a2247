"""What should be on a Machine and on its node, given what is on both: pure.

    Machine: the pre-drain hook      while its node is managed and nobody has approved its deletion
    Node:    machine-deleted         while the Machine is being deleted
    Node:    machine-maintenance     while the Machine asks for maintenance
    Machine: maintenance=approved    once it has asked, and the node's profile has approved

So far as the runtime-extension-maintenance-controller. Beyond that an approval counts only for what it was given for.
Labels do not tell that by themselves, so the hub asks for something new only while no approval is on the node, and
notes down there, in the same patch, what it asked for (`haulout.hub.asks`): an approval that comes afterwards is meant
for that. An old one that stays is told to people, or taken off (`OldApprovals`).

The two protocols are `haulout.hub.deletion` and `haulout.hub.upkeep`; here is what they have in common.
"""

from dataclasses import replace
from itertools import chain

from haulout.hub import words
from haulout.hub.asks import APPROVED_ASK, DELETION_ASK, MAINTENANCE_ASK
from haulout.hub.deletion import of_deletion, unmanaged, without_node
from haulout.hub.outcome import Change, Outcome, Part, Seen, Telling, Wanted, change_of
from haulout.hub.upkeep import of_maintenance
from haulout.kinds.clusterapi import DRAIN_RULES, HOOK, MACHINE_DELETED, MACHINE_MAINTENANCE, MANAGED
from haulout.kube.objects import Node

_LABELS = (MACHINE_DELETED, MACHINE_MAINTENANCE)
_ANNOTATIONS = (DELETION_ASK, MAINTENANCE_ASK, DRAIN_RULES)
_OFF: Wanted = {HOOK: None, APPROVED_ASK: None}


def propagate(seen: Seen) -> Outcome:
    """Return what to write about a Machine and its node."""
    if not seen.machine.is_enabled:
        return _opted_out(seen)
    if seen.node is None:
        return _without_node(seen)
    if MANAGED not in seen.node.metadata.labels:
        return _unmanaged(seen, seen.node)
    parts = of_deletion(seen, seen.node), of_maintenance(seen, seen.node)
    return _joined(seen, seen.node, parts)


def _joined(seen: Seen, node: Node, parts: tuple[Part, ...]) -> Outcome:
    rules: Wanted = {} if seen.drain_rules is None else {DRAIN_RULES: seen.drain_rules or None}
    on_node = change_of(
        node,
        labels=_merged(*(it.node_labels for it in parts)),
        annotations=_merged(rules, *(it.node_annotations for it in parts)),
        # What is asked for rests on there being no approval yet.
        is_exact=any(it.begins for it in parts),
    )
    on_machine = change_of(
        seen.machine,
        labels=_merged(*(it.machine_labels for it in parts)),
        annotations=_merged(*(it.machine_annotations for it in parts)),
        is_exact=True,
    )
    return Outcome(
        node=on_node,
        machine=on_machine,
        begins=any(it.begins for it in parts),
        is_active=any(it.is_active for it in parts),
        standings=tuple(it.standing for it in parts if it.standing is not None),
        tellings=tuple(chain.from_iterable(it.tellings for it in parts)),
        remarks=tuple(chain.from_iterable(it.remarks for it in parts)),
        next_look=min((it.next_look for it in parts if it.next_look is not None), default=None),
    )


def _merged(*wanted: Wanted) -> Wanted:
    return dict(chain.from_iterable(it.items() for it in wanted))


def _opted_out(seen: Seen) -> Outcome:
    """Take all of ours off, from the node first: the hook is what reminds a successor of it."""
    machine = seen.machine
    if machine.node and not seen.is_node_known and seen.unreachable_since is None:
        return Outcome(is_settled=False)
    change = change_of(machine, annotations=_OFF, is_exact=True)
    tellings = (Telling(reason="OptedOut", note=words.OPTED_OUT),) if HOOK in change.annotations else ()
    is_settled = seen.is_node_known or not machine.node
    return Outcome(node=_cleaned(seen.node), machine=change, tellings=tellings, is_settled=is_settled)


def _without_node(seen: Seen) -> Outcome:
    """Have a Machine go whose node never was, is gone or cannot be asked for any longer; all else waits."""
    is_settled = seen.is_node_known or not seen.machine.node
    if not seen.machine.is_leaving:
        return Outcome(is_settled=is_settled)
    return replace(_of_machine(seen, without_node(seen)), is_settled=is_settled)


def _unmanaged(seen: Seen, node: Node) -> Outcome:
    """Take all of ours off: nobody would react to it."""
    if not seen.machine.is_leaving:
        return Outcome(node=_cleaned(node), machine=change_of(seen.machine, annotations=_OFF, is_exact=True))
    return _of_machine(seen, unmanaged(seen), node=_cleaned(node))


def _of_machine(seen: Seen, part: Part, *, node: Change | None = None) -> Outcome:
    return Outcome(
        node=node or Change(),
        machine=change_of(seen.machine, annotations=part.machine_annotations, is_exact=True),
        standings=() if part.standing is None else (part.standing,),
        tellings=part.tellings,
        remarks=part.remarks,
        next_look=part.next_look,
    )


def _cleaned(node: Node | None) -> Change:
    if node is None:
        return Change()
    return change_of(node, labels=dict.fromkeys(_LABELS), annotations=dict.fromkeys(_ANNOTATIONS))
