"""Reconciles zones: asks the vCenter of a zone for the state of hosts, and reconciles the nodes on them.

A round is one reconcile of a zone. The answer of the vCenter is its observation, and its decision is when to ask again.
The nodes of the zone are reconciled concurrently; a failure of one node is reported, and does not affect others.

A round starts after each interval, and earlier when something is due: a guest that shuts down, a hold that ends.
Between rounds the session is logged out, unless the next round is near. Each zone has its own session: a vCenter that
hangs or refuses delays no other.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.controllers.esx import decision
from haulout.controllers.esx.decision import host_state
from haulout.controllers.esx.labels import HOST, HostState, is_initiated
from haulout.controllers.esx.node_reconciler import EsxNodeReconciler, Round
from haulout.controllers.esx.nodes import EsxNodes
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import Host, PowerState, VCenterLogin, VirtualMachine
from haulout.controllers.esx.vcenter_session import VCenterSession
from haulout.errors import CloudError, HauloutError, LeadershipHandover, LeadershipLost
from haulout.history.cordon_history import CordonHistory
from haulout.kube.client import Client
from haulout.runtime.controller import ReconcileRunner
from haulout.runtime.journal import Journal
from haulout.runtime.reconciler import Reconciler

log = logging.getLogger(__name__)

MIN_INTERVAL = timedelta(seconds=2)  # between two rounds
_SESSION_IDLE_LIMIT = timedelta(minutes=1)


class Zone:
    """The session with the vCenter of one zone, and what the last round found."""

    def __init__(
        self,
        first_round: Round,
        client: Client,
        *,
        connect: VCenterLogin,
        nodes: EsxNodes,
        journal: Journal,
        history: CordonHistory,
    ) -> None:
        self.letter = first_round.zone
        self.problem = ""  # with the vCenter as a whole
        self.problems: dict[str, str] = {}  # by host or node
        self.host_states: dict[str, HostState] = {}  # by name of the host
        self.is_reachable = False  # the vCenter responded
        self.started_at: datetime | None = None
        self.session = VCenterSession(client, connect)
        self.node_reconciler = EsxNodeReconciler(
            first_round, nodes=nodes, session=self.session, journal=journal, history=history, clock=client.clock
        )
        self.runner = ReconcileRunner(self.node_reconciler, client, name="ESX")
        self._nodes = nodes

    def describe_problems(self) -> list[str]:
        """Return the problems that a person should look into."""
        prefix = f"ESX in zone {self.letter}"
        return [f"{prefix}: {problem}" for problem in (self.problem, *self.problems.values()) if problem]

    def nodes_in_progress(self) -> Iterator[bool]:
        """Yield, for each node in maintenance, whether it has a problem."""
        for node in self._nodes.in_zone(self.letter):
            state = self.host_states.get(node.metadata.labels[HOST])
            is_in_progress = is_initiated(node) if state is None else decision.needs_machine(node, state)
            if is_in_progress:
                yield bool(self.problem) or node.name in self.problems

    def set_problem(self, problem: str) -> None:
        """Log the problem with the vCenter when it appears or disappears."""
        previous, self.problem = self.problem, problem
        if problem and not previous:
            log.warning("ESX in zone %s: %s", self.letter, problem)
        elif previous and not problem:
            log.info("ESX in zone %s: the vCenter answers again", self.letter)

    def set_problems(self, problems: Mapping[str, str]) -> None:
        """Log new and resolved problems."""
        for key, problem in problems.items():
            if self.problems.get(key) != problem:
                log.warning("ESX: %s", problem)
        for key in self.problems.keys() - problems.keys():
            log.info("ESX: the problem of %s is resolved", key)
        self.problems = dict(problems)


@dataclass(frozen=True, slots=True)
class ZoneDecision:
    """When to ask the vCenter again."""

    requeue_at: datetime


class ZoneReconciler(Reconciler[str, Round, ZoneDecision]):
    """Reconciles the zones with nodes, by their letter; `read_settings` returns the current settings."""

    def __init__(
        self,
        client: Client,
        *,
        connect: VCenterLogin,
        nodes: EsxNodes,
        read_settings: Callable[[], EsxSettings],
        journal: Journal,
        history: CordonHistory,
    ) -> None:
        self.zones: dict[str, Zone] = {}
        self._client = client
        self._connect = connect
        self._nodes = nodes
        self._read_settings = read_settings
        self._journal = journal
        self._history = history

    async def close(self) -> None:
        """Log out everywhere."""
        await asyncio.gather(*(zone.session.close() for zone in self.zones.values()))

    async def observe(self, key: str) -> Round | None:
        """Ask the vCenter; raise `CloudError` or `ConfigError`."""
        # Before the vCenter is asked, which may not answer: a round may have started a drain that is unwanted since.
        await self._nodes.stop_unwanted_drains()
        if key not in self._nodes.zones():
            return None
        current = self._next_round(key)
        zone, settings = self._zone(current), current.settings
        zone.started_at = self._client.clock.now()
        self._find_hosts(current, await self._list_hosts(zone, settings))
        zone.is_reachable = True
        zone.host_states = {item.name: host_state(item, settings.alarms) for item in current.hosts.values()}
        problem = ""
        try:
            await self._find_machines(zone, current)
        except CloudError as error:
            problem = str(error)
        zone.set_problem(problem)
        return current

    def decide(self, observation: Round) -> ZoneDecision:
        return ZoneDecision(observation.next_at)

    async def act(self, observation: Round, decision: ZoneDecision) -> bool:
        """Return False: a zone has no action of its own."""
        del observation, decision
        return False

    async def report(self, observation: Round, decision: ZoneDecision) -> datetime | None:
        """Reconcile the nodes; return when the next round is needed, if that is before the interval ends."""
        zone = self.zones[observation.zone]
        zone.node_reconciler.round = observation
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_reconcile_node(zone, name), name=f"ESX node {name}")
                    for name in observation.hosts
                ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the end of leadership; other failures are contained
        zone.set_problems(observation.problems)
        needed_at = min(filter(None, (task.result() for task in tasks)), default=decision.requeue_at)
        requeue_at = max(min(needed_at, decision.requeue_at), self.earliest_round(zone))
        if requeue_at - self._client.clock.now() > _SESSION_IDLE_LIMIT:
            await zone.session.close()
        return requeue_at

    async def report_failure(
        self, key: str, observation: Round | None, decision: ZoneDecision | None, error: Exception
    ) -> None:
        del observation, decision
        if (zone := self.zones.get(key)) is None:
            return
        zone.is_reachable, zone.host_states, zone.problems = False, {}, {}
        zone.set_problem(str(error) if isinstance(error, HauloutError) else f"{error!r}; see the log for details")

    async def forget(self, key: str) -> datetime | None:
        if (zone := self.zones.pop(key, None)) is not None:
            await zone.session.close()
        return None

    def earliest_round(self, zone: Zone) -> datetime:
        """Return when the next round may start at the earliest: changes may arrive continuously."""
        now = self._client.clock.now()
        return now if zone.started_at is None else min(zone.started_at, now) + MIN_INTERVAL

    def _next_round(self, zone: str) -> Round:
        settings = self._read_settings()
        interval = settings.interval * (1 + self._client.random.random() * settings.jitter)
        return Round(zone=zone, settings=settings, next_at=self._client.clock.now() + interval)

    def _zone(self, current: Round) -> Zone:
        letter = current.zone
        if letter not in self.zones:
            self.zones[letter] = Zone(
                current,
                self._client,
                connect=self._connect,
                nodes=self._nodes,
                journal=self._journal,
                history=self._history,
            )
        return self.zones[letter]

    async def _list_hosts(self, zone: Zone, settings: EsxSettings) -> Sequence[Host]:
        await zone.session.open(settings.vcenters.access(zone.letter))
        with_alarms = bool(settings.alarms)
        doing = "asking for hosts"
        return await zone.session.call(lambda vcenter: vcenter.hosts(with_alarms=with_alarms), doing=doing)

    def _find_hosts(self, current: Round, hosts: Iterable[Host]) -> None:
        """Set the host of each node; nodes whose host has a problem are left out."""
        hosts_by_name: dict[str, list[Host]] = {}
        for host in hosts:
            hosts_by_name.setdefault(host.name, []).append(host)
        for node in self._nodes.in_zone(current.zone):
            name = node.metadata.labels[HOST]
            candidates = hosts_by_name.get(name, [])
            if problem := _host_problem(name, candidates):
                current.problems[f"host {name}"] = problem
            else:
                current.hosts[node.name] = candidates[0]

    async def _find_machines(self, zone: Zone, current: Round) -> None:
        """Set the machines that may need a power action."""
        names = [name for name, host in current.hosts.items() if self._needs_machine(name, zone.host_states[host.name])]
        if not names:
            return
        machines = await zone.session.call(lambda item: item.machines(names), doing="asking for virtual machines")
        zone.node_reconciler.shutdown_requested &= {item.moref for item in machines if item.power is PowerState.ON}
        for name in names:
            candidates = [item for item in machines if item.name == name]
            if problem := _machine_problem(candidates):
                current.problems[name] = f"node {name}: {problem}"
            else:
                current.machines[name] = candidates[0]

    def _needs_machine(self, name: str, state: HostState) -> bool:
        node = self._nodes.get(name)
        return node is not None and decision.needs_machine(node, state)


async def _reconcile_node(zone: Zone, name: str) -> datetime | None:
    try:
        return await zone.runner.reconcile(name)
    except (LeadershipHandover, LeadershipLost):
        raise
    except Exception:  # noqa: BLE001 - the reconciler has reported it, and the next round tries again
        return None


def _machine_problem(candidates: Sequence[VirtualMachine]) -> str:
    if len(candidates) != 1:
        description = "no virtual machine" if not candidates else f"{len(candidates)} virtual machines"
        return f"expected one virtual machine of this name, found {description}"
    if candidates[0].power is PowerState.UNKNOWN:
        return "the vCenter does not report whether its virtual machine is on"
    return ""


def _host_problem(name: str, candidates: Sequence[Host]) -> str:
    if len(candidates) != 1:
        count = "none" if not candidates else str(len(candidates))
        return f"expected one host {name} in the vCenter, found {count}: its nodes are not changed"
    return f"host {name}: {candidates[0].problem}: its nodes are not changed" if candidates[0].problem else ""
