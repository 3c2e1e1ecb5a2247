"""`haulout oci`: to try out notices from Oracle Cloud Infrastructure."""

import base64
import os
from collections.abc import Iterator

import click

from haulout.cli import options
from haulout.cli.check.command import read_input


@click.group("oci", short_help="Try out maintenance notices from Oracle Cloud Infrastructure.")
def oci() -> None:
    """Try out maintenance notices from Oracle Cloud Infrastructure.

    How to reach it is told by the environment variables of the operator: WD_STREAM_OCID and WD_STREAM_ENDPOINT, and
    HAULOUT_OCI_AUTH=config-file to do it as the OCI CLI does.
    """


@oci.command("send-event", short_help="Put an event on the stream that the operator reads.")
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Only say what the operator would make of it.")
@options.verbose_option
def send_event(*, file: str, dry_run: bool) -> None:
    """Put the JSON document in FILE on the stream that the operator reads; `-` is standard input.

    It says what the operator will make of it, and where in the stream it is. What is no maintenance event is sent, too.

    \b
    Exit codes:
      0  sent
      1  OCI said no, or nothing
      2  the file, the command line or the environment makes no sense
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli.terminal import printable
    from haulout.providers.oci.sdk import new_clients
    from haulout.providers.oci.settings import read

    document = read_input(file)
    for line in _describe_event(document, file):
        click.echo(printable(line))
    if dry_run:
        return
    settings = read(os.environ)
    if settings is None or not settings.stream:
        raise click.UsageError("set WD_STREAM_OCID and WD_STREAM_ENDPOINT to say which stream it is put on")
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
        yield "This is about something else than maintenance of an instance: the operator will pass it over."
        return
    if isinstance(parsed, MaintenanceHint):
        yield "The operator will ask Compute what happened."
        return
    report, plan = parsed.report, parsed.report.plan
    yield f"The operator will have notice {report.name} say:"
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
