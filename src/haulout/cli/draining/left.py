"""What an interrupted drain leaves behind: which node is in which state, how to go on, and how to undo it."""

from collections.abc import Sequence

from haulout.cli.draining.records import Record, Result
from haulout.cli.terminal import aligned
from haulout.drain.progress import PodProgress
from haulout.drain.words import pods

_NAMED = 5


def left(records: Sequence[Record], *, again: str, undo: str) -> list[str]:
    """Return the lines; `again` is the command that goes on, `undo` the one that uncordons, without the nodes."""
    lines = ["Stopped: no further pod is asked to leave. This is what was left:"]
    lines += [f"  {line}" for line in aligned([(f"node/{it.node}", state(it)) for it in records])]
    if not all(it.result is Result.DRAINED for it in records):
        lines.append(f"To go on:  {again}")
    ours = [it.node for it in records if it.is_cordoned and not it.was_cordoned]
    if ours:
        lines.append(f"To undo:   {undo} {' '.join(ours)}")
    kept = [it.node for it in records if it.was_cordoned]
    if kept:
        before = "was cordoned before, and stays so" if len(kept) == 1 else "were cordoned before, and stay so"
        lines.append(f"           {', '.join(kept)} {before}")
    if any(it.told for it in records):
        lines.append("Pods that were told to go end nevertheless: nothing can take that back.")
    return lines


def state(record: Record) -> str:
    """Return how it stands with a node."""
    cordoned = _cordoned(record)
    match record.result:
        case Result.DRAINED:
            return f"{cordoned}, drained"
        case Result.QUEUED:
            return f"{cordoned}, no pod was asked to leave"
        case Result.DRAINING | Result.INTERRUPTED if record.progress is not None:
            return f"{cordoned}, half-way: {_half_way(record)}"
        case Result.FAILED if not record.is_cordoned:
            return record.problem
    return f"{cordoned}, not drained: {record.problem or 'its pods were not looked at yet'}"


def _cordoned(record: Record) -> str:
    if not record.is_cordoned:
        return "not cordoned"
    return "cordoned as before" if record.was_cordoned else "cordoned"


def _half_way(record: Record) -> str:
    gone = 0 if record.progress is None else record.progress.gone
    parts = [f"{pods(gone)} gone"]
    if record.told:
        parts.append(f"{pods(len(record.told))} told to go ({_some(record.told)})")
    if record.untold:
        parts.append(f"{pods(len(record.untold))} still running ({_some(record.untold)})")
    return ", ".join(parts)


def _some(rows: Sequence[PodProgress]) -> str:
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return ", ".join(row.pod for row in rows[:_NAMED]) + more
