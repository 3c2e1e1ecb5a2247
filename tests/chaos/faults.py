"""The fault classes: coroutines that inject a fault and return when it is over.

Where a class has variants or durations, the round's seed decides. A fault restores what it broke before it returns,
except that a killed process restarts later by itself, as a kubelet would restart it. After the return the operator must
recover.
"""

import json
import signal
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from chaos.api_client import ApiError
from chaos.invariants import CORDON_ANNOTATION, DRAIN_TAINT, EXCLUDE_LABEL
from chaos.proxy import Network
from chaos.replicas import GROUP, NAMESPACE, USERS, Replica
from chaos.workload import CORDONED_NODE, MAINTAINED_NODES, is_held, operator_bindings
from chaos.world import RoundCluster
from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.budget.slots import LEDGER
from haulout.kube.slot_ledger import ledger_name

Fault = Callable[[RoundCluster], Awaitable[None]]
_FOREIGN_HOLDER = {"spec": {"holderIdentity": "intruder", "leaseDurationSeconds": 5}}
_OBSERVED_WITHIN = timedelta(seconds=30)


# Processes of the operator


async def kill_leader(world: RoundCluster) -> None:
    """Kill the leader with SIGKILL; start it again some seconds later."""
    leader = await world.leader()
    leader.kill()
    world.in_background(_start_later(world, leader))


async def kill_both(world: RoundCluster) -> None:
    """Kill both replicas with SIGKILL; start them again some seconds later."""
    for replica in world.replicas:
        replica.kill()
    await world.pause(1, 5)
    for replica in world.replicas:
        replica.start()


async def terminate_leader(world: RoundCluster) -> None:
    """End the leader with SIGTERM, as an upgrade does; start it again after its end."""
    leader = await world.leader()
    leader.signal(signal.SIGTERM)
    world.in_background(_start_after_end(world, leader))


async def stall_leader(world: RoundCluster) -> None:
    """Stop the leader with SIGSTOP for less or for more than its lease, then let it continue."""
    leader = await world.leader()
    leader.signal(signal.SIGSTOP)
    await world.pause(*world.rng.choice([(2, 9), (16, 25)]))
    leader.signal(signal.SIGCONT)


# The API server and its database


async def kill_apiserver(world: RoundCluster) -> None:
    """Kill the API server with SIGKILL; start it again some seconds later."""
    await world.in_thread(world.control_plane.kill_apiserver)
    await world.pause(0, 8)
    await world.in_thread(world.control_plane.start_apiserver)


async def stall_apiserver(world: RoundCluster) -> None:
    """Stop the API server with SIGSTOP for less or for more than a lease: it accepts connections and is silent."""
    await world.in_thread(world.control_plane.pause_apiserver)
    await world.pause(*world.rng.choice([(2, 9), (16, 25)]))
    await world.in_thread(world.control_plane.resume_apiserver)


async def lose_etcd(world: RoundCluster) -> None:
    """Kill etcd with SIGKILL and start it again, or stop it with SIGSTOP for a while."""
    if world.rng.random() < 0.5:
        await world.in_thread(world.control_plane.kill_etcd)
        await world.pause(0, 8)
        await world.in_thread(world.control_plane.start_etcd)
        return
    await world.in_thread(world.control_plane.pause_etcd)
    await world.pause(2, 20)
    await world.in_thread(world.control_plane.resume_etcd)


async def restore_etcd(world: RoundCluster) -> None:
    """Restore etcd from a copy some seconds old: objects and resourceVersions go back."""
    await world.in_thread(world.control_plane.backup_etcd)
    await world.pause(4, 10)
    async with world.observer.restoring():
        await world.in_thread(world.control_plane.restore_etcd)
    await world.observer.wait_until(lambda: world.observer.is_synced, within=_OBSERVED_WITHIN)
    await world.workload.restart_after_restore()


async def forget_history(world: RoundCluster) -> None:
    """Compact etcd and restart the API server: it answers each watch with 410 Gone."""
    await world.in_thread(world.control_plane.expire_history)
    for replica in world.replicas:
        replica.proxy.cut()


# The network


