"""NodeMaintenances in a whole cluster: the controller as a process, requests of users, and their status.

async with with_nodemaintenance_crd(a_cluster().with_nodes(2)).running() as cluster:
    cluster.run(run_controller)
    await create_maintenance(cluster, "n1")
    await cluster.eventually(lambda: phase(cluster), becomes="Succeeded")
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from haulout.api.nodemaintenance import (
    FINALIZER,
    NODE_MAINTENANCES,
    NodeMaintenanceConditionType,
    custom_resource_definition,
)
from haulout.api.objects import NodeConditionType, RawObject
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.budget.budget_check import WaitingList
from haulout.budget.slots import SLOT_WITHDRAWN_ANNOTATION
from haulout.budget.unavailable_nodes import RECOVERING_ANNOTATION
from haulout.controllers.nodemaintenance import node_cordon, node_lease
from haulout.controllers.nodemaintenance.controller import NodeMaintenanceController
from haulout.controllers.nodemaintenance.informers import maintenance_informer, node_cache
from haulout.controllers.nodemaintenance.node_cordon import CORDON_REQUEST, DRAIN_TAINT, OWNER_PREFIX
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.drain import cordon
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.runtime.freezes import NoFreezes
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal
from haulout.runtime.tasks import background
from haulout_sandbox.apiserver.auth.rbac import service_account_user
from support.clusters.cluster_plan import SERVICE_ACCOUNT, ClusterPlan
from support.clusters.live_cluster import RESOURCES, LiveCluster
from support.expectations.objects import condition_status, cordon_owners
from support.invariants import (
    Converges,
    EndsOrExplainsItself,
    Explanation,
    ForeignMetadataUntouched,
    GracePeriodRespected,
    Invariant,
    Maintenances,
    OneMaintenancePerNode,
    OnlyOwnCordonsRemoved,
    PodDisruptionBudgetsRespected,
    State,
)
from support.invariants.object_fields import parse_instant

PLURAL = NODE_MAINTENANCES.plural
CRD: RawObject = custom_resource_definition()
NAME = "patch"
LEASE_NAMESPACE = "medik8s-leases"
OPERATOR = service_account_user(*SERVICE_ACCOUNT).name  # who it is in the history
OPERATOR_RBAC = operator_manifests.role_objects(Installation(image="example/haulout"))
EXCLUDE_LABEL = node_cordon.EXCLUDE_LABEL
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_NEVER = datetime.max.replace(tzinfo=UTC)


# The operator


def a_controller(
    client: Client,
    journal: Journal,
    *,
    settings: NodeMaintenanceSettings | None = None,
    waiting_list: WaitingList | None = None,
) -> NodeMaintenanceController:
    """Return a controller with informers of its own."""
    return NodeMaintenanceController(
        client,
        journal=journal,
        settings=settings or NodeMaintenanceSettings(),
        nodes=node_cache(client),
        maintenances=maintenance_informer(client),
        handover=Handover(),
        waiting_list=waiting_list or WaitingList(),
        freezes=NoFreezes(),
    )


async def run_with_informers(controller: NodeMaintenanceController) -> None:
    """Run a controller and its informers of nodes and maintenances."""
    informers = controller._informers
    async with background(informers.maintenances.informer.run(), informers.nodes.informer.run()):
        await controller.run()


async def run_controller(client: Client, *, settings: NodeMaintenanceSettings | None = None) -> None:
    """Run the controller, with its events, as the operator does while it leads."""
    events = EventRecorder(client, instance="test", controller="NodeMaintenance")
    async with asyncio.TaskGroup() as group:
        recorder_task = group.create_task(events.run())
        try:
            journal = Journal("NodeMaintenance", events, metrics=client.metrics)
            await run_with_informers(a_controller(client, journal, settings=settings))
        finally:
            recorder_task.cancel()


async def run_controller_with_history(client: Client) -> None:
    """Run the controller, with its events and the history."""
    events, history = EventRecorder(client, instance="test", controller="NodeMaintenance"), HistoryWriter(client)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(component.run()) for component in (events, history)]
        try:
            journal = Journal("NodeMaintenance", events, history, metrics=client.metrics)
            await run_with_informers(a_controller(client, journal))
        finally:
            for task in tasks:
                task.cancel()


# A person


def with_nodemaintenance_crd(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan of a cluster that knows NodeMaintenances."""
    return plan.with_crd(CRD)


