"""What `haulout run --sandbox` says: where the cluster is, what to try, and what happens in it."""

import shlex
import shutil
import sys
from contextlib import suppress
from datetime import timedelta

import click
import msgspec

from haulout.cli.terminal import aligned, printable
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.sandbox.overview import Overview, overview
from haulout.sandbox.scenarios import plan as plans
from haulout.sandbox.site import Plan, Site

_MINUTE = 60
_HOUR = 60 * _MINUTE


def say_hello(plan: Plan) -> None:
    """Say that it takes a moment, to those who watch."""
    if sys.stderr.isatty():
        nodes = len(plans.machines(plan.loaded.scenario))
        click.echo(f"Starting {_count(nodes, 'node')} …", err=True)


def show(site: Site, plan: Plan, *, seconds: float, with_operator: bool, api: str = "") -> None:
    """Say what there is, and what to try."""
    found = overview(site.cluster.api)
    has_kubectl = bool(shutil.which("kubectl"))
    click.echo(
        as_text(found, site, plan, seconds=seconds, has_kubectl=has_kubectl, with_operator=with_operator, api=api)
    )


def as_text(
    found: Overview,
    site: Site,
    plan: Plan,
    *,
    seconds: float,
    has_kubectl: bool,
    with_operator: bool,
    api: str = "",
) -> str:
    """Return what there is, and what to try; `api` is where the operator answers, if it does."""
    pods = _count(found.pods, "pod") if found.running == found.pods else f"{found.running} of {found.pods} pods running"
    machines = f"{_count(found.nodes, 'node')} in {_count(found.zones, 'zone')}"
    speed = f", {plan.speed:g} times faster than life" if plan.speed != 1 else ""
    rows = [
        ("Cluster", f"{machines}, {pods}, {_count(found.budgets, 'disruption budget')}"),
        ("Scenario", f"{plan.loaded.name}, seed {plan.seed}{speed}"),
        ("Server", site.server),
        ("Kubeconfig", str(site.kubeconfig)),
        *([("Operator", f"{api}/api/v1/info and {api}/metrics")] if api else []),
    ]
    sections = [
        aligned([(click.style(name, bold=True), value) for name, value in rows]),
        [
            "To try, in another terminal:",
            *_commands(found, site, has_kubectl=has_kubectl, with_operator=with_operator),
            *([f"  haulout why {found.first_node} --from {api}"] if api else []),
        ],
        [f"Ready after {seconds:.1f} s. Ctrl-C ends it and leaves nothing behind."],
    ]
    return "\n\n".join("\n".join(section) for section in sections)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _commands(found: Overview, site: Site, *, has_kubectl: bool, with_operator: bool) -> list[str]:
    drained = found.blocked.node if found.blocked else found.first_node
    commands = [f"export KUBECONFIG={shlex.quote(str(site.kubeconfig))}", "kubectl get nodes"]
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
        commands.append("# kubectl is not on your PATH: https://kubernetes.io/docs/tasks/tools")
    return [f"  {command}" for command in commands]


def _order(node: str) -> str:
    """Return an order to take a node out of service, in one line."""
    order = {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": f"try-{node}"},
        "spec": {"nodeName": node, "reason": "to see how it goes"},
    }
    return msgspec.json.encode(order).decode()


def tell(at: timedelta, what: str) -> None:
    """Say what happens; when nobody listens any more, the cluster goes on without a word."""
    with suppress(OSError):
        click.echo(f"{click.style(elapsed(at), dim=True)}  {printable(what)}")


def elapsed(at: timedelta) -> str:
    """Return how long after the beginning, aligned for the first hundred hours."""
    hours, rest = divmod(round(at.total_seconds()), _HOUR)
    minutes, seconds = divmod(rest, _MINUTE)
    return f"+{hours:02}:{minutes:02}:{seconds:02}"


def say_goodbye() -> None:
    """Say that it ended."""
    with suppress(OSError):
        click.echo("\nEnded." if sys.stdout.isatty() else "Ended.")
