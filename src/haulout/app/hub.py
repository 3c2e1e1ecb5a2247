"""The hub: of several processes one leads and couples Machines with the nodes of workload clusters.

It leads under the name that the runtime-extension-maintenance-controller leads under, so that an old one in the same
namespace and a new one never work at once. It needs no pod to run in: without one its lease is in the namespace that
the context names, or that was given; or nobody is elected, if whoever runs it sees to it that there is only one.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from haulout.app.hub_beside import beside
from haulout.app.hub_facing import face_hub
from haulout.app.hub_vitals import HubVitals
from haulout.app.serving import ReplicaSettings, serving
from haulout.core import cgroup
from haulout.core.clock import Clock
from haulout.errors import LeadershipLost
from haulout.hub.admission import Admission, by_budget
from haulout.hub.connecting import Connect, over_the_network
from haulout.hub.controller import REPORTER, Hub, NotServed
from haulout.hub.settings import HubSettings
from haulout.kinds.clusterapi import EXTENSION_LEASE
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.leader import LeaderElection
from haulout.kube.limits import MemoryBudget

log = logging.getLogger(__name__)

_LAST_WORDS = timedelta(seconds=2)
_MEMORY_LIMIT = 400 << 20  # without a container: what the Deployment of `hub_manifests` has


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOperation(ReplicaSettings):
    """Where and as whom a hub runs; `cluster` is its management cluster."""

    elects: bool = True  # one of several leads; otherwise it works at once
    hub: HubSettings = field(default_factory=HubSettings)


async def run_hub(
    client: Client,
    operation: HubOperation,
    *,
    connect: Connect | None = None,
    admission: Admission | None = None,
    vitals: HubVitals | None = None,
) -> None:
    """Serve what every replica serves, and stand for leadership; until cancelled. `vitals` learn how it goes."""
    vitals = vitals or HubVitals()
    vitals.client = client
    connect = connect or over_the_network(
        clock=client.clock, random=client.random, memory=_memory(operation.hub, client.clock)
    )
    async with serving(client, vitals, operation, lease=EXTENSION_LEASE):
        await _stand(client, operation, connect=connect, admission=admission, vitals=vitals)


def _memory(settings: HubSettings, clock: Clock) -> MemoryBudget:
    limit = settings.memory_limit or cgroup.memory_limit() or _MEMORY_LIMIT
    memory = MemoryBudget(limit, clock=clock)
    log.info("workload clusters get %s MiB for caches, of %s MiB of memory", memory.caches.limit >> 20, limit >> 20)
    return memory


async def _stand(
    client: Client, operation: HubOperation, *, connect: Connect, admission: Admission | None, vitals: HubVitals
) -> None:
    lead = partial(_lead, operation=operation, connect=connect, admission=admission, vitals=vitals)
    if not operation.elects:
        log.warning("nobody is elected: see to it that no other hub runs for this cluster")
        await lead(client)
        return
    election = LeaderElection(
        client,
        name=EXTENSION_LEASE,
        namespace=operation.namespace,
        identity=operation.identity,
        timing=operation.leases,
    )
    while True:
        try:
            await election.run(lead)
        except LeadershipLost as error:
            log.warning("%s; standing again", error)


async def _lead(
    client: Client, *, operation: HubOperation, connect: Connect, admission: Admission | None, vitals: HubVitals
) -> None:
    events = EventRecorder(client, instance=operation.identity, controller=REPORTER)
    # With the client of the leader: who was deposed takes no slot.
    admission = admission or by_budget(client, operation.hub.cluster_budget, namespace=operation.namespace)
    facing = face_hub(
        client,
        vitals,
        admission,
        namespace=operation.namespace,
        identity=operation.identity,
        cluster=operation.cluster,
    )

    async def work() -> None:
        while True:
            try:
                async with beside(client, events=events, vitals=vitals, settings=operation.hub) as companions:
                    hub = vitals.hub = Hub(
                        client,
                        connect=connect,
                        events=events,
                        settings=operation.hub,
                        admission=admission,
                        tallies=vitals.counted,
                        drain_rules=companions.drain_rules,
                        instance=operation.identity,
                    )
                    companions.join(hub)
                    await hub.run()
            except NotServed as error:
                log.warning("%s: looking which version is", error)
            finally:
                vitals.hub = None

    vitals.leads, vitals.admission = True, admission
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(it) for it in (events.run(), facing)]
        try:
            await vitals.part.run(work, client=client)
        finally:
            vitals.leads, vitals.admission = False, None
            await events.flush(_LAST_WORDS)
            for task in others:
                task.cancel()
