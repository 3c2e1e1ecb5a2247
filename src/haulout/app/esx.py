"""Nodes on ESX hosts under the operator: on where there is an `esx.yaml`, or a stand-in of vCenter in the sandbox.

It is seen to beside profiles, under the lease of the SAP maintenance-controller: never beside one of these. Should it
break it is started again by itself. The SDK of vSphere is loaded only where it is on, by the replica that leads.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from haulout.app.announcing import Announcer
from haulout.app.parts import Part
from haulout.core.metering import Kind, Metric, Tally
from haulout.drain.tallies import Meter
from haulout.errors import ConfigErrors, HandOver
from haulout.esx.decision import HostState
from haulout.esx.settings import Settings
from haulout.esx.vcenter import Connect
from haulout.history.backlog import Backlog
from haulout.history.keeper import Keeper
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import Node
from haulout.profiles.words import counted

if TYPE_CHECKING:
    from haulout.app.esx_settings import EsxFile
    from haulout.esx.controller import Controller

_REPORTER = "ESX"  # who tells by events
_LAST_WORDS = timedelta(seconds=2)

HOSTS = Metric(
    "haulout_esx_hosts",
    "How many ESX hosts with nodes are in a state.",
    ("state",),
    kind=Kind.GAUGE,
    more="`true` in maintenance or on the way, `alarm`, or `false`; only who sees to them has it",
)
VCENTER_UP = Metric(
    "haulout_esx_vcenter_up",
    "Whether the vCenter of a zone answered when it was last asked.",
    ("zone",),
    kind=Kind.GAUGE,
    more="the same",
)
NODES = Metric(
    "haulout_esx_nodes",
    "How many nodes are away for the maintenance of their ESX host, on their way there or back, or wait for that.",
    ("stuck",),
    kind=Kind.GAUGE,
    more="`stuck` is true for those that somebody should look after; the same",
)
METRICS = (HOSTS, VCENTER_UP, NODES)


@dataclass(slots=True)
class Esx:
    """What outlives leadership: how vCenters are found, and what is known while this replica sees to nodes."""

    read: Callable[[], Settings]
    connect: Callable[[Client], Connect]
    problem: Callable[[], ConfigErrors | None] = lambda: None  # with the file as it is now
    meter: Meter | None = None  # counts drains
    controller: "Controller | None" = None  # while we see to them, and not another
    unrecorded: Backlog = field(default_factory=Backlog)  # what happened and is not in the history of nodes yet
    recorded: Callable[[str], object] = lambda _: None  # hears of nodes for which a record is made
    part: Part = field(default_factory=partial(Part, "ESX"))

    @classmethod
    def of(cls, file: "EsxFile") -> "Esx":
        """Return what a file says, for vCenters that the SDK speaks to."""

        def connect(client: Client) -> Connect:
            from haulout.esx.sdk import connecting

            return connecting(client.clock)

        return cls(read=file.settings, connect=connect, problem=lambda: file.problem)

    def troubles(self) -> Iterator[str]:
        """Yield what somebody should look after."""
        if self.part.trouble:
            yield self.part.trouble
        if (problem := self.problem()) is not None:
            yield f"what the file for ESX said before stays in force: {problem}"
        if self.controller is not None:
            yield from self.controller.troubles()
            yield from self.controller.history.troubles()

    def told(self) -> Iterator[str]:
        """Yield how it stands."""
        if self.controller is None:
            yield "[+] ESX: this replica does not see to it; the leader does, or a SAP maintenance-controller"
            return
        if bad := next(self.troubles(), ""):
            yield f"[-] ESX: {bad.removeprefix('ESX ')}"
            return
        states = [state for zone in self.controller.zones.values() for state in zone.states.values()]
        busy = sum(it is not HostState.WELL for it in states)
        yield f"[+] ESX: this replica sees to {counted(len(states), 'host')}; in maintenance or alarm: {busy}"

    def tallies(self) -> Iterator[Tally]:
        """Yield all numbers, as they are now."""
        if self.controller is None:
            return
        hosts, up, nodes = Tally(HOSTS), Tally(VCENTER_UP), Tally(NODES)
        for state in HostState:
            hosts.set(state, to=0)
        for stuck in ("false", "true"):
            nodes.set(stuck, to=0)
        for letter, zone in self.controller.zones.items():
            up.set(letter, to=zone.is_up)
            for state in zone.states.values():
                hosts.add(state)
            for is_stuck in zone.under_way():
                nodes.add(str(is_stuck).lower())
        yield from (hosts, up, nodes)


async def see_to_esx(
    client: Client, esx: Esx, *, identity: str, nodes: Cache[Node], announcer: Announcer, own_node: str = ""
) -> None:
    """See to nodes on ESX hosts, also after it broke, until cancelled; others keep `nodes` up to date.

    Raises `HandOver` when `own_node`, on which this process runs, is about to be drained.
    """
    work = partial(_work, client, esx, identity=identity, nodes=nodes, own_node=own_node, namespace=announcer.namespace)
    tell = partial(announcer.warn, reason="EsxBroke", action="SeeToEsx")
    await esx.part.run(work, client=client, tell=tell)


async def _work(client: Client, esx: Esx, *, identity: str, nodes: Cache[Node], own_node: str, namespace: str) -> None:
    from haulout.esx.controller import Controller

    # Pods are many: what is told of them must not crowd out what is told of nodes.
    events, about_pods = (EventRecorder(client, instance=identity, controller=_REPORTER) for _ in range(2))
    history = Keeper(client, esx.unrecorded, created=esx.recorded)
    controller = Controller(
        client,
        connect=esx.connect(client),
        read=esx.read,
        events=events,
        nodes=nodes,
        own_node=own_node,
        namespace=namespace,
        about_pods=about_pods,
        meter=esx.meter,
        history=history,
    )
    handed_over: HandOver | None = None
    async with asyncio.TaskGroup() as group:
        telling = [group.create_task(it.run()) for it in (events, about_pods, history)]
        esx.controller = controller
        try:
            await controller.run()
        except HandOver as error:  # which a group would wrap
            handed_over = error
        finally:
            esx.controller = None
            await asyncio.gather(*(it.flush(_LAST_WORDS) for it in (history, events, about_pods)))
            for task in telling:
                task.cancel()
    if handed_over is not None:
        raise handed_over
