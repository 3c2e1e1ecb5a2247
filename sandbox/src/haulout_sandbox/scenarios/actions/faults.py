"""Actions that inject faults into the cluster's components and into the connections of clients."""

from collections.abc import Callable, Mapping
from random import Random

from haulout.core.duration import format_short
from haulout_sandbox.apiserver import InProcessTransport
from haulout_sandbox.apiserver.transport.faults import FaultRule, RequestFaults, RequestMatch
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.actions.action_result import ActionHandler, ActionResult, format_for, format_names

_AddRule = Callable[[InProcessTransport, RequestMatch], FaultRule[RequestFaults]]


class FaultActions:
    """Executes the actions on components and connections.

    The connection of `excluded_client`, which the scenario itself uses, is never affected.
    """

    def __init__(self, cluster: Cluster, *, excluded_client: str) -> None:
        self._cluster = cluster
        self._excluded_client = excluded_client
        self.handlers: Mapping[str, ActionHandler] = {
            "pause": self._pause,
            "resume": self._resume,
            "failRequests": self._fail_requests,
            "dropResponses": self._drop_responses,
            "delayRequests": self._delay_requests,
            "breakConnections": self._break_connections,
            "stallConnections": self._stall_connections,
            "compact": self._compact,
            "restartServer": self._restart_server,
        }

    async def _pause(self, action: model.Pause, _: Random) -> ActionResult:
        self._cluster.pause(*action.components)

        async def resume_components() -> str:
            self._cluster.resume(*action.components)
            return f"resumed: {', '.join(action.components)}"

        return ActionResult(
            f"paused{format_for(action.for_)}: {', '.join(action.components)}", action.for_, resume_components
        )

    async def _resume(self, action: model.Resume, _: Random) -> ActionResult:
        self._cluster.resume(*action.components)
        return ActionResult(f"resumed: {', '.join(action.components)}")

    # Requests

    async def _fail_requests(self, action: model.FailRequests, random: Random) -> ActionResult:
        return self._add_rules(
            action,
            random,
            f"requests refused with {action.code}",
            lambda transport, when: transport.faults.fail_before_effect(
                response=action.code, retry_after=action.retry_after, **when
            ),
        )

    async def _drop_responses(self, action: model.DropResponses, random: Random) -> ActionResult:
        return self._add_rules(
            action, random, "answers lost", lambda transport, when: transport.faults.fail_after_effect(**when)
        )

    async def _delay_requests(self, action: model.DelayRequests, random: Random) -> ActionResult:
        description = f"requests slower by {format_short(action.by)}"
        return self._add_rules(
            action, random, description, lambda transport, when: transport.faults.delay(action.by, **when)
        )

    def _add_rules(
        self, action: model.RequestFault, random: Random, description: str, add_rule: _AddRule
    ) -> ActionResult:
        when: RequestMatch = {"method": action.method or "", "path": action.path, "times": None}
        if action.chance < 1:
            when["where"] = lambda _: random.random() < action.chance
        rules = [(transport, add_rule(transport, when)) for transport in self._transports(action.clients)]

        async def remove_rules() -> str:
            for transport, rule in rules:
                transport.faults.remove(rule)
            return f"no more {description}"

        return ActionResult(
            f"{description}{format_for(action.for_)}: {_format_clients(action)}", action.for_, remove_rules
        )

    # Connections

    async def _break_connections(self, action: model.ClientFault, _: Random) -> ActionResult:
        """Break the connections; without a duration, clients may reconnect at once."""
        transports = self._transports(action.clients)
        for transport in transports:
            transport.disconnect() if action.for_ is None else transport.cut()
        message = f"disconnected{format_for(action.for_)}: {_format_clients(action)}"
        return ActionResult(message, action.for_, lambda: self._heal(transports, "reachable again"))

    async def _stall_connections(self, action: model.ClientFault, _: Random) -> ActionResult:
        transports = self._transports(action.clients)
        for transport in transports:
            transport.silence()
        return ActionResult(
            f"no answers{format_for(action.for_)}: {_format_clients(action)}",
            action.for_,
            lambda: self._heal(transports, "answers again"),
        )

    async def _restart_server(self, action: model.RestartServer, _: Random) -> ActionResult:
        self._cluster.start_program(self._cluster.api.restart(downtime=action.for_), name="restart of the API server")

        async def report_back() -> str:
            return "API server is back"

        return ActionResult(f"API server restarts, back in {format_short(action.for_)}", action.for_, report_back)

    async def _compact(self, _action: model.Compact, _: Random) -> ActionResult:
        self._cluster.api.compact()
        return ActionResult("history compacted: old revisions get 410")

    async def _heal(self, transports: list[InProcessTransport], outcome: str) -> str:
        for transport in transports:
            transport.mend()
        return f"API server {outcome}" if len(transports) > 1 else f"API server {outcome} for {transports[0].name}"

    def _transports(self, clients: tuple[str, ...]) -> list[InProcessTransport]:
        names = clients or [name for name in self._cluster.transports if name != self._excluded_client]
        return [self._cluster.transport(name) for name in names]


def _format_clients(action: model.ClientFault) -> str:
    return format_names(action.clients, "everybody")
