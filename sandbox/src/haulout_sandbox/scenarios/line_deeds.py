"""What happens to the cluster's own components, and on the lines between the API server and its clients."""

from collections.abc import Callable, Mapping
from random import Random

from haulout.core.duration import short
from haulout_sandbox.apiserver import InProcessTransport
from haulout_sandbox.apiserver.faults import RequestPlan, Rule, When
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.deeds import Deed, Does, for_, listed

_Strike = Callable[[InProcessTransport, When], Rule[RequestPlan]]


class LineDeeds:
    """Does what happens to components and lines; the line of `spared`, by which the scenario itself acts, stays."""

    def __init__(self, cluster: Cluster, *, spared: str) -> None:
        self._cluster = cluster
        self._spared = spared
        self.all: Mapping[str, Does] = {
            "pause": self._pause,
            "resume": self._resume,
            "refuse": self._refuse,
            "loseAnswers": self._lose_answers,
            "slow": self._slow,
            "disconnect": self._disconnect,
            "silence": self._silence,
            "compact": self._compact,
            "restartServer": self._restart_server,
        }

    async def _pause(self, action: model.Pause, _: Random) -> Deed:
        self._cluster.pause(*action.components)

        async def resume() -> str:
            self._cluster.resume(*action.components)
            return f"resumed: {', '.join(action.components)}"

        return Deed(f"paused{for_(action.for_)}: {', '.join(action.components)}", action.for_, resume)

    async def _resume(self, action: model.Resume, _: Random) -> Deed:
        self._cluster.resume(*action.components)
        return Deed(f"resumed: {', '.join(action.components)}")

    # Requests

    async def _refuse(self, action: model.Refuse, random: Random) -> Deed:
        return self._strike(
            action,
            random,
            f"requests refused with {action.code}",
            lambda line, when: line.faults.before(answer=action.code, retry_after=action.retry_after, **when),
        )

    async def _lose_answers(self, action: model.LoseAnswers, random: Random) -> Deed:
        return self._strike(action, random, "answers lost", lambda line, when: line.faults.after(**when))

    async def _slow(self, action: model.Slow, random: Random) -> Deed:
        what = f"requests slower by {short(action.by)}"
        return self._strike(action, random, what, lambda line, when: line.faults.slow(action.by, **when))

    def _strike(self, action: model.Requests, random: Random, what: str, strike: _Strike) -> Deed:
        when: When = {"method": action.method or "", "path": action.path, "times": None}
        if action.chance < 1:
            when["where"] = lambda _: random.random() < action.chance
        rules = [(line, strike(line, when)) for line in self._lines(action.clients)]

        async def forget() -> str:
            for line, rule in rules:
                line.faults.lift(rule)
            return f"no more {what}"

        return Deed(f"{what}{for_(action.for_)}: {_whose(action)}", action.for_, forget)

    # Lines

    async def _disconnect(self, action: model.Clients, _: Random) -> Deed:
        """Break the lines; without an end they only break, and may be made anew at once."""
        lines = self._lines(action.clients)
        for line in lines:
            line.disconnect() if action.for_ is None else line.cut()
        what = f"disconnected{for_(action.for_)}: {_whose(action)}"
        return Deed(what, action.for_, lambda: self._mend(lines, "reachable again"))

    async def _silence(self, action: model.Clients, _: Random) -> Deed:
        lines = self._lines(action.clients)
        for line in lines:
            line.silence()
        return Deed(
            f"no answers{for_(action.for_)}: {_whose(action)}", action.for_, lambda: self._mend(lines, "answers again")
        )

    async def _restart_server(self, action: model.RestartServer, _: Random) -> Deed:
        self._cluster.host(self._cluster.api.restart(lasting=action.for_), name="restart of the API server")

        async def is_back() -> str:
            return "API server is back"

        return Deed(f"API server restarts, back in {short(action.for_)}", action.for_, is_back)

    async def _compact(self, _action: model.Compact, _: Random) -> Deed:
        self._cluster.api.compact()
        return Deed("history compacted: old revisions get 410")

    async def _mend(self, lines: list[InProcessTransport], what: str) -> str:
        for line in lines:
            line.mend()
        return f"API server {what}" if len(lines) > 1 else f"API server {what} for {lines[0].name}"

    def _lines(self, clients: tuple[str, ...]) -> list[InProcessTransport]:
        names = clients or [name for name in self._cluster.transports if name != self._spared]
        return [self._cluster.transport(name) for name in names]


def _whose(action: model.Clients) -> str:
    return listed(action.clients, "everybody")