async def partition_leader(world: RoundCluster) -> None:
    """Cut the leader off from the API server: reset its connections, or let nothing pass."""
    leader = await world.leader()
    leader.proxy.network.resets_connections = world.rng.random() < 0.5
    leader.proxy.network.unblocked.clear()
    if leader.proxy.network.resets_connections:
        leader.proxy.network.unblocked.set()
        leader.proxy.cut()
    await world.pause(*world.rng.choice([(3, 9), (16, 25)]))
    leader.proxy.heal()


async def partition_both(world: RoundCluster) -> None:
    """Cut both replicas off from the API server."""
    for replica in world.replicas:
        replica.proxy.network.resets_connections = True
        replica.proxy.cut()
    await world.pause(5, 20)
    _heal_networks(world)


async def slow_network(world: RoundCluster) -> None:
    """Delay each request of the operator by up to three seconds."""
    most = world.rng.uniform(0.5, 3)
    await _with_networks(world, lambda: Network(latency_seconds=(0.05, most)), seconds=(8, 15))


async def broken_answers(world: RoundCluster) -> None:
    """Break answers off in the middle, or lose them after the request took effect."""
    await _with_networks(world, lambda: Network(truncates=0.15, loses_answers=0.15), seconds=(8, 15))


async def overload(world: RoundCluster) -> None:
    """Answer half of the operator's requests with 429 or 503."""
    await _with_networks(world, lambda: Network(overloaded=0.5), seconds=(8, 15))


async def cut_watches(world: RoundCluster) -> None:
    """Reset all connections of both replicas, again and again."""
    for _ in range(world.rng.randint(3, 10)):
        for replica in world.replicas:
            replica.proxy.cut()
        await world.pause(0.1, 1.5)


async def lag(world: RoundCluster) -> None:
    """Deliver watch events seconds late while reads and writes are current, as a slow watch cache does."""
    lag_seconds = world.rng.uniform(1, 4)
    for replica in world.replicas:
        replica.proxy.network.watch_lag_seconds = lag_seconds
    await world.pause(4, 8)
    for replica in world.replicas:
        replica.proxy.cut()  # lists that follow are late as well
    await world.pause(6, 10)
    _heal_networks(world)


# Leadership and time


async def take_leases(world: RoundCluster) -> None:
    """Delete the leader's leases, or overwrite them with a holder that does not exist."""
    is_deleted = world.rng.random() < 0.5
    for name in (LEADER_LEASE, PROFILES_LEASE):
        if is_deleted:
            await world.retry(world.api.delete, "leases", name, namespace=NAMESPACE)
        else:
            await world.retry(world.api.patch, "leases", name, _FOREIGN_HOLDER, namespace=NAMESPACE)


async def two_leaders(world: RoundCluster) -> None:
    """Stop the leader while it drains until the other one leads; then let it continue beside it."""
    leader = await world.leader()
    await world.observer.wait_until(
        lambda: any(is_held(world.observer, node) for node in MAINTAINED_NODES), within=_OBSERVED_WITHIN
    )
    leader.signal(signal.SIGSTOP)
    other = await world.standby()
    deadline = world.clock.monotonic() + 40
    while await world.leader() is not other and world.clock.monotonic() < deadline:
        await world.pause(0.2, 0.4)
    leader.signal(signal.SIGCONT)


async def step_clock(world: RoundCluster) -> None:
    """Set the wall clock of the leader forward and back by up to two hours, and right again."""
    leader = await world.leader()
    first = world.rng.choice([-1, 1])
    for direction in (first, -first):
        leader.set_clock(direction * world.rng.uniform(60, 7200))
        await world.pause(3, 8)
    leader.set_clock(0)


# Rights and admission


async def withdraw_rights(world: RoundCluster) -> None:
    """Delete the ClusterRoleBinding of the operator, or all its bindings, and create them again."""
    kinds = world.rng.choice([("clusterrolebindings",), ("clusterrolebindings", "rolebindings")])
    bindings = [binding for binding in operator_bindings() if binding[0] in kinds]
    saved = [await world.api.get(kind, name, namespace=namespace) for kind, name, namespace in bindings]
    for kind, name, namespace in bindings:
        await world.retry(world.api.delete, kind, name, namespace=namespace)
    await world.pause(4, 18)
    for (kind, name, namespace), obj in zip(bindings, saved, strict=True):
        await world.retry(world.api.create, kind, obj | {"metadata": {"name": name}}, namespace=namespace)


