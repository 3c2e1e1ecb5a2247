"""Replacing OpenShift Machines under the operator: on wherever MachineMaintenances and the Machine API are installed.

Should they come later that is noticed, and nothing has to be restarted. Elsewhere it costs next to nothing: the server
is asked once, and again only when a node has a Machine, which nodes say themselves; the code is loaded no sooner.
Notices become records only where there are notices. Both parts look at the same copies of Machines and records.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from haulout.app.announcing import Announcer
from haulout.app.parts import Part
from haulout.core.backoff import Backoff
from haulout.core.metering import Kind, Metric, Tally
from haulout.errors import KubeError
from haulout.kinds.machinemaintenance import (
    MACHINE_MAINTENANCES,
    NAMESPACE,
    MachineCondition,
    MachineMaintenance,
    Phase,
)
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kinds.openshift import MACHINE_OF_NODE, MACHINE_SETS, MACHINES
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.events import EventRecorder
from haulout.kube.objects import Node
from haulout.kube.resources import Resource
from haulout.machines.records import Policy
from haulout.machines.settings import Settings
from haulout.profiles.words import counted

if TYPE_CHECKING:
    from haulout.machines.controller import Controller

log = logging.getLogger(__name__)

_REPORTER = "MachineMaintenance"  # who tells by events
_LAST_WORDS = timedelta(seconds=2)
_ASKED = Backoff(first=timedelta(minutes=1), limit=timedelta(minutes=10))  # whether what is missing is there by now
_UNSEEN = "Unseen"  # the phase of a record that nobody has looked at yet

PHASES = Metric(
    "haulout_machine_maintenances",
    "How many MachineMaintenances are in a phase.",
    ("phase",),
    kind=Kind.GAUGE,
    more="`Unseen` if nobody has looked at them yet; only the leader has it, where there are any",
)
LATE = Metric(
    "haulout_machine_maintenances_late",
    "How many MachineMaintenances will not be done before the cloud begins.",
    kind=Kind.GAUGE,
    more="the same",
)
METRICS = (PHASES, LATE)


@dataclass(slots=True)
class Machines:
    """What outlives leadership: how Machines are replaced, and what is known while this replica sees to it."""

    settings: Settings = field(default_factory=Settings)
    policy: Policy = field(default_factory=Policy)
    controller: "Controller | None" = None  # while we see to them, and not another
    part: Part = field(default_factory=partial(Part, "replacing Machines"))

    def troubles(self) -> Iterator[str]:
        """Yield what somebody should look after."""
        if self.part.trouble:
            yield self.part.trouble
        if self.controller is not None and (problem := self.controller.sight.problem()):
            yield f"Machines wait: {problem}"
        how = f"`kubectl get machinemaintenances -n {self.settings.namespace or NAMESPACE}` says why"
        if refused := sum(it.status.phase == Phase.REFUSED for it in self._records()):
            yield f"{counted(refused, 'MachineMaintenance')} cannot be done: {how}"
        if late := sum(map(_is_late, self._records())):
            yield f"{counted(late, 'Machine')} will not be replaced before the cloud begins: {how}"

    def told(self) -> Iterator[str]:
        """Yield how it stands; nothing where there are no Machines."""
        if self.controller is None:
            return
        if problem := self.controller.sight.problem():
            yield f"[-] machines: {problem}"
            return
        waiting = sum(not _is_over(it) for it in self._records())
        yield f"[+] machines: this replica sees to them; to be replaced: {waiting}"

    def tallies(self) -> Iterator[Tally]:
        """Yield all numbers, as they are now; only who sees to Machines has them."""
        if self.controller is None:
            return
        phases, late = Tally(PHASES), Tally(LATE)
        for phase in (_UNSEEN, *Phase):
            phases.set(phase, to=0)
        for record in self._records():
            phases.add(record.status.phase or _UNSEEN)
        late.set(to=sum(map(_is_late, self._records())))
        yield from (phases, late)

    def _records(self) -> tuple[MachineMaintenance, ...]:
        return () if self.controller is None else tuple(self.controller.sight.records.cache.all())


async def see_to_machines(
    client: Client, machines: Machines, *, identity: str, nodes: Cache[Node], announcer: Announcer
) -> None:
    """Replace Machines where there are any, also after it broke, until cancelled; others keep `nodes` up to date."""
    work = partial(replace_machines, client, machines, identity=identity, nodes=nodes)
    tell = partial(announcer.warn, reason="MachinesBroke", action="SeeToMachines")
    await machines.part.run(work, client=client, tell=tell)


async def replace_machines(client: Client, machines: Machines, *, identity: str, nodes: Cache[Node]) -> None:
    """Replace Machines until cancelled, or until it breaks."""
    await _installed(client, MACHINE_MAINTENANCES, nodes=nodes)
    await _installed(client, MACHINES, MACHINE_SETS, nodes=nodes)
    from haulout.machines.controller import Controller  # with all that it needs: of use on clusters of OpenShift only

    log.info("MachineMaintenances and Machines are installed: Machines are replaced for those who ask for it")
    events = EventRecorder(client, instance=identity, controller=_REPORTER)
    controller = Controller(client, events=events, nodes=nodes, settings=machines.settings)
    async with asyncio.TaskGroup() as group:
        telling = group.create_task(events.run())
        machines.controller = controller
        try:
            async with asyncio.TaskGroup() as works:
                works.create_task(controller.run())
                works.create_task(_note(client, machines, controller, nodes))
        finally:
            machines.controller = None
            await events.flush(_LAST_WORDS)
            telling.cancel()


async def _note(client: Client, machines: Machines, controller: "Controller", nodes: Cache[Node]) -> None:
    """Have notices become records, where there are notices."""
    from haulout.machines.noting import Noting

    await _installed(client, MAINTENANCE_NOTICES, nodes=nodes)
    namespace = machines.settings.namespace or NAMESPACE
    await Noting(client, sight=controller.sight, namespace=namespace, policy=machines.policy).run()


async def _installed(client: Client, *resources: Resource[Any], nodes: Cache[Node]) -> None:
    """Return when these are served."""
    tries = 0
    while not await _are_served(client, *resources):
        if not tries:
            await _has_machines(nodes)
        else:
            await client.clock.sleep(_ASKED.delay(tries, client.random))
        tries += 1


async def _are_served(client: Client, *resources: Resource[Any]) -> bool:
    failures = 0
    while True:
        try:
            return await serves(client, *resources)
        except KubeError as error:
            log.debug("whether there are %ss cannot be told: %s", resources[0].kind, error)
        failures += 1
        await client.clock.sleep(_ASKED.delay(failures, client.random))


async def _has_machines(nodes: Cache[Node]) -> None:
    """Return when a node has a Machine."""
    found = asyncio.Event()

    def look(_: Node | None, new: Node | None) -> None:
        if new is not None and MACHINE_OF_NODE in new.metadata.annotations:
            found.set()

    end = nodes.subscribe(look)
    try:
        await found.wait()
    finally:
        end()


def _is_over(record: MachineMaintenance) -> bool:
    return record.status.phase in (Phase.COMPLETED, Phase.CANCELLED)


def _is_late(record: MachineMaintenance) -> bool:
    on_time = record.status.condition(MachineCondition.ON_TIME)
    return not _is_over(record) and on_time is not None and on_time.status == "False"
