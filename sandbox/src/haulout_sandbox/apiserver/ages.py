"""How long ago, in the words of `kubectl get`: two or three significant figures, never more.

The steps are those of `k8s.io/apimachinery/pkg/util/duration`; the unit test holds a table that Go printed.
"""

from datetime import datetime, timedelta

UNKNOWN = "<unknown>"

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_STEPS = (  # below this many seconds: the unit, and the smaller one that is told if it is not zero
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)
_CLOCKS_DIFFER = timedelta(seconds=2)  # less than this in the future counts as now


def human_duration(elapsed: timedelta) -> str:
    """Return `elapsed` as an age: `119s`, `2m1s`, `47h`, `7d23h`, `3y45d`."""
    if elapsed <= -_CLOCKS_DIFFER:
        return "<invalid>"
    seconds = max(0, elapsed // timedelta(seconds=1))
    for below, (size, unit), smaller in _STEPS:
        if seconds >= below:
            continue
        count, rest = divmod(seconds, size)
        finer = rest // smaller[0] if smaller else 0
        return f"{count}{unit}{finer}{smaller[1]}" if smaller and finer else f"{count}{unit}"
    return f"{seconds // _YEAR}y"


def instant(timestamp: str | None) -> datetime | None:
    """Return the moment that an object's timestamp names; None for none."""
    return datetime.fromisoformat(timestamp) if timestamp else None


def since(timestamp: str | None, now: datetime) -> str:
    """Return how long ago `timestamp` was."""
    then = instant(timestamp)
    return UNKNOWN if then is None else human_duration(now - then)