def with_operator_rbac(plan: ClusterPlan, rbac_objects: Sequence[RawObject] = OPERATOR_RBAC) -> ClusterPlan:
    """Return the plan with the shipped roles for the operator, and no other permissions."""
    return with_nodemaintenance_crd(plan).with_rbac(*rbac_objects)


def with_blocking_pods(plan: ClusterPlan, *nodes: str) -> ClusterPlan:
    """Put a pod on each of these nodes that its PodDisruptionBudget never allows to evict: `shop/on-n1`."""
    for node in nodes:
        pods = {"nodeSelector": {"kubernetes.io/hostname": node}}
        plan = plan.with_deployment(f"shop/on-{node}", replicas=1, budget=1, pods=pods)
    return plan


def a_maintenance(node: str, *, name: str = NAME, meta: Mapping[str, Any] | None = None, **spec: Any) -> RawObject:
    """Return a NodeMaintenance."""
    return {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": name, **(meta or {})},
        "spec": {"nodeName": node, **spec},
    }


async def create_maintenance(cluster: LiveCluster, node: str, *, name: str = NAME, **more: Any) -> None:
    """Create a NodeMaintenance."""
    await cluster.create(a_maintenance(node, name=name, **more))


async def started_by_nmo(cluster: LiveCluster, node: str, *, name: str = NAME, **status: Any) -> None:
    """Leave a maintenance and its node as the Node Maintenance Operator leaves them."""
    await cluster.create(a_maintenance(node, name=name, meta={"finalizers": [FINALIZER]}))
    patch = merge_patch({"status": {"lastUpdate": "2026-01-01T00:00:00Z", **status}})
    await cluster.admin.patch(RESOURCES[PLURAL], name, patch, subresource="status")
    spec = {
        "unschedulable": True,
        "taints": [{"key": taint.key, "effect": taint.effect} for taint in CORDON_REQUEST.taints],
    }
    await cluster.patch("nodes", node, spec=spec, metadata={"labels": dict(CORDON_REQUEST.labels)})
    await cluster.create(a_lease(node, holder=node_lease.HOLDER, now=cluster.clock.now()))


async def delete_maintenance(cluster: LiveCluster, name: str = NAME) -> None:
    """Delete a maintenance."""
    await cluster.delete(PLURAL, name)


async def wait_for_success(cluster: LiveCluster, name: str = NAME) -> None:
    """Wait until the node is empty."""
    await cluster.eventually(lambda: phase(cluster, name), becomes="Succeeded")


async def wait_until_blocked(cluster: LiveCluster, name: str = NAME) -> None:
    """Wait until its drain is blocked."""
    await cluster.eventually(lambda: condition_of(cluster, "Drained", name), becomes=("False", "Blocked"))


async def end_maintenance(cluster: LiveCluster, name: str = NAME) -> None:
    """Delete a maintenance, and wait until it is gone."""
    await delete_maintenance(cluster, name)
    await cluster.eventually(lambda: is_gone(cluster, name))


# State


def status(cluster: LiveCluster, name: str = NAME) -> RawObject:
    """Return the status of a maintenance."""
    found: RawObject = cluster.get(PLURAL, name).get("status", {})
    return found


def phase(cluster: LiveCluster, name: str = NAME) -> str:
    """Return its phase."""
    return str(status(cluster, name).get("phase", ""))


def phases(cluster: LiveCluster, name: str = NAME) -> list[str]:
    """Return its phases in order."""
    versions = [
        write.after
        for write in cluster.history
        if write.kind.plural == PLURAL and write.key == name and write.after is not None
    ]
    observed = [str(write.get("status", {}).get("phase", "")) for write in versions]
    return [now for before, now in zip(["", *observed], observed, strict=False) if now != before]


def last_error(cluster: LiveCluster, name: str = NAME) -> str:
    """Return its last error."""
    return str(status(cluster, name).get("lastError", ""))


