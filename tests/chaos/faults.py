"""The fault classes. Each is a coroutine that injects its fault and returns when the fault is over.

Where a class has variants or durations, the round's seed decides. A fault heals what it broke before it returns, except
where a process that was killed comes back later by itself, as a kubelet would restart it. From the return on the
operator must recover.
"""

import json
import signal
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from chaos.api import Refused
from chaos.judge import DRAIN_TAINT, EXCLUDED, MARK
from chaos.proxy import Network
from chaos.replicas import GROUP, HOME, USERS, Replica
from chaos.workload import CORDONED, ORDERED, is_held, operator_bindings
from chaos.world import World
from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.budget.slots import LEDGER
from haulout.kube.ledger import ledger_name

Fault = Callable[[World], Awaitable[None]]
_USURPED = {"spec": {"holderIdentity": "intruder", "leaseDurationSeconds": 5}}
_FOUND_WITHIN = timedelta(seconds=30)


# Processes of the operator


async def kill_leader(world: World) -> None:
    """Kill the leader with SIGKILL; start it again some seconds later."""
    leader = await world.leader()
    leader.kill()
    world.in_background(_start_later(world, leader))


async def kill_both(world: World) -> None:
    """Kill both replicas with SIGKILL; start them again some seconds later."""
    for it in world.replicas:
        it.kill()
    await world.pause(1, 5)
    for it in world.replicas:
        it.start()


async def terminate_leader(world: World) -> None:
    """End the leader with SIGTERM, as an upgrade does; start it again after its end."""
    leader = await world.leader()
    leader.signal(signal.SIGTERM)
    world.in_background(_start_after_end(world, leader))


async def stall_leader(world: World) -> None:
    """Stop the leader with SIGSTOP for less or for more than its lease, then let it continue."""
    leader = await world.leader()
    leader.signal(signal.SIGSTOP)
    await world.pause(*world.rng.choice([(2, 9), (16, 25)]))
    leader.signal(signal.SIGCONT)


# The API server and its database


async def kill_apiserver(world: World) -> None:
    """Kill the API server with SIGKILL; start it again some seconds later."""
    await world.in_thread(world.plane.kill_apiserver)
    await world.pause(0, 8)
    await world.in_thread(world.plane.start_apiserver)


async def stall_apiserver(world: World) -> None:
    """Stop the API server with SIGSTOP for less or for more than a lease: it accepts connections and is silent."""
    await world.in_thread(world.plane.pause_apiserver)
    await world.pause(*world.rng.choice([(2, 9), (16, 25)]))
    await world.in_thread(world.plane.resume_apiserver)


async def lose_etcd(world: World) -> None:
    """Kill etcd with SIGKILL and start it again, or stop it with SIGSTOP for a while."""
    if world.rng.random() < 0.5:
        await world.in_thread(world.plane.kill_etcd)
        await world.pause(0, 8)
        await world.in_thread(world.plane.start_etcd)
        return
    await world.in_thread(world.plane.pause_etcd)
    await world.pause(2, 20)
    await world.in_thread(world.plane.resume_etcd)


async def restore_etcd(world: World) -> None:
    """Restore etcd from a copy some seconds old: objects and resourceVersions go back."""
    await world.in_thread(world.plane.save_etcd)
    await world.pause(4, 10)
    async with world.observer.restoring():
        await world.in_thread(world.plane.restore_etcd)
    await world.observer.until(lambda: world.observer.is_synced, within=_FOUND_WITHIN)
    await world.workload.start_over()


async def forget_history(world: World) -> None:
    """Compact etcd and restart the API server: it answers each watch with 410 Gone."""
    await world.in_thread(world.plane.forget_history)
    for it in world.replicas:
        it.proxy.cut()


# The network


async def partition_leader(world: World) -> None:
    """Cut the leader off from the API server: reset its connections, or let nothing pass."""
    leader = await world.leader()
    leader.proxy.network.refuses = world.rng.random() < 0.5
    leader.proxy.network.passes.clear()
    if leader.proxy.network.refuses:
        leader.proxy.network.passes.set()
        leader.proxy.cut()
    await world.pause(*world.rng.choice([(3, 9), (16, 25)]))
    leader.proxy.heal()


