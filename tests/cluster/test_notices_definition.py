"""The definition of notices comes late, goes and comes again, on a real API server: the operator follows."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from random import Random

import pytest

from controlplane import ControlPlane
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.vitals import Vitals
from haulout.core.clock import Clock
from haulout.errors import NotFound
from haulout.kinds.notice import MAINTENANCE_NOTICES, Phase, definition
from haulout.kube.client import Client
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.resources import DEFINITIONS, NODES
from support.builders import a_node
from support.eventually import eventually
from support.listening import a_notice

NAME = f"{MAINTENANCE_NOTICES.plural}.{MAINTENANCE_NOTICES.group}"
SOON = timedelta(minutes=2)


@pytest.fixture
def alone() -> Iterator[ControlPlane]:
    """Have a control plane for this test alone: others need the definition."""
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


async def test_notices_are_seen_to_whenever_their_definition_is_there(alone: ControlPlane, clock: Clock) -> None:
    vitals = Vitals()
    async with a_client(alone, clock) as client, asyncio.TaskGroup() as group:
        await client.create(NODES, a_node("n1"))
        settings = OperatorSettings(namespace="default", identity="one")
        operator = group.create_task(run_operator(client, settings, vitals=vitals))
        await eventually(clock, lambda: "is not installed" in _told(vitals), within=SOON)
        for name in ("first", "second"):
            await client.create(DEFINITIONS, definition())
            await eventually(clock, partial(_announced, client, name), becomes=Phase.PLANNED, within=SOON)
            await client.delete(DEFINITIONS, NAME)
            await eventually(clock, partial(_is_gone, client), becomes=True, within=SOON)
        await eventually(clock, lambda: "is not installed" in _told(vitals), within=SOON)
        operator.cancel()


def _told(vitals: Vitals) -> str:
    return "\n".join(vitals.told())


async def _announced(client: Client, name: str) -> str:
    """Return how a notice stands, which is made if it is not there; before it can be, nothing."""
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
