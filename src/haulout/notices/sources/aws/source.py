"""Listens to AWS: EC2 is asked about all nodes every few minutes, and the queue is read if there is one."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta

from haulout.core.backoff import Backoff
from haulout.errors import CloudError, KubeError
from haulout.kinds.notice import MaintenanceNotice, NoticeCondition
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.inbox import Inbox
from haulout.notices.sources.aws import moving
from haulout.notices.sources.aws.cloud import AutoScaling, Ec2, Sqs, explained, is_busy
from haulout.notices.sources.aws.desk import Desk
from haulout.notices.sources.aws.fleet import Fleet
from haulout.notices.sources.aws.identities import Identities, identified
from haulout.notices.sources.aws.lifecycles import Lifecycles, Pace
from haulout.notices.sources.aws.polling import Poll
from haulout.notices.sources.aws.queue import QueueReader
from haulout.notices.sources.aws.readings import SOURCE
from haulout.notices.sources.aws.settings import Settings
from haulout.notices.sources.aws.tags import Tags
from haulout.notices.sources.aws.termination_hooks import TerminationHooks
from haulout.notices.sources.calls import Patient
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

_PAUSE = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.3)


class AwsSource:
    """One account and region; `run` may be called once. Somebody else runs the cache of nodes."""

    def __init__(
        self,
        *,
        ec2: Ec2,
        groups: AutoScaling,
        sqs: Sqs | None,
        client: Client,
        nodes: Cache[Node],
        settings: Settings,
    ) -> None:
        clock = client.clock
        self.quarantine = Quarantine(SOURCE, clock)
        self._client = client
        self._clock = clock
        self._ec2 = ec2
        self._nodes = nodes
        self._look_every = settings.look_every
        self._drains_for_network = settings.drains_for_network
        self._patient = Patient(clock, client.random, is_busy=is_busy)
        self._fleet = Fleet()
        self._poll = Poll(ec2, clock=clock, patient=self._patient, fleet=self._fleet, quarantine=self.quarantine)
        pace = Pace(
            heartbeat=settings.heartbeat, until=settings.heartbeat_until, complete_after=settings.complete_after
        )
        self._identities = Identities(ec2, fleet=self._fleet, patient=self._patient)
        self._lifecycles = Lifecycles(
            groups,
            client=client,
            patient=self._patient,
            fleet=self._fleet,
            identities=self._identities,
            pace=pace,
        )
        self.queue = sqs and QueueReader(
            sqs,
            client=client,
            fleet=self._fleet,
            poll=self._poll,
            lifecycles=self._lifecycles,
            tags=Tags(ec2, tag=settings.managed_tag, clock=clock, patient=self._patient),
            identities=self._identities,
            quarantine=self.quarantine,
            hidden=settings.hidden,
        )
        self._hooks = TerminationHooks(groups, client=client, patient=self._patient, fleet=self._fleet)
        self._troubles: Sequence[str] = ()

    @property
    def name(self) -> str:
        """What `spec.source` of its notices says."""
        return SOURCE

    @property
    def taken(self) -> int:
        """How many messages of the queue have become notices."""
        return self.queue.taken if self.queue else 0

    def silence(self) -> timedelta | None:
        """Return how long ago AWS last answered."""
        ago = self._patient.pulse.ago(), self.queue.pulse.ago() if self.queue else None
        return min((it for it in ago if it is not None), default=None)

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what AWS says."""
        return not self._unheard()

    def troubles(self) -> Sequence[str]:
        """Return what keeps it from its work, a line each."""
        return (*self._unheard(), *self.quarantine.troubles())

    def _unheard(self) -> list[str]:
        queue = self.queue.trouble if self.queue else ""
        return [it for it in (*self._troubles, queue, self._lifecycles.trouble, self._hooks.trouble) if it]

    async def run(self, inbox: Inbox) -> None:
        """Report what AWS says, until cancelled."""
        await self._nodes.wait_synced()
        with ExitStack() as following:  # the copy of nodes outlives us
            for follow in (self._fleet.follow, self._lifecycles.note_node):
                following.callback(self._nodes.subscribe(follow))
            desk = Desk(
                inbox,
                hears=self._lifecycles.wake,
                quarantine=self.quarantine,
                node_of=self._fleet.node_of,
                drains_for_network=self._drains_for_network,
            )
            await self._begin(desk)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look(desk))
                group.create_task(self._lifecycles.run(desk))
                group.create_task(self._hooks.run(desk))
                if self.queue:
                    group.create_task(self.queue.run(desk))

    async def move(self, notice: MaintenanceNotice, to: datetime) -> None:
        """Have a maintenance begin at another time; raises `CannotMove` if EC2 says no, `OutsideError` if nothing."""
        await moving.move(self._ec2, notice, to, now=self._clock.now(), patient=self._patient)

    async def _begin(self, desk: Desk) -> None:
        """Read what notices there are, however long that takes: without it the same would be opened twice."""
        failures = 0
        while True:
            try:
                await desk.refresh()
            except KubeError as error:
                failures += 1
                self._complain(f"notices cannot be read, which is tried again: {error}")
                await self._clock.sleep(_PAUSE.delay(failures, self._client.random))
            else:
                self._troubles = ()
                return

    async def _look(self, desk: Desk) -> None:
        failures = 0
        while True:
            troubles = await self._round(desk)
            failures = failures + 1 if troubles else 0
            if troubles:
                self._complain(*troubles)
            else:
                self._troubles = ()
            pause = _PAUSE.delay(failures, self._client.random) if failures else self._look_every
            await self._clock.sleep(min(pause, self._look_every))

    async def _round(self, desk: Desk) -> Sequence[str]:
        try:
            await desk.refresh()
            await desk.name_nodes()
            instances = {*self._fleet.instances(), *(instance for instance, _ in desk.open())}
            troubles = [*await self._poll.look(desk, instances), *await self._identify(desk)]
            return [f"EC2 does not answer, which is tried again: {it}" for it in troubles]
        except KubeError as error:
            return [f"notices cannot be written, which is tried again: {error}"]

    async def _identify(self, desk: Desk) -> Sequence[str]:
        """Have notices without a node say what their instance is called; return what went wrong."""
        for instance, notice in list(desk.open()):
            condition = notice.status.condition(NoticeCondition.NODE_FOUND)
            if notice.spec.machine_name or condition is None or condition.status == "True":
                continue
            try:
                identity = await self._identities.of(instance, notice)
            except CloudError as error:
                return [explained(error)]
            if identity.name or identity.address:
                await desk.report(identified(notice, identity, at=self._clock.now()))
        return []

    def _complain(self, *troubles: str) -> None:
        self._troubles = [f"aws: {it}" for it in dict.fromkeys(troubles)]
        for trouble in self._troubles:
            log.warning("%s", trouble)
