"""What a sandbox says to people when it is up: where it is, and what to try."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import msgspec

from haulout.kinds.clusterapi import MAINTENANCE, REQUESTED, ClusterKey
from haulout.kinds.openshift import MACHINE_NAMESPACE
from haulout_sandbox.overview import Overview, overview
from haulout_sandbox.scenarios import plan as plans

if TYPE_CHECKING:  # it says this itself
    from haulout_sandbox.site import Plan, Site

_MAINTENANCE = {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance"}
_CLOUDS = "OCI Streaming and Compute, EC2, SQS, Auto Scaling, metadata of Azure, Google Compute"
_NO_KUBECTL = "# kubectl is not on your PATH: https://kubernetes.io/docs/tasks/tools"


def size(plan: "Plan") -> str:
    """Return how large a sandbox will be."""
    scenario = plan.loaded.scenario
    nodes = len(plans.machines(scenario)) + sum(pool.count for it in scenario.clusters for pool in it.pools)
    inside = f" in {_count(1 + len(scenario.clusters), 'cluster')}" if scenario.clusters else ""
    return f"{_count(nodes, 'node')}{inside}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload cluster, as it is shown."""

    key: ClusterKey
    context: str
    found: Overview
    machine: str = ""  # one of its Machines, to try things on
    dashboard: str = ""


def workloads(site: "Site", operators: Mapping[ClusterKey, str]) -> list[Workload]:
    """Return the workload clusters of a sandbox, and where their operators answer."""
    clusters, shown = site.stage.workload_clusters, []
    for key, context in site.contexts.items():
        machines = site.cluster.api.objects("machines", namespace=key.namespace)
        names = [it["metadata"]["name"] for it in machines if it["spec"]["clusterName"] == key.name]
        shown.append(
            Workload(
                key=key,
                context=context,
                found=overview(clusters[key].api),
                machine=next(iter(names), ""),
                dashboard=operators.get(key, ""),
            )
        )
    return shown


def as_text(  # noqa: PLR0913 - one for each thing that there is to tell
    found: Overview,
    site: "Site",
    plan: "Plan",
    *,
    seconds: float,
    has_kubectl: bool,
    with_operator: bool,
    with_profiles: bool = False,
    api: str = "",
    token: str = "",
    workloads: Sequence[Workload] = (),
) -> str:
    """Return what there is, and what to try; `api` is where the operator answers, and `token` opens that, if set."""
    speed = f", {plan.speed:g} times faster than life" if plan.speed != 1 else ""
    rows = [
        ("Cluster", f"{'management: ' if workloads else ''}{_size(found)}"),
        *(("Workload", f"{it.key}: {_size(it.found)}") for it in workloads),
        ("Scenario", f"{plan.loaded.name}, seed {plan.seed}{speed}"),
        ("Server", site.server),
        ("Kubeconfig", str(site.kubeconfig)),
        *_places(api, workloads),
        *([("Token", f"{token} (to log in to the dashboard)")] if token else []),
        *([("Clouds", f"{site.clouds} ({_CLOUDS})")] if site.clouds else []),
    ]
    sections = [
        _aligned(rows),
        [
            "To try, in another terminal:",
            *(
                _hub_commands(site, workloads, has_kubectl=has_kubectl, with_operator=with_operator)
                if workloads
                else _commands(found, site, plan, has_kubectl=has_kubectl, with_operator=with_operator)
            ),
            *([f"  haulout why {found.first_node} --from {api}"] if api and with_profiles and not workloads else []),
        ],
        [f"Ready after {seconds:.1f} s. Ctrl-C ends it and leaves nothing behind."],
    ]
    return "\n\n".join("\n".join(section) for section in sections)


def _aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"{click.style(name.ljust(width), bold=True)}  {value}" for name, value in rows]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _size(found: Overview) -> str:
    pods = _count(found.pods, "pod") if found.running == found.pods else f"{found.running} of {found.pods} pods running"
    machines = f"{_count(found.nodes, 'node')} in {_count(found.zones, 'zone')}"
    return f"{machines}, {pods}, {_count(found.budgets, 'disruption budget')}"


def _places(api: str, workloads: Sequence[Workload]) -> list[tuple[str, str]]:
    """Return where the operator answers; or the hub, and the operators of workload clusters."""
    if not workloads:
        return [("Dashboard", f"{api}/"), ("Operator", f"{api}/api/v1/info and {api}/metrics")] if api else []
    hub = [("Dashboard", f"{api}/ (all clusters)"), ("Hub", f"{api}/metrics")] if api else []
    return hub + [("Dashboard", f"{it.dashboard}/ ({it.key})") for it in workloads if it.dashboard]


def _hub_commands(site: "Site", workloads: Sequence[Workload], *, has_kubectl: bool, with_operator: bool) -> list[str]:
    commands = [
        f"export KUBECONFIG={shlex.quote(str(site.kubeconfig))}",
        "kubectl get clusters,machines -A",
        "kubectl get bmh -A  # hosts of Metal3",
        *(f"kubectl --context {it.context} get nodes" for it in workloads),
    ]
    # Not those of the first: these are rolled out while one still reads.
    tried = next((it for it in reversed(workloads) if it.machine), None)
    if tried is not None:
        machine = f"machine -n {tried.key.namespace} {tried.machine}"
        if with_operator:
            commands += [
                f"kubectl label {machine} {MAINTENANCE}={REQUESTED}  # its node is emptied, and approves it",
                f"kubectl label {machine} {MAINTENANCE}-  # it is over: the node is given back",
            ]
        commands.append(f"kubectl delete {machine} --wait=false  # another comes in its place")
    return [f"  {it}" for it in (*commands, *([] if has_kubectl else [_NO_KUBECTL]))]


def _commands(found: Overview, site: "Site", plan: "Plan", *, has_kubectl: bool, with_operator: bool) -> list[str]:
    drained = found.blocked.node if found.blocked else found.first_node
    commands = [f"export KUBECONFIG={shlex.quote(str(site.kubeconfig))}", "kubectl get nodes"]
    if with_operator and site.stage.fleet.clouds:
        commands.append("kubectl get mn  # what the clouds announce, from the first seconds on")
    if plan.loaded.scenario.has_machines:
        commands.append(f"kubectl get machines -n {MACHINE_NAMESPACE}")
    if plan.loaded.scenario.has_machines and with_operator:
        commands.append("kubectl get machinemaintenances -A")
    if with_operator:
        commands += [f"echo '{_order(drained)}' | kubectl apply -f -", "kubectl get nodemaintenances --watch"]
    else:
        commands += [
            "kubectl get pods -A -o wide",
            f"kubectl drain {drained} --ignore-daemonsets --force --timeout=60s",
        ]
    if found.blocked:
        commands.append(f"# it meets the budget of {found.blocked.budget}, which will not let it")
    if with_operator:
        commands.append(f"kubectl delete nodemaintenance try-{drained}  # gives the node back")
    if not has_kubectl:
        commands.append(_NO_KUBECTL)
    return [f"  {command}" for command in commands]


def _order(node: str) -> str:
    """Return an order to take a node out of service, in one line."""
    order = {
        **_MAINTENANCE,
        "metadata": {"name": f"try-{node}"},
        "spec": {"nodeName": node, "reason": "to see how it goes"},
    }
    return msgspec.json.encode(order).decode()
