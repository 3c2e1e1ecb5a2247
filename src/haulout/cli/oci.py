"""`haulout oci`: test maintenance notices from Oracle Cloud Infrastructure."""

import base64
import os
from collections.abc import Iterator

import click

from haulout.cli import options
from haulout.cli.check.command import read_input


@click.group("oci", short_help="Test maintenance notices from Oracle Cloud Infrastructure.")
def oci() -> None:
    """Test maintenance notices from Oracle Cloud Infrastructure.

    Access is configured by the operator's environment variables: WD_STREAM_OCID and WD_STREAM_ENDPOINT, and
    HAULOUT_OCI_AUTH=config-file to use the configuration of the OCI CLI.
    """


@oci.command("send-event", short_help="Send an event to the stream that the operator reads.")
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Only print how the operator would interpret it.")
@options.verbose_option
def send_event(*, file: str, dry_run: bool) -> None:
    """Send the JSON document in FILE to the stream that the operator reads; `-` is standard input.

    The output says how the operator will interpret it, and its position in the stream. Documents that are no
    maintenance event are sent, too.

    \b
    Exit codes:
      0  sent
      1  OCI refused, or did not answer
      2  the file, the command line or the environment is invalid
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.output import printable
    from haulout.providers.oci.sdk import new_clients
    from haulout.providers.oci.settings import read

    document = read_input(file)
    for line in _describe_event(document, file):
        click.echo(printable(line))
    if dry_run:
        return
    settings = read(os.environ)
    if settings is None or not settings.stream:
        raise click.UsageError("set WD_STREAM_OCID and WD_STREAM_ENDPOINT to select the stream")
    streaming, _ = new_clients(settings)
    if streaming is not None:
        from haulout.cli.connect import run

        partition, offset = run(streaming.put(document))
        click.echo(printable(f"Sent to {settings.stream}: partition {partition}, offset {offset}."))


def _describe_event(document: bytes, file: str) -> Iterator[str]:
    from haulout.api.maintenancenotice import NoticeStage
    from haulout.errors import ConfigError
    from haulout.providers.oci.maintenance_events import MaintenanceHint, UnreadableMaintenanceEvent, parse_message

    try:
        parsed = parse_message({"value": base64.b64encode(document)})
    except UnreadableMaintenanceEvent as error:
        raise ConfigError(str(error), file=file) from None
    if parsed is None:
        yield "This event is not about maintenance of an instance: the operator will ignore it."
        return
    if isinstance(parsed, MaintenanceHint):
        yield "The operator will query the Compute API for details."
        return
    report, plan = parsed.report, parsed.report.plan
    yield f"The operator will create or update notice {report.name} with:"
    yield f"  instance  {report.provider_id}"
    yield f"  stage     {report.stage}"
    if plan is not None and plan.start is not None:
        yield f"  kind      {plan.kind}" + (f" ({plan.reason})" if plan.reason else "")
        yield f"  start     {plan.start:%Y-%m-%d %H:%M:%S} UTC, not before"
    elif report.stage is NoticeStage.STARTED:
        yield "  start     now"
    if plan is not None and plan.deadline is not None:
        yield f"  deadline  {plan.deadline:%Y-%m-%d %H:%M:%S} UTC"
    if plan is not None and plan.end is not None:
        yield f"  end       {plan.end:%Y-%m-%d %H:%M:%S} UTC, expected"
