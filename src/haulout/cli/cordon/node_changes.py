"""Cordon and uncordon nodes on behalf of a user, with kubectl's output.

A user is no cordon owner (`haulout.drain.cordon`): a user's change modifies the recorded state before maintenance. So a
node that a user cordons during a maintenance stays cordoned after it, and a node with an owner cannot be uncordoned
without force. Leftovers of deleted owners are removed on the way.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.cli.cordon_owners import CordonOwner, OwnerPresence, fetch_owners
from haulout.cli.output import OutputLine
from haulout.drain import cordon
from haulout.drain.cordon import Cordon, InvalidCordonAnnotation
from haulout.errors import ApiError, Conflict, KubeError
from haulout.kube.client import Client
from haulout.kube.patches import node_patch

_TRIES = 5  # on conflicts with concurrent changes of the node

DRY_RUN_SUFFIXES = {"none": "", "client": " (dry run)", "server": " (server dry run)"}


class ChangeVerb(StrEnum):
    """The result, in kubectl's words as far as kubectl has any."""

    CORDONED = "cordoned"
    ALREADY_CORDONED = "already cordoned"
    UNCORDONED = "uncordoned"
    ALREADY_UNCORDONED = "already uncordoned"
    HELD = "held"
    RELEASED = "released"
    NOT_HELD = "not held"


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The result for one node."""

    node: str
    verb: ChangeVerb | None = None  # None: refused or failed
    problem: str = ""
    notes: tuple[str, ...] = ()


async def cordon_node(client: Client, node: Node, *, dry_run: str = "none") -> ChangeResult:
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
    """Uncordon a node, unless it has an owner."""

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
    """Yield the lines about a node, in kubectl's words; all others go to standard error."""
    if result.verb is None:
        yield OutputLine(f'error: unable to {verb} node "{result.node}": {result.problem}')
    else:
        yield OutputLine(f"node/{result.node} {result.verb}{DRY_RUN_SUFFIXES[dry_run]}", is_result=True)
    for note in result.notes:
        yield OutputLine(f"node/{result.node}: {note}")


@dataclass(frozen=True, slots=True)
class NodeChangeDecision:
    """The patch for a node, and its result."""

    change: RawObject | None
    result: ChangeResult


DecideNodeChange = Callable[[Node], Awaitable[NodeChangeDecision]]

_MARK_REMOVED = (
    "the cordon annotation could not be read and was removed; "
    "taints and labels of a maintenance may be left: check with kubectl describe node"
)


async def change_node(client: Client, node: Node, decide: DecideNodeChange, *, dry_run: str) -> ChangeResult:
    """Apply `decide` to the node; on a conflict, get the node again and retry."""
    tries = 0
    while True:
        try:
            decision = await decide(node)
            if decision.change is not None and dry_run != "client":
                await client.patch(NODES, node.name, node_patch(decision.change), dry_run=dry_run == "server")
        except Conflict as error:
            tries += 1
            if tries == _TRIES:
                return ChangeResult(node.name, problem=f"failed after repeated write conflicts: {error.message}")
            node = await client.get(NODES, node.name)
        except KubeError as error:
            return ChangeResult(node.name, problem=error.message if isinstance(error, ApiError) else str(error))
        else:
            return decision.result


def _refuse_uncordon(node: Node, mark: Cordon, owners: Sequence[CordonOwner], *, now: datetime) -> NodeChangeDecision:
    """Refuse to uncordon a node with an owner, but remove an earlier cordon from the recorded state."""
    names = " and ".join(owner.describe(now=now) for owner in owners)
    release_commands = "; ".join(owner.release_command for owner in owners if owner.release_command)
    advice = f"to end that: {release_commands}" if release_commands else "ask its administrator"
    change, cordon_note = None, ""
    if mark.before.unschedulable:
        change = cordon.uncordon_by_hand(node)
        cordon_note = "; the earlier cordon is removed, so the node is uncordoned when that ends"
    problem = f"it is held by {names}; {advice}; to uncordon it anyway: haulout uncordon {node.name} --force"
    return NodeChangeDecision(change, ChangeResult(node.name, problem=problem + cordon_note))


def _override_notes(owners: Sequence[CordonOwner], *, now: datetime) -> tuple[str, ...]:
    """Return the notes about owners that were overridden."""
    gone = [owner.describe(now=now) for owner in owners if owner.presence is OwnerPresence.GONE]
    present = [owner for owner in owners if owner.presence is not OwnerPresence.GONE]
    notes = [f"removed the leftovers of {' and '.join(gone)}: cordon, taints and labels"] if gone else []
    if present:
        release_commands = "; ".join(owner.release_command for owner in present if owner.release_command)
        names = " and ".join(owner.describe(now=now) for owner in present)
        again = (
            f"the operator cordons the node again until you run: {release_commands}"
            if release_commands
            else "it may cordon the node again"
        )
        notes.append(f"was held by {names}; {again}")
    return tuple(notes)


def _outlasting_cordon_notes(node: Node, mark: Cordon | None) -> tuple[str, ...]:
    if mark is None or not mark.owners:
        return ()
    names = " and ".join(owner.replace("/", " ", 1) for owner in mark.owners)
    return (f"held by {names}; it stays cordoned when that ends, until you run: haulout uncordon {node.name}",)
