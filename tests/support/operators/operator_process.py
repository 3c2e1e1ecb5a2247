"""The operator with all its ports in a separate process, for tests that attack it from outside.

    async with operator_under_attack(loop="uvloop", limit_mib=280) as operator:
        peers = await operator.flood(3000, Port.WEBHOOK)

Run as a program (`python operator_process.py LOOP PORT PORT PORT PORT`), this module is that process: the operator and
an in-memory cluster.
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
from haulout.cli import asyncio_runner
from haulout.core.clock import RealClock
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth.settings import AccessSettings
from haulout.httpserver.listener import ListenAddress
from haulout.kube.client import Client
from haulout.webhook.settings import SelfSigned, WebhookSettings
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_namespace, a_node
from support.expectations.eventually import eventually
from support.operators.memory_limit import MemoryLimit, memory_limit

LOCAL = "127.0.0.1"
READY = "ready"
_NAMESPACE = "haulout"
_TIMEOUT = timedelta(seconds=60)
_KIB_PER_MIB = 1024


class Port(Enum):
    """What is asked of a port, and the status of its answer."""

    WEBHOOK = "https", "/", 404
    METRICS = "https", "/metrics", 401
    HEALTH = "http", "/healthz", 200
    DASHBOARD = "http", "/static/", 200


@dataclass
class OperatorUnderAttack:
    """The process, and what attackers do to it."""

    process: asyncio.subprocess.Process
    ports: dict[Port, int]
    limit: MemoryLimit
    _connections: list[socket.socket] = field(default_factory=list)

    async def flood(self, count: int, port: Port, *payloads: bytes, from_many_addresses: bool = False) -> int:
        """Open connections, send this on each, and keep them; return how many were accepted."""
        found = await asyncio.to_thread(
            _open_connections, count, self.ports[port], payloads, from_many_addresses=from_many_addresses
        )
        self._connections += found
        return len(found)

    def open_connections(self) -> int:
        """Return how many connections of attackers the operator has not closed."""
        self._connections = [connection for connection in self._connections if _is_open(connection)]
        return len(self._connections)

    def close_connections(self) -> None:
        """Close all connections of attackers."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    async def ports_not_answering(self) -> list[str]:
        """Return the ports that do not answer a new connection as they should."""
        connector = aiohttp.TCPConnector(ssl=False, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(30)) as session:
            found = {port.name: await self._status(session, port) for port in Port}
        return [f"{name}: {status}" for name, status in found.items() if status != Port[name].value[2]]

    def memory_mib(self, status_field: str = "VmRSS") -> int:
        """Return its memory, or with VmHWM the most that it ever had."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith(f"{status_field}:")).split()[1]) // _KIB_PER_MIB

    async def _status(self, session: aiohttp.ClientSession, port: Port) -> int | str:
        scheme, path, _ = port.value
        try:
            async with session.get(f"{scheme}://{LOCAL}:{self.ports[port]}{path}") as answer:
                await answer.read()
                return answer.status
        except (aiohttp.ClientError, TimeoutError) as error:
            return repr(error)


@asynccontextmanager
async def operator_under_attack(*, loop: str, limit_mib: int) -> AsyncIterator[OperatorUnderAttack]:
    """Run it while the context lasts, from when it is ready, with so much memory."""
    with memory_limit(limit_mib) as limit:
        async with _with_memory_limit(loop, limit) as found:
            yield found


@asynccontextmanager
async def _with_memory_limit(loop: str, limit: MemoryLimit) -> AsyncIterator[OperatorUnderAttack]:
    ports = free_ports(len(Port))
    paths = os.pathsep.join((str(Path(__file__).parents[2]), *sys.path))
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
    found = OperatorUnderAttack(process, dict(zip(Port, ports, strict=True)), limit)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            assert (await process.stdout.readline()).decode().strip() == READY
        yield found
        assert process.returncode is None, "the operator ended"
    finally:
        found.close_connections()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _open_connections(
    count: int, port: int, payloads: tuple[bytes, ...], *, from_many_addresses: bool
) -> list[socket.socket]:
    found = []
    for index in range(count):
        # Linux has all of 127.0.0.0/8 on this machine.
        address = f"127.{1 + index // 40_000}.{index // 200 % 200}.{1 + index % 200}" if from_many_addresses else LOCAL
        with suppress(ConnectionError):
            connection = socket.create_connection((LOCAL, port), timeout=10, source_address=(address, 0))
            found.append(connection)
            for part in payloads:
                connection.sendall(part)
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
    asyncio_runner.run(_run_until_cancelled(*ports), loop_factory=factory)


async def _run_until_cancelled(*ports: int) -> None:
    async with running_operator(*ports):
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


@asynccontextmanager
async def running_operator(webhook: int, secure_metrics: int, health: int, dashboard: int) -> AsyncIterator[None]:
    """Run the operator in this process while the context lasts, from when all its ports listen."""
    clock = RealClock()
    api = ApiServer(clock)
    for obj in (a_namespace(_NAMESPACE), a_node("n1")):
        api.put(obj)
    client = Client(api.transport(), clock=clock, random=random.Random(1))
    settings = OperatorSettings(
        namespace=_NAMESPACE,
        identity="haulout-1_x",
        health_port=health,
        metrics_address=ListenAddress(dashboard),
        webhook=WebhookSettings(port=webhook, namespace=_NAMESPACE, certificate=SelfSigned()),
        secure_metrics_address=ListenAddress(secure_metrics),
        access=AccessSettings(mode=AuthMode.OFF),
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_operator(client, settings))
        for port in (webhook, secure_metrics, health, dashboard):
            await eventually(clock, partial(_is_listening, port))
        yield
        running.cancel()


async def _is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOCAL, port)
    except OSError:
        return False
    writer.close()
    return True


if __name__ == "__main__":
    _main(sys.argv[1], [int(it) for it in sys.argv[2:]])
