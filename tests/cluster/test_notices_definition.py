"""The definition of notices is installed late, deleted and installed again, on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from random import Random

import pytest

from controlplane import ControlPlane
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticePhase, definition
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.core.clock import Clock
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from support.builders.objects import a_node
from support.expectations.eventually import eventually
from support.operators.event_sources import a_notice

NAME = f"{MAINTENANCE_NOTICES.plural}.{MAINTENANCE_NOTICES.group}"
TIMEOUT = timedelta(minutes=2)


@pytest.fixture
def isolated() -> Iterator[ControlPlane]:
    """Run a control plane for this test alone, because other tests need the definition."""
    with ControlPlane() as control_plane:
        yield control_plane


@asynccontextmanager
async def a_client(control_plane: ControlPlane, clock: Clock) -> AsyncIterator[Client]:
    connection = config.load(kubeconfig=str(control_plane.kubeconfig()), context=None, clock=clock)
    client = Client(HttpTransport(connection, clock=clock), clock=clock, random=Random(1))
    try:
        yield client
    finally:
        await client.close()


async def test_notices_are_processed_whenever_their_definition_is_installed(
    isolated: ControlPlane, clock: Clock
) -> None:
    operator_status = OperatorStatus()
    async with a_client(isolated, clock) as client, asyncio.TaskGroup() as group:
        await client.create(NODES, a_node("n1"))
        settings = OperatorSettings(namespace="default", identity="one")
        operator = group.create_task(run_operator(client, settings, status=operator_status))
        await eventually(clock, lambda: "is not installed" in _status_text(operator_status), within=TIMEOUT)
        for name in ("first", "second"):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
            await eventually(clock, partial(_notice_phase, client, name), becomes=NoticePhase.PLANNED, within=TIMEOUT)
            await client.delete(CUSTOM_RESOURCE_DEFINITIONS, NAME)
            await eventually(clock, partial(_is_gone, client), becomes=True, within=TIMEOUT)
        await eventually(clock, lambda: "is not installed" in _status_text(operator_status), within=TIMEOUT)
        operator.cancel()


def _status_text(operator_status: OperatorStatus) -> str:
    return "\n".join(operator_status.status_lines())


async def _notice_phase(client: Client, name: str) -> str:
    """Return the phase of a notice, which is created if it is missing; empty while its definition is missing."""
    try:
        return (await client.get(MAINTENANCE_NOTICES, name)).status.phase
    except NotFound:
        pass
    start = client.clock.now() + timedelta(days=1)
    try:
        return (await client.create(MAINTENANCE_NOTICES, a_notice(name, "n1", start=start))).status.phase
    except NotFound:
        return ""


async def _is_gone(client: Client) -> bool:
    try:
        await client.list(MAINTENANCE_NOTICES)
    except NotFound:
        return True
    return False
