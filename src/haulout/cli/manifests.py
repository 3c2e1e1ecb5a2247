"""`haulout manifests`: what to apply to a cluster before the operator runs in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.cli.check.command import parse_variables

if TYPE_CHECKING:  # heavy: imported when it is needed
    from haulout.app.manifests.operator_manifests import Installation

_HUB_OPTIONS = ("mode", "hub_flags", "image", "namespace", "replicas", "allowed_namespaces")


@click.command("manifests", short_help="Print what to apply before the operator runs in a cluster.")
@click.option(
    "--mode",
    type=click.Choice(["cluster", "management"]),
    default="cluster",
    show_default=True,
    help="What it runs as, as for `haulout run`. management: only what a hub needs in a management cluster.",
)
@click.option(
    "--hub-flag",
    "hub_flags",
    multiple=True,
    metavar="FLAG",
    help="With --mode management: a flag of `haulout run` for the Deployment, such as --approval-timeout=4h. "
    "Can be repeated.",
)
@click.option("--crds-only", is_flag=True, help="Only the CustomResourceDefinitions.")
@click.option("--machines", is_flag=True, help="Also what it takes to replace the Machines of OpenShift.")
@click.option(
    "--agent",
    is_flag=True,
    help="Also an agent on each node, which Azure and Google Cloud need, and AWS without a queue.",
)
@click.option("--esx", is_flag=True, help="Also what it takes to see to nodes on ESX hosts, by a Secret haulout-esx.")
@click.option("--image", metavar="IMAGE", help="The operator's image, as your registry names it.")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="haulout",
    show_default=True,
    callback=options.check_namespace,
    help="Where the operator lives.",
)
@click.option(
    "--lease-namespace",
    metavar="NAME",
    default="medik8s-leases",
    show_default=True,
    callback=options.check_namespace,
    help="Where the leases of nodes are.",
)
@click.option(
    "--replicas", type=click.IntRange(1, 10), default=2, show_default=True, help="How many; one of them leads."
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The maintenance.yaml that it will run: it is granted exactly what that needs. [default: what is usual]",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=value",
    callback=parse_variables,
    help="A variable for ${NAME} in the file, beside those that are set here. Can be repeated.",
)
@click.option(
    "--kubernikus",
    metavar="FILE",
    help="The kubernikus.yaml that it will run, from a ConfigMap haulout-kubernikus: what that needs is granted, too.",
)
@click.option(
    "--oci-handler",
    metavar="NAMESPACE",
    callback=options.check_namespace,
    help="Where the OCI Node Maintenance Handler has planned drains: its CronJobs there are taken over.",
)
@click.option(
    "--dashboard-auth",
    type=click.Choice(["off", "token", "proxy"]),
    default="token",
    show_default=True,
    help="Who may use the dashboard, as for `haulout run`. proxy: one that shows what a Secret haulout-dashboard-proxy "
    "has under the key secret.",
)
@click.option(
    "--dashboard-acts",
    type=click.Choice(["narrow", "wide"]),
    help="With --dashboard-auth proxy: let people act from the dashboard, by a ServiceAccount of its own that "
    "impersonates them. narrow: for these acts only, from Kubernetes 1.36 on. wide: on any version; beware, that "
    "account may do anything in anybody's name.",
)
@click.option(
    "--allow-pod-deletion",
    "pod_deletion",
    is_flag=True,
    help="Let the operator delete pods: for NodeMaintenances whose policy deletes what cannot be evicted, and for "
    "files that are not known here. What --config deletes is granted anyway.",
)
@click.option(
    "--allow-from",
    "allowed_namespaces",
    metavar="NAMESPACE",
    multiple=True,
    callback=options.check_namespaces,
    help="A namespace whose pods may reach the dashboard and /metrics on port 8080, as those of an Ingress controller. "
    "Can be repeated. [default: only the replicas themselves]",
)
@click.option(
    "--aws-secret",
    metavar="NAMESPACE/NAME",
    help="A Secret with the keys of AWS, such as the Machine Maintenance Operator's: it is read, to listen to AWS.",
)
@click.pass_context
def manifests(ctx: click.Context, /, **option_values: Any) -> None:
    """Print YAML for `kubectl apply -f -`: definitions, namespaces, permissions and the operator's Deployment.

    With --config the permissions are those that NodeMaintenances and this configuration need, and no more. Without it
    they are enough for most: to drain, to limit how many nodes are away, to see workloads recover, and for leases in
    the operator's own namespace. Not granted are leases elsewhere, Secrets, and hypervisors.
    Which clouds it listens to is told by variables in a ConfigMap haulout-clouds beside it, or in the handler's, wd.

    With --mode management it is a hub: it needs no definitions of ours, but the permission to read the Secrets with the
    kubeconfigs of workload clusters.

    With --machines, for OpenShift, Machines are replaced: the definition of MachineMaintenance is added, its namespace,
    and the permission to delete Machines.

    With --agent a DaemonSet is added that tells of maintenance which only the machine itself hears of, with a policy
    that lets each of its pods write of its own node only. It needs Kubernetes 1.32.

    With --esx nodes are seen to that are virtual machines on ESX hosts: it needs an image with the SDK of vSphere, and
    a Secret haulout-esx with the key esx.yaml.

    \b
    Exit codes:
      0  it was printed
      2  the command line or the file makes no sense
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    values = _Options(**option_values)
    if values.mode == "management":
        _check_hub_options(ctx)
        _print_hub(values)
        return
    _check_options(values)
    if values.crds_only:
        _print_definitions(values)
    else:
        _print_operator(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The values of the options."""

    mode: str
    hub_flags: tuple[str, ...]
    crds_only: bool
    machines: bool
    agent: bool
    esx: bool
    image: str | None
    namespace: str
    lease_namespace: str
    replicas: int
    file: str | None
    variables: Mapping[str, str]
    kubernikus: str | None
    dashboard_auth: str
    dashboard_acts: str | None
    pod_deletion: bool
    allowed_namespaces: tuple[str, ...]
    aws_secret: str | None
    oci_handler: str | None


def _check_options(values: _Options) -> None:
    """Refuse options of an operator that do not go together."""
    from haulout.providers.aws.settings import is_secret_reference

    if values.hub_flags:
        raise click.UsageError("--hub-flag: only with --mode management")
    if values.aws_secret and not is_secret_reference(values.aws_secret):
        raise click.BadParameter(
            f"expected NAMESPACE/NAME, found {values.aws_secret!r:.60}.", param_hint="--aws-secret"
        )
    if values.dashboard_acts and values.dashboard_auth != "proxy":
        raise click.UsageError(
            "--dashboard-acts: only with --dashboard-auth=proxy; with token people act with their own token"
        )
    if not values.crds_only and not values.image:
        raise click.UsageError("--image: expected the operator's image; or --crds-only, to run it from elsewhere")


def _print_definitions(values: _Options) -> None:
    from haulout.app.manifests.operator_manifests import as_yaml, definitions

    click.echo(as_yaml(definitions(with_machines=values.machines)), nl=False)


def _print_operator(values: _Options) -> None:
    from haulout.app.manifests.operator_manifests import all_objects, as_yaml

    click.echo(as_yaml(all_objects(_installation(values))), nl=False)


def _installation(values: _Options) -> "Installation":
    from haulout.app.manifests.operator_manifests import Installation
    from haulout.cli.configuration_files import load_configuration, load_kubernikus_settings
    from haulout.dashboard.api.types import AuthMode
    from haulout.dashboard.auth.permissions import Impersonation

    return Installation(
        image=values.image or "",
        namespace=values.namespace,
        lease_namespace=values.lease_namespace,
        replicas=values.replicas,
        configuration=None if values.file is None else load_configuration(values.file, values.variables),
        machines=values.machines,
        agent=values.agent,
        kubernikus=None if values.kubernikus is None else load_kubernikus_settings(values.kubernikus, values.variables),
        esx=values.esx,
        dashboard_auth=AuthMode(values.dashboard_auth),
        impersonation=None if values.dashboard_acts is None else Impersonation(values.dashboard_acts),
        aws_secret=values.aws_secret or "",
        handler_namespace=values.oci_handler or "",
        pod_deletion=values.pod_deletion,
        allowed_namespaces=values.allowed_namespaces,
    )


def _check_hub_options(ctx: click.Context) -> None:
    """Refuse options that a hub does not have."""
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and parameter.name not in _HUB_OPTIONS:
            raise click.UsageError(f"{parameter.opts[-1]}: not with --mode management")


def _print_hub(values: _Options) -> None:
    from haulout.app.manifests.hub_manifests import HubInstallation, hub_objects
    from haulout.app.manifests.operator_manifests import as_yaml

    if not values.image:
        raise click.UsageError("--image: expected the hub's image")
    installation = HubInstallation(
        image=values.image,
        namespace=values.namespace,
        replicas=values.replicas,
        flags=values.hub_flags,
        allowed_namespaces=values.allowed_namespaces,
    )
    click.echo(as_yaml(hub_objects(installation)), nl=False)
