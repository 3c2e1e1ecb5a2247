"""How a command that waits for anything runs, and ends when it is told to.

When a process was stopped for a while, timeouts close its connections before what has arrived on them is read. uvloop
then reports a "Fatal error on SSL protocol" with a traceback, since it cannot write to a closed handle. Whoever waits
for such a connection hears of its end anyway, so this is a line at DEBUG. All else that an event loop reports
may be a defect, and stays an error.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from haulout.core.garbage import RARELY, collected

T = TypeVar("T")

log = logging.getLogger(__name__)

_ON_A_CONNECTION = ("Fatal error on SSL protocol", "Fatal error on transport")
_ALREADY_CLOSED = "the handler is closed"  # uvloop/handles/handle.pyx, UVHandle._ensure_alive

TERMINATED = 128 + signal.SIGTERM  # as a shell reports a process that SIGTERM ended


def run(main: Coroutine[Any, Any, T], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run `main` to its end, by default on uvloop where it is installed; SIGINT and SIGTERM cancel it."""
    # What an event loop has to say is for those who asked for the log with -v: it does not reach Python's last resort.
    logging.getLogger("asyncio").addHandler(logging.NullHandler())
    with collected(RARELY), asyncio.Runner(loop_factory=loop_factory or _new_event_loop) as runner:
        try:
            return runner.run(_cancelled_by_sigterm(main))
        except asyncio.CancelledError:
            sys.exit(TERMINATED)


async def _cancelled_by_sigterm(main: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report)
    if task:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    return await main


def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what an event loop has to report."""
    error = context.get("exception")
    is_of_a_connection = str(context.get("message", "")).startswith(_ON_A_CONNECTION)
    if is_of_a_connection and isinstance(error, RuntimeError) and str(error).endswith(_ALREADY_CLOSED):
        log.debug("data arrived on a connection that was closed already: %s", type(error).__name__)
        return
    loop.default_exception_handler(context)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
