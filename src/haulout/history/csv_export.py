"""The history of nodes as CSV (RFC 4180), for spreadsheets and scripts: the same from CLI and dashboard.

    HEADER                              # the first line; columns are only ever added, at the end
    row("n1", entry, deleted=None)      # a line

Lines end with CRLF. A cell that a spreadsheet would interpret as a formula, because it begins with `=`, `+`, `-`, `@`,
a tab or a carriage return, gets an apostrophe in front: the author of a NodeMaintenance's reason must not be able to
run anything on the machine of a user who opens the file.
"""

from datetime import datetime

from haulout.api.maintenancerecord import Entry

COLUMNS = (
    "node",
    "nodeDeleted",
    "time",
    "object",
    "requestedBy",
    "from",
    "to",
    "since",
    "reason",
    "result",
    "drainSeconds",
    "drainPods",
    "drainBlockedBy",
    "drainBlockedSeconds",
    "instance",
    "number",
    "reconstructed",
    "missing",
)
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_END = "\r\n"
_QUOTED = frozenset('",\r\n')

HEADER = ",".join(COLUMNS) + _END


def row(node: str, entry: Entry, *, deleted: datetime | None = None) -> str:
    """Return the line of one entry; `deleted` is when the node was deleted, if it was."""
    drain = entry.drain
    cells = (
        node,
        _instant(deleted),
        _instant(entry.time),
        entry.object,
        entry.requested_by,
        entry.from_,
        entry.to,
        _instant(entry.since),
        entry.reason,
        entry.result,
        "" if drain is None else f"{drain.seconds:g}",
        "" if drain is None else str(drain.pods),
        "" if drain is None else drain.blocked_by,
        "" if drain is None or not drain.blocked_by else f"{drain.blocked_seconds:g}",
        entry.instance,
        str(entry.number or ""),
        "true" if entry.reconstructed else "",
        str(entry.missing or ""),
    )
    return ",".join(map(cell, cells)) + _END


def cell(text: str) -> str:
    """Return a text as a cell: no formula, no control characters, quoted if needed."""
    if text.startswith(_FORMULAS):
        text = f"'{text}"
    text = "".join(
        character if character.isprintable() or character in "\r\n\t" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )
    if _QUOTED.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _instant(time: datetime | None) -> str:
    return "" if time is None else time.isoformat().replace("+00:00", "Z")
