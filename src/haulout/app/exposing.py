"""What every replica of the operator serves over HTTP: the API of profiles, and metrics."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

from haulout.app.names import PROFILES_LEASE
from haulout.app.vitals import Vitals
from haulout.core import duration
from haulout.kube.client import Client
from haulout.web.info import InfoServer
from haulout.web.leading import LeaseLeader
from haulout.web.listening import Address
from haulout.web.metrics import Exposition

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def exposed(
    client: Client,
    vitals: Vitals,
    *,
    at: Address,
    namespace: str,
    identity: str,
    lingers: timedelta = timedelta(),
) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port.

    When that is cancelled it goes on until the numbers were read once more, but no longer than `lingers`. Who does not
    lead asks the leader, on the same port: replicas are alike.
    """
    leader = LeaseLeader(client=client, lease=PROFILES_LEASE, namespace=namespace, identity=identity, port=at.port)
    server = InfoServer(infos=vitals.infos, metrics=Exposition(vitals.tallies).text, leader=leader)
    async with server.serving(host=at.host, port=at.port) as port:
        log.info("metrics and /api/v1/info are served on port %d", port)
        try:
            yield port
        except asyncio.CancelledError:
            if lingers > timedelta():
                log.info("waiting until /metrics is read once more, for up to %s", duration.format(lingers))
                await server.linger(lingers)
            raise
