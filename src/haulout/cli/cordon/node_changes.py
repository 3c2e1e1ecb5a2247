"""Cordoning and uncordoning as a person does it, in kubectl's words.

What a person does is no owner's part in the cordon (`haulout.drain.cordon`): it counts as how the node was before. So a
node that somebody cordons while a maintenance holds it stays cordoned when that ends; and one that is held cannot be
uncordoned past its holder, unless by force. What holders left who are no more is cleared away on the way.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.cli.cordon_owners import CordonOwner, OwnerPresence, fetch_owners
from haulout.cli.output_lines import OutputLine
from haulout.drain import cordon
from haulout.drain.cordon import Cordon, InvalidCordonAnnotation
from haulout.errors import ApiError, Conflict, KubeError
from haulout.kube.client import Client
from haulout.kube.patches import node_patch

_TRIES = 5  # against others who change the node at the same moment

DRY_RUN_SUFFIXES = {"none": "", "client": " (dry run)", "server": " (server dry run)"}


class ChangeVerb(StrEnum):
    """What became of it, in kubectl's words as far as it has any."""

    CORDONED = "cordoned"
    ALREADY_CORDONED = "already cordoned"
    UNCORDONED = "uncordoned"
    ALREADY_UNCORDONED = "already uncordoned"
    HELD = "held"
    RELEASED = "released"
    NOT_HELD = "not held"


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What came of one node."""

    node: str
    verb: ChangeVerb | None = None  # None: it was refused, or failed
    problem: str = ""
    notes: tuple[str, ...] = ()


async def cordon_node(client: Client, node: Node, *, dry_run: str = "none") -> ChangeResult:
    """Cordon a node."""

    async def decide(current: Node) -> NodeChangeDecision:
        verb = ChangeVerb.ALREADY_CORDONED if current.spec.unschedulable else ChangeVerb.CORDONED
        try:
            mark, change = cordon.cordon_of(current), cordon.cordon_by_hand(current)
        except InvalidCordonAnnotation as error:
            spec = {"metadata": {"resourceVersion": current.resource_version}, "spec": {"unschedulable": True}}
            return NodeChangeDecision(
                None if current.spec.unschedulable else spec, ChangeResult(current.name, verb, notes=(str(error),))
            )
        return NodeChangeDecision(
            change, ChangeResult(current.name, verb, notes=_outlasting_cordon_notes(current, mark))
        )

    return await change_node(client, node, decide, dry_run=dry_run)


async def uncordon_node(client: Client, node: Node, *, force: bool = False, dry_run: str = "none") -> ChangeResult:
    """Uncordon a node, unless somebody holds it."""

    async def decide(current: Node) -> NodeChangeDecision:
        verb = ChangeVerb.UNCORDONED if current.spec.unschedulable else ChangeVerb.ALREADY_UNCORDONED
        try:
            mark = cordon.cordon_of(current) or Cordon()
        except InvalidCordonAnnotation as error:
            if not force:
                return NodeChangeDecision(
                    None, ChangeResult(current.name, problem=f"{error}; or override it with --force")
                )
            return NodeChangeDecision(
                cordon.clear_cordon(current), ChangeResult(current.name, verb, notes=(_MARK_REMOVED,))
            )
        owners = await fetch_owners(client, current, mark)
        present = [owner for owner in owners if owner.presence is not OwnerPresence.GONE]
        if present and not force:
            return _refuse_uncordon(current, mark, present, now=client.clock.now())
        change = cordon.uncordon_by_hand(current, without=[owner.owner for owner in owners])
        return NodeChangeDecision(
            change, ChangeResult(current.name, verb, notes=_override_notes(owners, now=client.clock.now()))
        )

    return await change_node(client, node, decide, dry_run=dry_run)


def result_lines(result: ChangeResult, *, verb: str, dry_run: str = "none") -> Iterator[OutputLine]:
    """Yield what came of a node, as kubectl says it; what it does not say goes to standard error."""
    if result.verb is None:
        yield OutputLine(f'error: unable to {verb} node "{result.node}": {result.problem}')
    else:
        yield OutputLine(f"node/{result.node} {result.verb}{DRY_RUN_SUFFIXES[dry_run]}", is_result=True)
    for note in result.notes:
        yield OutputLine(f"node/{result.node}: {note}")


@dataclass(frozen=True, slots=True)
class NodeChangeDecision:
    """What to change about a node, and what to say of that."""

    change: RawObject | None
    result: ChangeResult


DecideNodeChange = Callable[[Node], Awaitable[NodeChangeDecision]]

_MARK_REMOVED = (
    "Haulout's mark on it could not be read and was taken off; "
    "taints and labels of a maintenance may be left: look at them with kubectl describe node"
)


async def change_node(client: Client, node: Node, decide: DecideNodeChange, *, dry_run: str) -> ChangeResult:
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
                return ChangeResult(node.name, problem=f"others keep changing the node: {error.message}")
            node = await client.get(NODES, node.name)
        except KubeError as error:
            return ChangeResult(node.name, problem=error.message if isinstance(error, ApiError) else str(error))
        else:
            return decision.result


def _refuse_uncordon(node: Node, mark: Cordon, owners: Sequence[CordonOwner], *, now: datetime) -> NodeChangeDecision:
    """Return the decision about a node that is held; what a person had cordoned before is taken back."""
    names = " and ".join(owner.describe(now=now) for owner in owners)
    release_commands = "; ".join(owner.release_command for owner in owners if owner.release_command)
    advice = f"to end that: {release_commands}" if release_commands else "ask those who run it"
    change, cordon_note = None, ""
    if mark.before.unschedulable:
        change = cordon.uncordon_by_hand(node)
        cordon_note = "; the cordon from before is taken back, so that the node is uncordoned when that ends"
    problem = f"it is held by {names}; {advice}; to uncordon it nevertheless: haulout uncordon {node.name} --force"
    return NodeChangeDecision(change, ChangeResult(node.name, problem=problem + cordon_note))


def _override_notes(owners: Sequence[CordonOwner], *, now: datetime) -> tuple[str, ...]:
    """Return what there is to say about holders that were let go for."""
    gone = [owner.describe(now=now) for owner in owners if owner.presence is OwnerPresence.GONE]
    present = [owner for owner in owners if owner.presence is not OwnerPresence.GONE]
    notes = [f"cleared away what was left of {' and '.join(gone)}: cordon, taints and labels"] if gone else []
    if present:
        release_commands = "; ".join(owner.release_command for owner in present if owner.release_command)
        names = " and ".join(owner.describe(now=now) for owner in present)
        again = (
            f"the operator cordons the node again until you end that: {release_commands}"
            if release_commands
            else "it may cordon it again"
        )
        notes.append(f"was held by {names}; {again}")
    return tuple(notes)


def _outlasting_cordon_notes(node: Node, mark: Cordon | None) -> tuple[str, ...]:
    if mark is None or not mark.owners:
        return ()
    names = " and ".join(owner.replace("/", " ", 1) for owner in mark.owners)
    return (f"held by {names}; it stays cordoned when that ends, until you run: haulout uncordon {node.name}",)
