"""`haulout manifests`: print what to apply to a cluster before the operator runs in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import component_flags, options

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.app.manifests.operator_manifests import Installation

_HUB_OPTIONS = ("mode", "hub_flags", "image", "namespace", "replicas", "allowed_namespaces")


@click.command("manifests", short_help="Print the manifests to apply before the operator runs in a cluster.")
@click.option(
    "--mode",
    type=click.Choice(["cluster", "management"]),
    default="cluster",
    show_default=True,
    help="The mode, as for `haulout run`. management: only what a hub needs in a management cluster.",
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
@click.option("--machines", is_flag=True, help="Also the objects that are needed to replace Machines of OpenShift.")
@click.option(
    "--agent",
    is_flag=True,
    help="Also the DaemonSet of the agent, which Azure and Google Cloud need, and AWS without a queue.",
)
@click.option("--image", metavar="IMAGE", help="The operator's image, in your registry.")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="haulout",
    show_default=True,
    callback=options.check_namespace,
    help="The namespace of the operator.",
)
@click.option(
    "--lease-namespace",
    metavar="NAME",
    default="medik8s-leases",
    show_default=True,
    callback=options.check_namespace,
    help="The namespace of the leases of nodes.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 10),
    default=2,
    show_default=True,
    help="The number of replicas; one of them leads.",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The maintenance.yaml that it will run: exactly the permissions that it needs are granted. [default: those "
    "of a usual configuration]",
)
@options.variables_option
@component_flags.manifests_options
@click.option(
    "--oci-handler",
    metavar="NAMESPACE",
    callback=options.check_namespace,
    help="The namespace in which the OCI Node Maintenance Handler has planned drains: its CronJobs there are taken "
    "over.",
)
@click.option(
    "--dashboard-auth",
    type=click.Choice(["off", "token", "proxy"]),
    default="token",
    show_default=True,
    help="Who may use the dashboard, as for `haulout run`. proxy: a proxy that sends the value of key secret "
    "of Secret haulout-dashboard-proxy.",
)
@click.option(
    "--dashboard-actions",
    type=click.Choice(["constrained", "unrestricted"]),
    help="With --dashboard-auth proxy: let users act from the dashboard, by a separate ServiceAccount that "
    "impersonates them. constrained: for these actions only, from Kubernetes 1.36 on. unrestricted: on any version; "
    "beware, that account may impersonate any user.",
)
@click.option(
    "--allow-pod-deletion",
    "pod_deletion",
    is_flag=True,
    help="Let the operator delete pods: for NodeMaintenances whose policy deletes pods that cannot be evicted, and for "
    "files that are not known here. The permissions that --config needs are granted anyway.",
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
    help="A Secret with the keys of AWS, such as the Machine Maintenance Operator's; the operator uses it to read "
    "events of AWS.",
)
@click.pass_context
def manifests(ctx: click.Context, /, **option_values: Any) -> None:
    """Print YAML for `kubectl apply -f -`: CRDs, namespaces, permissions and the operator's Deployment.

    With --config the permissions are those that NodeMaintenances and this configuration need, and no more. Without it
    they suffice for most configurations: to drain, to limit how many nodes are unavailable, to observe the recovery of
    workloads, and for leases in the operator's own namespace. Leases elsewhere, Secrets and hypervisors are not
    included.

    The variables in the ConfigMap haulout-clouds in the same namespace, or in the handler's ConfigMap wd, select the
    clouds.

    With --mode management the operator is a hub: it needs no CRD of Haulout, but the permission to read the Secrets
    with the kubeconfigs of workload clusters.

    With --machines, for OpenShift, Machines are replaced: the CRD of MachineMaintenance is added, its namespace, and
    the permission to delete Machines.

    With --agent a DaemonSet is added, which reports maintenance that a cloud announces only to the machine itself, with
    a policy that restricts each of its pods to notices of its own node. It needs Kubernetes 1.32.

    \b
    Exit codes:
      0  it was printed
      2  the command line or the file is invalid
    """  # noqa: D301 - click does not rewrap a paragraph after \b
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
    image: str | None
    namespace: str
    lease_namespace: str
    replicas: int
    file: str | None
    variables: Mapping[str, str]
    components: Mapping[str, Any]
    dashboard_auth: str
    dashboard_actions: str | None
    pod_deletion: bool
    allowed_namespaces: tuple[str, ...]
    aws_secret: str | None
    oci_handler: str | None


def _check_options(values: _Options) -> None:
    """Raise `UsageError` for options that exclude each other or that only a hub has."""
    from haulout.providers.aws.settings import is_secret_reference

    if values.hub_flags:
        raise click.UsageError("--hub-flag: only with --mode management")
    if values.aws_secret and not is_secret_reference(values.aws_secret):
        raise click.BadParameter(
            f"expected NAMESPACE/NAME, found {values.aws_secret!r:.60}.", param_hint="--aws-secret"
        )
    if values.dashboard_actions and values.dashboard_auth != "proxy":
        raise click.UsageError(
            "--dashboard-actions: only with --dashboard-auth=proxy; with token users act with their own token"
        )
    if not values.crds_only and not values.image:
        raise click.UsageError("--image: expected the operator's image, or --crds-only if it runs elsewhere")


def _print_definitions(values: _Options) -> None:
    from haulout.app.manifests.operator_manifests import as_yaml, definitions

    click.echo(as_yaml(definitions(with_machines=values.machines)), nl=False)


def _print_operator(values: _Options) -> None:
    from haulout.app.manifests.operator_manifests import all_objects, as_yaml

    click.echo(as_yaml(all_objects(_installation(values))), nl=False)


def _installation(values: _Options) -> "Installation":
    from haulout.app.manifests.operator_manifests import Installation
    from haulout.cli.configuration_files import component_settings, load_configuration
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
        components=component_settings(values.components, values.variables),
        dashboard_auth=AuthMode(values.dashboard_auth),
        impersonation=None if values.dashboard_actions is None else Impersonation(values.dashboard_actions),
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
