"""`haulout run`: the operator, the hub, or a sandbox cluster with the operator, in this process."""

import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import component_flags, options
from haulout.cli.run import flags, hub_flags

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.controllers.clusterapi.settings import ClusterApiSettings
    from haulout.dashboard.auth.settings import AccessSettings
    from haulout.history.retention import RetentionSettings
    from haulout.httpserver.listener import ListenAddress
    from haulout.kube.leaderelection_config import LeaderElectionConfig

_MAX_PORT = 65_535
_SANDBOX_ONLY = (
    "no_operator",
    "nodes",
    "zones",
    "pods_per_node",
    "seed",
    "speed",
    "scenario",
    "write_kubeconfig",
    "port",
    "clouds_port",
)
_CLUSTER_ONLY = (
    "kubeconfig",
    "context",
    "namespace",
    "log_format",
    "webhook",
    "webhook_client_auth",
    "webhook_client_names",
    "health_port",
    "https_metrics_port",
    "no_quorum_check",
    "cluster_name",
    *component_flags.OPTION_NAMES,
    *flags.HISTORY_OPTION_NAMES,
    *flags.LEASE_OPTION_NAMES,
)

_CLUSTER_MODE_ONLY = (
    "webhook",
    "webhook_client_auth",
    "webhook_client_names",
    "https_metrics_port",
    "config",
    *component_flags.OPTION_NAMES,
    "no_quorum_check",
    "sandbox",
    *flags.HISTORY_OPTION_NAMES,
)

OptionCheck = Callable[[click.Context, click.Parameter, Any], Any]


def _check_between(minimum: int, maximum: int, hint: str) -> OptionCheck:
    """Return a callback that checks a range; its error names both bounds and the reason."""

    def check(_ctx: click.Context, _: click.Parameter, value: float | None) -> float | None:
        if value is not None and (math.isnan(value) or not minimum <= value <= maximum):
            raise click.BadParameter(f"expected {minimum} to {maximum}, found {value:g}: {hint}.")
        return value

    return check


def _check_sandbox_limit(hint: str) -> OptionCheck:
    """Return a callback that checks a number against a limit of the sandbox."""

    def check(ctx: click.Context, parameter: click.Parameter, value: float | None) -> Any:
        if value is None or ctx.get_parameter_source(parameter.name or "") is click.core.ParameterSource.DEFAULT:
            return value
        from haulout.app.sandbox.interface import find_sandbox

        return _check_between(1, find_sandbox().limits[parameter.name or ""], hint)(ctx, parameter, value)

    return check


class _ScenarioOption(click.Option):
    """An option whose help names the scenarios of the installed sandbox in place of `%s`."""

    @property
    def help(self) -> str | None:
        from haulout.app.sandbox.interface import find_sandbox
        from haulout.errors import UsageError

        try:
            names = ", ".join(find_sandbox().builtin_names())
        except UsageError:
            names = "the name of one that comes with the sandbox"
        return None if self._help is None else self._help % names

    @help.setter  # noqa: A003 - the name is that of click
    def help(self, text: str | None) -> None:
        self._help = text


class _RunCommand(click.Command):
    """A command whose help lists the environment variables of clouds in place of `CLOUD_VARIABLES`."""

    @property
    def help(self) -> str | None:
        text = "\n".join(component_flags.cloud_variables())
        return re.sub(
            "^( *)CLOUD_VARIABLES$", lambda found: indent(text, found[1]), self._help or "", flags=re.MULTILINE
        )

    @help.setter  # noqa: A003 - the name is that of click
    def help(self, text: str | None) -> None:
        self._help = text


