"""Cordoning and uncordoning as a person does it, in kubectl's words.

What a person does is no owner's part in the cordon (`haulout.drain.cordon`): it counts as how the node was before. So a
node that somebody cordons while a maintenance holds it stays cordoned when that ends; and one that is held cannot be
uncordoned past its holder, unless by force. What holders left who are no more is cleared away on the way.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from haulout.cli.holders import Holder, Presence, look_up
from haulout.cli.lines import Line
from haulout.drain import cordon
from haulout.drain.cordon import BadMark, Cordon
from haulout.errors import ApiError, Conflict, KubeError
from haulout.kube.client import Client
from haulout.kube.objects import Node, RawObject
from haulout.kube.patches import node_patch
from haulout.kube.resources import NODES

_TRIES = 5  # against others who change the node at the same moment

SUFFIXES = {"none": "", "client": " (dry run)", "server": " (server dry run)"}


class Verb(StrEnum):
    """What became of it, in kubectl's words as far as it has any."""

    CORDONED = "cordoned"
    ALREADY_CORDONED = "already cordoned"
    UNCORDONED = "uncordoned"
    ALREADY_UNCORDONED = "already uncordoned"
    HELD = "held"
    RELEASED = "released"
    NOT_HELD = "not held"


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one node."""

    node: str
    verb: Verb | None = None  # None: it was refused, or failed
    problem: str = ""
    notes: tuple[str, ...] = ()


async def cordon_node(client: Client, node: Node, *, dry_run: str = "none") -> Done:
    """Cordon a node."""

    async def decide(seen: Node) -> Decision:
        verb = Verb.ALREADY_CORDONED if seen.spec.unschedulable else Verb.CORDONED
        try:
            mark, change = cordon.cordon_of(seen), cordon.cordon_by_hand(seen)
        except BadMark as error:
            spec = {"metadata": {"resourceVersion": seen.resource_version}, "spec": {"unschedulable": True}}
            return Decision(None if seen.spec.unschedulable else spec, Done(seen.name, verb, notes=(str(error),)))
        return Decision(change, Done(seen.name, verb, notes=_outlasting(seen, mark)))

    return await change_node(client, node, decide, dry_run=dry_run)


async def uncordon_node(client: Client, node: Node, *, force: bool = False, dry_run: str = "none") -> Done:
    """Uncordon a node, unless somebody holds it."""

    async def decide(seen: Node) -> Decision:
        verb = Verb.UNCORDONED if seen.spec.unschedulable else Verb.ALREADY_UNCORDONED
        try:
            mark = cordon.cordon_of(seen) or Cordon()
        except BadMark as error:
            if not force:
                return Decision(None, Done(seen.name, problem=f"{error}; or override it with --force"))
            return Decision(cordon.forget(seen), Done(seen.name, verb, notes=(_FORGOTTEN,)))
        holders = await look_up(client, seen, mark)
        present = [it for it in holders if it.presence is not Presence.GONE]
        if present and not force:
            return _refused(seen, mark, present, now=client.clock.now())
        change = cordon.uncordon_by_hand(seen, without=[it.owner for it in holders])
        return Decision(change, Done(seen.name, verb, notes=_overridden(holders, now=client.clock.now())))

    return await change_node(client, node, decide, dry_run=dry_run)


def told(done: Done, *, wanted: str, dry_run: str = "none") -> Iterator[Line]:
    """Yield what came of a node, as kubectl says it; what it does not say goes to standard error."""
    if done.verb is None:
        yield Line(f'error: unable to {wanted} node "{done.node}": {done.problem}')
    else:
        yield Line(f"node/{done.node} {done.verb}{SUFFIXES[dry_run]}", is_result=True)
    for note in done.notes:
        yield Line(f"node/{done.node}: {note}")


@dataclass(frozen=True, slots=True)
class Decision:
    """What to change about a node, and what to say of that."""

    change: RawObject | None
    done: Done


Decide = Callable[[Node], Awaitable[Decision]]

_FORGOTTEN = (
    "Haulout's mark on it could not be read and was taken off; "
    "taints and labels of a maintenance may be left: look at them with kubectl describe node"
)


async def change_node(client: Client, node: Node, decide: Decide, *, dry_run: str) -> Done:
    """Do what `decide` says of the node as it is; look again if others change it meanwhile."""
    tries = 0
    while True:
        try:
            decision = await decide(node)
            if decision.change is not None and dry_run != "client":
                await client.patch(NODES, node.name, node_patch(decision.change), dry_run=dry_run == "server")
        except Conflict as error:
            tries += 1
            if tries == _TRIES:
                return Done(node.name, problem=f"others keep changing the node: {error.message}")
            node = await client.get(NODES, node.name)
        except KubeError as error:
            return Done(node.name, problem=error.message if isinstance(error, ApiError) else str(error))
        else:
            return decision.done


def _refused(node: Node, mark: Cordon, present: Sequence[Holder], *, now: datetime) -> Decision:
    """Return the decision about a node that is held; what a person had cordoned before is taken back."""
    who = " and ".join(it.told(now=now) for it in present)
    ends = "; ".join(it.ends_by for it in present if it.ends_by)
    how = f"to end that: {ends}" if ends else "ask those who run it"
    change, taken_back = None, ""
    if mark.before.unschedulable:
        change = cordon.uncordon_by_hand(node)
        taken_back = "; the cordon from before is taken back, so that the node is uncordoned when that ends"
    problem = f"it is held by {who}; {how}; to uncordon it nevertheless: haulout uncordon {node.name} --force"
    return Decision(change, Done(node.name, problem=problem + taken_back))


def _overridden(holders: Sequence[Holder], *, now: datetime) -> tuple[str, ...]:
    """Return what there is to say about holders that were let go for."""
    gone = [it.told(now=now) for it in holders if it.presence is Presence.GONE]
    present = [it for it in holders if it.presence is not Presence.GONE]
    notes = [f"cleared away what was left of {' and '.join(gone)}: cordon, taints and labels"] if gone else []
    if present:
        ends = "; ".join(it.ends_by for it in present if it.ends_by)
        who = " and ".join(it.told(now=now) for it in present)
        again = f"the operator cordons the node again until you end that: {ends}" if ends else "it may cordon it again"
        notes.append(f"was held by {who}; {again}")
    return tuple(notes)


def _outlasting(node: Node, mark: Cordon | None) -> tuple[str, ...]:
    if mark is None or not mark.owners:
        return ()
    names = " and ".join(owner.replace("/", " ", 1) for owner in mark.owners)
    return (f"held by {names}; it stays cordoned when that ends, until you run: haulout uncordon {node.name}",)
