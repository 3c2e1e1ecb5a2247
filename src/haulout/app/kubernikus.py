"""Nodes of Kubernikus under the operator: on where there is a `kubernikus.yaml`.

It is seen to beside profiles, under the lease of the SAP maintenance-controller: never beside one of these. Should it
break it is started again by itself. The SDK of OpenStack is loaded only when the first server is to be deleted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from haulout.app.announcing import Announcer
from haulout.app.parts import Part
from haulout.core import cloudprovider
from haulout.core.metering import Kind, Metric, Tally
from haulout.drain.tallies import Meter
from haulout.errors import HandOver
from haulout.history.backlog import Backlog
from haulout.history.keeper import Keeper
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import Node
from haulout.kubernikus.nova import Nova
from haulout.profiles.words import counted

if TYPE_CHECKING:
    from haulout.app.kubernikus_settings import KubernikusFile
    from haulout.kubernikus.controller import Controller

Credentials = Callable[[], Awaitable[cloudprovider.Settings]]

_REPORTER = "kubernikus"  # who tells by events, as that controller is called there
_LAST_WORDS = timedelta(seconds=2)

ORDERS = Metric(
    "haulout_kubernikus_deletions",
    "How many nodes are to be deleted by their label.",
    ("stuck",),
    kind=Kind.GAUGE,
    more="`stuck` is true for those that somebody should look after; only who sees to them has it",
)
OUTDATED = Metric(
    "haulout_kubernikus_kubelets_outdated",
    "How many nodes have a kubelet of another version than the API server.",
    kind=Kind.GAUGE,
    more="by their label; only who sees to them has it",
)
METRICS = (ORDERS, OUTDATED)


def by_sdk(credentials: Credentials) -> Nova:
    """Return Nova as the SDK of OpenStack speaks to it."""
    from haulout.kubernikus.sdk import SdkNova

    return SdkNova(credentials)


@dataclass(slots=True)
class Kubernikus:
    """What outlives leadership: the file, how Nova is found, and what is known while this replica sees to nodes."""

    file: "KubernikusFile"
    nova: Callable[[Credentials], Nova] = by_sdk
    meter: Meter | None = None  # counts drains
    controller: "Controller | None" = None  # while we see to them, and not another
    unrecorded: Backlog = field(default_factory=Backlog)  # what happened and is not in the history of nodes yet
    recorded: Callable[[str], object] = lambda _: None  # hears of nodes for which a record is made
    part: Part = field(default_factory=partial(Part, "Kubernikus"))

    def troubles(self) -> Iterator[str]:
        """Yield what somebody should look after."""
        if self.part.trouble:
            yield self.part.trouble
        if (problem := self.file.problem) is not None:
            yield f"what {self.file.path} said before stays in force: {problem}"
        if self.controller is not None:
            if self.controller.kubelets.problem:
                yield self.controller.kubelets.problem
            yield from self.controller.teller.troubles()
            yield from self.controller.history.troubles()

    def told(self) -> Iterator[str]:
        """Yield how it stands."""
        if self.controller is None:
            yield "[+] Kubernikus: this replica does not see to it; the leader does, or a SAP maintenance-controller"
        elif bad := next(self.troubles(), ""):
            yield f"[-] Kubernikus: {bad}"
        else:
            orders = counted(self.controller.teller.orders(), "node")
            yield f"[+] Kubernikus: this replica sees to it; to be deleted: {orders}"

    def tallies(self) -> Iterator[Tally]:
        """Yield all numbers, as they are now."""
        if self.controller is None:
            return
        orders, stuck = Tally(ORDERS), self.controller.teller.stuck()
        orders.set("true", to=stuck)
        orders.set("false", to=self.controller.teller.orders() - stuck)
        outdated = Tally(OUTDATED)
        outdated.set(to=self.controller.kubelets.outdated())
        yield from (orders, outdated)


async def see_to_kubernikus(
    client: Client,
    kubernikus: Kubernikus,
    *,
    identity: str,
    nodes: Cache[Node],
    announcer: Announcer,
    own_node: str = "",
) -> None:
    """See to nodes of Kubernikus, also after it broke, until cancelled; others keep `nodes` up to date.

    Raises `HandOver` when `own_node`, on which this process runs, is about to be drained.
    """
    work = partial(
        _work, client, kubernikus, identity=identity, nodes=nodes, own_node=own_node, namespace=announcer.namespace
    )
    tell = partial(announcer.warn, reason="KubernikusBroke", action="SeeToKubernikus")
    await kubernikus.part.run(work, client=client, tell=tell)


async def _work(
    client: Client, kubernikus: Kubernikus, *, identity: str, nodes: Cache[Node], own_node: str, namespace: str
) -> None:
    from haulout.kubernikus.controller import Controller
    from haulout.profiles import openstack
    from haulout.profiles.outside import Network

    file, network = kubernikus.file, Network(client=client)

    async def credentials() -> cloudprovider.Settings:
        secret = file.settings.secret
        namespace, name = (secret.namespace, secret.name) if secret else ("", "")
        return await openstack.settings(network, namespace=namespace, secret=name)

    events, history = (
        EventRecorder(client, instance=identity, controller=_REPORTER),
        Keeper(client, kubernikus.unrecorded, created=kubernikus.recorded),
    )
    controller = Controller(
        client,
        nova=kubernikus.nova(credentials),
        nodes=nodes,
        events=events,
        settings=file.settings,
        own_node=own_node,
        namespace=namespace,
        meter=kubernikus.meter,
        history=history,
    )
    handed_over: HandOver | None = None
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(it) for it in (events.run(), history.run(), file.follow(controller.use))]
        kubernikus.controller = controller
        try:
            await controller.run()
        except HandOver as error:  # which a group would wrap
            handed_over = error
        finally:
            kubernikus.controller = None
            await asyncio.gather(*(it.flush(_LAST_WORDS) for it in (history, events)))
            await network.close()
            for task in beside:
                task.cancel()
    if handed_over is not None:
        raise handed_over
