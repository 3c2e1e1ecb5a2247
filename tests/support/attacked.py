"""The operator with all its ports in a process of its own, for tests that attack it from outside.

    async with attacked(loop="uvloop", limit_mib=280) as operator:
        peers = await operator.flood(3000, Port.WEBHOOK)

As a program (`python attacked.py LOOP PORT PORT PORT PORT`) it is that process: the operator, and a cluster in memory.
"""

import asyncio
import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path

import aiohttp

from controlplane.ports import free_ports
from haulout.app.operator import OperatorSettings, run_operator
from haulout.cli import looping
from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.web.api.shapes import AuthMode
from haulout.web.auth.settings import AccessSettings
from haulout.web.listening import Address
from haulout.web.wishes import SelfMade, WebhookSettings
from haulout_sandbox.apiserver import ApiServer
from support.builders import a_namespace, a_node
from support.eventually import eventually
from support.memory_limit import MemoryLimit, memory_limit

LOCAL = "127.0.0.1"
READY = "ready"
_HOME = "haulout"
_PATIENCE = timedelta(seconds=60)
_KIB_PER_MIB = 1024


class Port(Enum):
    """What is asked of a port, and the status of its answer."""

    WEBHOOK = "https", "/", 404
    METRICS = "https", "/metrics", 401
    HEALTH = "http", "/healthz", 200
    DASHBOARD = "http", "/static/", 200


@dataclass
class Attacked:
    """The process, and what attackers do to it."""

    process: asyncio.subprocess.Process
    ports: dict[Port, int]
    limit: MemoryLimit
    _peers: list[socket.socket] = field(default_factory=list)

    async def flood(self, count: int, port: Port, *sent: bytes, from_many: bool = False) -> int:
        """Open connections, send this on each, and keep them; return how many were accepted."""
        found = await asyncio.to_thread(_connections, count, self.ports[port], sent, from_many=from_many)
        self._peers += found
        return len(found)

    def open_peers(self) -> int:
        """Return how many connections of attackers the operator has not closed."""
        self._peers = [it for it in self._peers if _is_open(it)]
        return len(self._peers)

    def leave(self) -> None:
        """Close all connections of attackers."""
        for it in self._peers:
            it.close()
        self._peers.clear()

    async def unanswered(self) -> list[str]:
        """Return the ports that do not answer a new connection as they should."""
        connector = aiohttp.TCPConnector(ssl=False, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(30)) as session:
            found = {port.name: await self._status(session, port) for port in Port}
        return [f"{name}: {status}" for name, status in found.items() if status != Port[name].value[2]]

    def memory_mib(self, which: str = "VmRSS") -> int:
        """Return its memory, or with VmHWM the most that it ever had."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        return int(next(it for it in lines if it.startswith(f"{which}:")).split()[1]) // _KIB_PER_MIB

    async def _status(self, session: aiohttp.ClientSession, port: Port) -> int | str:
        scheme, path, _ = port.value
        try:
            async with session.get(f"{scheme}://{LOCAL}:{self.ports[port]}{path}") as answer:
                await answer.read()
                return answer.status
        except (aiohttp.ClientError, TimeoutError) as error:
            return repr(error)


@asynccontextmanager
async def attacked(*, loop: str, limit_mib: int) -> AsyncIterator[Attacked]:
    """Run it while the context lasts, from when it is ready, with so much memory."""
    with memory_limit(limit_mib) as limit:
        async with _limited(loop, limit) as found:
            yield found


@asynccontextmanager
async def _limited(loop: str, limit: MemoryLimit) -> AsyncIterator[Attacked]:
    ports = free_ports(len(Port))
    paths = os.pathsep.join((str(Path(__file__).parent.parent), *sys.path))
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "MALLOC_ARENA_MAX": "1",  # as in the manifests
        "MALLOC_TRIM_THRESHOLD_": "131072",
    }
    process = await asyncio.create_subprocess_exec(
        *limit.command,
        sys.executable,
        __file__,
        loop,
        *map(str, ports),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    found = Attacked(process, dict(zip(Port, ports, strict=True)), limit)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            assert (await process.stdout.readline()).decode().strip() == READY
        yield found
        assert process.returncode is None, "the operator ended"
    finally:
        found.leave()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _connections(count: int, port: int, sent: tuple[bytes, ...], *, from_many: bool) -> list[socket.socket]:
    found = []
    for at in range(count):
        # Linux has all of 127.0.0.0/8 on this machine.
        address = f"127.{1 + at // 40_000}.{at // 200 % 200}.{1 + at % 200}" if from_many else LOCAL
        with suppress(ConnectionError):
            it = socket.create_connection((LOCAL, port), timeout=10, source_address=(address, 0))
            found.append(it)
            for part in sent:
                it.sendall(part)
    return found


def _is_open(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        while peer.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except ConnectionError:
        pass
    peer.close()
    return False


# The process


def _main(loop: str, ports: list[int]) -> None:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = asyncio.new_event_loop if loop == "asyncio" else None
    looping.run(_operate(*ports), loop_factory=factory)


async def _operate(*ports: int) -> None:
    async with operating(*ports):
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


@asynccontextmanager
async def operating(webhook: int, guarded: int, health: int, dashboard: int) -> AsyncIterator[None]:
    """Run the operator in this process while the context lasts, from when all its ports listen."""
    clock = RealClock()
    api = ApiServer(clock)
    for it in (a_namespace(_HOME), a_node("n1")):
        api.put(it)
    client = Client(api.transport(), clock=clock, random=random.Random(1))
    settings = OperatorSettings(
        namespace=_HOME,
        identity="haulout-1_x",
        health_port=health,
        metrics=Address(dashboard),
        webhook=WebhookSettings(port=webhook, namespace=_HOME, certificate=SelfMade()),
        guarded_metrics=Address(guarded),
        access=AccessSettings(mode=AuthMode.OFF),
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_operator(client, settings))
        for port in (webhook, guarded, health, dashboard):
            await eventually(clock, partial(_listens, port))
        yield
        running.cancel()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOCAL, port)
    except OSError:
        return False
    writer.close()
    return True


if __name__ == "__main__":
    _main(sys.argv[1], [int(it) for it in sys.argv[2:]])
