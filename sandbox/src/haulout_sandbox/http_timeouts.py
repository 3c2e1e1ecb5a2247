"""How long those have time who call a sandbox over the network.

They live on the machine's time, and the sandbox perhaps on a faster one (`event_loops.paced`). Where a real server
would count seconds for its callers, those of the sandbox's loop are counted here: `speed` of them pass in one of the
machine's.
"""

from dataclasses import dataclass

Query = tuple[tuple[str, str], ...]

_IDLE = 3630.0
_HANDSHAKE = 60.0
_SHUTDOWN = 1.0
_DEFAULT_WATCH_SECONDS = 3600.0  # of a caller who does not say how long; the real server has up to this


@dataclass(frozen=True, slots=True)
class HttpTimeouts:
    """Lengths of time in seconds of the loop."""

    speed: float = 1.0

    @property
    def idle(self) -> float:
        """How long a connection is kept on which nothing is asked."""
        return _IDLE * self.speed

    @property
    def handshake(self) -> float:
        """How long TLS may take to begin, and to end."""
        return _HANDSHAKE * self.speed

    @property
    def shutdown(self) -> float:
        """How long connections have to end by themselves."""
        return _SHUTDOWN * self.speed

    def scale_watch_timeout(self, query: Query) -> Query:
        """Return the query of a watch such that it lasts as long as its caller wants, by the caller's clock."""
        timeout = dict(query).get("timeoutSeconds") or "0"
        if self.speed == 1 or not timeout.isdecimal():
            return query
        seconds = round((int(timeout) or _DEFAULT_WATCH_SECONDS) * self.speed)
        return (*(pair for pair in query if pair[0] != "timeoutSeconds"), ("timeoutSeconds", str(seconds)))
