"""An event loop for servers in tests whose clients are other processes or threads."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class ConnectionClosingLoop(asyncio.SelectorEventLoop):
    """Closes connections that a peer opened just before the loop is closed.

    An API server, or a program that a test started, may connect at the moment at which the test ends. The server in the
    test has closed all connections that it knew of by then. This one would be reported as unclosed later, by whichever
    test runs when it is collected.
    """

    def close(self) -> None:
        """Close accepted connections first."""
        if not self.is_closed():
            accepted = [candidate for candidate in self._transports.values() if candidate._server is not None]  # type: ignore[attr-defined]
            for transport in accepted:
                transport.abort()
            if accepted:  # a transport closes its socket in the next turn
                self.call_soon(self.stop)
                self.run_forever()
        super().close()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run it as `asyncio.run` does, on such a loop."""
    with asyncio.Runner(loop_factory=ConnectionClosingLoop) as runner:
        runner.run(main)
