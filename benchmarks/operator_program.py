"""The operator in a process of its own, which counts what it sends: for `operated`.

python operator_program.py KUBECONFIG CONFIGURATION PORT

Each line that it reads is answered with its numbers so far, as JSON. Without a CONFIGURATION there are no profiles,
without a PORT no dashboard; they are empty then.
"""

import asyncio
import json
import sys
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random

from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.app.operator import OperatorSettings, run_operator
from haulout.cli import asyncio_runner
from haulout.cli.run.cluster_mode import open_profiles
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.clock import RealClock
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth.settings import AccessSettings
from haulout.httpserver.listener import ListenAddress
from haulout.kube.client import Client
from haulout.kube.transport import Request, Response, Stream
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from resource_usage import memory, peak_memory

_OWN_LEASES = (LEADER_LEASE, PROFILES_LEASE)


class _CountingTransport:
    """A transport that counts requests; those that keep the operator's own lead do not count."""

    def __init__(self, transport: HttpTransport) -> None:
        self.server = transport.server
        self.sent = 0
        self._transport = transport

    async def send(self, request: Request) -> Response:
        self.sent += not request.path.endswith(_OWN_LEASES)
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        self.sent += 1
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


async def _main(kubeconfig: str, configuration: Path | None, port: int | None) -> None:
    clock = RealClock()
    transport = _CountingTransport(HttpTransport(config.load(kubeconfig=kubeconfig, clock=clock), clock=clock))
    client = Client(transport, clock=clock, random=Random())
    metrics = None if port is None else ListenAddress(port, "127.0.0.1")
    access = AccessSettings(mode=AuthMode.OFF)  # what is measured is the dashboard, without the login
    settings = OperatorSettings(namespace="default", identity="benchmark", metrics_address=metrics, access=access)
    profiles_file = ProfilesFile(configuration or Path("no such file"), environ={}, clock=clock, is_optional=True)
    async with open_profiles(profiles_file, client) as profiles, asyncio.TaskGroup() as group:
        operator = group.create_task(run_operator(client, settings, profiles=profiles))
        while await asyncio.to_thread(sys.stdin.readline):
            numbers = {"sent": transport.sent, "cpu": time.process_time(), "memory": memory(), "peak": peak_memory()}
            print(json.dumps(numbers), flush=True)
        operator.cancel()
    await client.close()


if __name__ == "__main__":
    _, named, file, listens_on = sys.argv
    asyncio_runner.run(_main(named, Path(file) if file else None, int(listens_on) if listens_on else None))
