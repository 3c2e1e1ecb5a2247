"""What Haulout has left in a cluster for an owner that is no more: marks, copies, taints, labels, slots and leases.

    found = await examine(client, namespace="haulout")
    for finding in found.findings: await finding.repair()

A finding is about something that nobody holds. What a live owner holds is never one, and what cannot be told, since it
may not be seen, is a note. Each repair carries what it rests on: the uid and resourceVersion of the object, or a
compare-and-swap of the ledger. So it changes nothing that somebody else has changed meanwhile.

A node is restored by its mark. Where that is lost, the cordon stays, unless the taint of a NodeMaintenance beside it
tells that it is ours.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

from haulout.budget.away import RECOVERING, is_taken_by, recovering_of
from haulout.budget.cordon_copies import CONFIG_MAP
from haulout.budget.slots import LEDGER, WITHDRAWN, cause_of
from haulout.cli.holders import Presence, judged
from haulout.drain import cordon
from haulout.drain.cordon import BACKUP, MARK, BadMark
from haulout.errors import Conflict, Forbidden, GarbledAnswer, KubeError, NotFound
from haulout.kube.cache import revision
from haulout.kube.client import Client
from haulout.kube.ledger import LEDGERS, BadLedger, Ledger, Slot, ledger_name
from haulout.kube.objects import Lease, Node, RawObject
from haulout.kube.patches import merge_patch, node_patch
from haulout.kube.resources import LEASES, NODES
from haulout.maintenance import recovery
from haulout.maintenance.holding import OWNER_PREFIX, WISHES
from haulout.maintenance.lease import HOLDER, NAMESPACE, name_of
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance

T = TypeVar("T")
Maintenances = Mapping[str, NodeMaintenance]

_TRIES = 5  # against others who change the same object
_RESTORES = "restores the node to what it was before: cordon, taints and labels"
_CLEARS = "removes the annotation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something of ours that nobody holds."""

    about: str  # such as `node n1`
    problem: str
    remedy: str  # what a repair does
    since: datetime | None = None
    repair: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, and what could not be looked at."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Notes:
    lines: list[str] = field(default_factory=list)

    async def seen(self, asked: Awaitable[T], what: str, *, absent: T) -> T | None:
        """Return what is there; `absent` if there is no such thing, None and a note if it may not be seen."""
        try:
            return await asked
        except NotFound:
            return absent
        except Forbidden as error:
            self.lines.append(f"{what} were not checked: {error.message}")
            return None


async def examine(client: Client, *, namespace: str | None = None, lease_namespace: str = NAMESPACE) -> Examination:
    """Return what is left in a cluster; `namespace` is where the operator is, by default any that has a ledger."""
    notes = _Notes()
    nodes = {it.name: it for it in (await client.list(NODES)).items}
    what = "NodeMaintenances, and what is left of them,"
    maintenances: Maintenances | None = await notes.seen(_maintenances(client), what, absent={})
    findings: list[Finding] = []
    for node in nodes.values():
        findings += _on_node(client, node, maintenances)
    for home in await notes.seen(_homes(client, namespace, ledger_name(LEDGER)), "budget slots", absent=()) or ():
        slots = await notes.seen(_slots(client, home, notes), f"budget slots in namespace {home}", absent=())
        findings += [_void(client, home, it, nodes.get(it.name)) for it in slots or () if _is_void(it, nodes)]
    for home in await notes.seen(_homes(client, namespace, CONFIG_MAP), "copies of cordon marks", absent=()) or ():
        copies = await notes.seen(_copies(client, home), f"copies of cordon marks in namespace {home}", absent={})
        findings += [_stale(client, home, key, at) for key, at in (copies or {}).items() if _is_stale(key, nodes)]
    if maintenances is not None:
        leases = await notes.seen(_leases(client, lease_namespace), f"leases in namespace {lease_namespace}", absent=())
        findings += [_left(client, it) for it in leases or () if _is_left(it, maintenances)]
    return Examination(tuple(findings), tuple(notes.lines))


async def repair(client: Client, finding: Finding, *, namespace: str | None = None) -> None:
    """Repair something; if the object has changed meanwhile, look again whether that is still to be done."""
    for _ in range(_TRIES):
        with suppress(NotFound):  # it is gone
            try:
                await finding.repair()
            except Conflict:
                again = (await examine(client, namespace=namespace)).findings
                key = finding.about, finding.problem
                left = [it for it in again if (it.about, it.problem) == key]
                if not left:
                    return
                finding = left[0]
                continue
        return
    raise KubeError(f"{finding.about}: others keep changing it")


async def _homes(client: Client, namespace: str | None, name: str) -> tuple[str, ...]:
    """Return the namespaces that may have a ConfigMap of this name."""
    if namespace is not None:
        return (namespace,)
    found = await client.list(LEDGERS, fields=f"metadata.name={name}")
    return tuple(it.namespace for it in found.items)


async def _maintenances(client: Client) -> Maintenances:
    return {it.name: it for it in (await client.list(NODE_MAINTENANCES)).items}


async def _leases(client: Client, namespace: str) -> tuple[Lease, ...]:
    return (await client.list(LEASES, namespace=namespace)).items


async def _slots(client: Client, namespace: str, notes: _Notes) -> tuple[Slot, ...]:
    try:
        return await Ledger(client, namespace=namespace).slots(LEDGER)
    except BadLedger as error:
        notes.lines.append(str(error))
        return ()


# Nodes