async def deny_writes(world: RoundCluster) -> None:
    """Deny the operator's writes to nodes, by a ValidatingAdmissionPolicy or by a webhook that nobody serves."""
    if world.rng.random() < 0.5:
        await _with_objects(world, [_policy(), _policy_binding()], seconds=(5, 15))
    else:
        await _with_objects(world, [_unserved_webhook()], seconds=(5, 15))


# Objects


async def tamper_with_marks(world: RoundCluster) -> None:
    """Remove the operator's annotation from nodes in maintenance, empty it, or write garbage into it."""
    for node in await _held_nodes(world):
        value = world.rng.choice([None, "{}", "garbage", "[1]", '{"owners": 7}'])
        change = {"metadata": {"annotations": {CORDON_ANNOTATION: value}}}
        await world.retry(world.api.patch, "nodes", node, change)
        await world.pause(0.2, 2)


async def undo_cordons(world: RoundCluster) -> None:
    """Uncordon nodes in maintenance by hand, or remove their taint or label."""
    await _uncordon_after_cordon(world)
    for node in await _held_nodes(world):
        taint = world.observer.objects["nodes"][node]["spec"].get("taints") or []
        change: Any = world.rng.choice(
            [
                {"spec": {"unschedulable": None}},
                {"spec": {"taints": [taint_ for taint_ in taint if taint_["key"] != DRAIN_TAINT]}},
                {"metadata": {"labels": {EXCLUDE_LABEL: None}}},
            ]
        )
        await world.retry(world.api.patch, "nodes", node, change)
        await world.pause(0.2, 2)


async def _uncordon_after_cordon(world: RoundCluster) -> None:
    """Uncordon the node that a person had cordoned before its maintenance: they do not want that any more."""
    if await world.observer.wait_until(lambda: is_held(world.observer, CORDONED_NODE), within=_OBSERVED_WITHIN):
        await world.retry(world.api.patch, "nodes", CORDONED_NODE, {"spec": {"unschedulable": None}})


async def hostile_objects(world: RoundCluster) -> None:
    """Create objects that are huge, name nothing that exists, or have times and annotations that make no sense."""
    for body in _hostile_bodies():
        kind = f"{body['kind'].lower()}s"
        try:
            await world.api.create(kind, body)
        except ApiError:
            continue  # the schema refuses it: the operator never sees it
    huge = {"metadata": {"annotations": {"example.com/huge": "x" * 200_000}}}
    for node in MAINTAINED_NODES[:2]:
        await world.retry(world.api.patch, "nodes", node, huge)
    invalid_annotations = {
        "haulout.dev/hold": "until: never",
        "haulout.dev/transitions": "[[]]",
        "cloud.sap/maintenance-data": "{",
    }
    await world.retry(world.api.patch, "nodes", MAINTAINED_NODES[2], {"metadata": {"annotations": invalid_annotations}})
    await world.pause(5, 10)
    cleared = {"metadata": {"annotations": dict.fromkeys([*invalid_annotations, "example.com/huge"])}}
    for node in MAINTAINED_NODES[:3]:
        await world.retry(world.api.patch, "nodes", node, cleared)
    for body in _hostile_bodies():
        await world.retry(world.api.delete, f"{body['kind'].lower()}s", body["metadata"]["name"])


async def tamper_with_ledger(world: RoundCluster) -> None:
    """Delete the ConfigMap in which the budget keeps its slots."""
    for _ in range(world.rng.randint(1, 3)):
        await world.retry(world.api.delete, "configmaps", ledger_name(LEDGER), namespace=NAMESPACE)
        await world.pause(0.5, 3)


async def replace_nodes(world: RoundCluster) -> None:
    """Delete nodes in maintenance and create them again under the same names."""
    for node in await _held_nodes(world):
        await world.retry(world.api.delete, "nodes", node)
        await world.pause(0, 2)
        await world.workload.add_node(node)


async def conflicting_writes(world: RoundCluster) -> None:
    """Write to all nodes many times a second: every write of the operator may conflict."""
    until = world.clock.monotonic() + world.rng.uniform(6, 12)
    number = 0
    while world.clock.monotonic() < until:
        for node in MAINTAINED_NODES:
            number += 1
            change = {"metadata": {"annotations": {"example.com/beat": str(number)}}}
            await world.retry(world.api.patch, "nodes", node, change)
        await world.pause(0.01, 0.05)


