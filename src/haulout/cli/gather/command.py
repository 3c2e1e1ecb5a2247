"""`haulout gather`: collect data for support in one archive."""

import os
import sys
from pathlib import Path

import click

from haulout.cli import options


@click.command("gather", short_help="Collect the data that support needs into one archive, without secrets.")
@click.option(
    "-f",
    "--file",
    "file",
    metavar="FILE",
    help="The file to write; - is standard output. [default: haulout-gather-TIME.tar.gz]",
)
@click.option(
    "--directory", metavar="FOLDER", help="Write files into this directory instead, as `oc adm must-gather` expects."
)
@click.option(
    "--since", "span", metavar="SPAN", default="24h", show_default=True, help="The age of the oldest log line."
)
@options.cluster_options
@options.verbose_option
def gather(
    *,
    file: str | None,
    directory: str | None,
    span: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Collect data for support: nodes, maintenances, notices, history, events, budgets, and the operator itself.

    From the operator it collects configuration, logs, API responses and metrics. Secrets are not read, and what looks
    like one is redacted. README.txt in the archive lists what could not be read, and so does the output. The command
    only reads.

    \b
    Exit codes:
      0  collected, perhaps with gaps
      1  the cluster cannot be reached
      2  the command line is invalid, or the file cannot be written
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    if file and directory:
        raise click.UsageError("--file and --directory exclude each other: give one")
    from haulout.cli.connect import connect, run
    from haulout.cli.gather.collector import ArchiveFile, Collector, GatherOptions, build_archive, readme, write_files
    from haulout.cli.history.node_history import parse_past_span
    from haulout.cli.output import printable
    from haulout.controllers.profiles.plugins.registry import registries
    from haulout.core.clock import RealClock
    from haulout.errors import UsageError

    since = parse_past_span("--since", span)
    if since is None:
        raise click.UsageError("--since: expected a duration such as 24h")
    now = RealClock().now()

    async def collect() -> tuple[list[ArchiveFile], list[str]]:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            options = GatherOptions(namespace=namespace, since=since)
            collector = Collector(session, options, registries())
            return [archive_file async for archive_file in collector.files()], collector.gaps

    files, gaps = run(collect())
    all_files = [readme(files, gaps, now=now), *files]
    for gap in gaps:
        click.echo(f"missing: {printable(gap)}", err=True)
    if directory:
        write_files(all_files, Path(directory))
        click.echo(f"{len(all_files)} files in {directory}", err=True)
        return
    name = f"haulout-gather-{now:%Y%m%d-%H%M%S}"
    archive = build_archive(all_files, folder=name, now=now)
    if file == "-":
        sys.stdout.buffer.write(archive)
        return
    path = Path(file or f"{name}.tar.gz")
    try:
        # The archive describes the cluster in detail: other users of the machine must not read it.
        with open(path, "wb", opener=_open_private) as target:
            target.write(archive)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    click.echo(f"{path}: {len(all_files)} files, {len(archive):,} bytes")


def _open_private(path: str, flags: int) -> int:
    file = os.open(path, flags, 0o600)
    os.fchmod(file, 0o600)  # a file that existed before
    return file
