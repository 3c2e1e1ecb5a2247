"""A live view of a drain on a terminal: per node a progress bar, what is left, what blocks it, and advice.

Final lines (a node is cordoned, drained or given up, a warning) are printed above the view and stay. The view shows
what is in progress. It is never higher than the terminal: if nodes do not fit, blocked nodes come first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from haulout.cli.cordon.node_changes import ChangeResult, result_lines
from haulout.cli.cordon_owners import format_elapsed
from haulout.cli.drain.drain_runner import NodeDrain, NodeDrainState
from haulout.cli.drain.plain_progress import WarningFilter, ending_lines
from haulout.cli.output import OutputLine, printable
from haulout.core.clock import Clock
from haulout.core.text import format_pod_count
from haulout.drain.blockers import Blocker
from haulout.drain.progress import DrainProgress

_FRAME_INTERVAL = timedelta(milliseconds=250)
_MAX_BAR_WIDTH = 24
_RESERVED_LINES = 3  # two of summary, and one for the cursor
_MAX_BLOCKERS = 3  # per node
_MAX_PODS_NAMED = 3


class LiveReporter:
    """Shows the progress of drains in a live view."""

    def __init__(self, list_records: Callable[[], Sequence[NodeDrain]], *, console: Console, clock: Clock) -> None:
        self._list_records = list_records
        self._console = console
        self._clock = clock
        self._warnings: dict[str, WarningFilter] = {}
        self._is_stopping = False

    def on_cordoned(self, node_drain: NodeDrain, result: ChangeResult) -> None:
        """Print the result above the view."""
        del node_drain
        for line in result_lines(result, verb="cordon"):
            self._print(line)

    def on_progress(self, node_drain: NodeDrain) -> None:
        """Print warnings above the view; the next frame shows the rest."""
        if any(pod.turn_since for pod in node_drain.pods):
            self._warn(node_drain)

    def on_ended(self, node_drain: NodeDrain) -> None:
        """Print the result above the view."""
        progress = node_drain.progress
        if node_drain.result is not NodeDrainState.REFUSED:
            self._warn(node_drain)
        if node_drain.result is NodeDrainState.DRAINED and progress and node_drain.started and node_drain.ended:
            took = format_elapsed(node_drain.ended - node_drain.started)
            self._print(
                OutputLine(
                    f"node/{node_drain.node} drained: {format_pod_count(progress.gone)} removed in {took}",
                    is_result=True,
                )
            )
            for pod in progress.returning:
                self._print(
                    OutputLine(
                        f"Warning: pod {pod} was created again and stays: its replacements would be created again, too"
                    )
                )
            return
        for line in ending_lines(node_drain):
            self._print(line)

    def on_stopping(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        """Refresh the view until cancelled."""
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                view = LiveView(tuple(self._list_records()), self._clock.now(), is_stopping=self._is_stopping)
                live.update(view, refresh=True)
                await self._clock.sleep(_FRAME_INTERVAL)

    def _warn(self, node_drain: NodeDrain) -> None:
        if node_drain.progress is not None:
            for line in self._warnings.setdefault(node_drain.node, WarningFilter()).new_lines(node_drain.progress):
                self._print(line)

    def _print(self, line: OutputLine) -> None:
        self._console.print(Text(printable(line.text), style="" if line.is_result else "yellow"))


@dataclass(frozen=True, slots=True)
class LiveView:
    """One frame of the view."""

    node_drains: tuple[NodeDrain, ...]
    now: datetime
    is_stopping: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the frame, no higher than the terminal."""
        draining = [entry for entry in self.node_drains if entry.result is NodeDrainState.DRAINING]
        width = max((len(entry.node) for entry in draining), default=0)
        bar = min(options.max_width // 5, _MAX_BAR_WIDTH)
        blocks = {entry.node: _node_block(entry, now=self.now, width=width, bar_width=bar) for entry in draining}
        lines_left = (options.height or console.height) - _RESERVED_LINES
        shown: set[str] = set()
        for node_drain in sorted(draining, key=lambda entry: not group_blockers(entry)):
            lines = len(console.render_lines(blocks[node_drain.node], options.update(height=None), pad=False))
            if lines <= lines_left or not shown:
                shown.add(node_drain.node)
                lines_left -= lines
        yield from (block for node, block in blocks.items() if node in shown)
        yield from self._summary(hidden=len(draining) - len(shown))

    def _summary(self, *, hidden: int) -> list[RenderableType]:
        parts = []
        if hidden:
            parts.append(f"{hidden} more being drained")
        queued = [record for record in self.node_drains if record.result is NodeDrainState.QUEUED]
        if queued:
            parts.append(f"{len(queued)} waiting")
        drained = sum(record.result is NodeDrainState.DRAINED for record in self.node_drains)
        parts.append(f"{drained} of {len(self.node_drains)} nodes drained")
        failed = sum(record.is_over and record.result is not NodeDrainState.DRAINED for record in self.node_drains)
        if failed:
            parts.append(f"{failed} failed")
        hint = "Ctrl-C stops, and prints what is left"
        if self.is_stopping:
            hint = "Stopping: waiting for requests in progress; Ctrl-C again exits at once"
        return [Text(", ".join(parts), style="bold"), Text(hint, style="yellow" if self.is_stopping else "dim")]


@dataclass(frozen=True, slots=True)
class BlockerGroup:
    """A blocker, and the pods of a node that it blocks."""

    blocker: Blocker
    since: datetime
    pods: tuple[str, ...]


def group_blockers(node_drain: NodeDrain) -> list[BlockerGroup]:
    """Return what blocks a node, the oldest first; pods with the same blocker are one group."""
    groups: dict[tuple[str, ...], BlockerGroup] = {}
    for pod in node_drain.pods:
        if pod.active_blocker is None:
            continue
        blocker, since = pod.active_blocker.blocker, pod.active_blocker.since
        key = (blocker.kind, blocker.object) if blocker.object else (blocker.kind, blocker.reason)
        known = groups.get(key, BlockerGroup(blocker, since, ()))
        groups[key] = BlockerGroup(known.blocker, min(known.since, since), (*known.pods, pod.pod))
    for volume in node_drain.progress.volumes if node_drain.progress else ():
        groups[volume.blocker.kind, volume.blocker.object] = BlockerGroup(volume.blocker, volume.since, ())
    return sorted(groups.values(), key=lambda volume: volume.since)


def _node_block(node_drain: NodeDrain, *, now: datetime, width: int, bar_width: int) -> RenderableType:
    """Return the part of the view for one node."""
    progress = node_drain.progress or DrainProgress(node=node_drain.node, started=node_drain.started or now)
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=width, no_wrap=True)
    line.add_column(width=bar_width)
    line.add_column(justify="right", width=4)
    line.add_column()
    bar = ProgressBar(total=100, completed=progress.percent, width=bar_width)
    took = format_elapsed(now - (node_drain.started or now))
    line.add_row(
        Text(node_drain.node, style="bold"), bar, f"{progress.percent}%", Text(f"{pod_counts(progress)}, {took}")
    )
    groups = group_blockers(node_drain)
    below = [Padding(_blocker_line(group, now=now), (0, 0, 0, 2)) for group in groups[:_MAX_BLOCKERS]]
    if len(groups) > _MAX_BLOCKERS:
        below.append(Padding(Text(f"and {len(groups) - _MAX_BLOCKERS} more blockers", style="dim"), (0, 0, 0, 2)))
    if progress.stale_reason:
        below.append(
            Padding(Text(f"may be outdated: {printable(progress.stale_reason)}", style="yellow"), (0, 0, 0, 2))
        )
    return Group(line, *below)


def pod_counts(progress: DrainProgress) -> str:
    """Return how many pods are in which state."""
    if not progress.total:
        return "listing its pods" if not progress.percent else "no pods to evict"
    parts = [f"{progress.gone} of {format_pod_count(progress.total)} gone"]
    if progress.leaving:
        parts.append(f"{progress.leaving} ending")
    if progress.waiting:
        parts.append(f"{progress.waiting} to go")
    return ", ".join(parts)


def _blocker_line(group: BlockerGroup, *, now: datetime) -> Text:
    blocker = group.blocker
    names = ", ".join(group.pods[:_MAX_PODS_NAMED])
    more = f" and {len(group.pods) - _MAX_PODS_NAMED} more" if len(group.pods) > _MAX_PODS_NAMED else ""
    is_progress = blocker.is_progress
    text = Text()
    text.append(
        f"{'waiting' if is_progress else 'blocked'} {format_elapsed(now - group.since)} ",
        style="cyan" if is_progress else "red",
    )
    if names:
        text.append(f"{names}{more}", style="bold")
        text.append(": ")
    text.append(printable(blocker.reason))
    if blocker.remedy:
        text.append(f"; {printable(blocker.remedy)}", style="dim")
    return text
