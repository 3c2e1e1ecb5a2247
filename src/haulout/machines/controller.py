"""The MachineMaintenance controller: looks, has `decision` decide, has the step performed, until there is none left.

It is woken by changes of records, Machines, their sets and nodes, and otherwise at instants that its decisions name.
Everything that a successor needs is in the API server. Records outside of the operator's namespace are not looked at:
whoever may make one can have a Machine deleted.
"""

import asyncio
import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from haulout.errors import Conflict, KubeError, NotFound
from haulout.kinds.hold import hold_of
from haulout.kinds.machinemaintenance import (
    MACHINE_MAINTENANCES,
    MachineCondition,
    MachineMaintenance,
    Phase,
)
from haulout.kinds.openshift import CONTROL_PLANE_MACHINE_SETS, MACHINES, Machine, MachineSet
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, reference
from haulout.kube.objects import Node, OwnerReference, object_key
from haulout.kube.patches import difference
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES
from haulout.machines.claims import claim_on
from haulout.machines.decision import decide
from haulout.machines.performing import Performer, StillNeeded
from haulout.machines.seen import Decision, Seen, is_ready
from haulout.machines.settings import Settings
from haulout.machines.sight import Sight
from haulout.machines.status import describe
from haulout.machines.steps import Step
from haulout.machines.withdrawal import withdrawal

log = logging.getLogger(__name__)

_MOST_STEPS = 20  # in a row: more would mean that decisions go in circles
_SHORTLY = timedelta(seconds=2)
_TOLD_EVERY = timedelta(seconds=1)
_WORKERS = 8

_RECORD, _SET, _CONTROL_PLANE = "record", "set", "control plane"
Key = tuple[str, str]  # what, and which


