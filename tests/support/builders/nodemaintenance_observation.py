"""Observations of the NodeMaintenance controller (maintenances, nodes, leases, drains) for tests of its decisions."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.api.nodemaintenance import FINALIZER, NodeMaintenance
from haulout.api.objects import Lease, Node, RawObject
from haulout.controllers.nodemaintenance.node_cordon import CORDON_REQUEST, owner_name
from haulout.controllers.nodemaintenance.node_lease import HOLDER
from haulout.controllers.nodemaintenance.observation import Observation
from haulout.drain import cordon
from haulout.drain.manager import DrainSnapshot
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import DrainOutcome, DrainProgress, OutcomeResult, PodDrainState, PodProgress
from haulout_sandbox.event_loops.virtual_time import EPOCH

NOW = EPOCH
HOUR = timedelta(hours=1)


def apply_merge_patch(target: Any, patch: RawObject) -> RawObject:
    """Return an object after a merge patch, as a server applies it."""
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = apply_merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def a_maintenance(
    name: str = "patch",
    *,
    phase: str = "Running",
    conditions: Mapping[str, tuple[str, str]] | None = None,
    is_terminating: bool = False,
    since: datetime = NOW - HOUR,
    spec: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    **status: Any,
) -> NodeMaintenance:
    """Return a maintenance with this status; `conditions` are status and reason by type."""
    condition_list = [
        {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": f"{reason} it is",
            "lastTransitionTime": since,
            "observedGeneration": 1,
        }
        for kind, (value, reason) in (conditions or {}).items()
    ]
    raw = {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": since,
            "deletionTimestamp": NOW if is_terminating else None,
            "finalizers": [FINALIZER],
            **(meta or {}),
        },
        "spec": {"nodeName": "n1", **(spec or {})},
        "status": {"phase": phase, "conditions": condition_list, **status},
    }
    return msgspec.convert(raw, NodeMaintenance)


RUNNING_CONDITIONS: Mapping[str, tuple[str, str]] = {"Leased": ("True", "Acquired"), "Cordoned": ("True", "Cordoned")}


def a_node(name: str = "n1", *, held_by: tuple[str, ...] = (), adopted: bool = False, **fields: Any) -> Node:
    """Return a node, held for these maintenances; `adopted` as the Node Maintenance Operator leaves one."""
    metadata = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "7", **fields.pop("metadata", {})}
    node = msgspec.convert({"metadata": metadata, **fields}, Node)
    if adopted:
        spec = msgspec.structs.replace(node.spec, unschedulable=True, taints=(*CORDON_REQUEST.taints,))
        node = msgspec.structs.replace(node, spec=spec)
    for holder in held_by:
        node = patched_node(
            node, cordon.acquire(node, owner_name(a_maintenance(holder)), CORDON_REQUEST, now=NOW - HOUR)
        )
    return node


def patched_node(node: Node, change: RawObject | None) -> Node:
    """Return what a merge patch makes of a node."""
    return msgspec.convert(apply_merge_patch(msgspec.to_builtins(node), msgspec.to_builtins(change or {})), Node)


def a_lease(holder: str = HOLDER, *, age: timedelta = timedelta(minutes=1), node: str = "n1") -> Lease:
    """Return the lease of a node, renewed so long ago."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": NOW - age, "acquireTime": NOW - age}
    metadata = {"name": f"node-{node}", "namespace": "medik8s-leases", "uid": f"lease-of-{node}"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Lease)


def a_drain(
    *pods: str,
    gone: int = 0,
    waiting: bool = False,
    ending: OutcomeResult | None = None,
    policy: DrainPolicy | None = None,
    node: str = "n1",
    **progress: Any,
) -> DrainSnapshot:
    """Return a drain that still has to evict these pods."""
    rows = tuple(
        PodProgress(pod=pod, uid=f"uid-of-{pod}", state=PodDrainState.EVICTING, message="is asked") for pod in pods
    )
    total = gone + len(rows)
    current_progress = DrainProgress(
        node=node, started=NOW, pods=rows, gone=gone, total=total, percent=100 * gone // total if total else 0,
        is_known=True,
    )  # fmt: skip
    current_progress = replace(current_progress, **progress)
    return DrainSnapshot(
        node_uid=f"uid-of-{node}",
        policy=DrainPolicy.like_nmo() if policy is None else policy,
        progress=current_progress,
        outcome=None if ending is None else DrainOutcome(ending, f"it {ending}", current_progress),
        is_waiting=waiting,
        pods_on_node=total,
    )


def an_observation(maintenance: NodeMaintenance | None = None, **more: Any) -> Observation:
    """Return an observation of a maintenance in progress, with these fields changed."""
    maintenance = a_maintenance(conditions=RUNNING_CONDITIONS) if maintenance is None else maintenance
    defaults: dict[str, Any] = {
        "node": a_node(held_by=(maintenance.name,)),
        "lease": a_lease(),
        "drain": a_drain("shop/cart"),
        "now": NOW,
        "may_publish_conditions": False,  # tests of conditions set them
    }
    return Observation(maintenance=maintenance, **(defaults | more))
