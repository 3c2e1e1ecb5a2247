"""Leftovers of deleted owners in a cluster: annotations, copies, taints, labels, slots and leases.

    examination = await examine(client, namespace="haulout")
    for finding in examination.findings:
        await repair(client, finding, namespace="haulout")

A finding is something without an owner. Anything of an existing owner is never a finding; anything that is forbidden to
read is a note. Each repair has preconditions: the uid and resourceVersion of the object, or a compare-and-swap of the
ledger. So it never overwrites concurrent changes.

A node is restored from its annotation. If that is lost, the cordon stays, unless the taint of a NodeMaintenance proves
that the cordon is ours.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance
from haulout.api.objects import Lease, Node, RawObject
from haulout.api.resources import LEASES, NODES
from haulout.budget.cordon_copies import CONFIG_MAP
from haulout.budget.slots import LEDGER, SLOT_WITHDRAWN_ANNOTATION, cause_of
from haulout.budget.unavailable_nodes import (
    RECOVERING_ANNOTATION,
    is_under_maintenance_by,
    recovering_node_maintenances_of,
)
from haulout.cli.cordon_owners import OwnerPresence, owners_of_mark
from haulout.controllers.nodemaintenance import recovery
from haulout.controllers.nodemaintenance.node_cordon import CORDON_REQUEST, OWNER_PREFIX
from haulout.controllers.nodemaintenance.node_lease import HOLDER, NAMESPACE, lease_name
from haulout.drain import cordon
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION, InvalidCordonAnnotation
from haulout.errors import Conflict, Forbidden, KubeError, MalformedResponse, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import revision
from haulout.kube.patches import merge_patch, node_patch
from haulout.kube.slot_ledger import CONFIG_MAPS, CorruptLedger, Slot, SlotLedger, ledger_name

T = TypeVar("T")
Maintenances = Mapping[str, NodeMaintenance]

_TRIES = 5  # on conflicts with concurrent changes
_RESTORE_REMEDY = "restores the node to what it was before: cordon, taints and labels"
_REMOVE_ANNOTATION_REMEDY = "removes the annotation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something of ours without an owner."""

    object_name: str  # such as `node n1`
    problem: str
    remedy: str  # what the repair does
    since: datetime | None = None
    repair: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings, and what could not be checked."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _NotingReader:
    lines: list[str] = field(default_factory=list)

    async def read(self, request: Awaitable[T], kind: str, *, absent: T) -> T | None:
        """Return the result; `absent` if the object or kind does not exist; None, with a note, if it is forbidden."""
        try:
            return await request
        except NotFound:
            return absent
        except Forbidden as error:
            self.lines.append(f"{kind} were not checked: {error.message}")
            return None


async def examine(client: Client, *, namespace: str | None = None, lease_namespace: str = NAMESPACE) -> Examination:
    """Return the leftovers; `namespace` is the operator's, by default any with a ledger."""
    notes = _NotingReader()
    nodes = {item.name: item for item in (await client.list(NODES)).items}
    maintenances_text = "NodeMaintenances and their leftovers"
    maintenances: Maintenances | None = await notes.read(_list_maintenances(client), maintenances_text, absent={})
    findings: list[Finding] = []
    for node in nodes.values():
        findings += _node_findings(client, node, maintenances)
    for home_namespace in (
        await notes.read(_operator_namespaces(client, namespace, ledger_name(LEDGER)), "budget slots", absent=()) or ()
    ):
        slots = await notes.read(
            _list_slots(client, home_namespace, notes), f"budget slots in namespace {home_namespace}", absent=()
        )
        findings += [
            _slot_finding(client, home_namespace, item, nodes.get(item.name))
            for item in slots or ()
            if _is_stale_slot(item, nodes)
        ]
    for home_namespace in (
        await notes.read(_operator_namespaces(client, namespace, CONFIG_MAP), "copies of cordon marks", absent=()) or ()
    ):
        copies = await notes.read(
            _list_mark_copies(client, home_namespace),
            f"copies of cordon marks in namespace {home_namespace}",
            absent={},
        )
        findings += [
            _copy_finding(client, home_namespace, key, version)
            for key, version in (copies or {}).items()
            if _is_stale_copy(key, nodes)
        ]
    if maintenances is not None:
        leases = await notes.read(
            _list_leases(client, lease_namespace), f"leases in namespace {lease_namespace}", absent=()
        )
        findings += [_lease_finding(client, item) for item in leases or () if _is_stale_lease(item, maintenances)]
    return Examination(tuple(findings), tuple(notes.lines))


