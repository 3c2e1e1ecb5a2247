"""How long those have time who call a sandbox over the network.

They live on the machine's time, and the sandbox perhaps on a faster one (`event_loops.paced`). Where a real server
would count seconds for its callers, those of the sandbox's loop are counted here: `pace` of them pass in one of the
machine's.
"""

from dataclasses import dataclass

Query = tuple[tuple[str, str], ...]

_IDLE = 3630.0
_HANDSHAKE = 60.0
_FAREWELL = 1.0
_UNTOLD_WATCH = 3600.0  # of a caller who does not say how long; the real server has up to this


@dataclass(frozen=True, slots=True)
class Patience:
    """Lengths of time in seconds of the loop."""

    pace: float = 1.0

    @property
    def idle(self) -> float:
        """How long a connection is kept on which nothing is asked."""
        return _IDLE * self.pace

    @property
    def handshake(self) -> float:
        """How long TLS may take to begin, and to end."""
        return _HANDSHAKE * self.pace

    @property
    def farewell(self) -> float:
        """How long connections have to end by themselves."""
        return _FAREWELL * self.pace

    def watching(self, query: Query) -> Query:
        """Return the query of a watch such that it lasts as long as its caller wants, by the caller's clock."""
        told = dict(query).get("timeoutSeconds") or "0"
        if self.pace == 1 or not told.isdecimal():
            return query
        seconds = round((int(told) or _UNTOLD_WATCH) * self.pace)
        return (*(pair for pair in query if pair[0] != "timeoutSeconds"), ("timeoutSeconds", str(seconds)))