@click.command("run", cls=_RunCommand, short_help="Run the operator, or with --sandbox a simulated cluster to try it.")
@options.cluster_options
@click.option(
    "--mode",
    type=click.Choice(["cluster", "management"]),
    default="cluster",
    show_default=True,
    help="cluster: maintain the nodes of this cluster. management: run as the hub of a management cluster of Cluster "
    "API, "
    "and coordinate its Machines with the nodes of workload clusters.",
)
@hub_flags.hub_options
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Format of the operator's log on stderr. [default: text on a terminal, json elsewhere]",
)
@click.option(
    "--webhook",
    metavar="CERTIFICATE",
    help="Serve the admission webhook, with a certificate from: auto, self, folder:PATH or secret:NAME; or off. "
    "[default: auto in a pod, off elsewhere]",
)
@click.option(
    "--webhook-client-auth",
    type=click.Choice(["off", "optional", "required"]),
    default="optional",
    show_default=True,
    help="Whether callers of the webhook must present a client certificate of the API server.",
)
@click.option(
    "--webhook-client-name",
    "webhook_client_names",
    multiple=True,
    metavar="NAME",
    help="Accepted common name of such a certificate, in addition to requestheader-allowed-names of the cluster. Can "
    "be repeated.",
)
@click.option(
    "--health-port",
    type=int,
    metavar="N",
    callback=_check_between(1, _MAX_PORT, "/healthz and /readyz are served there"),
    help="Serve /healthz and /readyz on this port. [default: 8081 in a pod, not at all elsewhere]",
)
@click.option(
    "--metrics-port",
    type=int,
    metavar="N",
    callback=_check_between(1, _MAX_PORT, "the dashboard, the API and /metrics are served there"),
    help="Serve the dashboard, the API and /metrics on this port. [default: 8080 in a pod, not at all elsewhere; with "
    "--sandbox 8080, or any free port]",
)
@click.option(
    "--https-metrics-port",
    type=int,
    metavar="N",
    callback=_check_between(1, _MAX_PORT, "/metrics is served there, over HTTPS"),
    help="Serve /metrics over HTTPS on this port, with the webhook's certificate, to clients that are authorized to "
    "get it. "
    "[default: 8443 in a pod, not at all elsewhere]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration of maintenance profiles. [default: config/maintenance.yaml, if it exists]",
)
@component_flags.run_options
@click.option(
    "--cluster-name",
    metavar="NAME",
    help="The name of the cluster, shown in the dashboard. [default: the context, outside of a pod]",
)
@flags.dashboard_options
@flags.lease_options
@flags.retention_options
@click.option(
    "--no-quorum-check",
    is_flag=True,
    help="Also maintain nodes whose loss would break the quorum of etcd; not on OpenShift.",
)
@click.option(
    "--sandbox", is_flag=True, help="Start a cluster in this process, with the operator in it; needs haulout[sandbox]."
)
@click.option("--no-operator", is_flag=True, help="With --sandbox: only the cluster.")
@click.option(
    "--nodes",
    type=int,
    metavar="N",
    callback=_check_sandbox_limit("each node costs time and memory; --scenario big has 1,000"),
    help="The number of nodes, instead of the scenario's.",
)
@click.option(
    "--zones",
    type=int,
    metavar="N",
    callback=_check_sandbox_limit("they are named by letters"),
    help="The number of zones.",
)
@click.option(
    "--pods-per-node",
    type=int,
    metavar="N",
    callback=_check_sandbox_limit("a node has room for 110"),
    help="The approximate number of pods per node.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of all random decisions.")
@click.option(
    "--speed",
    type=float,
    default=1.0,
    metavar="FACTOR",
    callback=_check_sandbox_limit("1 is real time; at 60 a minute takes a second"),
    help="How many times faster than real time the cluster's clock runs. [default: 1]",
)
@click.option(
    "--scenario",
    cls=_ScenarioOption,
    default="default",
    show_default=True,
    metavar="NAME|FILE",
    help="The scenario: %s, or a YAML file.",
)
@click.option(
    "--write-kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file for the kubeconfig, instead of ~/.cache/haulout/sandbox.kubeconfig. It is removed at the end.",
)
@click.option(
    "--port",
    type=int,
    default=0,
    metavar="N",
    callback=_check_between(0, _MAX_PORT, "0 is any free port"),
    help="Port of the API server on this machine, instead of any free port.",
)
@click.option(
    "--clouds-port",
    type=int,
    metavar="N",
    callback=_check_between(0, _MAX_PORT, "0 is any free port"),
    help="With --sandbox: serve the simulated APIs of clouds on this port, for SDKs, command lines and agents.",
)
@options.verbose_option
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> None:
    """Run the operator until Ctrl-C or SIGTERM.

    It connects to the cluster of --kubeconfig and --context or, in a pod, to the pod's own cluster. Run any number of
    replicas: one leads, the others wait. NodeMaintenances are reconciled where their CustomResourceDefinition is
    installed, and profiles where there is a configuration: the SAP maintenance-controller's files work unchanged. Edits
    are applied without a restart.

    With --mode management it is the hub of a management cluster of Cluster API: it holds the deletion of enabled
    Machines until their nodes, in workload clusters, are prepared, and forwards requests for their maintenance.

    With --sandbox it starts its own cluster: an API server with nodes, a scheduler and controllers, all in memory.
    kubectl works with it as with a real cluster. The output says how to connect, and nothing is left behind.

    \b
    Environment:
      NODE_NAME        the node that this process runs on: before it is drained, another leads
      LEASE_NAMESPACE  where the leases of nodes are, instead of medik8s-leases
      KUBECONTEXT      the context, if --context names none
      HAULOUT_MACHINES_LEAD, _WINDOW, _SURGE, _KINDS  how Machines of OpenShift are replaced, where there are any
      HAULOUT_NOTICES_RECOVERY  how long nodes wait, after announced maintenance, for evicted workloads to recover
      CLOUD_VARIABLES

    \b
    Exit codes:
      0  stopped by Ctrl-C or SIGTERM
      1  the cluster cannot be reached at the start, or does not accept the credentials
      2  the command line, a file it names or a variable is invalid
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    values = _RunOptions(**options)
    if not values.elects:
        _refuse_options(ctx, flags.LEASE_OPTION_NAMES, "not with --no-leader-election, because there is no lease then")
    if values.mode == "management":
        _refuse_options(ctx, (*_SANDBOX_ONLY, *_CLUSTER_MODE_ONLY), "not with --mode management")
        _run_hub(values)
        return
    _refuse_options(ctx, hub_flags.OPTION_NAMES, "only with --mode management")
    if not values.sandbox:
        _refuse_options(ctx, _SANDBOX_ONLY, "only with --sandbox")
        _run_operator(values)
        return
    _refuse_options(ctx, _CLUSTER_ONLY, "not with --sandbox, which brings its own cluster")
    if values.no_operator:
        _refuse_options(ctx, ("config",), "not with --no-operator, because nothing would read it")
        _refuse_options(
            ctx,
            ("metrics_port", *flags.DASHBOARD_OPTION_NAMES),
            "not with --no-operator, because nothing would answer there",
        )
    _run_sandbox(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunOptions:
    """The flags of the command."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None
    mode: str
    hub: "ClusterApiSettings"
    elects: bool
    log_format: str | None
    webhook: str | None
    webhook_client_auth: str
    webhook_client_names: tuple[str, ...]
    health_port: int | None
    metrics_port: int | None
    https_metrics_port: int | None
    config: Path | None
    component_files: Mapping[str, Path]
    access: "AccessSettings"
    leases: "LeaderElectionConfig"
    retention: "RetentionSettings"
    no_quorum_check: bool
    cluster_name: str | None
    sandbox: bool
    no_operator: bool
    nodes: int | None
    zones: int | None
    pods_per_node: int | None
    seed: int
    speed: float
    scenario: str
    write_kubeconfig: Path | None
    port: int
    clouds_port: int | None

    @property
    def named_context(self) -> str | None:
        return self.context or os.environ.get("KUBECONTEXT")

    @property
    def as_json(self) -> bool:
        return self.log_format == "json" or (self.log_format is None and not sys.stderr.isatty())

    @property
    def dashboard_address(self) -> "ListenAddress | None":
        """The address of the dashboard and metrics, if given."""
        from haulout.httpserver.listener import ListenAddress

        return None if self.metrics_port is None else ListenAddress(self.metrics_port)


