"""NodeMaintenances in a whole cluster: the operator as a process, what a person orders, and how that stands.

async with maintained(a_cluster().with_nodes(2)).running() as cluster:
    cluster.run(operate)
    await order(cluster, "n1")
    await cluster.eventually(lambda: phase(cluster), becomes="Succeeded")
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from haulout.app import manifests
from haulout.app.manifests import Installation
from haulout.budget.away import RECOVERING
from haulout.budget.slots import WITHDRAWN
from haulout.drain import cordon
from haulout.drain.lifecycle import NodeCondition
from haulout.history.keeper import Keeper
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.maintenance import holding
from haulout.maintenance import lease as node_lease
from haulout.maintenance.controller import Controller, Settings
from haulout.maintenance.holding import DRAIN_TAINT, OWNER_PREFIX, WISHES
from haulout.maintenance.resource import FINALIZER, NODE_MAINTENANCES, ConditionType, definition
from haulout_sandbox.apiserver.rbac import account_user
from support.clusters import ACCOUNT, ClusterPlan
from support.invariants import (
    Converges,
    EndsOrExplains,
    Explanation,
    ForeignThingsUntouched,
    GraceHonoured,
    Invariant,
    Maintenances,
    OneMaintenancePerNode,
    OnlyOurCordonsLifted,
    PodBudgetsKept,
    State,
)
from support.invariants.reading import instant
from support.live import RESOURCES, LiveCluster
from support.looking import condition, cordon_owners

PLURAL = NODE_MAINTENANCES.plural
DEFINITION: RawObject = definition()
NAME = "patch"
LEASES = "medik8s-leases"
OPERATOR = account_user(*ACCOUNT).name  # who it is in the history
RIGHTS = manifests.permissions(Installation(image="example/haulout"))
EXCLUDE_LABEL = holding.EXCLUDE_LABEL
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_NEVER = datetime.max.replace(tzinfo=UTC)


# The operator


async def operate(client: Client, *, settings: Settings | None = None) -> None:
    """Run the controller, with its events, as the operator does while it leads."""
    events = EventRecorder(client, instance="test", controller="NodeMaintenance")
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(events.run())
        try:
            await Controller(client, events=events, settings=settings).run()
        finally:
            sending.cancel()


async def operate_with_history(client: Client) -> None:
    """Run the controller, with its events, and write down what happens."""
    events, history = EventRecorder(client, instance="test", controller="NodeMaintenance"), Keeper(client)
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(it.run()) for it in (events, history)]
        try:
            await Controller(client, events=events, history=history).run()
        finally:
            for task in beside:
                task.cancel()


# A person


def maintained(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan of a cluster that knows NodeMaintenances."""
    return plan.with_definition(DEFINITION)


def entitled(plan: ClusterPlan, rights: Sequence[RawObject] = RIGHTS) -> ClusterPlan:
    """Return the same where the operator may do what the roles say that we ship, and nothing else."""
    return maintained(plan).with_rights(*rights)


def blocked_on(plan: ClusterPlan, *nodes: str) -> ClusterPlan:
    """Put a pod onto each of the nodes that its budget does not let go: `shop/on-n1`."""
    for node in nodes:
        pods = {"nodeSelector": {"kubernetes.io/hostname": node}}
        plan = plan.with_deployment(f"shop/on-{node}", replicas=1, budget=1, pods=pods)
    return plan


def a_maintenance(node: str, *, name: str = NAME, meta: Mapping[str, Any] | None = None, **spec: Any) -> RawObject:
    """Return an order to take a node out of service."""
    return {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": name, **(meta or {})},
        "spec": {"nodeName": node, **spec},
    }


async def order(cluster: LiveCluster, node: str, *, name: str = NAME, **more: Any) -> None:
    """Order a maintenance."""
    await cluster.create(a_maintenance(node, name=name, **more))


async def begun_by_nmo(cluster: LiveCluster, node: str, *, name: str = NAME, **status: Any) -> None:
    """Leave a maintenance and its node as the Node Maintenance Operator leaves them."""
    await cluster.create(a_maintenance(node, name=name, meta={"finalizers": [FINALIZER]}))
    said = merge_patch({"status": {"lastUpdate": "2026-01-01T00:00:00Z", **status}})
    await cluster.me.patch(RESOURCES[PLURAL], name, said, subresource="status")
    spec = {"unschedulable": True, "taints": [{"key": it.key, "effect": it.effect} for it in WISHES.taints]}
    await cluster.change("nodes", node, spec=spec, metadata={"labels": dict(WISHES.labels)})
    await cluster.create(a_lease(node, holder=node_lease.HOLDER, now=cluster.clock.now()))


