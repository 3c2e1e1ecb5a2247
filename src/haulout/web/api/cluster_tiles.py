"""How a hub's clusters are shown, and what a person can type about them. Pure.

Names come from a cluster, and may be anything: whatever a shell could take for something else is quoted.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence

from haulout.hub.admission import Use
from haulout.hub.standing import ClusterStanding, MachineStanding, Why
from haulout.kinds import clusterapi
from haulout.kinds.clusterapi import ClusterKey
from haulout.web.api.shapes import (
    Banner,
    BudgetUse,
    ClusterReach,
    ClusterState,
    ClusterTile,
    Command,
    Level,
    MachineTile,
    MachineWhy,
)

MOST_ACTIVE = 50  # Machines of one cluster that are told
_MOST_NAMES = 100
_FEW = 3
_MACHINES = f"machines.{clusterapi.GROUP}"


def cluster_tile(standing: ClusterStanding, uses: Collection[Use] = ()) -> ClusterTile:
    """Return how a cluster is shown; `uses` tell whether it counts in a budget."""
    key = str(standing.key)
    return ClusterTile(
        key=key,
        reach=ClusterReach(standing.reach),
        state=ClusterState(standing.state),
        why=standing.reason,
        since=standing.since,
        heard=standing.heard,
        server=standing.server,
        version=standing.version,
        machines=standing.machines,
        enabled=standing.enabled,
        nodes=standing.nodes,
        is_leaving=standing.is_leaving,
        active_count=len(standing.active),
        active=tuple(_machine(it, standing) for it in standing.active[:MOST_ACTIVE]),
        waits_for=standing.waits_for,
        budgets=tuple(it.limit.name for it in uses if key in it.holders),
        commands=tuple(_about_cluster(standing.key)),
    )


def budget_uses(uses: Iterable[Use]) -> tuple[BudgetUse, ...]:
    """Return how much is used of the budget across clusters."""
    return tuple(
        BudgetUse(
            name=it.limit.name,
            used=len(it.holders),
            limit=it.limit.most,
            text=f"{it.limit} in maintenance at once",
            holders=it.holders[:_MOST_NAMES],
            waiting=it.waiting[:_MOST_NAMES],
        )
        for it in uses
    )


def cluster_banners(tiles: Collection[ClusterTile]) -> tuple[Banner, ...]:
    """Return what people should know on every page: who cannot be reached, and who cannot be read."""
    verbs = {ClusterReach.UNREACHABLE: "reached", ClusterReach.UNREADABLE: "read"}
    lost = {reach: [it.key for it in tiles if it.reach is reach] for reach in verbs}
    return tuple(_lost(keys, verbs[reach]) for reach, keys in lost.items() if keys)


def _lost(lost: Sequence[str], verb: str) -> Banner:
    more = f" and {len(lost) - _FEW} more" if len(lost) > _FEW else ""
    who = "1 cluster" if len(lost) == 1 else f"{len(lost)} clusters"
    text = f"{who} cannot be {verb}: {', '.join(lost[:_FEW])}{more}"
    return Banner(level=Level.WARNING, text=text, page="clusters")


def _machine(machine: MachineStanding, cluster: ClusterStanding) -> MachineTile:
    return MachineTile(
        name=machine.name,
        why=MachineWhy(machine.why),
        node=machine.node,
        is_approved=machine.is_approved,
        reason=machine.reason,
        since=machine.since,
        until=machine.until,
        commands=tuple(_about_machine(machine, cluster)),
    )


def _about_cluster(key: ClusterKey) -> Iterator[Command]:
    namespace, secret, file = _q(key.namespace), _q(key.secret), _kubeconfig(key)
    read = f"kubectl -n {namespace} get secret {secret} -o jsonpath='{{.data.{clusterapi.KUBECONFIG_KEY}}}'"
    yield Command(
        title="Get its kubeconfig, and try it",
        command=f"{read} | base64 -d > {file} && kubectl --kubeconfig {file} get nodes",
        why="the way the hub takes: the kubeconfig that Cluster API keeps",
    )
    label = _q(f"{clusterapi.CLUSTER_NAME}={key.name}")
    yield Command(title="See its Machines", command=f"kubectl -n {namespace} get {_MACHINES} -l {label}")


def _about_machine(machine: MachineStanding, cluster: ClusterStanding) -> Iterator[Command]:
    name, namespace = _q(machine.name), _q(cluster.key.namespace)
    is_deletion = machine.why is Why.DELETION
    if not machine.is_approved and machine.node and not cluster.reach.is_away and not cluster.waits_for:
        yield from _about_approval(machine, cluster.key)
    if is_deletion and not machine.is_approved:
        yield Command(
            title="Do not wait for its node",
            command=f"kubectl -n {namespace} label {_MACHINES} {name} {clusterapi.ENABLED}-",
            why="the Machine is not coupled with its node any more, and Cluster API goes on at once",
        )
    if not is_deletion:
        yield Command(
            title="Say that it is done" if machine.is_approved else "Withdraw it",
            command=f"kubectl -n {namespace} label {_MACHINES} {name} {clusterapi.MAINTENANCE}-",
            why="its node comes back by its profile",
        )
    yield Command(title="What Cluster API says", command=f"kubectl -n {namespace} describe {_MACHINES} {name}")


def _about_approval(machine: MachineStanding, key: ClusterKey) -> Iterator[Command]:
    node, file = _q(machine.node), _kubeconfig(key)
    is_deletion = machine.why is Why.DELETION
    yield Command(
        title="Why it waits",
        command=f"haulout why {node} --kubeconfig {file}",
        why="what the profiles of its node wait for; the cluster's commands get that kubeconfig",
    )
    label = clusterapi.APPROVE_DELETION if is_deletion else clusterapi.APPROVE_MAINTENANCE
    yield Command(
        title="Approve it by hand",
        command=f"kubectl --kubeconfig {file} label node {node} {label}={clusterapi.TRUE}",
        why="nobody prepares the node then" + (": Cluster API drains it" if is_deletion else ", nor drains it"),
    )


def _kubeconfig(key: ClusterKey) -> str:
    return _q(f"{key.namespace}-{key.name}.kubeconfig")


def _q(text: str) -> str:
    return shlex.quote(text)
