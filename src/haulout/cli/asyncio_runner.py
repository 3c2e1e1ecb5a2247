"""How a command that waits for anything runs, and ends when it is told to.

When a process was stopped for a while, uvloop reads the answer to a TLS handshake before it runs the timers that are
overdue. A connect timeout then cancels `create_connection` although the handshake has ended meanwhile, and uvloop
closes the TCP handle under its SSLProtocol (uvloop/loop.pyx, `tr._close()` in `create_connection`). Two reports with a
traceback follow:

- The handshake succeeded: SSLProtocol writes its last message to the closed handle, which raises RuntimeError.
- The handshake failed, or the peer reset the connection: the future that carries the error is dropped, as nobody
  awaits it any more. SSLProtocol has raised this error, or it comes from the transport and was never raised.

In both cases whoever wanted the connection has got its timeout, so each report is a line at DEBUG. SSLProtocol and the
transports report no other error of a connection: uvloop leaves out each OSError, which includes ssl.SSLError. All else
that an event loop reports may be a defect, and stays an error.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from haulout.core.gc_thresholds import LONG_RUNNING, gc_thresholds

T = TypeVar("T")

log = logging.getLogger(__name__)

_CLOSED_HANDLE = "the handler is closed"  # uvloop/handles/handle.pyx, UVHandle._ensure_alive
_DROPPED_FUTURE = "Future exception was never retrieved"  # Lib/asyncio/futures.py, Future.__del__
_SSL_PROTOCOL = "uvloop/sslproto.pyx"  # as tracebacks name it

TERMINATED = 128 + signal.SIGTERM  # as a shell reports a process that SIGTERM ended


def run(main: Coroutine[Any, Any, T], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run `main` to its end, by default on uvloop where it is installed; SIGINT and SIGTERM cancel it."""
    # What an event loop has to say is for those who asked for the log with -v: it does not reach Python's last resort.
    logging.getLogger("asyncio").addHandler(logging.NullHandler())
    with gc_thresholds(LONG_RUNNING), asyncio.Runner(loop_factory=loop_factory or _new_event_loop) as runner:
        try:
            return runner.run(_cancelled_by_sigterm(main))
        except asyncio.CancelledError:
            sys.exit(TERMINATED)


async def _cancelled_by_sigterm(main: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(handle_loop_exception)
    if task:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    return await main


def handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what an event loop has to report."""
    error = context.get("exception")
    if _is_write_to_closed_handle(context, error) or _is_dropped_handshake(context, error):
        log.debug("a connection was given up while its TLS handshake ended: %r", error)
        return
    loop.default_exception_handler(context)


def _is_write_to_closed_handle(context: dict[str, Any], error: object) -> bool:
    return "transport" in context and isinstance(error, RuntimeError) and str(error).endswith(_CLOSED_HANDLE)


def _is_dropped_handshake(context: dict[str, Any], error: object) -> bool:
    if context.get("message") != _DROPPED_FUTURE or not isinstance(error, OSError):
        return False
    raised_in = error.__traceback__
    return raised_in is None or raised_in.tb_frame.f_code.co_filename.endswith(_SSL_PROTOCOL)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        from haulout.cli.event_loop import EventLoop
    except ImportError:  # uvloop is not installed
        return asyncio.new_event_loop()
    return EventLoop()
