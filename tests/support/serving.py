"""What answers over HTTP while a test waits for commands: it needs a thread of its own.

with answering(lambda: serving(cloud, host=HOST)) as endpoint:
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
from haulout.core.clock import RealClock
from haulout.kube.objects import RawObject
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.builtin_kinds import ALL
from support import event_loops
from support.builders import a_namespace
from support.kubectl import served
from support.pages import Shell

T = TypeVar("T")

HOST = "127.0.0.1"
_PATIENCE_SECONDS = 60
_TURNS = 5


@contextmanager
def aside(serve: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Have `serve` run while the context lasts; yield what it yields."""
    found: Future[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        async with serve() as it:
            enough = asyncio.Event()
            found.set_result((it, asyncio.get_running_loop(), enough))
            await enough.wait()
        for _ in range(_TURNS):
            await RealClock().sleep(timedelta())  # connections close in the turns of the loop that follow

    thread = threading.Thread(target=lambda: event_loops.run(run()))
    thread.start()
    it, loop, enough = found.result(_PATIENCE_SECONDS)
    try:
        yield it
    finally:
        loop.call_soon_threadsafe(enough.set)
        thread.join()


@contextmanager
def answering(serve: Callable[[], AbstractAsyncContextManager[int]]) -> Iterator[str]:
    """Have `serve`, which yields its port, run while the context lasts; yield its address."""
    with aside(serve) as port:
        yield f"http://{HOST}:{port}"


@contextmanager
def a_shell_on_the_sandbox(folder: Path, *, kubectl: Path) -> Iterator[Shell]:
    """Yield a shell whose cluster is a sandbox in which nothing runs."""

    def serve() -> AbstractAsyncContextManager[Path]:
        api = ApiServer(RealClock())
        for kind in ALL:
            api.know(kind)
        for name in ("default", "kube-system"):
            api.put(a_namespace(name))
        return served(api, folder)

    with aside(serve) as kubeconfig:
        yield Shell(folder, kubeconfig=kubeconfig, kubectl=kubectl)


@contextmanager
def a_shell_on_a_control_plane(folder: Path) -> Iterator[Shell]:
    """Yield a shell whose cluster is a control plane for this test alone."""
    with ControlPlane() as plane:
        yield Shell(folder, kubeconfig=plane.kubeconfig(), kubectl=plane.assets.path("kubectl"))


def create(shell: Shell, objects: Iterable[RawObject]) -> None:
    """Create objects, as a person does."""
    file = shell.folder / "objects.yaml"
    file.write_text("\n---\n".join(json.dumps({"apiVersion": "v1", **it}) for it in objects))
    shell.run(f"kubectl create -f {file.name}")