def _on_node(client: Client, node: Node, maintenances: Maintenances | None) -> Iterator[Finding]:
    annotations, ordered = node.metadata.annotations, _is_ordered(node, maintenances)
    try:
        mark = cordon.cordon_of(node)
    except BadMark:
        if not ordered:
            yield _about(client, node, f"annotation {MARK} cannot be read, and no backup is there", *_unmarked(node))
        return
    if mark is not None:
        for holder in judged(mark, node, maintenances):
            if holder.presence is Presence.GONE:
                wishes = WISHES if holder.owner.startswith(OWNER_PREFIX) else cordon.NOTHING
                change = cordon.release(node, holder.owner, wishes=wishes)
                problem = f"held for {holder.name}, which is no more"
                yield _about(client, node, problem, change, _RESTORES, since=holder.since)
    elif left := sorted({MARK, BACKUP} & annotations.keys()):
        yield _about(client, node, f"{' and '.join(left)} without a holder", _without(node, *left), _CLEARS)
    orders = [] if mark is None else [it for it in mark.owners if it.startswith(OWNER_PREFIX)]
    if cordon.has_drain_taint(node) and not orders and not ordered:
        yield _about(client, node, f"taint {cordon.DRAIN_TAINT.key} without a NodeMaintenance", *_unmarked(node))
    if WITHDRAWN in annotations:
        yield _about(client, node, f"annotation {WITHDRAWN} was left behind", _without(node, WITHDRAWN), _CLEARS)
    if maintenances is not None:
        yield from _recovering(client, node, maintenances)


def _recovering(client: Client, node: Node, maintenances: Maintenances) -> Iterator[Finding]:
    for name in recovering_of(node):
        if name not in maintenances:
            problem = f"annotation {RECOVERING} names NodeMaintenance {name}, which is no more"
            yield _about(client, node, problem, recovery.unmarked(node, name), "removes the name from the annotation")


def _is_ordered(node: Node, maintenances: Maintenances | None) -> bool:
    """Tell whether a NodeMaintenance sees to a node, or may: then its operator repairs what is wrong with it."""
    return maintenances is None or any(it.node == node.name for it in maintenances.values())


def _unmarked(node: Node) -> tuple[RawObject | None, str]:
    """Return how a node is repaired without a mark, and in words."""
    if not cordon.has_drain_taint(node):
        return _without(node, MARK, BACKUP), f"{_CLEARS}; a cordon stays, as it may be a person's"
    before = cordon.untouched(WISHES)
    change = cordon.release(node, OWNER_PREFIX, wishes=WISHES, before=before)
    return change, "removes our annotations, taints and label, and the cordon that came with them"


def _without(node: Node, *annotations: str) -> RawObject:
    basis = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": {**basis, "annotations": dict.fromkeys(annotations)}}


def _about(
    client: Client, node: Node, problem: str, change: RawObject | None, remedy: str, *, since: datetime | None = None
) -> Finding:
    repair = partial(client.patch, NODES, node.name, node_patch(change or _without(node)))
    return Finding(about=f"node {node.name}", problem=problem, remedy=remedy, since=since, repair=repair)


# Slots and leases


def _is_void(slot: Slot, nodes: Mapping[str, Node]) -> bool:
    """Tell whether a slot is void by the rules of `haulout.budget.slots`."""
    node = nodes.get(slot.name)
    if node is None or node.uid != slot.uid:
        return True
    try:
        is_later = revision(node.resource_version) > revision(slot.version)
    except GarbledAnswer:  # somebody edited the ledger: it cannot be proved
        return False
    return is_later and not is_taken_by(cause_of(slot), node)


def _void(client: Client, namespace: str, slot: Slot, node: Node | None) -> Finding:
    is_gone = node is None or node.uid != slot.uid
    why = "the node is gone" if is_gone else "the node is back in service"
    return Finding(
        about=f"slot of node {slot.name} in ConfigMap {namespace}/{ledger_name(LEDGER)}",
        problem=f"held by {cause_of(slot)}, but {why}",
        remedy="gives the slot back",
        since=slot.since,
        repair=partial(Ledger(client, namespace=namespace).give_back, LEDGER, lambda it: it == slot),
    )


async def _copies(client: Client, namespace: str) -> dict[str, str]:
    """Return the resourceVersion of the ConfigMap that keeps copies, by key of each copy."""
    found = await client.get(LEDGERS, CONFIG_MAP, namespace=namespace)
    return dict.fromkeys(found.data, found.resource_version)


def _is_stale(key: str, nodes: Mapping[str, Node]) -> bool:
    """Tell whether a copy is of a node that is gone, or that is schedulable and has no mark: nobody holds it."""
    uid = key.rpartition(".")[0]
    node = next((it for it in nodes.values() if it.uid == uid), None)
    return node is None or not (node.spec.unschedulable or MARK in node.metadata.annotations)


def _stale(client: Client, namespace: str, key: str, version: str) -> Finding:
    patch = merge_patch({"metadata": {"resourceVersion": version}, "data": {key: None}})
    return Finding(
        about=f"copy {key} in ConfigMap {namespace}/{CONFIG_MAP}",
        problem="the node of this cordon mark is gone, or nobody holds it",
        remedy="removes the copy",
        repair=partial(client.patch, LEDGERS, CONFIG_MAP, patch, namespace=namespace),
    )


def _is_left(lease: Lease, maintenances: Maintenances) -> bool:
    is_ours = lease.spec.holder_identity == HOLDER
    return is_ours and all(name_of(it.node) != lease.name for it in maintenances.values())


def _left(client: Client, lease: Lease) -> Finding:
    delete = partial(client.delete, LEASES, lease.name, namespace=lease.namespace)
    return Finding(
        about=f"lease {lease.key}",
        problem=f"held by {HOLDER} without a NodeMaintenance for the node",
        remedy="deletes the lease",
        since=lease.spec.acquire_time,
        repair=partial(delete, uid=lease.uid, resource_version=lease.resource_version),
    )