class Controller:
    """Sees to all MachineMaintenances; `run` may be called once, and somebody else runs the cache of nodes."""

    def __init__(
        self, client: Client, *, events: EventRecorder, nodes: Cache[Node], settings: Settings | None = None
    ) -> None:
        self.settings = settings or Settings()
        self._clock = client.clock
        self._events = events
        self._nodes = nodes
        self.sight = Sight(
            client,
            nodes=nodes,
            namespace=self.settings.namespace,
            machine_namespace=self.settings.machine_namespace,
        )
        self._performer = Performer(client, self.sight)
        self._told_at: dict[str, float] = {}  # by the key of the record
        self._queue: Queue[Key] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            meters=client.meters,
            name="MachineMaintenance",
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sight.run())
            await self.sight.wait_synced()
            with self._woken():
                await self._queue.run()

    # Who is woken by what

    @contextmanager
    def _woken(self) -> Iterator[None]:
        """Hear of changes while the context lasts: the nodes are not ours, and outlast us."""
        with ExitStack() as stack:
            stack.callback(self.sight.records.cache.subscribe(self._note_record))
            stack.callback(self.sight.machines.cache.subscribe(self._note_machine))
            stack.callback(self.sight.sets.cache.subscribe(self._note_set))
            stack.callback(self._nodes.subscribe(self._note_node))
            yield

    def _note_record(self, old: MachineMaintenance | None, new: MachineMaintenance | None) -> None:
        for record in (old, new):
            if record is not None:
                self._queue.add((_RECORD, record.key))
                machine = self.sight.machine(record.spec.machinelink)
                self._wake_set(None if machine is None else machine.owner)

    def _note_machine(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            if machine is not None:
                self._wake(machine.owner)
                for record in self.sight.open_records():
                    if record.spec.machinelink == machine.name:
                        self._queue.add((_RECORD, record.key))

    def _note_set(self, old: MachineSet | None, new: MachineSet | None) -> None:
        found = new or old
        if found is not None:
            self._wake(OwnerReference(name=found.name))

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and is_ready(old) == is_ready(new) and hold_of(old) == hold_of(new):
            return
        for node in (old, new):
            machine = None if node is None else self.sight.machine_of(node.name)
            if machine is not None:
                self._wake(machine.owner)

    def _wake(self, owner: OwnerReference | None) -> None:
        """Look at a set, and at all who wait for it."""
        if owner is not None:
            self._wake_set(owner)
            self._wake_records(owner.name)

    def _wake_set(self, owner: OwnerReference | None) -> None:
        if owner is None:
            return
        if owner.kind == CONTROL_PLANE_MACHINE_SETS.kind:
            self._queue.add((_CONTROL_PLANE, ""))
        else:
            self._queue.add((_SET, object_key(owner.name, self.settings.machine_namespace)))

    def _wake_records(self, owner: str) -> None:
        for record in self.sight.open_records():
            machine = self.sight.machine(record.spec.machinelink)
            if machine is not None and machine.owner is not None and machine.owner.name == owner:
                self._queue.add((_RECORD, record.key))

    # One look

    async def _work(self, key: Key) -> datetime | None:
        what, name = key
        try:
            if what == _RECORD:
                return await self._look_at_record(name)
            owner = self.sight.sets.get(name) if what == _SET else await self.sight.control_plane_set()
            return await self._look_at_set(owner, name, what)
        except (Conflict, NotFound, StillNeeded) as error:
            log.debug("%s %s is not as it was: %s", what, name, error)
            return self._clock.now() + _SHORTLY

    async def _look_at_record(self, key: str) -> datetime | None:
        for _ in range(_MOST_STEPS):
            record = self.sight.records.get(key)
            if record is None:
                self._told_at.pop(key, None)
                return None
            seen = await self.sight.look(record, terms=self.settings.terms)
            decision = decide(seen)
            if decision.step is None:
                looks = (decision.next_look, await self._tell(seen, decision))
                return min((it for it in looks if it is not None), default=None)
            await self._perform(seen, decision, decision.step)
        raise RuntimeError(f"MachineMaintenance {key} goes in circles")

    async def _perform(self, seen: Seen, decision: Decision, step: Step) -> None:
        try:
            await self._performer.perform(step)
        except (Conflict, NotFound):
            raise
        except KubeError as error:
            failed = replace(decision, step=None, reason="Failed", why=f"{decision.why}: {error}", is_bad=True)
            await self._tell(seen, failed)
            raise  # the queue backs off, for this record alone
        log.info("MachineMaintenance %s: %s (%s)", seen.record.key, decision.why, type(step).__name__)

    async def _look_at_set(self, owner: MachineSet | None, name: str, what: str) -> datetime | None:
        for _ in range(_MOST_STEPS):
            claim = None if owner is None else claim_on(owner)
            if owner is None or claim is None:
                return None
            step = withdrawal(owner, self.sight.peers(owner), is_wanted=self.sight.is_wanted(claim.machine))
            if step is None:
                return None
            await self._performer.perform(step)
            log.info("%s: the claim of Machine %s ends (%s)", owner.name, claim.machine, type(step).__name__)
            self._wake_records(owner.name)  # nobody tells of the set of the control plane
            owner = self.sight.sets.get(name) if what == _SET else await self.sight.control_plane_set()
        raise RuntimeError(f"the claim on {name} goes in circles")

    # What is told

    async def _tell(self, seen: Seen, decision: Decision) -> datetime | None:
        """Write the status, but not at once after the last time; return when it may be written.

        Another operator that believes to lead, and sees something else, would answer each word with another one.
        """
        record = self.sight.records.get(seen.record.key)
        if record is None or record.uid != seen.record.uid:
            return None
        status = describe(replace(seen, record=record), decision)
        change = difference(msgspec.to_builtins(record.status), msgspec.to_builtins(status))
        if not change:
            return None
        pause = self._told_at.get(record.key, -math.inf) + _TOLD_EVERY.total_seconds() - self._clock.monotonic()
        if pause > 0:
            # An instant that is rounded down to now would be looked at again and again.
            return self._clock.now() + timedelta(seconds=pause) + timedelta(milliseconds=1)
        self._told_at[record.key] = self._clock.monotonic()
        await self._performer.write_status(record, change)
        before = record.status.condition(MachineCondition.READY)
        if (record.status.phase, before and before.reason) != (decision.phase, decision.reason):
            self._record(record, seen.machine, decision)
        return None

    def _record(self, record: MachineMaintenance, machine: Machine | None, decision: Decision) -> None:
        about = [reference(MACHINE_MAINTENANCES, record)]
        if machine is not None and decision.phase in (Phase.SURGING, Phase.REPLACING):
            node = self._nodes.get(machine.node)
            about.append(reference(MACHINES, machine))
            about += [] if node is None else [reference(NODES, node)]
        for regarding in about:
            self._events.record(
                regarding,
                reason=f"Machine{decision.phase}" if decision.phase.is_over else decision.reason,
                note=decision.why,
                action="Replace",
                type="Warning" if decision.is_bad else "Normal",
            )