async def countermand(cluster: LiveCluster, name: str = NAME) -> None:
    """Delete a maintenance."""
    await cluster.delete(PLURAL, name)


async def succeeded(cluster: LiveCluster, name: str = NAME) -> None:
    """Wait until the node is empty."""
    await cluster.eventually(lambda: phase(cluster, name), becomes="Succeeded")


async def is_blocked(cluster: LiveCluster, name: str = NAME) -> None:
    """Wait until it tells that something stands in the way."""
    await cluster.eventually(lambda: says(cluster, "Drained", name), becomes=("False", "Blocked"))


async def over(cluster: LiveCluster, name: str = NAME) -> None:
    """Delete a maintenance, and wait until it is gone."""
    await countermand(cluster, name)
    await cluster.eventually(lambda: is_gone(cluster, name))


# How it stands


def status(cluster: LiveCluster, name: str = NAME) -> RawObject:
    """Return the status of a maintenance."""
    found: RawObject = cluster.get(PLURAL, name).get("status", {})
    return found


def phase(cluster: LiveCluster, name: str = NAME) -> str:
    """Return its phase."""
    return str(status(cluster, name).get("phase", ""))


def phases(cluster: LiveCluster, name: str = NAME) -> list[str]:
    """Return the phases that it went through."""
    mine = [it.after for it in cluster.history if it.kind.plural == PLURAL and it.key == name and it.after is not None]
    said = [str(it.get("status", {}).get("phase", "")) for it in mine]
    return [now for before, now in zip(["", *said], said, strict=False) if now != before]


def last_error(cluster: LiveCluster, name: str = NAME) -> str:
    """Return what it says went wrong."""
    return str(status(cluster, name).get("lastError", ""))


def says(cluster: LiveCluster, kind: str, name: str = NAME) -> tuple[str, str]:
    """Return status and reason of one of its conditions."""
    return condition(cluster.get(PLURAL, name), kind)


def events(cluster: LiveCluster, name: str = NAME, *, kind: str = "NodeMaintenance") -> list[str]:
    """Return the reasons of what was told of an object in this test, in order."""
    seen = [write.after for write in cluster.history if write.after is not None]
    uids = {it["metadata"]["uid"] for it in seen if it["kind"] == kind and it["metadata"]["name"] == name}
    found = [event for event in cluster.all("events").values() if _about(event).get("uid") in uids]
    return [event["reason"] for event in sorted(found, key=lambda it: str(it.get("eventTime")))]


def _about(event: RawObject) -> RawObject:
    found: RawObject = event.get("regarding") or event.get("involvedObject") or {}
    return found


def is_gone(cluster: LiveCluster, name: str = NAME) -> bool:
    """Tell whether a maintenance is over."""
    return not cluster.has(PLURAL, name)


def taints(cluster: LiveCluster, node: str) -> set[str]:
    """Return the taints of a node, as `key:effect`."""
    return _taints(cluster.get("nodes", node))


def _taints(node: RawObject) -> set[str]:
    return {f"{it['key']}:{it['effect']}" for it in node["spec"].get("taints", ())}


def is_taken(cluster: LiveCluster, node: str) -> bool:
    """Tell whether a node has all that a maintenance gives it."""
    return _has_all(cluster.get("nodes", node))


def _has_all(node: RawObject) -> bool:
    wanted = {f"{it.key}:{it.effect}" for it in WISHES.taints}
    labelled = node["metadata"].get("labels", {}).get(EXCLUDE_LABEL) == "true"
    return bool(node["spec"].get("unschedulable")) and wanted <= _taints(node) and labelled


def is_given_back(cluster: LiveCluster, node: str) -> bool:
    """Tell whether nothing of a maintenance is left on a node."""
    found = cluster.get("nodes", node)
    ours = {f"{it.key}:{it.effect}" for it in WISHES.taints}
    marked = {cordon.MARK, cordon.BACKUP, RECOVERING} & found["metadata"].get("annotations", {}).keys()
    labelled = EXCLUDE_LABEL in found["metadata"].get("labels", {})
    published = any(condition(found, kind)[0] == "True" for kind in NodeCondition)
    return not (found["spec"].get("unschedulable") or marked or labelled or published or ours & taints(cluster, node))


def lease(cluster: LiveCluster, node: str) -> RawObject:
    """Return the lease of a node."""
    return cluster.get("leases", f"{LEASES}/node-{node}")


def has_lease(cluster: LiveCluster, node: str) -> bool:
    """Tell whether a node has a lease."""
    return cluster.has("leases", f"{LEASES}/node-{node}")