def _run_hub(values: _RunOptions) -> None:
    from haulout.cli.run.management_mode import HubOptions, run_hub_process

    hub_options = HubOptions(
        hub=values.hub,
        namespace=values.namespace,
        health_port=values.health_port,
        metrics=values.dashboard_address,
        access=values.access,
        cluster=values.cluster_name,
        elects=values.elects,
        leases=values.leases,
    )
    run_hub_process(hub_options, kubeconfig=values.kubeconfig, context=values.named_context, as_json=values.as_json)


def _run_operator(values: _RunOptions) -> None:
    from haulout.cli.run.cluster_mode import OperatorOptions, run_operator_process
    from haulout.httpserver.listener import ListenAddress
    from haulout.webhook.settings import ClientAuth

    operator_options = OperatorOptions(
        namespace=values.namespace,
        webhook=values.webhook,
        webhook_client_auth=ClientAuth(values.webhook_client_auth),
        webhook_client_names=values.webhook_client_names,
        health_port=values.health_port,
        metrics=values.dashboard_address,
        secure_metrics_address=None if values.https_metrics_port is None else ListenAddress(values.https_metrics_port),
        access=values.access,
        guards_quorum=not values.no_quorum_check,
        cluster=values.cluster_name,
        leases=values.leases,
        retention=values.retention,
    )
    run_operator_process(
        operator_options,
        kubeconfig=values.kubeconfig,
        context=values.named_context,
        as_json=values.as_json,
        config=values.config,
        component_files=values.component_files,
    )


def _run_sandbox(values: _RunOptions) -> None:
    from haulout.app.sandbox.interface import find_sandbox
    from haulout.cli.run.sandbox_mode import run_sandbox_process

    sandbox = find_sandbox()
    plan = sandbox.read_plan(
        values.scenario,
        nodes=values.nodes,
        zones=values.zones,
        pods_per_node=values.pods_per_node,
        seed=values.seed,
        speed=values.speed,
        port=values.port,
        clouds_port=values.clouds_port,
        kubeconfig=values.write_kubeconfig,
    )
    run_sandbox_process(
        sandbox,
        plan,
        config=values.config,
        with_operator=not values.no_operator,
        metrics_port=values.metrics_port,
        access=values.access,
    )


def _refuse_options(ctx: click.Context, names: tuple[str, ...], why: str) -> None:
    """Refuse options that contradict others: no given option is silently ignored."""
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and parameter.name in names:
            raise click.UsageError(f"{parameter.opts[-1]}: {why}")
