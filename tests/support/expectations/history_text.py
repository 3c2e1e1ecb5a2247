"""The history of a cluster as text, for debugging failed tests.

    09:00:07.215 #143 kubelets patch pods shop/cart-0: status.phase Pending -> Running, status.startTime

A line has time, revision, user, verb, object, and the changed fields, with their values if these are short.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from haulout_sandbox.apiserver.storage.store import Write

_NOISE = frozenset({"leases", "events"})
_SERVER_FIELDS = frozenset({"metadata.resourceVersion", "metadata.generation", "metadata.managedFields"})
_MAX_VALUE_LENGTH = 40  # characters of a value that is worth showing
_MOST_FIELDS = 6
_ABSENT = object()


def describe_write(write: Write) -> str:
    """Return one write as a line."""
    when = f"{write.written_at:%H:%M:%S}.{write.written_at.microsecond // 1000:03}"
    return (
        f"{when} #{write.revision} {write.username} {write.verb} "
        f"{write.kind.plural} {write.key}: {_describe_change(write)}"
    )


def recent_writes(history: Sequence[Write], count: int = 12, *, noise: bool = False) -> list[str]:
    """Return the last lines of the history; leases and events only if `noise` is wanted."""
    shown_writes = (write for write in reversed(history) if noise or write.kind.plural not in _NOISE)
    return [describe_write(write) for write in islice(shown_writes, count)][::-1]


def join_limited(texts: Iterable[str], *, most: int = _MOST_FIELDS) -> str:
    """Return the first few texts, and how many more there are."""
    all_texts = list(texts)
    first_texts = ", ".join(all_texts[:most])
    return f"{first_texts}, and {len(all_texts) - most} more" if len(all_texts) > most else first_texts


def _describe_change(write: Write) -> str:
    if write.after is None:
        return "gone"
    if write.before is None:
        return "new"
    return join_limited(changed_fields(write.before, write.after))


def changed_fields(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield in which fields two objects differ, with their values where these are short."""
    if path in _SERVER_FIELDS or old == new:
        return
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield f"{path}{_values(old, new)}"
        return
    for name in (*new, *(name for name in old if name not in new)):
        inside = f"{path}.{name}" if path else name
        yield from changed_fields(old.get(name, _ABSENT), new.get(name, _ABSENT), inside)


def _values(old: Any, new: Any) -> str:
    before, after = _value(old), _value(new)
    if new is _ABSENT:
        return " gone"
    if after is None or before is None:
        return ""
    return f" = {after}" if old is _ABSENT else f" {before} -> {after}"


def _value(value: Any) -> str | None:
    """Return a value that is short enough to show."""
    text = "" if value is _ABSENT else str(value)
    return text if len(text) <= _MAX_VALUE_LENGTH and not isinstance(value, dict | list) else None
