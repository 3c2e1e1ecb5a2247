"""A program under test in a cluster, which can be killed at any instant and started again.

    operator = Process(cluster, "operator", lambda client: Operator(client).run())
    operator.start()
    operator.kill()       # every request from then on fails
    operator.start()      # another process, which knows only what is in the API server

Each run has its own client and transport; faults injected into the transport outlive the run. The process may have
another clock than the cluster, to simulate a wrong wall clock. A program may return. If it raises, the cluster fails,
as for a component.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.transport import Transport
from haulout_sandbox.apiserver import InProcessTransport
from haulout_sandbox.cluster import Cluster

Program = Callable[[Client], Coroutine[Any, Any, object]]


class Process:
    """A program that runs in `cluster` under a name.

    `wrap_transport` may put something between it and its transport.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        program: Program,
        *,
        clock: Clock | None = None,
        wrap_transport: Callable[[Transport], Transport] = lambda transport: transport,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.program = program
        self.clock = clock or cluster.clock
        self.start_count = 0
        self._wrap_transport = wrap_transport
        self._transport: InProcessTransport | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Return whether it is running."""
        return self._task is not None and not self._task.done()

    @property
    def transport(self) -> InProcessTransport:
        """Its transport, with the faults that are injected into it."""
        return self._transport or self.cluster.transport(self.name)

    def start(self) -> None:
        """Start a new process."""
        if self.is_running:
            raise RuntimeError(f"{self.name} is running already")
        self.start_count += 1
        self._transport = self.cluster.renew_transport(self.name)
        random = Random(f"{self.cluster.seed} {self.name} {self.start_count}")
        client = Client(self._wrap_transport(self._transport), clock=self.clock, random=random)
        self._task = self.cluster.start_program(self._run(client, self.start_count), name=self.name)

    def kill(self) -> None:
        """Kill the process; its pending requests have no effect."""
        if self._task is None:
            return
        self.transport.close_permanently()
        self._task.cancel()
        self._task = None

    def restart(self) -> None:
        """Kill it and start a new process."""
        self.kill()
        self.start()

    async def _run(self, client: Client, number: int) -> None:
        try:
            await self.program(client)
        except Exception:
            if number == self.start_count and self._task is not None:
                raise
            # An error of a killed process is no failure: it follows from the kill.