async def partition_both(world: World) -> None:
    """Cut both replicas off from the API server."""
    for it in world.replicas:
        it.proxy.network.refuses = True
        it.proxy.cut()
    await world.pause(5, 20)
    _heal(world)


async def slow_network(world: World) -> None:
    """Delay each request of the operator by up to three seconds."""
    most = world.rng.uniform(0.5, 3)
    await _with_networks(world, lambda: Network(latency_seconds=(0.05, most)), seconds=(8, 15))


async def broken_answers(world: World) -> None:
    """Break answers off in the middle, or lose them after the request took effect."""
    await _with_networks(world, lambda: Network(truncates=0.15, loses_answers=0.15), seconds=(8, 15))


async def overload(world: World) -> None:
    """Answer half of the operator's requests with 429 or 503."""
    await _with_networks(world, lambda: Network(overloaded=0.5), seconds=(8, 15))


async def cut_watches(world: World) -> None:
    """Reset all connections of both replicas, again and again."""
    for _ in range(world.rng.randint(3, 10)):
        for it in world.replicas:
            it.proxy.cut()
        await world.pause(0.1, 1.5)


async def lag(world: World) -> None:
    """Deliver watch events seconds late while reads and writes are current, as a slow watch cache does."""
    late = world.rng.uniform(1, 4)
    for it in world.replicas:
        it.proxy.network.watch_lag_seconds = late
    await world.pause(4, 8)
    for it in world.replicas:
        it.proxy.cut()  # lists that follow are late as well
    await world.pause(6, 10)
    _heal(world)


# Leadership and time


async def take_leases(world: World) -> None:
    """Delete the leader's leases, or overwrite them with a holder that does not exist."""
    is_deleted = world.rng.random() < 0.5
    for name in (LEADER_LEASE, PROFILES_LEASE):
        if is_deleted:
            await world.retry(world.api.delete, "leases", name, namespace=HOME)
        else:
            await world.retry(world.api.patch, "leases", name, _USURPED, namespace=HOME)


async def two_leaders(world: World) -> None:
    """Stop the leader while it drains until the other one leads; then let it continue beside it."""
    leader = await world.leader()
    await world.observer.until(lambda: any(is_held(world.observer, it) for it in ORDERED), within=_FOUND_WITHIN)
    leader.signal(signal.SIGSTOP)
    other = await world.standby()
    gave_up = world.clock.monotonic() + 40
    while await world.leader() is not other and world.clock.monotonic() < gave_up:
        await world.pause(0.2, 0.4)
    leader.signal(signal.SIGCONT)


async def step_clock(world: World) -> None:
    """Set the wall clock of the leader forward and back by up to two hours, and right again."""
    leader = await world.leader()
    first = world.rng.choice([-1, 1])
    for direction in (first, -first):
        leader.set_clock(direction * world.rng.uniform(60, 7200))
        await world.pause(3, 8)
    leader.set_clock(0)


# Rights and admission


async def withdraw_rights(world: World) -> None:
    """Delete the ClusterRoleBinding of the operator, or all its bindings, and create them again."""
    kinds = world.rng.choice([("clusterrolebindings",), ("clusterrolebindings", "rolebindings")])
    there = [it for it in operator_bindings() if it[0] in kinds]
    saved = [await world.api.get(kind, name, namespace=home) for kind, name, home in there]
    for kind, name, home in there:
        await world.retry(world.api.delete, kind, name, namespace=home)
    await world.pause(4, 18)
    for (kind, name, home), obj in zip(there, saved, strict=True):
        await world.retry(world.api.create, kind, obj | {"metadata": {"name": name}}, namespace=home)


async def deny_writes(world: World) -> None:
    """Deny the operator's writes to nodes, by a ValidatingAdmissionPolicy or by a webhook that nobody serves."""
    if world.rng.random() < 0.5:
        await _with_objects(world, [_policy(), _policy_binding()], seconds=(5, 15))
    else:
        await _with_objects(world, [_dead_webhook()], seconds=(5, 15))


# Objects


async def tamper_with_marks(world: World) -> None:
    """Remove the operator's annotation from nodes in maintenance, empty it, or write garbage into it."""
    for node in await _held_nodes(world):
        value = world.rng.choice([None, "{}", "garbage", "[1]", '{"owners": 7}'])
        change = {"metadata": {"annotations": {MARK: value}}}
        await world.retry(world.api.patch, "nodes", node, change)
        await world.pause(0.2, 2)


