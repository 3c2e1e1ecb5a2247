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

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

from haulout.hub import words
from haulout.hub.asks import APPROVED_ASK, DELETION_ASK, MAINTENANCE_ASK, Ask, ask_in
from haulout.hub.deletion import of_deletion, unmanaged, without_node
from haulout.hub.outcome import Change, Outcome, Part, Seen, Telling, Wanted, change_of
from haulout.hub.standing import MachineStanding, Why
from haulout.hub.upkeep import of_maintenance
from haulout.hub.waiting import standing
from haulout.kinds.clusterapi import (
    DRAIN_RULES,
    HOOK,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    MAINTENANCE,
    MANAGED,
    REQUESTED,
    TRUE,
)
from haulout.kube.objects import Node

_REQUESTS = {MACHINE_DELETED: DELETION_ASK, MACHINE_MAINTENANCE: MAINTENANCE_ASK}
_ANNOTATIONS = (DELETION_ASK, MAINTENANCE_ASK, DRAIN_RULES)
_OFF: Wanted = {HOOK: None, APPROVED_ASK: None}


def propagate(seen: Seen) -> Outcome:
    """Return what to write about a Machine and its node."""
    if seen.is_cluster_paused or seen.machine.is_paused or seen.machine.is_moved:
        return _paused(seen)
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


def _paused(seen: Seen) -> Outcome:
    """Write nothing: controllers of Cluster API do not act on what is paused, and a moved Machine's node stays.

    What was requested before stays requested.
    """
    machine, labels = seen.machine, {} if seen.node is None else seen.node.metadata.labels
    return Outcome(
        is_active=any(labels.get(it) == TRUE for it in _REQUESTS),
        is_settled=seen.is_node_known or not machine.node,
        standings=() if machine.is_moved or not machine.is_enabled else tuple(_held_by_pause(seen)),
    )


def _held_by_pause(seen: Seen) -> Iterator[MachineStanding]:
    machine, reason = seen.machine, words.paused(seen)
    if machine.is_leaving:
        yield standing(seen, Why.DELETION, reason, since=machine.metadata.deletion_timestamp)
    if machine.metadata.labels.get(MAINTENANCE) == REQUESTED:
        yield standing(seen, Why.MAINTENANCE, reason, since=None)


def withdrawn(node: Node, *, is_gone: Callable[[Ask | None], bool], is_claimed: bool) -> Change:
    """Return what takes requests off a node whose Machine is gone.

    `is_gone` tells of each request whether its Machine is gone; None stands for one that does not name its Machine.
    `is_claimed`: another Machine became this node, as after a move.
    """
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {} if is_claimed else {DRAIN_RULES: None}
    for label, note in _REQUESTS.items():
        if is_gone(ask_in(node, note)):
            labels[label] = annotations[note] = None
    return change_of(node, labels=labels, annotations=annotations, is_exact=True)


def requests_on(node: Node) -> tuple[Ask, ...]:
    """Return the requests on a node that name their Machine."""
    return tuple(ask for note in _REQUESTS.values() if (ask := ask_in(node, note)) is not None)


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
    return change_of(node, labels=dict.fromkeys(_REQUESTS), annotations=dict.fromkeys(_ANNOTATIONS))
