"""How a hub is doing, as kubelets, Prometheus and people at a terminal are told; as `haulout.app.vitals` for operators.

One of it is made for a process and outlives its leadership.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.app import replica_metrics as replica
from haulout.app.parts import Part
from haulout.core.metering import Tally
from haulout.hub.admission import Admission, Budget
from haulout.hub.controller import Hub
from haulout.hub.metal3 import Metal3
from haulout.hub.standing import ClusterStanding, Reach, State
from haulout.hub.tallies import HubTallies
from haulout.kinds.clusterapi import EXTENSION_LEASE
from haulout.kube import meters
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.web.metrics import Counted

if TYPE_CHECKING:
    from haulout.app.profiles import Profiles
    from haulout.web.api.source import Source
    from haulout.web.api.troubles import Troubles

_NAMED = 5  # clusters, before they are only counted


@dataclass(slots=True)
class HubVitals:
    """A replica of the hub: what it serves, and whether it leads."""

    leads: bool = False
    hub: Hub | None = None  # while we lead
    hosts: Metal3 | None = None  # the same, if hosts are seen to
    admission: Admission | None = None  # while we lead
    client: Client | None = None  # by which the management cluster is asked
    counted: HubTallies = field(default_factory=HubTallies)
    part: Part = field(default_factory=partial(Part, "the hub"))
    rules: Part = field(default_factory=partial(Part, "MachineDrainRules"))
    metal3: Part = field(default_factory=partial(Part, "Metal3"))
    facing: Part = field(default_factory=partial(Part, "the dashboard"))
    source: "Source | None" = None  # what the dashboard is fed from, while we lead
    profiles: "Profiles | None" = None  # a hub has none
    started: datetime | None = None
    logged: "Troubles | None" = None
    viewers: Callable[[], int] = lambda: 0  # how many look on

    def standings(self) -> tuple[ClusterStanding, ...]:
        """Return how it stands with workload clusters; who does not lead does not know."""
        return () if self.hub is None else self.hub.standings()

    def count_viewers(self, count: Callable[[], int]) -> None:
        """Learn how to count those who look on."""
        self.viewers = count

    def unready(self) -> Sequence[str]:
        """Return why this replica cannot do its part: clusters that are away are no reason."""
        return ()

    def troubles(self) -> Sequence[str]:
        """Return what somebody should look after, though this replica does its part."""
        away = [it for it in self.standings() if it.reach.is_away]
        verbs = {Reach.UNREACHABLE: "cannot be reached", Reach.UNREADABLE: "is unreadable"}
        found = [f"cluster {it.key} {verbs[it.reach]}: {it.reason}" for it in away[:_NAMED]]
        if len(away) > _NAMED:
            found.append(f"{len(away) - _NAMED} more clusters cannot be reached or read")
        return [*found, *(it.trouble for it in (self.part, self.rules, self.metal3, self.facing) if it.trouble)]

    def told(self) -> Sequence[str]:
        """Return how it stands, a line each, with a plus if that is good and a minus if it is not."""
        leader = f"[+] leader: {'this replica leads' if self.leads else 'another replica leads, or nobody does yet'}"
        if self.hub is None:
            return [leader]
        if self.hub.machines is None:
            return [leader, "[-] hub: no Cluster API was found yet"]
        standings = self.standings()
        connected = sum(it.reach is Reach.CONNECTED for it in standings)
        busy = sum(it.state is not State.IDLE for it in standings)
        mark = "+" if connected == len(standings) else "-"
        reached = f"{connected} of {len(standings)} clusters are reached, something goes on in {busy}"
        return [leader, f"[{mark}] hub: {reached}"]

    def infos(self) -> list[RawObject]:
        """Return what `/api/v1/info` answers: a hub has no profiles."""
        return []

    def tallies(self) -> Iterator[Counted]:
        """Yield all numbers, as they are now."""
        yield replica.build(__version__)
        leads = Tally(replica.LEADS)
        leads.set(EXTENSION_LEASE, to=self.leads)
        yield leads
        yield replica.number(replica.VIEWERS, self.viewers())
        if self.client is None:
            return
        now = self.client.clock.now()
        yield from meters.of_calls(self.client.calls)
        yield from self.client.meters.look(now=now)
        yield self.counted.told
        if self.hub is not None:
            yield from self.counted.of_clusters(self.standings(), now=now)
        if isinstance(self.admission, Budget):
            yield from self.counted.of_budget(self.admission.known_uses())
        if self.hosts is not None:
            yield self.counted.of_hosts(self.hosts.power())
