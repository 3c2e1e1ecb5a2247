"""A sandbox that listens, from a thread of its own, for tests that ask it over sockets which block."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from haulout.core.clock import RealClock
from haulout.sandbox.apiserver import ApiServer, User
from haulout.sandbox.front import Front
from support.certificates import Authority
from support.raw_http import RawClient


@contextmanager
def a_listening_sandbox(
    folder: Path, *, tokens: Mapping[str, str | User], rbac: bool = False, fill: Callable[[ApiServer], None]
) -> Iterator[RawClient]:
    """Serve a sandbox that `fill` has put something into; yields a client without a token."""
    authority = Authority()
    context = authority.issue("127.0.0.1").server_context(folder)
    ready = threading.Event()
    found: dict[str, object] = {}

    async def serve() -> None:
        api = ApiServer(RealClock(), rbac=rbac)
        fill(api)
        stop = asyncio.Event()
        async with Front(api, tokens=tokens).serving(host="127.0.0.1", tls=context) as port:
            loop = asyncio.get_running_loop()
            found.update(port=port, stop=lambda: loop.call_soon_threadsafe(stop.set))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait(timeout=20)
    try:
        yield RawClient(f"https://127.0.0.1:{found['port']}", authority.pem)
    finally:
        stop = found["stop"]
        assert callable(stop)
        stop()
        thread.join(timeout=20)
