"""What happens in a scenario, when its time has come.

Times count from the moment at which the timeline begins to run. What happens again and again keeps to its beat, however
long it takes; what takes longer than its beat skips one. What goes wrong (the node that was to reboot is gone) is told,
and the story goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import TypeVar

from haulout.errors import HauloutError
from haulout_sandbox.scenarios.deeds import Deed
from haulout_sandbox.scenarios.hub_news import tell_hub_news
from haulout_sandbox.scenarios.loading import action_of
from haulout_sandbox.scenarios.model import Happening
from haulout_sandbox.scenarios.news import tell_news
from haulout_sandbox.scenarios.stage import Stage

T = TypeVar("T")
Tell = Callable[[timedelta, str], object]  # how long after the beginning, and what


class Timeline:
    """Lets happen what a scenario says, while `run` runs; `tell` hears of it."""

    def __init__(self, stage: Stage, *, tell: Tell) -> None:
        self._stage = stage
        self._clock = stage.cluster.clock
        self._tell = tell

    async def run(self) -> None:
        """Play it to its end, if it has one."""
        begins = self._clock.now()
        async with asyncio.TaskGroup() as tasks:
            for number, happening in enumerate(self._stage.loaded.scenario.timeline):
                random = Random(f"{self._stage.cluster.seed} scenario {number}")
                tasks.create_task(self._play(happening, begins, random, tasks))
            if self._stage.loaded.scenario.has_machines:
                tasks.create_task(tell_news(self._stage.client, partial(self._say, begins)))
            if self._stage.loaded.scenario.clusters:
                tasks.create_task(tell_hub_news(self._stage.client, partial(self._say, begins)))

    async def _play(self, happening: Happening, begins: datetime, random: Random, tasks: asyncio.TaskGroup) -> None:
        at = happening.at if happening.at is not None else happening.every
        while at is not None and (happening.until is None or at <= happening.until):
            await self._clock.sleep(begins + at - self._clock.now())
            deed = await self._tried(happening, begins, self._happen(happening, begins, random))
            for story in deed.follows if deed is not None else ():
                told = story(partial(self._say, begins))
                tasks.create_task(self._tried(happening, begins, told))
            at = _next(happening, at, passed=self._clock.now() - begins)

    async def _happen(self, happening: Happening, begins: datetime, random: Random) -> Deed:
        deed = await self._stage.act(*action_of(happening), random)
        self._say(begins, deed.what)
        if deed.lasts is not None and deed.undo is not None:
            await self._clock.sleep(deed.lasts)
            self._say(begins, await deed.undo())
        return deed

    async def _tried(self, happening: Happening, begins: datetime, what: Awaitable[T]) -> T | None:
        """Return what comes of something; if it goes wrong, tell so."""
        try:
            return await what
        except (HauloutError, LookupError, ValueError) as error:
            name, _ = action_of(happening)
            said = error.args[0] if isinstance(error, KeyError) else error
            self._say(begins, f"{name} failed: {said}")
            return None

    def _say(self, begins: datetime, what: str) -> None:
        self._tell(self._clock.now() - begins, what)


def _next(happening: Happening, at: timedelta, *, passed: timedelta) -> timedelta | None:
    """Return when it happens next: on the beat, but not in the past."""
    if happening.every is None:
        return None
    beats = max((passed - at) // happening.every, 0) + 1
    return at + beats * happening.every