def condition_of(cluster: LiveCluster, kind: str, name: str = NAME) -> tuple[str, str]:
    """Return status and reason of one of its conditions."""
    return condition_status(cluster.get(PLURAL, name), kind)


def event_reasons(cluster: LiveCluster, name: str = NAME, *, kind: str = "NodeMaintenance") -> list[str]:
    """Return the reasons of the Events about an object in this test, in order."""
    objects = [write.after for write in cluster.history if write.after is not None]
    uids = {obj["metadata"]["uid"] for obj in objects if obj["kind"] == kind and obj["metadata"]["name"] == name}
    found = [event for event in cluster.by_key("events").values() if _regarding(event).get("uid") in uids]
    return [event["reason"] for event in sorted(found, key=lambda obj: str(obj.get("eventTime")))]


def _regarding(event: RawObject) -> RawObject:
    found: RawObject = event.get("regarding") or event.get("involvedObject") or {}
    return found


def is_gone(cluster: LiveCluster, name: str = NAME) -> bool:
    """Return whether a maintenance is gone."""
    return not cluster.has(PLURAL, name)


def taints_of(cluster: LiveCluster, node: str) -> set[str]:
    """Return the taints of a node, as `key:effect`."""
    return _taints(cluster.get("nodes", node))


def _taints(node: RawObject) -> set[str]:
    return {f"{taint['key']}:{taint['effect']}" for taint in node["spec"].get("taints", ())}


def has_maintenance_marks(cluster: LiveCluster, node: str) -> bool:
    """Return whether a node has the cordon, the taint and the label of a maintenance."""
    return _has_all(cluster.get("nodes", node))


def _has_all(node: RawObject) -> bool:
    wanted = {f"{taint.key}:{taint.effect}" for taint in CORDON_REQUEST.taints}
    labelled = node["metadata"].get("labels", {}).get(EXCLUDE_LABEL) == "true"
    return bool(node["spec"].get("unschedulable")) and wanted <= _taints(node) and labelled


def is_released(cluster: LiveCluster, node: str) -> bool:
    """Tell whether nothing of a maintenance is left on a node."""
    found = cluster.get("nodes", node)
    cordon_taints = {f"{taint.key}:{taint.effect}" for taint in CORDON_REQUEST.taints}
    marked = {cordon.CORDON_ANNOTATION, cordon.CORDON_BACKUP_ANNOTATION, RECOVERING_ANNOTATION} & found["metadata"].get(
        "annotations", {}
    ).keys()
    labelled = EXCLUDE_LABEL in found["metadata"].get("labels", {})
    published = any(condition_status(found, kind)[0] == "True" for kind in NodeConditionType)
    return not (
        found["spec"].get("unschedulable")
        or marked
        or labelled
        or published
        or cordon_taints & taints_of(cluster, node)
    )


def lease(cluster: LiveCluster, node: str) -> RawObject:
    """Return the lease of a node."""
    return cluster.get("leases", f"{LEASE_NAMESPACE}/node-{node}")


def has_lease(cluster: LiveCluster, node: str) -> bool:
    """Tell whether a node has a lease."""
    return cluster.has("leases", f"{LEASE_NAMESPACE}/node-{node}")


