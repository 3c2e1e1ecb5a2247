"""The hub: couples the Machines of a management cluster with the nodes of workload clusters.

It follows Machines, and Clusters where it may. For each cluster with a Machine that is enabled, or still has our hook,
it keeps a `Workload`; that one goes when nothing is left to do for it. Everything that a successor needs is in the API
servers: the hook on a Machine says that its node may have something of ours.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.errors import Forbidden, KubeError
from haulout.hub.admission import Admission, Everybody
from haulout.hub.connecting import Connect
from haulout.hub.settings import HubSettings
from haulout.hub.standing import ClusterStanding
from haulout.hub.tallies import HubTallies
from haulout.hub.workloads import DrainRules, Management, Workload
from haulout.kinds import clusterapi
from haulout.kinds.clusterapi import HOOK, VERSIONS, Cluster, ClusterKey, Machine
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.fresh import Fresh
from haulout.kube.objects import Node
from haulout.kube.queue import Queue

log = logging.getLogger(__name__)

REPORTER = "runtime-extension-maintenance-controller"  # who tells by events
_BY_CLUSTER, _BY_NODE = "cluster", "node"
_ASKED = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1))  # whether Cluster API is there by now
_BROKEN = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=5))
_WELL_AFTER = timedelta(minutes=10)  # what broke before that does not count any more
_CLUSTERS_WITHIN = timedelta(seconds=10)
_LOOKED_AT_EVERY = timedelta(minutes=1)


class NotServed(KubeError):
    """The management cluster does not serve Machines any more in the version that is followed."""


class Hub:
    """Sees to all workload clusters; `run` may be called once."""

    def __init__(
        self,
        client: Client,
        *,
        connect: Connect,
        events: EventRecorder,
        settings: HubSettings | None = None,
        admission: Admission | None = None,
        tallies: HubTallies | None = None,
        drain_rules: DrainRules = lambda *_: None,
        instance: str = "",
    ) -> None:
        self.settings = settings or HubSettings()
        self.machines: Cache[Machine] | None = None  # once Cluster API is found
        self.tallies = tallies or HubTallies()
        self._client = client
        self._clock = client.clock
        self._connect = connect
        self._events = events
        self._admission = admission or Everybody()
        self._drain_rules = drain_rules
        self._instance = instance or socket.gethostname()
        self._clusters: Cache[Cluster] | None = None
        self._management: Management | None = None
        self._workloads: dict[ClusterKey, Workload] = {}
        self._running: dict[ClusterKey, asyncio.Task[None]] = {}
        self._wanted: dict[ClusterKey, set[str]] = {}  # the keys of Machines for which a cluster is seen to
        self._group: asyncio.TaskGroup | None = None
        self._found = asyncio.Event()
        self._subscribers: list[Callable[[], None]] = []
        self._resting: Queue[ClusterKey] = Queue(
            self._rest, clock=client.clock, random=client.random, workers=1, name="clusters that rest"
        )

    # For others

    def standings(self) -> tuple[ClusterStanding, ...]:
        """Return how it stands with all workload clusters that are seen to, ordered by key."""
        machines = self.machines
        return tuple(
            workload.standing([] if machines is None else list(machines.by(_BY_CLUSTER, str(key))))
            for key, workload in sorted(self._workloads.items())
        )

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a standing may have changed; returns what ends that."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def node_of(self, machine: Machine) -> Node | None:
        """Return the node that a Machine became, as far as the hub keeps it; None if it is not known now."""
        workload = self._workloads.get(machine.cluster)
        if workload is None or not workload.link.is_up or workload.link.nodes is None:
            return None
        return workload.link.nodes.get(machine.node)

    def look_at_all(self) -> None:
        """Look at all Machines that are seen to: what is about all of them has changed."""
        for workload in self._workloads.values():
            workload.look_at_all()

    async def wait_found(self) -> Cache[Machine]:
        """Return the copy of Machines, once Cluster API is found and all are known."""
        await self._found.wait()
        assert self.machines is not None  # noqa: S101 - set before the event
        return self.machines

    # The run

    async def run(self) -> None:
        """Work until cancelled; raises `NotServed` if Cluster API is not as it was."""
        version = await self._version()
        log.info("Cluster API is served in version %s", version)
        of_machines = clusterapi.machines(version)
        machines = self.machines = Cache(
            self._client,
            Selection(of_machines),
            row=as_is,
            indexes={_BY_CLUSTER: lambda it: [str(it.cluster)], _BY_NODE: _node_index},
        )
        clusters = self._clusters = Cache(self._client, Selection(clusterapi.clusters(version)), row=as_is)
        self._management = Management(
            client=self._client,
            resource=of_machines,
            machines=Fresh(machines),
            cluster=lambda key: clusters.get(str(key)),
            of_node=lambda key, node: tuple(it.key for it in machines.by(_BY_NODE, _on(key, node))),
            of_cluster=lambda key: tuple(it.key for it in machines.by(_BY_CLUSTER, str(key))),
            connect=self._connect,
            admission=self._admission,
            settings=self.settings,
            events=self._events,
            tallies=self.tallies,
            instance=self._instance,
            reporter=REPORTER,
            drain_rules=self._drain_rules,
            changed=self._note_change,
            rested=self._resting.add,
        )
        try:
            async with asyncio.TaskGroup() as group:
                for work in (machines.run(), clusters.run(), self._resting.run(), self._still_served(machines)):
                    group.create_task(work)
                await machines.wait_synced()
                await self._wait_for_clusters(clusters)
                await self._work(group, machines, clusters)
        except* NotServed as errors:
            raise NotServed(str(errors.exceptions[0])) from None

    async def _work(self, group: asyncio.TaskGroup, machines: Cache[Machine], clusters: Cache[Cluster]) -> None:
        self._group = group
        with ExitStack() as stack:
            stack.callback(setattr, self, "_group", None)
            stack.callback(machines.subscribe(self._note_machine))
            stack.callback(clusters.subscribe(self._note_cluster))
            self._found.set()
            await asyncio.get_running_loop().create_future()

    async def _wait_for_clusters(self, clusters: Cache[Cluster]) -> None:
        """Wait a while for the Clusters. A hub that may not list them, or gets no answer, works without them.

        The runtime-extension-maintenance-controller needs no right to list them, so its roles do not grant it.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLUSTERS_WITHIN.total_seconds()):
                try:
                    await anext(self._client.pages(clusters.resource, page_size=1))
                except Forbidden as error:
                    log.warning("%s: whether a Cluster is paused or deleted is not known", error)
                    return
                except KubeError as error:
                    log.debug("Clusters cannot be listed yet: %s", error)
                await clusters.wait_synced()

    async def _version(self) -> str:
        """Return the version of Cluster API that is used, as soon as there is one."""
        failures = 0
        while True:
            try:
                for version in VERSIONS:
                    if await serves(self._client, clusterapi.machines(version)):
                        return version
                problem = "Cluster API is not installed in this cluster: there are no machines.cluster.x-k8s.io"
            except KubeError as error:
                problem = f"whether there is Cluster API cannot be told: {error}"
            if not failures:
                log.warning("%s; asking again", problem)
            failures += 1
            await self._clock.sleep(_ASKED.delay(failures, self._client.random))

    async def _still_served(self, machines: Cache[Machine]) -> None:
        while not machines.health().is_missing:
            await self._clock.sleep(_LOOKED_AT_EVERY)
        raise NotServed(f"{machines.resource.api_version} is not served any more")

    # Which clusters are seen to

    def _note_machine(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            if machine is not None:
                self._wanted.setdefault(machine.cluster, set()).discard(machine.key)
        if new is not None and _is_wanted(new):
            self._wanted[new.cluster].add(new.key)
        for key in dict.fromkeys(it.cluster for it in (old, new) if it is not None):
            self._see_to(key, old, new)

    def _see_to(self, key: ClusterKey, old: Machine | None, new: Machine | None) -> None:
        workload = self._workloads.get(key)
        if workload is None and self._wanted[key]:
            workload = self._begin(key)
        if workload is None:
            del self._wanted[key]
            return
        was_wanted = any(it is not None and _is_wanted(it) for it in (old, new))
        for machine in (old, new):
            if machine is not None and machine.cluster == key:
                workload.add(machine, must_settle=was_wanted)
        self._consider(key)

    def _note_cluster(self, old: Cluster | None, new: Cluster | None) -> None:
        cluster = new or old
        if cluster is None or (old is not None and new is not None and _as_before(old, new)):
            return
        workload = self._workloads.get(ClusterKey(cluster.namespace, cluster.name))
        if workload is not None:
            workload.look_at_all()

    def _note_change(self, key: ClusterKey) -> None:
        self._consider(key)
        for callback in tuple(self._subscribers):
            callback()

    def _begin(self, key: ClusterKey) -> Workload | None:
        if self._group is None or self._management is None:
            return None
        workload = self._workloads[key] = Workload(key, self._management)
        self._running[key] = self._group.create_task(self._keep(workload), name=f"cluster {key}")
        return workload

    def _consider(self, key: ClusterKey) -> None:
        """Let go of a cluster for which there is nothing left to do."""
        workload = self._workloads.get(key)
        if workload is None or self._wanted.get(key) or not workload.is_settled:
            return
        del self._workloads[key]
        self._wanted.pop(key, None)
        self._running.pop(key).cancel()
        self._resting.add(key)
        log.info("cluster %s has no Machine any more that is enabled: its connection is closed", key)

    async def _keep(self, workload: Workload) -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                await workload.run()
            except Exception:
                log.exception("cluster %s: something broke, and starts again; all others go on", workload.key)
            worked = timedelta(seconds=self._clock.monotonic() - began)
            failures = 1 if worked > _WELL_AFTER else failures + 1
            await self._clock.sleep(_BROKEN.delay(failures, self._client.random))

    async def _rest(self, key: ClusterKey) -> None:
        """Give back what a cluster has of the budget across clusters, and look at those who wait for it."""
        workload = self._workloads.get(key)
        if workload is not None and workload.is_active:
            return
        await self._admission.release(key)
        for other in self._workloads.values():
            other.look_at_barred()


def _is_wanted(machine: Machine) -> bool:
    return machine.is_enabled or HOOK in machine.metadata.annotations


def _on(key: ClusterKey, node: str) -> str:
    return f"{key} {node}"


def _node_index(machine: Machine) -> list[str]:
    return [_on(machine.cluster, machine.node)] if machine.node else []


def _as_before(old: Cluster, new: Cluster) -> bool:
    """Tell whether nothing changed that counts: MachineDrainRules go by the labels of clusters."""
    return (old.is_leaving, old.is_paused, old.metadata.labels) == (new.is_leaving, new.is_paused, new.metadata.labels)