async def undo_cordons(world: World) -> None:
    """Uncordon nodes in maintenance by hand, or remove their taint or label."""
    await _uncordon_after_cordon(world)
    for node in await _held_nodes(world):
        taint = world.observer.objects["nodes"][node]["spec"].get("taints") or []
        change: Any = world.rng.choice(
            [
                {"spec": {"unschedulable": None}},
                {"spec": {"taints": [it for it in taint if it["key"] != DRAIN_TAINT]}},
                {"metadata": {"labels": {EXCLUDED: None}}},
            ]
        )
        await world.retry(world.api.patch, "nodes", node, change)
        await world.pause(0.2, 2)


async def _uncordon_after_cordon(world: World) -> None:
    """Uncordon the node that a person had cordoned before its maintenance: they do not want that any more."""
    if await world.observer.until(lambda: is_held(world.observer, CORDONED), within=_FOUND_WITHIN):
        await world.retry(world.api.patch, "nodes", CORDONED, {"spec": {"unschedulable": None}})


async def hostile_objects(world: World) -> None:
    """Create objects that are huge, name nothing that exists, or have times and annotations that make no sense."""
    for body in _hostile_bodies():
        kind = f"{body['kind'].lower()}s"
        try:
            await world.api.create(kind, body)
        except Refused:
            continue  # the schema refuses it: the operator never sees it
    huge = {"metadata": {"annotations": {"example.com/huge": "x" * 200_000}}}
    for node in ORDERED[:2]:
        await world.retry(world.api.patch, "nodes", node, huge)
    odd = {"haulout.dev/hold": "until: never", "haulout.dev/transitions": "[[]]", "cloud.sap/maintenance-data": "{"}
    await world.retry(world.api.patch, "nodes", ORDERED[2], {"metadata": {"annotations": odd}})
    await world.pause(5, 10)
    clean = {"metadata": {"annotations": dict.fromkeys([*odd, "example.com/huge"])}}
    for node in ORDERED[:3]:
        await world.retry(world.api.patch, "nodes", node, clean)
    for body in _hostile_bodies():
        await world.retry(world.api.delete, f"{body['kind'].lower()}s", body["metadata"]["name"])


async def tamper_with_ledger(world: World) -> None:
    """Delete the ConfigMap in which the budget keeps its slots."""
    for _ in range(world.rng.randint(1, 3)):
        await world.retry(world.api.delete, "configmaps", ledger_name(LEDGER), namespace=HOME)
        await world.pause(0.5, 3)


async def replace_nodes(world: World) -> None:
    """Delete nodes in maintenance and create them again under the same names."""
    for node in await _held_nodes(world):
        await world.retry(world.api.delete, "nodes", node)
        await world.pause(0, 2)
        await world.workload.add_node(node)


async def conflicting_writes(world: World) -> None:
    """Write to all nodes many times a second: every write of the operator may conflict."""
    until = world.clock.monotonic() + world.rng.uniform(6, 12)
    number = 0
    while world.clock.monotonic() < until:
        for node in ORDERED:
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


async def _start_later(world: World, replica: Replica) -> None:
    await world.pause(3, 10)
    replica.start()


async def _start_after_end(world: World, replica: Replica) -> None:
    await replica.ended()
    await world.pause(1, 5)
    replica.start()


def _heal(world: World) -> None:
    for it in world.replicas:
        it.proxy.heal()


async def _with_networks(world: World, make: Callable[[], Network], *, seconds: tuple[float, float]) -> None:
    for it in world.replicas:
        it.proxy.network = make()
    await world.pause(*seconds)
    _heal(world)


async def _with_objects(world: World, objects: list[tuple[str, Any]], *, seconds: tuple[float, float]) -> None:
    for kind, body in objects:
        await world.retry(world.api.create, kind, body)
    await world.pause(*seconds)
    for kind, body in reversed(objects):
        await world.retry(world.api.delete, kind, body["metadata"]["name"])


async def _held_nodes(world: World) -> list[str]:
    """Return the nodes that orders hold, once there are any."""
    await world.observer.until(lambda: any(is_held(world.observer, it) for it in ORDERED), within=_FOUND_WITHIN)
    return [it for it in ORDERED if is_held(world.observer, it)]


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


def _dead_webhook() -> tuple[str, Any]:
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
