"""What is counted about workload clusters, for `/metrics`. Counters are the process's, and outlive its leadership."""

from collections.abc import Sequence
from datetime import datetime

from haulout.core.metering import Kind, Metric, Tally
from haulout.hub.admission import Use
from haulout.hub.metal3 import Power
from haulout.hub.outcome import Release
from haulout.hub.standing import ClusterStanding, Reach, State, Why

_LIMIT = ("limit",)
_IN_WORDS = "`limit` is the rule in words"

CLUSTERS = Metric(
    "haulout_hub_clusters",
    "How many workload clusters have Machines that are enabled, by whether they can be reached.",
    ("reach",),
    kind=Kind.GAUGE,
    more="`connecting`, `connected`, `unreachable` or `unreadable`; only the leader of a hub has these",
)
MACHINES = Metric(
    "haulout_hub_machines",
    "How many Machines are being deleted or ask for maintenance, by whether their node is ready for it.",
    ("why", "approved"),
    kind=Kind.GAUGE,
    more="`why` is `deletion` or `maintenance`, `approved` is `true` or `false`",
)
LONGEST = Metric(
    "haulout_hub_longest_wait_seconds",
    "How long the Machine has waited for an approval that waits the longest.",
    ("why",),
    kind=Kind.GAUGE,
    unit="seconds",
)
STATES = Metric(
    "haulout_hub_clusters_by_state",
    "How many workload clusters have Machines that are enabled, by what goes on in them.",
    ("state",),
    kind=Kind.GAUGE,
    more="`idle`, `waiting` (for the budget across clusters) or `in-maintenance`",
)
BUDGET_USED = Metric(
    "haulout_hub_budget_used",
    "How many workload clusters are in maintenance that count against a limit.",
    _LIMIT,
    kind=Kind.GAUGE,
    more=_IN_WORDS,
)
BUDGET_MOST = Metric(
    "haulout_hub_budget_limit",
    "How many workload clusters may be in maintenance by a limit.",
    _LIMIT,
    kind=Kind.GAUGE,
    more=_IN_WORDS,
)
BUDGET_WAITING = Metric(
    "haulout_hub_budget_waiting",
    "How many workload clusters wait that count against a limit.",
    _LIMIT,
    kind=Kind.GAUGE,
    more=f"{_IN_WORDS}; it may be another limit of theirs that has no room",
)
HOSTS = Metric(
    "haulout_hub_hosts",
    "How many BareMetalHosts are off because of us, or should be and cannot.",
    ("state",),
    kind=Kind.GAUGE,
    more="`off` are those with our annotation, `waiting` those whose Machine is approved; "
    "only with `--enable-metal3-maintenance`",
)
TOLD = Metric(
    "haulout_hub_events_total",
    "How often something was told about a Machine.",
    ("reason",),
    more="`reason` is that of the event",
)
_BUDGET = (BUDGET_USED, BUDGET_MOST, BUDGET_WAITING)
METRICS = (CLUSTERS, STATES, MACHINES, LONGEST, *_BUDGET, HOSTS, TOLD)


class HubTallies:
    """All that is counted."""

    def __init__(self) -> None:
        self.told = Tally(TOLD)
        for reason in Release:
            self.told.add(reason, amount=0)

    def of_clusters(self, standings: Sequence[ClusterStanding], *, now: datetime) -> tuple[Tally, ...]:
        """Return what the leader tells of clusters and their Machines, as things stand now."""
        clusters, states, machines, longest = (Tally(it) for it in (CLUSTERS, STATES, MACHINES, LONGEST))
        for reach in Reach:
            clusters.set(reach, to=sum(it.reach is reach for it in standings))
        for state in State:
            states.set(state, to=sum(it.state is state for it in standings))
        active = [each for it in standings for each in it.active]
        for why in Why:
            waits = [now - it.since for it in active if it.why is why and it.since and not it.is_approved]
            longest.set(why, to=max((it.total_seconds() for it in waits), default=0.0))
            for approved in (True, False):
                count = sum(it.why is why and it.is_approved is approved for it in active)
                machines.set(why, str(approved).lower(), to=count)
        return clusters, states, machines, longest

    def of_budget(self, uses: Sequence[Use]) -> tuple[Tally, ...]:
        """Return what is told of the budget across clusters."""
        used, most, waiting = (Tally(it) for it in _BUDGET)
        for use in uses:
            limit = str(use.limit)
            used.set(limit, to=len(use.holders))
            most.set(limit, to=use.limit.most)
            waiting.set(limit, to=len(use.waiting))
        return used, most, waiting

    def of_hosts(self, power: Power) -> Tally:
        """Return what is told of Metal3."""
        hosts = Tally(HOSTS)
        hosts.set("off", to=power.off)
        hosts.set("waiting", to=power.waiting)
        return hosts
