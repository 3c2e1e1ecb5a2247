"""HTTP timeouts of a sandbox that listens on the network.

Clients measure time on the machine's clock, while the sandbox's event loop may run faster (`event_loops.paced_loop`).
Timeouts that a real server measures in its clients' seconds are converted to the loop's seconds here: `speed` seconds
pass on the loop for each second of the machine.
"""

from dataclasses import dataclass

Query = tuple[tuple[str, str], ...]

_IDLE = 3630.0
_HANDSHAKE = 60.0
_SHUTDOWN = 1.0
_DEFAULT_WATCH_SECONDS = 3600.0  # for watches without `timeoutSeconds`; the real server's default is random, up to this


@dataclass(frozen=True, slots=True)
class HttpTimeouts:
    """HTTP timeouts, in seconds of the event loop."""

    speed: float = 1.0

    @property
    def idle(self) -> float:
        """Return how long an idle keep-alive connection stays open."""
        return _IDLE * self.speed

    @property
    def handshake(self) -> float:
        """Return how long a TLS handshake, or a TLS shutdown, may take."""
        return _HANDSHAKE * self.speed

    @property
    def shutdown(self) -> float:
        """Return how long connections have to close by themselves at shutdown."""
        return _SHUTDOWN * self.speed

    def scale_watch_timeout(self, query: Query) -> Query:
        """Return the query with `timeoutSeconds` converted from the client's clock to the event loop's."""
        timeout = dict(query).get("timeoutSeconds") or "0"
        if self.speed == 1 or not timeout.isdecimal():
            return query
        seconds = round((int(timeout) or _DEFAULT_WATCH_SECONDS) * self.speed)
        return (*(pair for pair in query if pair[0] != "timeoutSeconds"), ("timeoutSeconds", str(seconds)))