CLASSES: dict[str, Fault] = {
    "kill-leader": kill_leader,
    "kill-both": kill_both,
    "terminate-leader": terminate_leader,
    "stall-leader": stall_leader,
    "two-leaders": two_leaders,
    "take-leases": take_leases,
    "kill-apiserver": kill_apiserver,
    "stall-apiserver": stall_apiserver,
    "lose-etcd": lose_etcd,
    "restore-etcd": restore_etcd,
    "forget-history": forget_history,
    "partition-leader": partition_leader,
    "partition-both": partition_both,
    "slow-network": slow_network,
    "broken-answers": broken_answers,
    "overload": overload,
    "cut-watches": cut_watches,
    "lag": lag,
    "step-clock": step_clock,
    "withdraw-rights": withdraw_rights,
    "deny-writes": deny_writes,
    "tamper-marks": tamper_with_marks,
    "undo-cordons": undo_cordons,
    "hostile-objects": hostile_objects,
    "replace-nodes": replace_nodes,
    "tamper-ledger": tamper_with_ledger,
    "conflicting-writes": conflicting_writes,
}


async def _start_later(world: RoundCluster, replica: Replica) -> None:
    await world.pause(3, 10)
    replica.start()


async def _start_after_end(world: RoundCluster, replica: Replica) -> None:
    await replica.wait_ended()
    await world.pause(1, 5)
    replica.start()


def _heal_networks(world: RoundCluster) -> None:
    for replica in world.replicas:
        replica.proxy.heal()


async def _with_networks(world: RoundCluster, make: Callable[[], Network], *, seconds: tuple[float, float]) -> None:
    for replica in world.replicas:
        replica.proxy.network = make()
    await world.pause(*seconds)
    _heal_networks(world)


async def _with_objects(world: RoundCluster, objects: list[tuple[str, Any]], *, seconds: tuple[float, float]) -> None:
    for kind, body in objects:
        await world.retry(world.api.create, kind, body)
    await world.pause(*seconds)
    for kind, body in reversed(objects):
        await world.retry(world.api.delete, kind, body["metadata"]["name"])


async def _held_nodes(world: RoundCluster) -> list[str]:
    """Return the nodes that orders hold, once there are any."""
    await world.observer.wait_until(
        lambda: any(is_held(world.observer, node) for node in MAINTAINED_NODES), within=_OBSERVED_WITHIN
    )
    return [node for node in MAINTAINED_NODES if is_held(world.observer, node)]


def _policy() -> tuple[str, Any]:
    users = json.dumps(list(USERS))
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
            ]
        },
        "validations": [{"expression": f"!(request.userInfo.username in {users})", "message": "denied by a test"}],
    }
    return "validatingadmissionpolicies", {"metadata": {"name": "chaos"}, "spec": spec}


def _policy_binding() -> tuple[str, Any]:
    spec = {"policyName": "chaos", "validationActions": ["Deny"]}
    return "validatingadmissionpolicybindings", {"metadata": {"name": "chaos"}, "spec": spec}


def _unserved_webhook() -> tuple[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    in_the_group = {"name": "operator", "expression": f"'{GROUP}' in request.userInfo.groups"}
    webhook = {
        "name": "chaos.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [rule],
        "matchConditions": [in_the_group],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
    }
    return "validatingwebhookconfigurations", {"metadata": {"name": "chaos"}, "webhooks": [webhook]}


def _hostile_bodies() -> list[Any]:
    order = {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance"}
    notice = {"apiVersion": "haulout.dev/v1alpha1", "kind": "MaintenanceNotice"}
    return [
        order | {"metadata": {"name": "hostile-1"}, "spec": {"nodeName": "no-such-node", "reason": "x" * 100_000}},
        order | {"metadata": {"name": "hostile-2"}, "spec": {"nodeName": "", "reason": "\u0000\u202e\n"}},
        order | {"metadata": {"name": "hostile-3"}, "spec": {"nodeName": "../../nodes", "drain": {"timeout": "9e9h"}}},
        notice | {"metadata": {"name": "hostile-4"}, "spec": {"nodeName": "n0", "start": "0001-01-01T00:00:00Z"}},
        notice | {"metadata": {"name": "hostile-5"}, "spec": {"nodeName": "n0", "start": "9999-12-31T23:59:59Z"}},
        notice | {"metadata": {"name": "hostile-6"}, "spec": {"nodeName": "no-such-node", "description": "x" * 4096}},
    ]
