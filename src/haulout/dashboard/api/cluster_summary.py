"""Workload clusters of a hub for the API, and commands for them. Pure.

Names come from a cluster and may contain anything: everything that a shell could interpret is quoted.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence

from haulout.api import clusterapi
from haulout.api.clusterapi import ClusterKey
from haulout.controllers.clusterapi.cluster_budget import LimitUsage
from haulout.controllers.clusterapi.status import MachineRequestStatus, RequestType, WorkloadClusterStatus
from haulout.dashboard.api.types import (
    Banner,
    BudgetUsage,
    ClusterConnection,
    ClusterState,
    ClusterSummary,
    Command,
    Level,
    MachineRequest,
    MachineSummary,
)

MAX_ACTIVE = 50  # Machines per cluster in a response
_MAX_NAMES = 100
_MAX_LISTED = 3
_MACHINES = f"machines.{clusterapi.GROUP}"


def summarize_cluster(cluster: WorkloadClusterStatus, uses: Collection[LimitUsage] = ()) -> ClusterSummary:
    """Return the tile of a cluster; `uses` say whether it holds a slot of a budget."""
    key = str(cluster.key)
    return ClusterSummary(
        key=key,
        connection=ClusterConnection(cluster.connection_state),
        state=ClusterState(cluster.state),
        message=cluster.reason,
        since=cluster.since,
        last_response=cluster.last_response_at,
        server=cluster.server,
        version=cluster.version,
        machines=cluster.machines,
        enabled=cluster.enabled,
        nodes=cluster.nodes,
        is_deleting=cluster.is_being_deleted,
        active_count=len(cluster.requests),
        active=tuple(_machine(item, cluster) for item in cluster.requests[:MAX_ACTIVE]),
        waiting_for=cluster.waiting_reason,
        budgets=tuple(item.limit.name for item in uses if key in item.holders),
        commands=tuple(_cluster_commands(cluster.key)),
    )


def budget_uses(uses: Iterable[LimitUsage]) -> tuple[BudgetUsage, ...]:
    """Return the usage of the budget across clusters."""
    return tuple(
        BudgetUsage(
            name=use.limit.name,
            used=len(use.holders),
            limit=use.limit.max_clusters,
            text=f"{use.limit} in maintenance at once",
            holders=use.holders[:_MAX_NAMES],
            waiting=use.waiting[:_MAX_NAMES],
        )
        for use in uses
    )


def cluster_banners(tiles: Collection[ClusterSummary]) -> tuple[Banner, ...]:
    """Return the banners about unreachable and unreadable clusters."""
    verbs = {ClusterConnection.UNREACHABLE: "reached", ClusterConnection.UNREADABLE: "read"}
    unavailable = {reach: [tile.key for tile in tiles if tile.connection is reach] for reach in verbs}
    return tuple(_unavailable_banner(keys, verbs[reach]) for reach, keys in unavailable.items() if keys)


def _unavailable_banner(clusters: Sequence[str], verb: str) -> Banner:
    more = f" and {len(clusters) - _MAX_LISTED} more" if len(clusters) > _MAX_LISTED else ""
    count_text = "1 cluster" if len(clusters) == 1 else f"{len(clusters)} clusters"
    text = f"{count_text} cannot be {verb}: {', '.join(clusters[:_MAX_LISTED])}{more}"
    return Banner(level=Level.WARNING, message=text, page="clusters")


def _machine(machine: MachineRequestStatus, cluster: WorkloadClusterStatus) -> MachineSummary:
    return MachineSummary(
        name=machine.name,
        request=MachineRequest(machine.request_type),
        node=machine.node,
        is_approved=machine.is_approved,
        message=machine.reason,
        since=machine.since,
        deadline=machine.until,
        commands=tuple(_machine_commands(machine, cluster)),
    )


def _cluster_commands(key: ClusterKey) -> Iterator[Command]:
    namespace, secret, file = _quote(key.namespace), _quote(key.kubeconfig_secret), _kubeconfig(key)
    read = f"kubectl -n {namespace} get secret {secret} -o jsonpath='{{.data.{clusterapi.KUBECONFIG_KEY}}}'"
    yield Command(
        title="Get its kubeconfig and test it",
        command=f"{read} | base64 -d > {file} && kubectl --kubeconfig {file} get nodes",
        reason="the hub uses this kubeconfig, which Cluster API keeps in a Secret",
    )
    label = _quote(f"{clusterapi.CLUSTER_NAME}={key.name}")
    yield Command(title="List its Machines", command=f"kubectl -n {namespace} get {_MACHINES} -l {label}")


def _machine_commands(machine: MachineRequestStatus, cluster: WorkloadClusterStatus) -> Iterator[Command]:
    name, namespace = _quote(machine.name), _quote(cluster.key.namespace)
    is_deletion = machine.request_type is RequestType.DELETION
    if (
        not machine.is_approved
        and machine.node
        and not cluster.connection_state.is_unavailable
        and not cluster.waiting_reason
    ):
        yield from _approval_commands(machine, cluster.key)
    if is_deletion and not machine.is_approved:
        yield Command(
            title="Delete the Machine without preparing its node",
            command=f"kubectl -n {namespace} label {_MACHINES} {name} {clusterapi.ENABLED}-",
            reason="the hub stops handling this Machine, and Cluster API deletes it at once",
        )
    if not is_deletion:
        yield Command(
            title="End the maintenance" if machine.is_approved else "Withdraw the request",
            command=f"kubectl -n {namespace} label {_MACHINES} {name} {clusterapi.MAINTENANCE}-",
            reason="the profile of its node then returns the node to service",
        )
    yield Command(
        title="Show the Machine and its conditions", command=f"kubectl -n {namespace} describe {_MACHINES} {name}"
    )


def _approval_commands(machine: MachineRequestStatus, key: ClusterKey) -> Iterator[Command]:
    node, file = _quote(machine.node), _kubeconfig(key)
    is_deletion = machine.request_type is RequestType.DELETION
    yield Command(
        title="Show what it waits for",
        command=f"haulout why {node} --kubeconfig {file}",
        reason="shows what the profiles of its node wait for; “Get its kubeconfig and test it” writes the kubeconfig",
    )
    label = clusterapi.APPROVE_DELETION if is_deletion else clusterapi.APPROVE_MAINTENANCE
    yield Command(
        title="Approve it by hand",
        command=f"kubectl --kubeconfig {file} label node {node} {label}={clusterapi.TRUE}",
        reason="the hub then does not wait for the profiles of the node"
        + (": Cluster API drains it" if is_deletion else ", nor drains it"),
    )


def _kubeconfig(key: ClusterKey) -> str:
    return _quote(f"{key.namespace}-{key.name}.kubeconfig")


def _quote(text: str) -> str:
    return shlex.quote(text)
