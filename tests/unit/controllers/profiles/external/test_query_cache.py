"""The query cache: one request for all nodes, and only while a node uses the query."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from haulout.controllers.profiles.external.query_cache import QueryCache
from haulout.core.clock import Clock
from haulout.errors import ExternalError

SECOND = timedelta(seconds=1)
AGE = timedelta(seconds=30)


@dataclass
class World:
    """A simulated external system."""

    clock: Clock
    answer: Any = 1
    takes: timedelta = timedelta()
    queries: list[str] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    nodes: set[str] = field(default_factory=lambda: {"n1", "n2", "n3"})


@dataclass(frozen=True)
class CountingQuery:
    """A query that records its requests."""

    name: str = "up"
    max_age: timedelta | None = None

    async def fetch(self, external: Any) -> Any:
        """Return the answer of the external system."""
        external.queries.append(self.name)
        if external.takes:
            await external.clock.sleep(external.takes)
        if isinstance(external.answer, Exception):
            raise external.answer
        return external.answer


@asynccontextmanager
async def query_cache(world: World) -> AsyncIterator[QueryCache]:
    external: Any = world  # the queries of this module expect a World
    answers = QueryCache(
        external,
        clock=world.clock,
        random=Random(1),
        requeue=world.woken.append,
        on_repeated_failure=world.failing.append,
        exists=world.nodes.__contains__,
    )
    answers.set_max_age(AGE)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(answers.run())
        try:
            yield answers
        finally:
            running.cancel()


async def test_query_of_many_nodes_runs_once_and_requeues_them_all(clock: Clock) -> None:
    world = World(clock, takes=SECOND)
    async with query_cache(world) as answers:
        assert [answers.result(node, CountingQuery()) for node in ("n1", "n2", "n1")] == [None, None, None]
        await clock.sleep(2 * SECOND)
        assert world.queries == ["up"]
        assert world.woken == ["n1", "n2"]
        answer = answers.result("n3", CountingQuery())
        assert answer is not None
        assert answer.value == 1
        assert world.queries == ["up"]


async def test_query_is_refreshed_after_its_max_age_and_requeues_only_on_change(clock: Clock) -> None:
    world = World(clock)
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery())
        answers.result("n1", CountingQuery("often", max_age=5 * SECOND))
        await clock.sleep(31 * SECOND)
        assert (world.queries.count("up"), world.queries.count("often")) == (2, 7)
        assert world.woken == ["n1", "n1"]
        world.answer = 2
        await clock.sleep(AGE)
        assert world.woken == ["n1"] * 4


async def test_unused_query_is_not_refreshed(clock: Clock) -> None:
    world = World(clock)
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery())
        answers.result("n2", CountingQuery("other"))
        await clock.sleep(SECOND)
        answers.reset("n1")  # and it does not use the query this time
        world.nodes.remove("n2")
        await clock.sleep(10 * AGE)
        assert sorted(world.queries) == ["other", "up"]
        assert answers.result("n1", CountingQuery()) is None, "an old answer is not kept"


async def test_failed_query_yields_its_problem_and_is_retried(clock: Clock) -> None:
    world = World(clock, answer=ExternalError("example.com: connection refused"))
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery())
        await clock.sleep(SECOND)
        answer = answers.result("n1", CountingQuery())
        assert answer is not None
        assert (answer.value, answer.problem) == (None, "example.com: connection refused")
        world.answer = 3
        await clock.sleep(AGE)
        answer = answers.result("n1", CountingQuery())
        assert answer is not None
        assert (answer.value, answer.problem) == (3, "")
        assert world.woken == ["n1", "n1"]


async def test_timeout_and_exception_of_a_query_are_reported_without_secrets(clock: Clock) -> None:
    world = World(clock, takes=timedelta(hours=1))
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery("slow"))
        await clock.sleep(timedelta(minutes=2))
        slow = answers.result("n1", CountingQuery("slow"))
        assert slow is not None
        assert slow.problem == "no answer within 1m0s"
        world.takes, world.answer = timedelta(), ValueError("token xyz")
        answers.result("n1", CountingQuery("broken"))
        await clock.sleep(SECOND)
        broken = answers.result("n1", CountingQuery("broken"))
        assert broken is not None
        assert broken.problem == "the query failed with ValueError"


async def test_shorter_max_age_applies_at_once(clock: Clock) -> None:
    world = World(clock)
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery())
        await clock.sleep(10 * SECOND)
        answers.set_max_age(5 * SECOND)
        await clock.sleep(SECOND)
        assert world.queries == ["up", "up"]


async def test_repeated_failure_is_reported_for_each_node_each_time(clock: Clock) -> None:
    world = World(clock, answer=ExternalError("down"))
    async with query_cache(world) as answers:
        for node in ("n1", "n2"):
            answers.result(node, CountingQuery())
        await clock.sleep(SECOND)
        assert (world.woken, world.failing) == (["n1", "n2"], [])
        await clock.sleep(2 * AGE)
        assert (world.woken, world.failing) == (["n1", "n2"], ["n1", "n2"] * 2)
        world.answer = 1
        await clock.sleep(2 * AGE)
        assert (len(world.woken), len(world.failing)) == (4, 4)


async def test_interval_is_the_shortest_max_age_of_the_queries_of_a_node(clock: Clock) -> None:
    async with query_cache(World(clock)) as answers:
        assert answers.interval("n1") is None
        answers.result("n1", CountingQuery())
        answers.result("n1", CountingQuery("often", max_age=SECOND))
        assert answers.interval("n1") == SECOND
        answers.reset("n1")
        assert answers.interval("n1") is None
