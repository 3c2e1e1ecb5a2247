"""Reconciles one node on an ESX host, from what its vCenter returned in this round."""

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime

from haulout.api.reasons import EsxEventReason
from haulout.controllers.esx import decision, events
from haulout.controllers.esx.decision import Decision, Observation, PowerAction, host_state
from haulout.controllers.esx.labels import INITIATED
from haulout.controllers.esx.nodes import EsxNodes
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import (
    INVALID_POWER_STATE,
    TOOLS_UNAVAILABLE,
    Host,
    PowerState,
    VirtualMachine,
)
from haulout.controllers.esx.vcenter_session import VCenterSession
from haulout.core.clock import Clock
from haulout.errors import CloudError, HauloutError
from haulout.history.cordon_history import CordonHistory
from haulout.runtime.journal import Journal
from haulout.runtime.reconciler import Reconciler

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Round:
    """What a round of a zone knows: the answer of its vCenter, and what goes wrong with it."""

    zone: str
    settings: EsxSettings
    next_at: datetime  # start of the next round, unless one is needed earlier
    hosts: dict[str, Host] = field(default_factory=dict)  # by node, without hosts that have a problem
    machines: dict[str, VirtualMachine] = field(default_factory=dict)  # by node, as far as they may need a power action
    problems: dict[str, str] = field(default_factory=dict)  # by host or node


class EsxNodeReconciler(Reconciler[str, Observation, Decision]):
    """Reconciles the nodes in `round.hosts`; the zone replaces `round`."""

    def __init__(
        self,
        current: Round,
        *,
        nodes: EsxNodes,
        session: VCenterSession,
        journal: Journal,
        history: CordonHistory,
        clock: Clock,
    ) -> None:
        self.round = current
        self.shutdown_requested: set[str] = set()  # morefs of machines whose guest this process asked to shut down
        self._nodes = nodes
        self._session = session
        self._journal = journal
        self._history = history
        self._clock = clock

    async def observe(self, key: str) -> Observation | None:
        await self._nodes.cordon_copies.load(self._nodes.all)
        node, host = self._nodes.get(key), self.round.hosts.get(key)
        if node is None or host is None:
            return None
        machine, now = self.round.machines.get(key), self._clock.now()
        drain_blocker, drain_blocked_at = self._nodes.drain_blocker(node, now=now)
        return Observation(
            node=node,
            host=host,
            state=host_state(host, self.round.settings.alarms),
            is_drained=self._nodes.is_drained(node),
            drain_blocker=drain_blocker,
            drain_blocked_at=drain_blocked_at,
            machine=machine,
            shutdown_requested=machine is not None and machine.moref in self.shutdown_requested,
            cordon_copy=self._nodes.cordon_copies.get(node),
            freezes=self._nodes.freezes.current(),
            now=now,
        )

    def decide(self, observation: Observation) -> Decision:
        return decision.decide(observation, self.round.settings)

    async def act(self, observation: Observation, decision: Decision) -> bool:
        node = observation.node
        self._history.observe(node)
        self._history.record_drain(node, self._nodes.drain_state(node))
        await self._nodes.reconcile_drain(node, decision.drain)
        if decision.change is not None:
            await self._change(observation, decision)
            return True
        if decision.power_action is None or observation.machine is None:
            return False
        machine = await self._execute_power_action(observation, observation.machine, decision)
        self.round.machines[node.name] = machine
        return True

    async def report(self, observation: Observation, decision: Decision) -> datetime | None:
        node = observation.node
        await self._nodes.cordon_copies.sync(node)
        if decision.is_warning:
            self.round.problems[node.name] = f"node {node.name}: {decision.message}"
            self._journal.record_once((node.name, events.WARNING), events.transition(node, decision))
        else:
            self._journal.clear((node.name, events.WARNING))
        return None

    async def refresh(self, key: str, error: Exception) -> bool:
        del error
        return await self._nodes.refresh(key)

    async def report_failure(
        self, key: str, observation: Observation | None, decision: Decision | None, error: Exception
    ) -> None:
        del observation, decision
        if isinstance(error, HauloutError):
            self.round.problems[key] = f"node {key}: {error}"
        else:
            self.round.problems[key] = f"node {key}: {error!r}; see the log for details"
            log.error("node %s: unexpected error in the ESX controller", key, exc_info=error)

    async def _change(self, observation: Observation, node_decision: Decision) -> None:
        node = observation.node
        if node_decision.reason == decision.END_REASON:
            await self._nodes.cordon_copies.remove_owners(node)
        changed = await self._nodes.patch(node, node_decision.change or {})
        events.record(self._journal, self._history, node, changed, node_decision)

    async def _execute_power_action(
        self, observation: Observation, machine: VirtualMachine, node_decision: Decision
    ) -> VirtualMachine:
        """Execute a power action; return the machine with its new power state."""
        node, power_action = observation.node, node_decision.power_action
        await self._nodes.confirm(node, INITIATED)
        doing = f"virtual machine {machine.name}"
        try:
            match power_action:
                case PowerAction.SHUT_DOWN:
                    await self._session.call(lambda vcenter: vcenter.shut_down(machine), doing=doing)
                    self.shutdown_requested.add(machine.moref)
                    return machine
                case PowerAction.POWER_ON:
                    await self._session.call(lambda vcenter: vcenter.power_on(machine), doing=doing)
                case PowerAction.POWER_OFF:
                    await self._session.call(lambda vcenter: vcenter.power_off(machine), doing=doing)
        except CloudError as error:
            if error.code == TOOLS_UNAVAILABLE and power_action is PowerAction.SHUT_DOWN:
                without_tools = replace(
                    node_decision,
                    power_action=PowerAction.POWER_OFF,
                    message="its guest cannot be asked to shut down: its virtual machine is powered off",
                    reason=EsxEventReason.ESX_POWER_OFF,
                )
                return await self._execute_power_action(observation, machine, without_tools)
            if error.code != INVALID_POWER_STATE:
                raise
        events.record(self._journal, self._history, node, node, node_decision)
        return replace(machine, power=PowerState.ON if power_action is PowerAction.POWER_ON else PowerState.OFF)
