"""How a command that waits for anything runs, and ends when it is told to."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from haulout.core.garbage import RARELY, collected

T = TypeVar("T")

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
    if task:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await main


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
