"""The text that a sandbox prints when it is up: its addresses, the counts of its objects, and commands to try."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import msgspec

from haulout.api.clusterapi import MAINTENANCE, REQUESTED, ClusterKey
from haulout.api.objects import RawObject
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.nodes.scheduler.framework import CONTROL_PLANE_LABEL, ZONE_LABEL
from haulout_sandbox.scenarios import expansion as plans

if TYPE_CHECKING:  # running_sandbox imports this module
    from haulout_sandbox.running_sandbox import RunningSandbox, SandboxPlan

_MAINTENANCE = {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance"}
_CLOUDS = "OCI Streaming and Compute, EC2, SQS, Auto Scaling, metadata of Azure, Google Compute"
_NO_KUBECTL = "# kubectl is not on your PATH: https://kubernetes.io/docs/tasks/tools"


def plan_size(plan: "SandboxPlan") -> str:
    """Return the size of a sandbox as text."""
    scenario = plan.loaded.scenario
    nodes = len(plans.new_machines(scenario)) + sum(
        pool.count for cluster in scenario.clusters for pool in cluster.pools
    )
    clusters_text = f" in {_count(1 + len(scenario.clusters), 'cluster')}" if scenario.clusters else ""
    return f"{_count(nodes, 'node')}{clusters_text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedNode:
    """A node whose drain a PodDisruptionBudget blocks."""

    node: str
    budget: str  # namespace/name


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Counts of objects, and the nodes to suggest to the user."""

    nodes: int
    zones: int
    pods: int
    running: int
    budgets: int
    first_node: str
    blocked: BlockedNode | None


def overview(api: ApiServer) -> Overview:
    nodes, pods = api.objects("nodes"), api.objects("pods")
    budgets = api.objects("poddisruptionbudgets")
    live_pods = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    return Overview(
        nodes=len(nodes),
        zones=len({node["metadata"].get("labels", {}).get(ZONE_LABEL) for node in nodes}),
        pods=len(live_pods),
        running=sum(pod["status"].get("phase") == "Running" for pod in live_pods),
        budgets=len(budgets),
        first_node=min(nodes, key=_suggestion_order)["metadata"]["name"] if nodes else "",
        blocked=_first_blocked_node(budgets, live_pods),
    )


def _suggestion_order(node: RawObject) -> tuple[bool, str]:
    """Return the sort key for the node suggested to users: workers come before control plane nodes."""
    return CONTROL_PLANE_LABEL in node["metadata"].get("labels", {}), node["metadata"]["name"]


def _first_blocked_node(budgets: Iterable[RawObject], pods: Iterable[RawObject]) -> BlockedNode | None:
    """Return the first node with a pod whose PodDisruptionBudget allows no disruption."""
    blocked_nodes = [
        BlockedNode(
            node=pod["spec"]["nodeName"], budget=f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"
        )
        for budget in budgets
        if not budget.get("status", {}).get("disruptionsAllowed")
        for pod in pods
        if pod["spec"].get("nodeName") and _selects(budget, pod)
    ]
    return min(blocked_nodes, key=lambda blocked: blocked.node, default=None)


def _selects(budget: RawObject, pod: RawObject) -> bool:
    selector, labels = budget["spec"].get("selector", {}).get("matchLabels", {}), pod["metadata"].get("labels", {})
    same_namespace = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return bool(selector) and same_namespace and all(labels.get(key) == value for key, value in selector.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadClusterSummary:
    """A workload cluster as the startup text shows it."""

    key: ClusterKey
    context: str
    overview: Overview
    machine: str = ""  # one of its Machines, for the commands to try
    dashboard: str = ""


def workload_clusters(sandbox: "RunningSandbox", dashboards: Mapping[ClusterKey, str]) -> list[WorkloadClusterSummary]:
    """Return the workload clusters of a sandbox, with the URLs of their dashboards."""
    clusters, summaries = sandbox.scenario_cluster.workload_clusters, []
    for key, context in sandbox.contexts.items():
        machines = sandbox.cluster.api.objects("machines", namespace=key.namespace)
        names = [machine["metadata"]["name"] for machine in machines if machine["spec"]["clusterName"] == key.name]
        summaries.append(
            WorkloadClusterSummary(
                key=key,
                context=context,
                overview=overview(clusters[key].api),
                machine=next(iter(names), ""),
                dashboard=dashboards.get(key, ""),
            )
        )
    return summaries


def startup_text(  # noqa: PLR0913 - one for each thing that there is to tell
    summary: Overview,
    sandbox: "RunningSandbox",
    plan: "SandboxPlan",
    *,
    seconds: float,
    has_kubectl: bool,
    with_operator: bool,
    with_profiles: bool = False,
    api: str = "",
    token: str = "",
    workloads: Sequence[WorkloadClusterSummary] = (),
) -> str:
    """Return the startup text.

    `api` is the URL of the operator, and `token` is its bearer token, if it needs one.
    """
    speed = f", {plan.speed:g} times faster than real time" if plan.speed != 1 else ""
    rows = [
        ("Cluster", f"{'management: ' if workloads else ''}{_size(summary)}"),
        *(("Workload", f"{workload.key}: {_size(workload.overview)}") for workload in workloads),
        ("Scenario", f"{plan.loaded.name}, seed {plan.seed}{speed}"),
        ("Server", sandbox.server),
        ("Kubeconfig", str(sandbox.kubeconfig)),
        *_endpoints(api, workloads),
        *([("Token", f"{token} (to log in to the dashboard)")] if token else []),
        *([("Clouds", f"{sandbox.clouds_url} ({_CLOUDS})")] if sandbox.clouds_url else []),
    ]
    sections = [
        _aligned(rows),
        [
            "To try, in another terminal:",
            *(
                _hub_commands(sandbox, workloads, has_kubectl=has_kubectl, with_operator=with_operator)
                if workloads
                else _commands(summary, sandbox, plan, has_kubectl=has_kubectl, with_operator=with_operator)
            ),
            *([f"  haulout why {summary.first_node} --from {api}"] if api and with_profiles and not workloads else []),
        ],
        [f"Ready after {seconds:.1f} s. Ctrl-C ends it and leaves nothing behind."],
    ]
    return "\n\n".join("\n".join(section) for section in sections)


def _aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"{click.style(name.ljust(width), bold=True)}  {value}" for name, value in rows]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _size(summary: Overview) -> str:
    pods = (
        _count(summary.pods, "pod")
        if summary.running == summary.pods
        else f"{summary.running} of {summary.pods} pods running"
    )
    nodes = f"{_count(summary.nodes, 'node')} in {_count(summary.zones, 'zone')}"
    return f"{nodes}, {pods}, {_count(summary.budgets, 'disruption budget')}"


