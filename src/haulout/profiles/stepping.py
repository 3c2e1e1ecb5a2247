"""One step of one node: decided, and then performed in an order that makes it safe to die at any instruction.

1. What must be taken is taken, by compare-and-swap: slots of budgets, leases. A transition whose slot is not to be had
   does not happen. Who has a slot already keeps it.
2. What is changed elsewhere is changed. It can be repeated.
3. The node is written, once, under the resourceVersion that the step rests on: labels, annotations, finalizers, cordon,
   and the data that says where each profile stands. Either all of it is there, or none.
4. What people are told is told: events, and notifications, which the data already says were sent: none is sent twice.
   What happened is noted in the history, which a successor completes from the data.
5. Drains begin or end, and the conditions of the node say so, which a successor completes as well.

Steps that take something are made one at a time, each on what the one before it wrote. All others run side by side.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from haulout.core.clock import Clock
from haulout.errors import BadRequest, Forbidden, Invalid
from haulout.profiles import begun, data
from haulout.profiles.machine import step
from haulout.profiles.model import Configuration
from haulout.profiles.pace import Pace
from haulout.profiles.performing import Performer
from haulout.profiles.plugin import DATA_ANNOTATION, LOG_DETAILS_LABEL, Claim, LeaseClaim, NodeSight, Sights, State
from haulout.profiles.recording import Recorder
from haulout.profiles.shuffles import Shuffles
from haulout.profiles.sights import NodeSights
from haulout.profiles.steps import Result, Sending, Subject
from haulout.profiles.telling import Teller

_REFUSALS = BadRequest, Forbidden, Invalid  # trying again will not help, until somebody changes something


class Surroundings(Protocol):
    """What there is beside nodes, and how people are told: what a configuration needs of it is followed."""

    def use(self, configuration: Configuration) -> None:
        """Follow what this configuration needs, and nothing else."""
        ...

    async def run(self) -> None:
        """Follow it until cancelled."""
        ...

    def sights(self, node: str, nodes: NodeSights) -> Sights:
        """Return what checks of a node see."""
        ...

    def asks_every(self, node: str) -> timedelta | None:
        """Return how often the outside is asked for a node; None: it is not."""
        ...

    def post(self, sending: Sending, node: NodeSight) -> None:
        """Send a notification; it is written down that it was sent."""
        ...

    async def settle(self, within: timedelta) -> None:
        """Return when what was posted is sent, or after `within`."""
        ...


class Stepper:
    """Takes steps of nodes, for the controller."""

    def __init__(
        self,
        nodes: NodeSights,
        surroundings: Surroundings,
        *,
        performer: Performer,
        recorder: Recorder,
        shuffles: Shuffles,
        teller: Teller,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._surroundings = surroundings
        self._performer = performer
        self._recorder = recorder
        self._shuffles = shuffles
        self._teller = teller
        self._clock = clock
        self._taking = asyncio.Lock()
        self._pace = Pace()

    async def go_on(self, sight: NodeSight, configuration: Configuration) -> tuple[Result, bool]:
        """Take one step; return what it was, and whether it changed the node."""
        await self._performer.cordon_copies.load(lambda: (it.node for it in self._nodes.all()))
        result = self._step(self._subject(sight, configuration), configuration)
        if not result.claims and not result.elsewhere:
            return result, await self._perform(sight, result)
        async with self._taking:
            now = self._nodes.get(sight.node.name)
            if now is None or now.node.resource_version != sight.node.resource_version:
                return result, True  # it changed while others had their turn: look again
            result, has_slot = await self._prepare(self._subject(now, configuration), configuration)
            try:
                wrote = await self._perform(now, result)
            except _REFUSALS:
                if has_slot and not _has_been_taken(now):
                    await self._performer.withdraw(now.node)  # others may be luckier
                raise
            if has_slot and not _needs_slot(result):
                await self._performer.withdraw(now.node)
            return result, wrote

    def forget(self, node: str) -> None:
        """Forget a node."""
        self._pace.forget(node)

    async def _prepare(self, subject: Subject, configuration: Configuration) -> tuple[Result, bool]:
        """Return a step that has all it needs, and whether a slot may have been taken.

        What cannot be had makes it another step, which may want something else: another profile may have its turn.
        """
        taken: set[tuple[str, Claim]] = set()
        may_have_slot = False  # of what is refused a part may have been taken: a slot, and then no lease
        while True:
            result = self._step(subject, configuration)
            wanted = [it for it in result.claims if it not in taken]
            may_have_slot |= any(not isinstance(claim, LeaseClaim) for _, claim in wanted)
            refused = await self._performer.take(wanted, subject.node)
            taken |= {it for it in wanted if it[0] not in refused}
            failed = {} if refused else await self._performer.change_elsewhere(result)
            if not refused and not failed:
                return result, may_have_slot
            whys = {(profile, result.claiming[profile]): why for profile, why in refused.items()}
            subject = replace(subject, refused={**subject.refused, **whys}, failed={**subject.failed, **failed})

    def considered(self, sight: NodeSight, configuration: Configuration, sights: Sights) -> Result:
        """Return which step would be taken by a configuration; nothing is done about it."""
        return self._step(self._subject(sight, configuration, sights), configuration)

    def _step(self, subject: Subject, configuration: Configuration) -> Result:
        return step(subject, configuration.profiles)

    def _subject(self, sight: NodeSight, configuration: Configuration, sights: Sights | None = None) -> Subject:
        node = sight.node
        return Subject(
            node=node,
            entries=sight.entries,
            notified=data.notified_of(node.metadata.annotations.get(DATA_ANNOTATION)),
            pending=begun.read(node),
            drains=self._performer.drains_of(node.name),
            in_hand=self._performer.in_hand(node.name),
            sights=sights or self._surroundings.sights(node.name, self._nodes),
            requeue=configuration.requeue,
            now=self._clock.now(),
            budget=self._performer.budget(configuration.budget),
            cordon_copy=self._performer.cordon_copies.of(node),
            logs_details=node.metadata.labels.get(LOG_DETAILS_LABEL) == "true",
            is_recorded=not self._recorder.waits(node.name),
            slowed=self._pace.slowed(node.name, self._clock.now()),
        )

    async def _perform(self, sight: NodeSight, result: Result) -> bool:
        wrote = await self._performer.write_node(self._recorder.carried(sight, result))
        if result.claims:
            self._performer.use_up(sight.node.name)
        if wrote and result.tampering:
            self._teller.restores(sight.node, result.tampering)
        for warning in result.warnings if wrote else ():
            self._teller.warns(sight.node, warning)
        for report in result.reports:
            self._teller.tell(sight.node, report)
            self._pace.note(sight.node.name, report, self._clock.now())
        self._recorder.records(sight, result, self._performer.ended_drains_of(sight.node.name))
        for sending in result.sendings:
            self._surroundings.post(sending, sight)
        if wrote:
            self._shuffles.note(sight, result)
        if result.drains:
            await self._shuffles.seen(sight.node.name)
        await self._performer.see_to_drains(sight.node, result.drains)
        left = self._nodes.find(sight.node.name)
        if left is None or left.uid != sight.node.uid:
            return wrote
        if _has_left(sight, result):
            await self._performer.give_back(left)
        return await self._performer.publish(left, result) or wrote


def _has_left(sight: NodeSight, result: Result) -> bool:
    """Tell whether a node was in maintenance, or on its way there, and is not any more."""
    return _has_been_taken(sight) and not _needs_slot(result)


def _has_been_taken(sight: NodeSight) -> bool:
    return sight.state == State.IN_MAINTENANCE or bool(begun.read(sight.node))


def _needs_slot(result: Result) -> bool:
    return result.state is State.IN_MAINTENANCE or bool(result.pending)
