"""Runs the timeline of a scenario.

Times count from the start of the timeline. A repeated action keeps its interval however long it takes; one that takes
longer than the interval skips a run. A failed action (the node to reboot does not exist) is reported, and the timeline
continues.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import TypeVar

from haulout.errors import HauloutError
from haulout_sandbox.scenarios.actions.action_result import ActionResult
from haulout_sandbox.scenarios.clusterapi_changes import report_clusterapi_changes
from haulout_sandbox.scenarios.loader import action_of
from haulout_sandbox.scenarios.model import TimelineEntry
from haulout_sandbox.scenarios.openshift_changes import report_openshift_changes
from haulout_sandbox.scenarios.scenario_cluster import ScenarioCluster

T = TypeVar("T")
OnScenarioEvent = Callable[[timedelta, str], object]  # the time since the start, and a message


class Timeline:
    """Executes the actions of a scenario while `run` runs, and reports each to `on_event`."""

    def __init__(self, scenario: ScenarioCluster, *, on_event: OnScenarioEvent) -> None:
        self._scenario = scenario
        self._clock = scenario.cluster.clock
        self._on_event = on_event

    async def run(self) -> None:
        """Run the timeline to its end, if it has one."""
        started_at = self._clock.now()
        async with asyncio.TaskGroup() as tasks:
            for number, entry in enumerate(self._scenario.loaded_scenario.scenario.timeline):
                random = Random(f"{self._scenario.cluster.seed} scenario {number}")
                tasks.create_task(self._run_entry(entry, started_at, random, tasks))
            if self._scenario.loaded_scenario.scenario.has_machines:
                tasks.create_task(report_openshift_changes(self._scenario.client, partial(self._report, started_at)))
            if self._scenario.loaded_scenario.scenario.clusters:
                tasks.create_task(report_clusterapi_changes(self._scenario.client, partial(self._report, started_at)))

    async def _run_entry(
        self, entry: TimelineEntry, started_at: datetime, random: Random, tasks: asyncio.TaskGroup
    ) -> None:
        due_after = entry.at if entry.at is not None else entry.every
        while due_after is not None and (entry.until is None or due_after <= entry.until):
            await self._clock.sleep(started_at + due_after - self._clock.now())
            result = await self._run_or_report(entry, started_at, self._execute(entry, started_at, random))
            for follow_up in result.follow_ups if result is not None else ():
                running = follow_up(partial(self._report, started_at))
                tasks.create_task(self._run_or_report(entry, started_at, running))
            due_after = _next_due(entry, due_after, elapsed=self._clock.now() - started_at)

    async def _execute(self, entry: TimelineEntry, started_at: datetime, random: Random) -> ActionResult:
        result = await self._scenario.execute(*action_of(entry), random)
        self._report(started_at, result.message)
        if result.duration is not None and result.undo is not None:
            await self._clock.sleep(result.duration)
            self._report(started_at, await result.undo())
        return result

    async def _run_or_report(self, entry: TimelineEntry, started_at: datetime, awaitable: Awaitable[T]) -> T | None:
        """Return the result of an action; report a failure and return None."""
        try:
            return await awaitable
        except (HauloutError, LookupError, ValueError) as error:
            name, _ = action_of(entry)
            problem = error.args[0] if isinstance(error, KeyError) else error
            self._report(started_at, f"{name} failed: {problem}")
            return None

    def _report(self, started_at: datetime, text: str) -> None:
        self._on_event(self._clock.now() - started_at, text)


def _next_due(entry: TimelineEntry, due_after: timedelta, *, elapsed: timedelta) -> timedelta | None:
    """Return the next run: a multiple of the interval that is not in the past."""
    if entry.every is None:
        return None
    intervals = max((elapsed - due_after) // entry.every, 0) + 1
    return due_after + intervals * entry.every
