"""`haulout manifests`: what to apply to a cluster before the operator runs in it."""

from collections.abc import Mapping

import click

from haulout.cli import options
from haulout.cli.check import variables


@click.command("manifests", short_help="Print what to apply before the operator runs in a cluster.")
@click.option("--crds-only", is_flag=True, help="Only the CustomResourceDefinitions.")
@click.option("--image", metavar="IMAGE", help="The operator's image, as your registry names it.")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="haulout",
    show_default=True,
    callback=options.checked_namespace,
    help="Where the operator lives.",
)
@click.option(
    "--lease-namespace",
    metavar="NAME",
    default="medik8s-leases",
    show_default=True,
    callback=options.checked_namespace,
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
    "given",
    multiple=True,
    metavar="NAME=value",
    callback=variables,
    help="A variable for ${NAME} in the file, beside those that are set here. Can be repeated.",
)
def manifests(
    *,
    crds_only: bool,
    image: str | None,
    namespace: str,
    lease_namespace: str,
    replicas: int,
    file: str | None,
    given: Mapping[str, str],
) -> None:
    """Print YAML for `kubectl apply -f -`: definitions, namespaces, permissions and the operator's Deployment.

    With --config the permissions are those that NodeMaintenances and this configuration need, and no more. Without it
    they are enough for most: to drain, to limit how many nodes are away, to see workloads recover, and for leases in
    the operator's own namespace. Not granted are leases elsewhere, Secrets, and hypervisors.

    \b
    Exit codes:
      0  it was printed
      2  the command line or the file makes no sense
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.app.manifests import Installation, as_yaml, definitions, everything
    from haulout.cli.configuring import configuration

    if crds_only:
        click.echo(as_yaml(definitions()), nl=False)
        return
    if not image:
        raise click.UsageError("--image: expected the operator's image; or --crds-only, to run it from elsewhere")
    wanted = Installation(
        image=image,
        namespace=namespace,
        lease_namespace=lease_namespace,
        replicas=replicas,
        configuration=None if file is None else configuration(file, given),
    )
    click.echo(as_yaml(everything(wanted)), nl=False)
