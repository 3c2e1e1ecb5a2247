"""Noticing at once that a disruption budget has room again, instead of asking until it has.

While a budget refuses pods of a drain, the budget itself is watched: one object, which says how many disruptions it
allows. When it allows one, the next pod is asked; when it says that it allows another, the one after that. So each pod
is asked once in vain and once with success, and no time is lost in between.

It is a help and nothing depends on it: where budgets may not be watched, pods are asked again at the usual pace.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.drain.budgets import BUDGETS, Budget
from haulout.errors import Forbidden, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.objects import Bookmark, Misfit, WatchEvent

PREFIX = "PodDisruptionBudget "  # of a blocker's object, before namespace and name

_MOST = 20  # watches of one drain
_LASTING = timedelta(minutes=5)
_BACKOFF = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=1), jitter=0.5)
_SETTLED = timedelta(seconds=30)


@dataclass(slots=True)
class _Opening:
    """What is known of one budget."""

    task: asyncio.Task[None]
    is_heard: bool = False
    allowed: int = 0
    is_used: bool = True  # what it last said was acted upon


class Openings:
    """The budgets that stand in the way of one drain, by the object that blockers name."""

    def __init__(self, client: Client, *, opened: Callable[[str], None]) -> None:
        self._client = client
        self._clock = client.clock
        self._opened = opened
        self._watched: dict[str, _Opening] = {}
        self._given_up: set[str] = set()

    def follow(self, names: Iterable[str], group: asyncio.TaskGroup) -> None:
        """Watch these budgets and no others, in tasks of `group`."""
        wanted = [name for name in dict.fromkeys(names) if name.startswith(PREFIX) and name not in self._given_up]
        for name in [name for name in self._watched if name not in wanted]:
            self._watched.pop(name).task.cancel()
        for name in wanted[:_MOST]:
            if name not in self._watched:
                self._watched[name] = _Opening(group.create_task(self._watch(name)))

    def close(self) -> None:
        """Watch nothing any more."""
        while self._watched:
            self._watched.popitem()[1].task.cancel()

    def is_followed(self, name: str) -> bool:
        """Tell whether it would be noticed if the budget had room."""
        return name in self._watched and self._watched[name].is_heard

    def use(self, name: str) -> None:
        """Note that a pod is being asked because of what the budget said."""
        if name in self._watched:
            self._watched[name].is_used = True

    def is_open(self, name: str) -> bool:
        """Tell whether the budget has said since then that it has room."""
        it = self._watched.get(name)
        return it is not None and it.allowed > 0 and not it.is_used

    async def _watch(self, name: str) -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                await self._follow_once(name)
            except (Forbidden, NotFound):
                self._given_up.add(name)
                self._watched.pop(name, None)
                return
            except KubeError:
                settled = self._clock.monotonic() - began > _SETTLED.total_seconds()
                failures = 1 if settled else failures + 1
                if name in self._watched:
                    self._watched[name].is_heard = False
            await self._clock.sleep(_BACKOFF.delay(max(failures, 1), self._client.random))

    async def _follow_once(self, name: str) -> None:
        namespace, _, bare = name.removeprefix(PREFIX).partition("/")
        fields = f"metadata.name={bare}"
        async with self._client.watch(BUDGETS, namespace=namespace, fields=fields, lasting=_LASTING) as told:
            async for event in told:
                if not isinstance(event, Bookmark):
                    self._hear(name, event)

    def _hear(self, name: str, event: WatchEvent[Budget] | WatchEvent[Misfit]) -> None:
        it, budget = self._watched.get(name), event.object
        if it is None or isinstance(budget, Misfit):
            return
        # A budget that is gone forbids nothing, and says nothing any more either.
        gone = event.type == "DELETED"
        it.is_heard, it.is_used = not gone, False
        it.allowed = 1 if gone else budget.status.disruptions_allowed
        if it.allowed > 0:
            self._opened(name)
