"""One zone: query its vCenter for the state of hosts, and reconcile their nodes, round after round.

Each zone is a task with its own session: a vCenter that hangs or refuses delays no other. A round reconciles all nodes
of the zone concurrently; a failure of one node is reported, and does not affect others.

A round starts after each interval, and earlier when something is due: a guest that shuts down, a hold that ends.
Between rounds the session is logged out, unless the next round is near.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from haulout.controllers.esx import decision
from haulout.controllers.esx.decision import host_state
from haulout.controllers.esx.labels import HOST, HostState, is_initiated
from haulout.controllers.esx.node_reconciler import EsxNodeReconciler, Round
from haulout.controllers.esx.nodes import EsxNodes
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import Host, PowerState, VCenterLogin, VirtualMachine
from haulout.controllers.esx.vcenter_session import VCenterSession
from haulout.errors import CloudError, ConfigError, LeadershipHandover, LeadershipLost
from haulout.history.cordon_history import CordonHistory
from haulout.kube.client import Client
from haulout.runtime.controller import ReconcileRunner
from haulout.runtime.journal import Journal

log = logging.getLogger(__name__)

_MIN_INTERVAL = timedelta(seconds=2)  # between two rounds
_SESSION_IDLE_LIMIT = timedelta(minutes=1)


class ZoneReconciler:
    """Reconciles the zone of one letter; `read_settings` returns the current settings."""

    def __init__(
        self,
        letter: str,
        client: Client,
        *,
        connect: VCenterLogin,
        nodes: EsxNodes,
        read_settings: Callable[[], EsxSettings],
        journal: Journal,
        history: CordonHistory,
    ) -> None:
        self.letter = letter
        self.problem = ""  # the last round's problem with the vCenter as a whole
        self.problems: dict[str, str] = {}  # the last round's problems, by host or node
        self.host_states: dict[str, HostState] = {}  # by name of the host
        self.is_reachable = False  # the vCenter responded in the last round
        self._clock, self._random = client.clock, client.random
        self._session = VCenterSession(client, connect)
        self._nodes = nodes
        self._read_settings = read_settings
        self._node_reconciler = EsxNodeReconciler(
            nodes=nodes, session=self._session, journal=journal, history=history, clock=client.clock
        )
        self._runner = ReconcileRunner(self._node_reconciler, client, name="ESX")
        self._triggered = asyncio.Event()

    def trigger(self) -> None:
        """Start the next round soon."""
        self._triggered.set()

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

    async def run(self) -> None:
        """Run rounds until cancelled."""
        try:
            while True:
                started_at, settings = self._clock.now(), self._read_settings()
                interval = settings.interval * (1 + self._random.random() * settings.jitter)
                requeue_at = await self._reconcile(settings)
                await self._wait_for_next_round(
                    started_at, min(started_at + interval, requeue_at or started_at + interval)
                )
        finally:
            await self._session.close()

    async def _wait_for_next_round(self, started_at: datetime, until: datetime) -> None:
        if until - self._clock.now() > _SESSION_IDLE_LIMIT:
            await self._session.close()
        # limits the rate of rounds if triggers arrive continuously
        await self._clock.sleep(started_at + _MIN_INTERVAL - self._clock.now())
        alarm = self._clock.call_at(until, self._triggered.set, on_set_back=self._triggered.set)
        try:
            await self._triggered.wait()
        finally:
            alarm.cancel()
        self._triggered.clear()

    async def _reconcile(self, settings: EsxSettings) -> datetime | None:
        """Run one round; return when the next one is needed, if that is before the interval ends."""
        await self._nodes.stop_unwanted_drains()
        try:
            hosts = await self._list_hosts(settings)
        except (CloudError, ConfigError) as error:
            self._mark_unreachable(str(error))
            return None
        self.is_reachable = True
        current = self._node_reconciler.round = Round(settings=settings)
        self._find_hosts(current, hosts)
        self.host_states = {item.name: host_state(item, settings.alarms) for item in current.hosts.values()}
        problem = ""
        try:
            await self._find_machines(current)
        except CloudError as error:
            problem = str(error)
        self._set_problem(problem)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._reconcile_node(name), name=f"ESX node {name}") for name in current.hosts]
        self._set_problems(current.problems)
        return min((requeue_at for item in tasks if (requeue_at := item.result()) is not None), default=None)

    async def _reconcile_node(self, name: str) -> datetime | None:
        try:
            return await self._runner.reconcile(name)
        except (LeadershipHandover, LeadershipLost):
            raise
        except Exception:  # noqa: BLE001 - the reconciler has reported it, and the next round tries again
            return None

    async def _list_hosts(self, settings: EsxSettings) -> Sequence[Host]:
        await self._session.open(settings.vcenters.access(self.letter))
        with_alarms = bool(settings.alarms)
        doing = "asking for hosts"
        return await self._session.call(lambda vcenter: vcenter.hosts(with_alarms=with_alarms), doing=doing)

    def _mark_unreachable(self, problem: str) -> None:
        self.is_reachable, self.host_states, self.problems = False, {}, {}
        self._set_problem(problem)

    def _set_problem(self, problem: str) -> None:
        """Log the problem with the vCenter when it appears or disappears."""
        previous, self.problem = self.problem, problem
        if problem and not previous:
            log.warning("ESX in zone %s: %s", self.letter, problem)
        elif previous and not problem:
            log.info("ESX in zone %s: the vCenter answers again", self.letter)

    def _set_problems(self, problems: dict[str, str]) -> None:
        """Log new and resolved problems."""
        for key, problem in problems.items():
            if self.problems.get(key) != problem:
                log.warning("ESX: %s", problem)
        for key in self.problems.keys() - problems.keys():
            log.info("ESX: the problem of %s is resolved", key)
        self.problems = problems

    def _find_hosts(self, current: Round, hosts: Iterable[Host]) -> None:
        """Set the host of each node; nodes whose host has a problem are left out."""
        hosts_by_name: dict[str, list[Host]] = {}
        for host in hosts:
            hosts_by_name.setdefault(host.name, []).append(host)
        for node in self._nodes.in_zone(self.letter):
            name = node.metadata.labels[HOST]
            candidates = hosts_by_name.get(name, [])
            if problem := _host_problem(name, candidates):
                current.problems[f"host {name}"] = problem
            else:
                current.hosts[node.name] = candidates[0]

    async def _find_machines(self, current: Round) -> None:
        """Set the machines that may need a power action."""
        names = [name for name, host in current.hosts.items() if self._needs_machine(name, host)]
        if not names:
            return
        machines = await self._session.call(lambda item: item.machines(names), doing="asking for virtual machines")
        self._node_reconciler.shutdown_requested &= {item.moref for item in machines if item.power is PowerState.ON}
        for name in names:
            candidates = [item for item in machines if item.name == name]
            if problem := _machine_problem(candidates):
                current.problems[name] = f"node {name}: {problem}"
            else:
                current.machines[name] = candidates[0]

    def _needs_machine(self, name: str, host: Host) -> bool:
        node = self._nodes.get(name)
        return node is not None and decision.needs_machine(node, self.host_states[host.name])


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
