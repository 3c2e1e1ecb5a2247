"""HTTP servers in a thread of their own, for tests that block on commands.

with served_over_http(lambda: serve(cloud, host=HOST)) as endpoint:
    shell.run(f"curl {endpoint}")
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from controlplane import ControlPlane
from haulout.api.objects import RawObject
from haulout.core.clock import RealClock
from support.docs.page_commands import Shell
from support.servers import event_loops

T = TypeVar("T")

HOST = "127.0.0.1"
_TIMEOUT_SECONDS = 60
_LOOP_TURNS = 5


@contextmanager
def in_thread(serve: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Run `serve` until the context ends; yield its value."""
    found: Future[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        async with serve() as served:
            enough = asyncio.Event()
            found.set_result((served, asyncio.get_running_loop(), enough))
            await enough.wait()
        for _ in range(_LOOP_TURNS):
            await RealClock().sleep(timedelta())  # connections close in the turns of the loop that follow

    thread = threading.Thread(target=lambda: event_loops.run(run()))
    thread.start()
    served, loop, enough = found.result(_TIMEOUT_SECONDS)
    try:
        yield served
    finally:
        loop.call_soon_threadsafe(enough.set)
        thread.join()


@contextmanager
def served_over_http(serve: Callable[[], AbstractAsyncContextManager[int]]) -> Iterator[str]:
    """Run `serve`, which yields its port, until the context ends; yield its address."""
    with in_thread(serve) as port:
        yield f"http://{HOST}:{port}"


@contextmanager
def a_shell_on_a_control_plane(folder: Path) -> Iterator[Shell]:
    """Yield a shell whose cluster is a control plane for this test alone."""
    with ControlPlane() as plane:
        yield Shell(folder, kubeconfig=plane.kubeconfig(), kubectl=plane.assets.path("kubectl"))


def create_objects(shell: Shell, objects: Iterable[RawObject]) -> None:
    """Create objects with kubectl."""
    file = shell.folder / "objects.yaml"
    file.write_text("\n---\n".join(json.dumps({"apiVersion": "v1", **obj}) for obj in objects))
    shell.run(f"kubectl create -f {file.name}")
