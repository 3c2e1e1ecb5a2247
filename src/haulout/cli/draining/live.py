"""How a drain is told to a person at a terminal: for each node a bar, what is left, what blocks it, and what to do.

What is final (a node cordoned, drained or given up, a warning) is printed above the view and stays. The view shows what
still moves. It never grows higher than the terminal: where there is no room for all nodes, those that are blocked go
before the others.
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

from haulout.cli.cordoning import Done, told
from haulout.cli.draining.plain import Warnings, ending
from haulout.cli.draining.records import Record, Result
from haulout.cli.holders import elapsed
from haulout.cli.lines import Line
from haulout.cli.terminal import printable
from haulout.core.clock import Clock
from haulout.drain.blockers import Blocker
from haulout.drain.progress import Progress
from haulout.drain.words import pods

_FRAME = timedelta(milliseconds=250)
_WIDEST_BAR = 24
_RESERVED = 3  # lines: two of summary, and one for the cursor
_REASONS = 3  # per node
_NAMED = 3


class LiveShow:
    """Shows how it goes."""

    def __init__(self, records: Callable[[], Sequence[Record]], *, console: Console, clock: Clock) -> None:
        self._records = records
        self._console = console
        self._clock = clock
        self._warnings: dict[str, Warnings] = {}
        self._is_stopping = False

    def cordoned(self, record: Record, done: Done) -> None:
        """Say so, above the view."""
        del record
        for line in told(done, wanted="cordon"):
            self._say(line)

    def moved(self, record: Record) -> None:
        """Say what people should know, above the view; the rest is in the next frame."""
        if any(pod.since for pod in record.pods):
            self._warn(record)

    def ended(self, record: Record) -> None:
        """Say how it ended, above the view."""
        progress = record.progress
        if record.result is not Result.REFUSED:
            self._warn(record)
        if record.result is Result.DRAINED and progress and record.started and record.ended:
            took = elapsed(record.ended - record.started)
            self._say(Line(f"node/{record.node} drained: {pods(progress.gone)} left it in {took}", is_result=True))
            for pod in progress.returning:
                self._say(Line(f"Warning: pod {pod} came back and stays: others like it would come after it"))
            return
        for line in ending(record):
            self._say(line)

    def stopping(self) -> None:
        """Say so in the view."""
        self._is_stopping = True

    async def run(self) -> None:
        """Show it anew again and again."""
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                view = View(tuple(self._records()), self._clock.now(), is_stopping=self._is_stopping)
                live.update(view, refresh=True)
                await self._clock.sleep(_FRAME)

    def _warn(self, record: Record) -> None:
        if record.progress is not None:
            for line in self._warnings.setdefault(record.node, Warnings()).news(record.progress):
                self._say(line)

    def _say(self, line: Line) -> None:
        self._console.print(Text(printable(line.text), style="" if line.is_result else "yellow"))


@dataclass(frozen=True, slots=True)
class View:
    """One frame."""

    records: tuple[Record, ...]
    now: datetime
    is_stopping: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it, no higher than the terminal."""
        moving = [it for it in self.records if it.result is Result.DRAINING]
        width = max((len(it.node) for it in moving), default=0)
        bar = min(options.max_width // 5, _WIDEST_BAR)
        blocks = {it.node: _block(it, now=self.now, width=width, bar_width=bar) for it in moving}
        room = (options.height or console.height) - _RESERVED
        shown: set[str] = set()
        for record in sorted(moving, key=lambda it: not reasons(it)):
            lines = len(console.render_lines(blocks[record.node], options.update(height=None), pad=False))
            if lines <= room or not shown:
                shown.add(record.node)
                room -= lines
        yield from (block for node, block in blocks.items() if node in shown)
        yield from self._summary(unseen=len(moving) - len(shown))

    def _summary(self, *, unseen: int) -> list[RenderableType]:
        parts = []
        if unseen:
            parts.append(f"{unseen} more being drained")
        queued = [it for it in self.records if it.result is Result.QUEUED]
        if queued:
            parts.append(f"{len(queued)} waiting")
        drained = sum(it.result is Result.DRAINED for it in self.records)
        parts.append(f"{drained} of {len(self.records)} nodes drained")
        failed = sum(it.is_over and it.result is not Result.DRAINED for it in self.records)
        if failed:
            parts.append(f"{failed} given up")
        hint = "Ctrl-C stops, and says what is left"
        if self.is_stopping:
            hint = "Stopping: waiting for the answers under way; Ctrl-C again ends at once"
        return [Text(", ".join(parts), style="bold"), Text(hint, style="yellow" if self.is_stopping else "dim")]


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that holds up some pods of a node."""

    blocker: Blocker
    since: datetime
    pods: tuple[str, ...]


def reasons(record: Record) -> list[Reason]:
    """Return what holds up a node, the oldest first; pods that wait for the same thing are one."""
    found: dict[tuple[str, ...], Reason] = {}
    for pod in record.pods:
        if pod.standing is None:
            continue
        blocker, since = pod.standing.blocker, pod.standing.since
        key = (blocker.kind, blocker.object) if blocker.object else (blocker.kind, blocker.reason)
        known = found.get(key, Reason(blocker, since, ()))
        found[key] = Reason(known.blocker, min(known.since, since), (*known.pods, pod.pod))
    for it in record.progress.volumes if record.progress else ():
        found[it.blocker.kind, it.blocker.object] = Reason(it.blocker, it.since, ())
    return sorted(found.values(), key=lambda it: it.since)


def _block(record: Record, *, now: datetime, width: int, bar_width: int) -> RenderableType:
    """Return what is shown of one node."""
    progress = record.progress or Progress(node=record.node, started=record.started or now)
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=width, no_wrap=True)
    line.add_column(width=bar_width)
    line.add_column(justify="right", width=4)
    line.add_column()
    bar = ProgressBar(total=100, completed=progress.percent, width=bar_width)
    took = elapsed(now - (record.started or now))
    line.add_row(Text(record.node, style="bold"), bar, f"{progress.percent}%", Text(f"{counts(progress)}, {took}"))
    held_up = reasons(record)
    below = [Padding(_reason(it, now=now), (0, 0, 0, 2)) for it in held_up[:_REASONS]]
    if len(held_up) > _REASONS:
        below.append(Padding(Text(f"and {len(held_up) - _REASONS} more that hold it up", style="dim"), (0, 0, 0, 2)))
    if progress.trouble:
        below.append(Padding(Text(f"may be old: {printable(progress.trouble)}", style="yellow"), (0, 0, 0, 2)))
    return Group(line, *below)


def counts(progress: Progress) -> str:
    """Return how many pods are where."""
    if not progress.total:
        return "looking at its pods" if not progress.percent else "no pods to leave"
    parts = [f"{progress.gone} of {pods(progress.total)} gone"]
    if progress.leaving:
        parts.append(f"{progress.leaving} ending")
    if progress.waiting:
        parts.append(f"{progress.waiting} to go")
    return ", ".join(parts)


def _reason(reason: Reason, *, now: datetime) -> Text:
    blocker = reason.blocker
    names = ", ".join(reason.pods[:_NAMED])
    more = f" and {len(reason.pods) - _NAMED} more" if len(reason.pods) > _NAMED else ""
    calm = blocker.is_progress
    text = Text()
    text.append(f"{'waiting' if calm else 'blocked'} {elapsed(now - reason.since)} ", style="cyan" if calm else "red")
    if names:
        text.append(f"{names}{more}", style="bold")
        text.append(": ")
    text.append(printable(blocker.reason))
    if blocker.advice:
        text.append(f"; {printable(blocker.advice)}", style="dim")
    return text