def a_lease(node: str, *, holder: str, now: datetime, lasting: timedelta = timedelta(hours=1)) -> RawObject:
    """Return a node's lease, as somebody else takes it."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"node-{node}", "namespace": LEASES},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": round(lasting.total_seconds()),
            "acquireTime": stamp,
            "renewTime": stamp,
        },
    }


# What must hold


def _is_active(obj: RawObject) -> bool:
    """Tell whether pods are made to leave in its name."""
    is_under_way = bool(obj.get("status", {}).get("drain", {}).get("startTime"))
    return is_under_way and not _has_ended(obj) and "deletionTimestamp" not in obj["metadata"]


def _has_ended(obj: RawObject) -> bool:
    return obj.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _explained(obj: RawObject) -> Explanation | None:
    said = obj.get("status", {})
    told = [it for it in said.get("conditions", ()) if it["type"] == "Drained"]
    if not told:
        return None
    next_look = said.get("nextLook")
    return Explanation(
        reason=told[0]["reason"], waits_for=told[0]["message"], looks_again=instant(next_look) if next_look else None
    )


MAINTENANCES = Maintenances(
    plural=PLURAL, node=lambda obj: str(obj["spec"]["nodeName"]), is_active=_is_active, has_ended=_has_ended
)


def _explained_some_time(obj: RawObject) -> Explanation | None:
    """Return the same of an operator that does not know what time it is: when it looks again means nothing then."""
    told = _explained(obj)
    return told if told is None or told.looks_again is None else replace(told, looks_again=_NEVER)


def invariants(
    *operators: str,
    silent_for: timedelta = timedelta(seconds=30),
    dated: bool = True,
    hurries: Callable[..., bool] = lambda *_: False,
) -> tuple[Invariant, ...]:
    """Return what must hold of maintenances, whatever happens; `operators` are those that are no service account.

    For no longer than `silent_for` may one neither end nor explain itself: that is how long an operator may be unable
    to say anything. One that is not `dated` does not know what time it is.
    """
    names = {OPERATOR, *(operators or ("operator",))}
    ours = (
        cordon.MARK,
        cordon.BACKUP,
        WITHDRAWN,
        RECOVERING,
        EXCLUDE_LABEL,
        f"{DRAIN_TAINT.key}:*",
        f"{UNSCHEDULABLE}:*",
        FINALIZER,
        *NodeCondition,
        *(f"{PLURAL}/{it}" for it in ConditionType),
    )
    return (
        PodBudgetsKept(),
        OnlyOurCordonsLifted(operator=names, owners=cordon_owners),
        ForeignThingsUntouched(operator=names, ours=ours),
        GraceHonoured(operator=names, hurries=hurries),
        OneMaintenancePerNode(maintenances=(MAINTENANCES,)),
        EndsOrExplains(
            maintenances=MAINTENANCES,
            explanation=_explained if dated else _explained_some_time,
            within=silent_for,
        ),
    )


def unsettled(state: State) -> str:
    """Return what is not as it should be when nothing hinders anybody; empty if all is well."""
    orders = state.all(PLURAL)
    for name, obj in orders.items():
        node, said = state.get("nodes", str(obj["spec"]["nodeName"])), obj.get("status", {})
        if "deletionTimestamp" in obj["metadata"]:
            return f"NodeMaintenance {name} is not gone"
        if said.get("phase") != "Succeeded" or said.get("lastError"):
            return f"NodeMaintenance {name} is {said.get('phase')}: {said.get('lastError')}"
        if node is None or not _has_all(node):
            return f"the node of NodeMaintenance {name} is not taken"
    for name, node in state.all("nodes").items():
        lost = {it.removeprefix(OWNER_PREFIX) for it in cordon_owners(node)} - set(orders)
        if lost:
            return f"node {name} is held for {sorted(lost)}, and nobody of them is there"
    wanted = {node_lease.name_of(str(it["spec"]["nodeName"])) for it in orders.values()}
    left = [it for it in state.all("leases") if it.startswith(f"{LEASES}/") and it.partition("/")[2] not in wanted]
    return f"leases are left: {left}" if left else ""


async def settles(cluster: LiveCluster, *, within: timedelta = timedelta(minutes=2)) -> None:
    """See that from now on, nothing hindering anybody, all is well soon and stays so."""
    since = cluster.clock.now()
    await cluster.clock.sleep(within + timedelta(seconds=30))
    kinds = frozenset({PLURAL, "nodes", "leases"})
    cluster.assert_upheld(Converges(should=unsettled, of=kinds, after=since, within=within))


def owner(name: str = NAME) -> str:
    """Return the name under which a maintenance holds its node."""
    return f"{OWNER_PREFIX}{name}"