async def repair(client: Client, finding: Finding, *, namespace: str | None = None) -> None:
    """Repair a finding; after a conflict, examine again whether it still applies."""
    for _ in range(_TRIES):
        with suppress(NotFound):  # deleted meanwhile
            try:
                await finding.repair()
            except Conflict:
                current = (await examine(client, namespace=namespace)).findings
                key = finding.object_name, finding.problem
                remaining = [other for other in current if (other.object_name, other.problem) == key]
                if not remaining:
                    return
                finding = remaining[0]
                continue
        return
    raise KubeError(f"{finding.object_name}: failed after repeated write conflicts")


async def _operator_namespaces(client: Client, namespace: str | None, name: str) -> tuple[str, ...]:
    """Return the namespaces that may have a ConfigMap of this name."""
    if namespace is not None:
        return (namespace,)
    found = await client.list(CONFIG_MAPS, fields=f"metadata.name={name}")
    return tuple(config_map.namespace for config_map in found.items)


async def _list_maintenances(client: Client) -> Maintenances:
    return {maintenance.name: maintenance for maintenance in (await client.list(NODE_MAINTENANCES)).items}


async def _list_leases(client: Client, namespace: str) -> tuple[Lease, ...]:
    return (await client.list(LEASES, namespace=namespace)).items


async def _list_slots(client: Client, namespace: str, notes: _NotingReader) -> tuple[Slot, ...]:
    try:
        return await SlotLedger(client, namespace=namespace).slots(LEDGER)
    except CorruptLedger as error:
        notes.lines.append(str(error))
        return ()


# Nodes


def _node_findings(client: Client, node: Node, maintenances: Maintenances | None) -> Iterator[Finding]:
    annotations, is_ordered = node.metadata.annotations, _is_ordered(node, maintenances)
    try:
        mark = cordon.cordon_of(node)
    except InvalidCordonAnnotation:
        if not is_ordered:
            yield _node_finding(
                client,
                node,
                f"annotation {CORDON_ANNOTATION} cannot be read, and there is no backup",
                *_repair_without_mark(node),
            )
        return
    if mark is not None:
        for owner in owners_of_mark(mark, node, maintenances):
            if owner.presence is OwnerPresence.GONE:
                requested = CORDON_REQUEST if owner.owner.startswith(OWNER_PREFIX) else cordon.EMPTY_REQUEST
                change = cordon.release(node, owner.owner, requested=requested)
                problem = f"held for {owner.name}, which no longer exists"
                yield _node_finding(client, node, problem, change, _RESTORE_REMEDY, since=owner.since)
    elif annotations_left := sorted({CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION} & annotations.keys()):
        yield _node_finding(
            client,
            node,
            f"{' and '.join(annotations_left)} without an owner",
            _remove_annotations(node, *annotations_left),
            _REMOVE_ANNOTATION_REMEDY,
        )
    maintenance_owners = [] if mark is None else [name for name in mark.owners if name.startswith(OWNER_PREFIX)]
    if cordon.has_drain_taint(node) and not maintenance_owners and not is_ordered:
        yield _node_finding(
            client, node, f"taint {cordon.DRAIN_TAINT.key} without a NodeMaintenance", *_repair_without_mark(node)
        )
    if SLOT_WITHDRAWN_ANNOTATION in annotations:
        yield _node_finding(
            client,
            node,
            f"annotation {SLOT_WITHDRAWN_ANNOTATION} is a leftover",
            _remove_annotations(node, SLOT_WITHDRAWN_ANNOTATION),
            _REMOVE_ANNOTATION_REMEDY,
        )
    if maintenances is not None:
        yield from _recovery_findings(client, node, maintenances)


def _recovery_findings(client: Client, node: Node, maintenances: Maintenances) -> Iterator[Finding]:
    for name in recovering_node_maintenances_of(node):
        if name not in maintenances:
            problem = f"annotation {RECOVERING_ANNOTATION} names NodeMaintenance {name}, which no longer exists"
            yield _node_finding(
                client,
                node,
                problem,
                recovery.remove_recovering_patch(node, name),
                "removes the name from the annotation",
            )


