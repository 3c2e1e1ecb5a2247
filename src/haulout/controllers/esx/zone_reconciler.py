"""One zone: query its vCenter for the state of hosts, and reconcile their nodes, round after round.

Each zone is a task with its own session: a vCenter that hangs or refuses delays no other. A round reconciles all nodes
of the zone concurrently; a failure of one node is reported, and does not affect others.

A round starts after each interval, and earlier when something is due: a guest that shuts down, a hold that ends.
Between rounds the session is logged out, unless the next round is near.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from haulout.api.objects import Node
from haulout.api.reasons import EsxEventReason
from haulout.controllers.esx import decision
from haulout.controllers.esx.decision import Decision, HostState, Observation, PowerAction, host_state
from haulout.controllers.esx.events import EsxEventRecorder
from haulout.controllers.esx.labels import HOST, INITIATED
from haulout.controllers.esx.nodes import EsxNodes
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import (
    INVALID_POWER_STATE,
    TOOLS_UNAVAILABLE,
    Host,
    PowerState,
    VCenterLogin,
    VirtualMachine,
)
from haulout.controllers.esx.vcenter_session import VCenterSession
from haulout.errors import CloudError, ConfigError, Conflict, HauloutError, LeadershipHandover, LeadershipLost, NotFound
from haulout.kube.client import Client

log = logging.getLogger(__name__)

_MAX_ACTIONS = 12  # in one reconcile: more would mean that decisions loop
_CONFLICT_DELAY = timedelta(seconds=2)
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
        recorder: EsxEventRecorder,
    ) -> None:
        self.letter = letter
        self.problem = ""  # the last round's problem with the vCenter as a whole
        self.problems: dict[str, str] = {}  # the last round's problems, by host or node
        self._new_problems: dict[str, str] = {}  # problems of the current round
        self.host_states: dict[str, HostState] = {}  # by name of the host
        self.is_reachable = False  # the vCenter responded in the last round
        self._clock, self._random = client.clock, client.random
        self._session = VCenterSession(client, connect)
        self._nodes = nodes
        self._read_settings = read_settings
        self._recorder = recorder
        self._shutdown_requested: set[str] = set()  # morefs of machines whose guest this process asked to shut down
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
            is_in_progress = decision.is_initiated(node) if state is None else decision.needs_machine(node, state)
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
        await self._clock.sleep(started_at + _CONFLICT_DELAY - self._clock.now())
        alarm = self._clock.call_at(until, self._triggered.set, on_set_back=self._triggered.set)
        try:
            await self._triggered.wait()
        finally:
            alarm.cancel()
        self._triggered.clear()

    async def _reconcile(self, settings: EsxSettings) -> datetime | None:
        """Run one round; return when the next one is needed, if that is before the interval ends."""
        self._new_problems = {}
        await self._nodes.stop_unwanted_drains()
        try:
            hosts = await self._list_hosts(settings)
        except (CloudError, ConfigError) as error:
            self._mark_unreachable(str(error))
            return None
        self.is_reachable = True
        hosts_by_node = self._hosts_by_node(hosts)
        self.host_states = {item.name: host_state(item, settings.alarms) for item in hosts_by_node.values()}
        machines: Mapping[str, Sequence[VirtualMachine]] = {}
        problem = ""
        try:
            machines = await self._list_machines(hosts_by_node)
        except CloudError as error:
            problem = str(error)
        self._set_problem(problem)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._reconcile_node(name, host, machines, settings), name=f"ESX node {name}")
                for name, host in hosts_by_node.items()
            ]
        self.problems = self._new_problems
        self._recorder.log_problems(self.problems)
        return min((requeue_at for item in tasks if (requeue_at := item.result()) is not None), default=None)

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

    def _hosts_by_node(self, hosts: Iterable[Host]) -> dict[str, Host]:
        """Return the host of each node; nodes whose host has a problem are left out."""
        hosts_by_name: dict[str, list[Host]] = {}
        for host in hosts:
            hosts_by_name.setdefault(host.name, []).append(host)
        hosts_by_node: dict[str, Host] = {}
        for node in self._nodes.in_zone(self.letter):
            name = node.metadata.labels[HOST]
            candidates = hosts_by_name.get(name, [])
            if problem := _host_problem(name, candidates):
                self._new_problems[f"host {name}"] = problem
            else:
                hosts_by_node[node.name] = candidates[0]
        return hosts_by_node

    async def _list_machines(self, hosts_by_node: Mapping[str, Host]) -> Mapping[str, Sequence[VirtualMachine]]:
        """Return the machines that may need a power action, by the name of their node."""
        names = [item for item in hosts_by_node if self._needs_machine(item, hosts_by_node[item])]
        if not names:
            return {}
        machines = await self._session.call(lambda item: item.machines(names), doing="asking for virtual machines")
        self._shutdown_requested &= {item.moref for item in machines if item.power is PowerState.ON}
        return {name: [item for item in machines if item.name == name] for name in names}

    def _needs_machine(self, name: str, host: Host) -> bool:
        node = self._nodes.get(name)
        return node is not None and decision.needs_machine(node, self.host_states[host.name])

    # One node

    async def _reconcile_node(
        self, name: str, host: Host, machines: Mapping[str, Sequence[VirtualMachine]], settings: EsxSettings
    ) -> datetime | None:
        try:
            machine = self._machine_of(name, machines)
            return await self._execute_decisions(name, host, machine, settings)
        except (LeadershipHandover, LeadershipLost):
            raise
        except (Conflict, NotFound) as error:
            log.debug("node %s has changed, retrying: %s", name, error)
            return self._clock.now() + _CONFLICT_DELAY
        except HauloutError as error:
            self._new_problems[name] = f"node {name}: {error}"
        except Exception as error:
            self._new_problems[name] = f"node {name}: {error!r}; see the log for details"
            log.exception("node %s: unexpected error in the ESX controller", name)
        return None

    def _machine_of(self, name: str, machines: Mapping[str, Sequence[VirtualMachine]]) -> VirtualMachine | None:
        candidates = machines.get(name)
        if candidates is None:
            return None
        if len(candidates) != 1:
            description = "no virtual machine" if not candidates else f"{len(candidates)} virtual machines"
            self._new_problems[name] = f"node {name}: expected one virtual machine of this name, found {description}"
            return None
        if candidates[0].power is PowerState.UNKNOWN:
            self._new_problems[name] = f"node {name}: the vCenter does not report whether its virtual machine is on"
            return None
        return candidates[0]

    async def _execute_decisions(
        self, name: str, host: Host, machine: VirtualMachine | None, settings: EsxSettings
    ) -> datetime | None:
        for _ in range(_MAX_ACTIONS):
            node = self._nodes.get(name)
            if node is None:
                return None
            self._recorder.record_observation(node, self._nodes.drain_state(node))
            await self._nodes.cordon_copies.load(self._nodes.all)
            node_decision = decision.decide(self._observe(node, host, machine), settings)
            await self._nodes.reconcile_drain(node, node_decision.drain)
            if node_decision.change is not None:
                if node_decision.reason == decision.END_REASON:
                    await self._nodes.cordon_copies.remove_owners(node)
                changed = await self._nodes.patch(node, node_decision.change)
                self._recorder.record_decision(node, changed, node_decision)
            elif node_decision.power_action is not None and machine is not None:
                machine = await self._execute_power_action(node_decision.power_action, node, machine, node_decision)
            else:
                await self._nodes.cordon_copies.sync(node)
                if node_decision.is_warning:
                    self._new_problems[name] = f"node {name}: {node_decision.message}"
                    self._recorder.record_warning(node, node_decision)
                return node_decision.requeue_at
        raise RuntimeError(f"node {name}: still not settled after {_MAX_ACTIONS} actions")

    def _observe(self, node: Node, host: Host, machine: VirtualMachine | None) -> Observation:
        now = self._clock.now()
        drain_blocker, drain_blocked_at = self._nodes.drain_blocker(node, now=now)
        return Observation(
            node=node,
            host=host,
            state=self.host_states[host.name],
            is_drained=self._nodes.is_drained(node),
            drain_blocker=drain_blocker,
            drain_blocked_at=drain_blocked_at,
            machine=machine,
            shutdown_requested=machine is not None and machine.moref in self._shutdown_requested,
            cordon_copy=self._nodes.cordon_copies.get(node),
            now=now,
        )

    async def _execute_power_action(
        self, power_action: PowerAction, node: Node, machine: VirtualMachine, node_decision: Decision
    ) -> VirtualMachine:
        """Execute a power action; return the machine with its new power state."""
        await self._nodes.confirm(node, INITIATED)
        doing = f"virtual machine {machine.name}"
        try:
            match power_action:
                case PowerAction.SHUT_DOWN:
                    await self._session.call(lambda vcenter: vcenter.shut_down(machine), doing=doing)
                    self._shutdown_requested.add(machine.moref)
                    return machine
                case PowerAction.POWER_ON:
                    await self._session.call(lambda vcenter: vcenter.power_on(machine), doing=doing)
                case PowerAction.POWER_OFF:
                    await self._session.call(lambda vcenter: vcenter.power_off(machine), doing=doing)
        except CloudError as error:
            if error.code == TOOLS_UNAVAILABLE and power_action is PowerAction.SHUT_DOWN:
                without_tools = replace(
                    node_decision,
                    message="its guest cannot be asked to shut down: its virtual machine is powered off",
                    reason=EsxEventReason.ESX_POWER_OFF,
                )
                return await self._execute_power_action(PowerAction.POWER_OFF, node, machine, without_tools)
            if error.code != INVALID_POWER_STATE:
                raise
        self._recorder.record_decision(node, node, node_decision)
        return replace(machine, power=PowerState.ON if power_action is PowerAction.POWER_ON else PowerState.OFF)


def _host_problem(name: str, candidates: Sequence[Host]) -> str:
    if len(candidates) != 1:
        count = "none" if not candidates else str(len(candidates))
        return f"expected one host {name} in the vCenter, found {count}: its nodes are not changed"
    return f"host {name}: {candidates[0].problem}: its nodes are not changed" if candidates[0].problem else ""