def a_lease(node: str, *, holder: str, now: datetime, duration: timedelta = timedelta(hours=1)) -> RawObject:
    """Return a node's lease with another holder."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"node-{node}", "namespace": LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": round(duration.total_seconds()),
            "acquireTime": stamp,
            "renewTime": stamp,
        },
    }


# Invariants


def _is_active(obj: RawObject) -> bool:
    """Return whether it drains its node."""
    has_started = bool(obj.get("status", {}).get("drain", {}).get("startTime"))
    return has_started and not _has_ended(obj) and "deletionTimestamp" not in obj["metadata"]


def _has_ended(obj: RawObject) -> bool:
    return obj.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _explanation(obj: RawObject) -> Explanation | None:
    status_fields = obj.get("status", {})
    drained_conditions = [
        condition for condition in status_fields.get("conditions", ()) if condition["type"] == "Drained"
    ]
    if not drained_conditions:
        return None
    next_reconcile = status_fields.get("nextReconcile")
    return Explanation(
        reason=drained_conditions[0]["reason"],
        waits_for=drained_conditions[0]["message"],
        next_reconcile_at=parse_instant(next_reconcile) if next_reconcile else None,
    )


MAINTENANCES = Maintenances(
    plural=PLURAL, node=lambda obj: str(obj["spec"]["nodeName"]), is_active=_is_active, has_ended=_has_ended
)


def _undated_explanation(obj: RawObject) -> Explanation | None:
    """Return the explanation without its next reconcile, which means nothing with a wrong clock."""
    explanation = _explanation(obj)
    return (
        explanation
        if explanation is None or explanation.next_reconcile_at is None
        else replace(explanation, next_reconcile_at=_NEVER)
    )


def invariants(
    *operators: str,
    max_silence: timedelta = timedelta(seconds=30),
    knows_time: bool = True,
    may_shorten_grace: Callable[..., bool] = lambda *_: False,
) -> tuple[Invariant, ...]:
    """Return what must hold of maintenances, whatever happens; `operators` are those that are no service account.

    A maintenance may have neither an end nor an explanation for at most `max_silence`: that is how long an operator may
    be unable to write. Without `knows_time` its clock may be wrong.
    """
    names = {OPERATOR, *(operators or ("operator",))}
    own_metadata = (
        cordon.CORDON_ANNOTATION,
        cordon.CORDON_BACKUP_ANNOTATION,
        SLOT_WITHDRAWN_ANNOTATION,
        RECOVERING_ANNOTATION,
        EXCLUDE_LABEL,
        f"{DRAIN_TAINT.key}:*",
        f"{UNSCHEDULABLE}:*",
        FINALIZER,
        *NodeConditionType,
        *(f"{PLURAL}/{item}" for item in NodeMaintenanceConditionType),
    )
    return (
        PodDisruptionBudgetsRespected(),
        OnlyOwnCordonsRemoved(operator=names, owners=cordon_owners),
        ForeignMetadataUntouched(operator=names, ours=own_metadata),
        GracePeriodRespected(operator=names, may_shorten_grace=may_shorten_grace),
        OneMaintenancePerNode(maintenances=(MAINTENANCES,)),
        EndsOrExplainsItself(
            maintenances=MAINTENANCES,
            explanation=_explanation if knows_time else _undated_explanation,
            within=max_silence,
        ),
    )


def convergence_problem(state: State) -> str:
    """Return the difference from the desired state; empty if there is none."""
    maintenances = state.by_key(PLURAL)
    for name, obj in maintenances.items():
        node, status_fields = state.get("nodes", str(obj["spec"]["nodeName"])), obj.get("status", {})
        if "deletionTimestamp" in obj["metadata"]:
            return f"NodeMaintenance {name} is not gone"
        if status_fields.get("phase") != "Succeeded" or status_fields.get("lastError"):
            return f"NodeMaintenance {name} is {status_fields.get('phase')}: {status_fields.get('lastError')}"
        if node is None or not _has_all(node):
            return f"the node of NodeMaintenance {name} is not taken"
    for name, node in state.by_key("nodes").items():
        stale_owners = {item.removeprefix(OWNER_PREFIX) for item in cordon_owners(node)} - set(maintenances)
        if stale_owners:
            return f"node {name} is held for {sorted(stale_owners)}, and nobody of them is there"
    wanted = {node_lease.lease_name(str(item["spec"]["nodeName"])) for item in maintenances.values()}
    left = [
        item
        for item in state.by_key("leases")
        if item.startswith(f"{LEASE_NAMESPACE}/") and item.partition("/")[2] not in wanted
    ]
    return f"leases are left: {left}" if left else ""


async def assert_converges(cluster: LiveCluster, *, within: timedelta = timedelta(minutes=2)) -> None:
    """Check that the desired state is reached soon from now on, and kept."""
    since = cluster.clock.now()
    await cluster.clock.sleep(within + timedelta(seconds=30))
    kinds = frozenset({PLURAL, "nodes", "leases"})
    cluster.assert_invariants(
        Converges(problem=convergence_problem, plurals=kinds, faults_stopped_at=since, within=within)
    )


def cordon_owner(name: str = NAME) -> str:
    """Return the name under which a maintenance holds its node."""
    return f"{OWNER_PREFIX}{name}"
