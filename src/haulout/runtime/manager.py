"""Runs the components of a process: leadership, isolation, hand-over and status, as controller-runtime's manager does.

    manager = Manager(client, components, settings=ManagerSettings(…), share=shared_informers)
    await manager.run()                    # until cancelled

Every replica runs `serve` of each component. One replica holds the lease of the process and runs `lead` of each, under
a supervisor of its own: one that fails restarts alone, and all else continues.

A component that replaces a part of another operator names that operator's lease. The leader acquires it in addition,
once such a component is needed, and runs the component only while it holds both. So the other operator may still run
during a migration: it keeps its part of the work until it is removed. Only the leader acquires a second lease, always
after the first one, so that two replicas cannot hold one each. A standby observes both: after a crash both expire at
once.

A leader whose own node is about to be drained, by any component, hands over leadership first: otherwise it would evict
itself in the middle of its work. Its successor must run on another node, and continues. If no other replica takes over,
the leader continues itself.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from haulout.api.resources import LEASES
from haulout.core.text import format_list
from haulout.errors import KubeError, LeadershipHandover, LeadershipLost
from haulout.kube.client import Client
from haulout.kube.leaderelection import LeaderElection
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.kube.recorder import EventRecorder
from haulout.runtime.component import Component, Leader, SharedInformers
from haulout.runtime.handover import Handover
from haulout.runtime.operator_events import OperatorEvents
from haulout.runtime.tasks import Work, background, first_handover, first_of, running

log = logging.getLogger(__name__)

_SUCCESSOR_TIMEOUT = timedelta(seconds=15)
_SUCCESSOR_POLL_INTERVAL = timedelta(seconds=1)
_ELECTION_RETRY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """What differs between processes."""

    namespace: str
    identity: str
    lease: str
    elects_leader: bool = True  # False: work at once; the user guarantees that there is only one process
    reporter: str  # the reporting controller of Events about the operator itself
    node: str = ""  # on which this process runs; empty: not on a node of the cluster
    timings: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)


class Manager:
    """Runs `components`. Call `run` at most once.

    `share` creates the informers that all components share, for one term of leadership.
    """

    def __init__(
        self,
        client: Client,
        components: Sequence[Component],
        *,
        settings: ManagerSettings,
        share: Callable[[Client], SharedInformers],
        on_record_created: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.components = components
        self.informers: SharedInformers | None = None  # while this replica leads
        self._client = client
        self._settings = settings
        self._share = share
        self._on_record_created = on_record_created
        # They outlast a term: what an election observed of its lease counts in the next term.
        self._election = self._candidate(settings.lease) if settings.elects_leader else None
        self._second_elections: Mapping[str, LeaderElection] = {
            lease: self._candidate(lease, on_new_leader=partial(self._warn_of_other_holder, lease))
            for lease in dict.fromkeys(component.lease for component in components)
            if lease
        }

    @property
    def is_leader(self) -> bool:
        return self.informers is not None

    def held_leases(self) -> Mapping[str, bool]:
        """Return for which leases this process runs, and whether it holds them."""
        first = {self._settings.lease: self.is_leader}
        return first | {lease: election.is_leader() for lease, election in self._second_elections.items()}

    async def run(self) -> None:
        """Run all components until cancelled."""
        async with asyncio.TaskGroup() as group:
            for component in self.components:
                group.create_task(component.serve(self._client))
            await self._run_for_leader()

    # The lease of the process

    async def _run_for_leader(self) -> None:
        own_node = self._settings.node
        if self._election is None:
            await self._lead(self._client, own_node="")
            return
        next_election = next(iter(self._second_elections.values()), None)
        while True:
            try:
                await self._election.run(partial(self._lead, own_node=own_node), next_election=next_election)
            except LeadershipLost as error:
                log.warning("%s; rejoining the leader election", error)
            except LeadershipHandover as error:
                log.info("%s: handing over leadership", error)
                # Without a successor, the next term must not hand over again: the drain would never begin.
                own_node = self._settings.node if await self._has_successor() else ""

    async def _lead(self, client: Client, *, own_node: str) -> None:
        settings, informers = self._settings, self._share(client)
        events = EventRecorder(client, instance=settings.identity, controller=settings.reporter)
        leader = Leader(
            client=client,
            identity=settings.identity,
            namespace=settings.namespace,
            informers=informers,
            warn=OperatorEvents(client, events, settings.namespace).warn,
            handover=Handover(own_node),
            on_record_created=self._on_record_created,
        )
        # They end last, so that what components record while they stop is still written.
        shared = (informers.nodes, informers.maintenances, informers.notices) if informers.is_used else ()
        async with running(events), background(informers.freezes.run(), *(informer.run() for informer in shared)):
            with self._mark_leading(informers):
                await informers.freezes.wait_known()
                raise await first_handover(self._works(leader))

    @contextmanager
    def _mark_leading(self, informers: SharedInformers) -> Iterator[None]:
        self.informers = informers
        for component in self.components:
            component.leads = True
        try:
            yield
        finally:
            self.informers = None
            for component in self.components:
                component.leads = False

    def _works(self, leader: Leader) -> Iterator[Work]:
        yield from (component.run(leader) for component in self.components if not component.lease)
        yield from (self._run_with_second_lease(lease, leader) for lease in self._second_elections)

    async def _has_successor(self) -> bool:
        """Wait up to _SUCCESSOR_TIMEOUT for another leader; return whether there is one."""
        clock, settings = self._client.clock, self._settings
        until = clock.monotonic() + _SUCCESSOR_TIMEOUT.total_seconds()
        while clock.monotonic() < until:
            try:
                lease = await self._client.find(LEASES, settings.lease, namespace=settings.namespace)
            except KubeError:
                lease = None
            if lease is not None and lease.spec.holder_identity not in (None, "", settings.identity):
                return True
            await clock.sleep(_SUCCESSOR_POLL_INTERVAL)
        log.info("no other replica leads: this replica continues although its node is being drained")
        return False

    # Second leases

    async def _run_with_second_lease(self, lease: str, leader: Leader) -> None:
        """Run the components of a lease whenever this process holds it, too."""
        election, components = self._second_elections[lease], self._with_lease(lease)
        await first_of(*(component.wait_until_needed(leader) for component in components))

        async def lead(client: Client) -> None:
            raise await first_handover(component.run(replace(leader, client=client)) for component in components)

        while True:
            if election.is_held_by_another():
                self._log_other_holder(lease, election.leader)
            try:
                await election.run(lead, fence=leader.client.fence)
            except LeadershipLost as error:
                log.warning("%s; this replica does not run %s", error, self._titles(lease))
            await self._client.clock.sleep(_ELECTION_RETRY)

    def _with_lease(self, lease: str) -> Sequence[Component]:
        return [component for component in self.components if component.lease == lease]

    def _titles(self, lease: str) -> str:
        return format_list(component.title for component in self._with_lease(lease))

    def _warn_of_other_holder(self, lease: str, holder: str) -> None:
        if self.is_leader and holder != self._settings.identity:
            self._log_other_holder(lease, holder)

    def _log_other_holder(self, lease: str, holder: str) -> None:
        log.warning("%s holds lease %s and runs %s until it releases the lease", holder, lease, self._titles(lease))

    def _candidate(self, lease: str, *, on_new_leader: Callable[[str], object] | None = None) -> LeaderElection:
        return LeaderElection(
            self._client,
            name=lease,
            namespace=self._settings.namespace,
            identity=self._settings.identity,
            config=self._settings.timings,
            on_new_leader=on_new_leader,
        )
