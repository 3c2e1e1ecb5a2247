"""How a replica is doing, as kubelets, Prometheus and people at a terminal are told.

One of it is made for a process and outlives its leadership. It says what is so at the moment it is asked.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.app import replica_metrics as replica
from haulout.app.esx import Esx
from haulout.app.kubernikus import Kubernikus
from haulout.app.machines import Machines
from haulout.app.notices import Notices
from haulout.app.parts import Part
from haulout.app.profiles import Profiles
from haulout.budget.tallies import WAITING, BudgetTallies
from haulout.core.metering import Tally
from haulout.drain.tallies import ORDER, PROFILE, DrainTallies
from haulout.history.backlog import Backlog
from haulout.history.retention import Retention
from haulout.kube import meters
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node, RawObject
from haulout.maintenance.controller import Controller
from haulout.web.metrics import Counted

if TYPE_CHECKING:
    from haulout.web.api.source import Source
    from haulout.web.api.troubles import Troubles
    from haulout.web.webhook import Webhook


@dataclass(slots=True)
class Vitals:
    """A replica: what it serves, and whether it leads."""

    profiles: Profiles | None = None
    notices: Notices | None = None
    webhook: "Webhook | None" = None
    leads: bool = False
    machines: Machines = field(default_factory=Machines)
    kubernikus: Kubernikus | None = None  # None: nobody says that nodes are of Kubernikus
    esx: Esx | None = None  # None: nobody says that there are ESX hosts
    source: "Source | None" = None  # what the dashboard is fed from, while we lead
    facing: Part = field(default_factory=partial(Part, "the dashboard"))
    started: datetime | None = None
    logged: "Troubles | None" = None
    orders: Controller | None = None  # of NodeMaintenances, while this replica leads
    nodes: Cache[Node] | None = None  # the same
    retention: Retention | None = None  # the same
    client: Client | None = None  # by which the cluster is asked
    drains: DrainTallies = field(default_factory=DrainTallies)
    unrecorded: Backlog = field(default_factory=Backlog)  # what happened and is not in the history of nodes yet
    viewers: Callable[[], int] = lambda: 0  # how many look on

    @contextlib.contextmanager
    def leading(self, orders: Controller, nodes: Cache[Node], retention: Retention) -> Iterator[None]:
        """Know what a leader knows while the context lasts."""
        self.orders, self.nodes, self.retention = orders, nodes, retention
        try:
            yield
        finally:
            self.orders = self.nodes = self.retention = None

    def recorded(self, node: str) -> None:
        """Learn that a record was made for a node, which may be gone by now."""
        if self.retention is not None:
            self.retention.add(node)

    def count_viewers(self, count: Callable[[], int]) -> None:
        """Learn how to count those who look on."""
        self.viewers = count

    def unready(self) -> Sequence[str]:
        """Return why this replica cannot do its part, a line each. That another leads is no reason."""
        reasons = [*(() if self.webhook is None else self.webhook.unready())]
        controller = None if self.profiles is None else self.profiles.controller
        if controller is not None and (why := controller.unready()):
            reasons.append(f"profiles wait: {why}")
        return reasons

    def troubles(self) -> Sequence[str]:
        """Return what somebody should look after, though this replica does its part."""
        found = [*(() if self.webhook is None else self.webhook.troubles())]
        if self.profiles is not None:
            found += self.profiles.troubles()
        if self.notices is not None:
            found += self.notices.troubles()
        if self.kubernikus is not None:
            found += self.kubernikus.troubles()
        if self.esx is not None:
            found += self.esx.troubles()
        found += [*self.machines.troubles(), *((self.facing.trouble,) if self.facing.trouble else ())]
        return [*dict.fromkeys((*found, *self.history_troubles()))]

    def history_troubles(self) -> Iterator[str]:
        """Yield why the history of nodes cannot be written."""
        profiles = None if self.profiles is None else self.profiles.controller
        for controller in (self.orders, profiles):
            if controller is not None:
                yield from controller.history.troubles()
        if self.retention is not None:
            yield from self.retention.troubles()

    def told(self) -> Sequence[str]:
        """Return how it stands, a line each, with a plus if that is good and a minus if it is not."""
        return tuple(self._told())

    def _told(self) -> Iterator[str]:
        yield f"[+] leader: {'this replica leads' if self.leads else 'another replica leads, or nobody does yet'}"
        if self.webhook is not None:
            bad = self.webhook.unready()
            yield f"[-] webhook: {bad[0]}" if bad else "[+] webhook: it listens"
        if self.profiles is not None:
            yield from self._told_of(self.profiles)
        if self.notices is not None:
            yield from self.notices.told()
        yield from self.machines.told()
        if self.kubernikus is not None:
            yield from self.kubernikus.told()
        if self.esx is not None:
            yield from self.esx.told()

    def _told_of(self, profiles: Profiles) -> Iterator[str]:
        file, problem = profiles.configured.path, profiles.configured.problem
        if problem is None:
            yield f"[+] configuration: {f'{file} is in force' if profiles.configured.is_there else f'no {file} yet'}"
        else:
            yield f"[-] configuration: what {file} said before is in force"
        controller = profiles.controller
        if controller is None:
            idle = "nothing is configured, and no maintenance announced" if profiles.is_idle else ""
            who = idle or "nobody has yet, or a SAP maintenance-controller does" if self.leads else "the leader does"
            yield f"[+] profiles: this replica does not see to them; {who}"
        elif why := controller.unready():
            yield f"[-] profiles: {why}"
        else:
            yield f"[+] profiles: this replica sees to them; nodes that are due: {controller.due}"

    def infos(self) -> list[RawObject] | None:
        """Return what `/api/v1/info` answers; None: another must be asked."""
        return [] if self.profiles is None else self.profiles.infos()

    def tallies(self) -> Iterator[Counted]:
        """Yield all numbers, as they are now."""
        yield replica.build(__version__)
        yield replica.leads(
            leader=self.leads, profiles=None if self.profiles is None else self.profiles.controller is not None
        )
        yield replica.number(replica.VIEWERS, self.viewers())
        if self.webhook is not None:
            yield self.webhook.validator.reviews
        if self.client is not None:
            now = self.client.clock.now()
            yield from meters.of_calls(self.client.calls)
            yield from self.client.meters.look(now=now)
            yield from self.drains.look(now=now)
        yield from self._of_the_fleet()
        if self.profiles is not None:
            yield from self.profiles.counted()
        if self.notices is not None:
            yield from self.notices.counted()
        yield from self.machines.tallies()
        if self.kubernikus is not None:
            yield from self.kubernikus.tallies()
        if self.esx is not None:
            yield from self.esx.tallies()

    def _of_the_fleet(self) -> Iterator[Counted]:
        if self.orders is None or self.nodes is None:
            return
        yield replica.number(replica.NODES, len(self.nodes))
        yield replica.number(replica.AWAY, self.orders.out_of_service)
        yield from BudgetTallies(self.orders.budget_uses()).all()
        waiting = Tally(WAITING)
        waiting.set(ORDER, to=self.orders.in_line)
        waiting.set(PROFILE, to=0 if self.profiles is None else self.profiles.waiting)
        yield waiting