def _is_ordered(node: Node, maintenances: Maintenances | None) -> bool:
    """Return whether a NodeMaintenance is or may be responsible for a node: then the operator repairs the node."""
    return maintenances is None or any(maintenance.node == node.name for maintenance in maintenances.values())


def _repair_without_mark(node: Node) -> tuple[RawObject | None, str]:
    """Return the patch that repairs a node without its annotation, and its description."""
    if not cordon.has_drain_taint(node):
        return _remove_annotations(
            node, CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION
        ), f"{_REMOVE_ANNOTATION_REMEDY}; a cordon stays, because a user may have set it"
    before = cordon.unmodified_state(CORDON_REQUEST)
    change = cordon.release(node, OWNER_PREFIX, requested=CORDON_REQUEST, before=before)
    return change, "removes the annotations, taints and label of Haulout, and the cordon that was set with them"


def _remove_annotations(node: Node, *annotations: str) -> RawObject:
    return {"metadata": {**node.preconditions, "annotations": dict.fromkeys(annotations)}}


def _node_finding(
    client: Client, node: Node, problem: str, change: RawObject | None, remedy: str, *, since: datetime | None = None
) -> Finding:
    repair = partial(client.patch, NODES, node.name, node_patch(change or _remove_annotations(node)))
    return Finding(object_name=f"node {node.name}", problem=problem, remedy=remedy, since=since, repair=repair)


# Slots and leases


def _is_stale_slot(slot: Slot, nodes: Mapping[str, Node]) -> bool:
    """Return whether a slot is void by the rules of `haulout.budget.slots`."""
    node = nodes.get(slot.name)
    if node is None or node.uid != slot.uid:
        return True
    try:
        is_later = revision(node.resource_version) > revision(slot.version)
    except MalformedResponse:  # an edited ledger: it proves nothing
        return False
    return is_later and not is_under_maintenance_by(cause_of(slot), node)


def _slot_finding(client: Client, namespace: str, slot: Slot, node: Node | None) -> Finding:
    is_node_gone = node is None or node.uid != slot.uid
    why = "the node was deleted" if is_node_gone else "the node is back in service"
    return Finding(
        object_name=f"slot of node {slot.name} in ConfigMap {namespace}/{ledger_name(LEDGER)}",
        problem=f"held by {cause_of(slot)}, but {why}",
        remedy="releases the slot",
        since=slot.since,
        repair=partial(SlotLedger(client, namespace=namespace).release, LEDGER, lambda other: other == slot),
    )


async def _list_mark_copies(client: Client, namespace: str) -> dict[str, str]:
    """Return the resourceVersion of the ConfigMap with the copies, by key of each copy."""
    found = await client.get(CONFIG_MAPS, CONFIG_MAP, namespace=namespace)
    return dict.fromkeys(found.data, found.resource_version)


def _is_stale_copy(key: str, nodes: Mapping[str, Node]) -> bool:
    """Return whether the node of a copy is deleted, or schedulable and without a cordon annotation."""
    uid = key.rpartition(".")[0]
    node = next((candidate for candidate in nodes.values() if candidate.uid == uid), None)
    return node is None or not (node.spec.unschedulable or CORDON_ANNOTATION in node.metadata.annotations)


def _copy_finding(client: Client, namespace: str, key: str, version: str) -> Finding:
    patch = merge_patch({"metadata": {"resourceVersion": version}, "data": {key: None}})
    return Finding(
        object_name=f"copy {key} in ConfigMap {namespace}/{CONFIG_MAP}",
        problem="the node of this cordon mark was deleted, or has no cordon owner",
        remedy="removes the copy",
        repair=partial(client.patch, CONFIG_MAPS, CONFIG_MAP, patch, namespace=namespace),
    )


def _is_stale_lease(lease: Lease, maintenances: Maintenances) -> bool:
    is_haulout_lease = lease.spec.holder_identity == HOLDER
    return is_haulout_lease and all(lease_name(maintenance.node) != lease.name for maintenance in maintenances.values())


def _lease_finding(client: Client, lease: Lease) -> Finding:
    delete = partial(client.delete, LEASES, lease.name, namespace=lease.namespace)
    return Finding(
        object_name=f"lease {lease.key}",
        problem=f"held by {HOLDER} without a NodeMaintenance for the node",
        remedy="deletes the lease",
        since=lease.spec.acquire_time,
        repair=partial(delete, uid=lease.uid, resource_version=lease.resource_version),
    )