def _endpoints(api: str, workloads: Sequence[WorkloadClusterSummary]) -> list[tuple[str, str]]:
    """Return names and URLs: of the operator alone, or of the hub and the operators of the workload clusters."""
    if not workloads:
        return [("Dashboard", f"{api}/"), ("Operator", f"{api}/api/v1/info and {api}/metrics")] if api else []
    hub = [("Dashboard", f"{api}/ (all clusters)"), ("Hub", f"{api}/metrics")] if api else []
    return hub + [
        ("Dashboard", f"{workload.dashboard}/ ({workload.key})") for workload in workloads if workload.dashboard
    ]


def _hub_commands(
    sandbox: "RunningSandbox", workloads: Sequence[WorkloadClusterSummary], *, has_kubectl: bool, with_operator: bool
) -> list[str]:
    commands = [
        f"export KUBECONFIG={shlex.quote(str(sandbox.kubeconfig))}",
        "kubectl get clusters,machines -A",
        "kubectl get bmh -A  # hosts of Metal3",
        *(f"kubectl --context {item.context} get nodes" for item in workloads),
    ]
    # Suggest from the last workload clusters: a rollout may still change the Machines of the first while the user
    # reads.
    suggested = next((item for item in reversed(workloads) if item.machine), None)
    if suggested is not None:
        machine = f"machine -n {suggested.key.namespace} {suggested.machine}"
        if with_operator:
            commands += [
                f"kubectl label {machine} {MAINTENANCE}={REQUESTED}  # its node is emptied, and approves it",
                f"kubectl label {machine} {MAINTENANCE}-  # it is over: the node is given back",
            ]
        commands.append(f"kubectl delete {machine} --wait=false  # another comes in its place")
    return [f"  {item}" for item in (*commands, *([] if has_kubectl else [_NO_KUBECTL]))]


def _commands(
    summary: Overview, sandbox: "RunningSandbox", plan: "SandboxPlan", *, has_kubectl: bool, with_operator: bool
) -> list[str]:
    node = summary.blocked.node if summary.blocked else summary.first_node
    commands = [f"export KUBECONFIG={shlex.quote(str(sandbox.kubeconfig))}", "kubectl get nodes"]
    if with_operator and sandbox.scenario_cluster.fleet.clouds:
        commands.append("kubectl get mn  # what the clouds announce, from the first seconds on")
    if plan.loaded.scenario.has_machines:
        commands.append(f"kubectl get machines -n {MACHINE_NAMESPACE}")
    if plan.loaded.scenario.has_machines and with_operator:
        commands.append("kubectl get machinemaintenances -A")
    if with_operator:
        commands += [f"echo '{_maintenance_json(node)}' | kubectl apply -f -", "kubectl get nodemaintenances --watch"]
    else:
        commands += [
            "kubectl get pods -A -o wide",
            f"kubectl drain {node} --ignore-daemonsets --force --timeout=60s",
        ]
    if summary.blocked:
        commands.append(f"# PodDisruptionBudget {summary.blocked.budget} blocks this drain")
    if with_operator:
        commands.append(f"kubectl delete nodemaintenance try-{node}  # uncordons the node")
    if not has_kubectl:
        commands.append(_NO_KUBECTL)
    return [f"  {command}" for command in commands]


def _maintenance_json(node: str) -> str:
    """Return a NodeMaintenance for `node` as one line of JSON."""
    maintenance = {
        **_MAINTENANCE,
        "metadata": {"name": f"try-{node}"},
        "spec": {"nodeName": node, "reason": "test"},
    }
    return msgspec.json.encode(maintenance).decode()
