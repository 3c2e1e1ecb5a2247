"""What stands after the question mark, read strictly: who mistypes is told so, rather than shown everything."""

from collections.abc import Iterable
from datetime import UTC, datetime
from http import HTTPStatus

from multidict import MultiMapping

from haulout.web.api import narrowing
from haulout.web.api.narrowing import Narrowing
from haulout.web.api.shapes import NodeState
from haulout.web.api.source import HistoryQuery, Stretch, Unanswerable

_MOST_ROWS = 5000
_LONGEST = 200  # characters of a value that are repeated to whoever sent it

Query = MultiMapping[str]


def no_parameters(query: Query) -> None:
    """Refuse whatever is there."""
    _only(query, ())


def narrowed(query: Query) -> Narrowing:
    """Return which nodes are asked for."""
    _only(query, narrowing.PARAMETERS)
    return _narrowing(query)


def stretch(query: Query) -> Stretch:
    """Return what of the timeline is asked for."""
    _only(query, ("from", "to", "limit", *narrowing.PARAMETERS))
    start, end = _instant(query, "from"), _instant(query, "to")
    if start is not None and end is not None and start >= end:
        raise bad("`from` must be before `to`")
    return Stretch(start=start, end=end, limit=_limit(query), narrowing=_narrowing(query))


def history(query: Query) -> HistoryQuery:
    """Return what of the history is asked for."""
    _only(query, ("from", "to", "node", "what", "q", "limit"))
    since, until = _instant(query, "from"), _instant(query, "to")
    if since is not None and until is not None and since >= until:
        raise bad("`from` must be before `to`")
    return HistoryQuery(
        since=since,
        until=until,
        nodes=frozenset(_values(query, "node")),
        what=frozenset(_values(query, "what")),
        words=_words(query),
        limit=_limit(query),
    )


def looking(query: Query) -> tuple[str, str]:
    """Return the node that is to be told of in detail, and the event after which to go on; either may be empty."""
    _only(query, ("node", "since"))
    return query.get("node", ""), query.get("since", "")


def bad(text: str) -> Unanswerable:
    """Return what to raise about a question that makes no sense."""
    return Unanswerable(text, HTTPStatus.BAD_REQUEST)


def _only(query: Query, known: Iterable[str]) -> None:
    names = tuple(known)
    for name in query:
        if name not in names:
            there_are = f"there are {', '.join(f'`{it}`' for it in names)}" if names else "none are known here"
            raise bad(f"unknown parameter {_shown(name)}; {there_are}")


def _narrowing(query: Query) -> Narrowing:
    return Narrowing(
        states=frozenset(map(_state, _values(query, "state"))),
        zones=frozenset(_values(query, "zone")),
        pools=frozenset(_values(query, "pool")),
        profiles=frozenset(_values(query, "profile")),
        words=_words(query),
    )


def _words(query: Query) -> tuple[str, ...]:
    return tuple(word for text in query.getall("q", []) for word in text.casefold().split())


def _values(query: Query, name: str) -> list[str]:
    return [value for text in query.getall(name, []) for value in text.split(",") if value]


def _state(text: str) -> NodeState:
    try:
        return NodeState(text)
    except ValueError:
        raise bad(f"unknown state {_shown(text)}; there are {', '.join(NodeState)}") from None


def _instant(query: Query, name: str) -> datetime | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise bad(f"`{name}` must be an instant such as 2026-05-01T10:00:00Z, found {_shown(text)}") from None
    if found.tzinfo is None:
        raise bad(f"`{name}` must say its time zone, as 2026-05-01T10:00:00Z does, found {_shown(text)}")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise bad(f"`{name}` is too far away: {_shown(text)}") from None


def _limit(query: Query) -> int | None:
    text = query.get("limit", "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:_LONGEST]) <= _MOST_ROWS:
        raise bad(f"`limit` must be a number from 1 to {_MOST_ROWS}, found {_shown(text)}")
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
