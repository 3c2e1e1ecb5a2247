"""Run an asyncio command until it ends or a signal cancels it.

If a process was suspended for a while, uvloop reads the answer to a TLS handshake before it runs overdue timers. A
connect timeout then cancels `create_connection` although the handshake has ended meanwhile, and uvloop closes the TCP
handle under its SSLProtocol (uvloop/loop.pyx, `tr._close()` in `create_connection`). Two reports with a traceback
follow:

- The handshake succeeded: SSLProtocol writes its last message to the closed handle, which raises RuntimeError.
- The handshake failed, or the peer reset the connection: the future that carries the error is dropped, because nothing
  awaits it any more. SSLProtocol raised this error, or it comes from the transport and was never raised.

In both cases the caller got its timeout, so each report is logged at DEBUG. SSLProtocol and the transports report no
other connection errors: uvloop suppresses each OSError, which includes ssl.SSLError. All other reports of an event loop
may be bugs, and stay errors.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from haulout.core.memory import LONG_RUNNING, gc_thresholds, permanent_objects

T = TypeVar("T")

log = logging.getLogger(__name__)

_CLOSED_HANDLE = "the handler is closed"  # uvloop/handles/handle.pyx, UVHandle._ensure_alive
_DROPPED_FUTURE = "Future exception was never retrieved"  # Lib/asyncio/futures.py, Future.__del__
_SSL_PROTOCOL = "uvloop/sslproto.pyx"  # as named in tracebacks

TERMINATED = 128 + signal.SIGTERM  # the exit code that shells use for SIGTERM


def run(main: Coroutine[Any, Any, T], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run `main` to its end, by default on uvloop if it is installed; SIGINT and SIGTERM cancel it."""
    # Show asyncio's own log only with -v: without a handler, Python's last resort would print it.
    logging.getLogger("asyncio").addHandler(logging.NullHandler())
    with (
        gc_thresholds(LONG_RUNNING),
        permanent_objects(),
        asyncio.Runner(loop_factory=loop_factory or _new_event_loop) as runner,
    ):
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
    """Log a report of the event loop."""
    error = context.get("exception")
    if _is_write_to_closed_handle(context, error) or _is_dropped_handshake(context, error):
        log.debug("a connection was closed while its TLS handshake finished: %r", error)
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
