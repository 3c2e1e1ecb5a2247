"""Questions to the outside: asked once for all who want to know, and only while somebody does."""

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
    """What is asked, and what it says."""

    clock: Clock
    says: Any = 1
    takes: timedelta = timedelta()
    asked: list[str] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    nodes: set[str] = field(default_factory=lambda: {"n1", "n2", "n3"})


@dataclass(frozen=True)
class CountingQuery:
    """A question."""

    name: str = "up"
    max_age: timedelta | None = None

    async def fetch(self, external: Any) -> Any:
        """Ask the world."""
        external.asked.append(self.name)
        if external.takes:
            await external.clock.sleep(external.takes)
        if isinstance(external.says, Exception):
            raise external.says
        return external.says


@asynccontextmanager
async def query_cache(world: World) -> AsyncIterator[QueryCache]:
    external: Any = world  # the questions here know what they get
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


async def test_a_question_of_many_nodes_is_asked_once_and_wakes_them_all(clock: Clock) -> None:
    world = World(clock, takes=SECOND)
    async with query_cache(world) as answers:
        assert [answers.result(node, CountingQuery()) for node in ("n1", "n2", "n1")] == [None, None, None]
        await clock.sleep(2 * SECOND)
        assert world.asked == ["up"]
        assert world.woken == ["n1", "n2"]
        answer = answers.result("n3", CountingQuery())
        assert answer is not None
        assert answer.value == 1
        assert world.asked == ["up"]


async def test_it_is_asked_again_when_the_answer_is_old_and_wakes_only_if_that_is_another_one(clock: Clock) -> None:
    world = World(clock)
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery())
        answers.result("n1", CountingQuery("often", max_age=5 * SECOND))
        await clock.sleep(31 * SECOND)
        assert (world.asked.count("up"), world.asked.count("often")) == (2, 7)
        assert world.woken == ["n1", "n1"]
        world.says = 2
        await clock.sleep(AGE)
        assert world.woken == ["n1"] * 4


async def test_nothing_is_asked_that_nobody_wants_any_more(clock: Clock) -> None:
    world = World(clock)
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery())
        answers.result("n2", CountingQuery("other"))
        await clock.sleep(SECOND)
        answers.reset("n1")  # and it does not ask this time
        world.nodes.remove("n2")
        await clock.sleep(10 * AGE)
        assert sorted(world.asked) == ["other", "up"]
        assert answers.result("n1", CountingQuery()) is None, "an old answer is not kept"


async def test_what_goes_wrong_is_an_answer_and_is_asked_again(clock: Clock) -> None:
    world = World(clock, says=ExternalError("example.com: connection refused"))
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery())
        await clock.sleep(SECOND)
        answer = answers.result("n1", CountingQuery())
        assert answer is not None
        assert (answer.value, answer.problem) == (None, "example.com: connection refused")
        world.says = 3
        await clock.sleep(AGE)
        answer = answers.result("n1", CountingQuery())
        assert answer is not None
        assert (answer.value, answer.problem) == (3, "")
        assert world.woken == ["n1", "n1"]


async def test_an_answer_that_never_comes_and_a_plugin_that_breaks_are_told_without_secrets(clock: Clock) -> None:
    world = World(clock, takes=timedelta(hours=1))
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery("slow"))
        await clock.sleep(timedelta(minutes=2))
        slow = answers.result("n1", CountingQuery("slow"))
        assert slow is not None
        assert slow.problem == "no answer within 1m0s"
        world.takes, world.says = timedelta(), ValueError("token xyz")
        answers.result("n1", CountingQuery("broken"))
        await clock.sleep(SECOND)
        broken = answers.result("n1", CountingQuery("broken"))
        assert broken is not None
        assert broken.problem == "the query failed with ValueError"


async def test_a_shorter_age_in_an_edited_file_counts_at_once(clock: Clock) -> None:
    world = World(clock)
    async with query_cache(world) as answers:
        answers.result("n1", CountingQuery())
        await clock.sleep(10 * SECOND)
        answers.set_max_age(5 * SECOND)
        await clock.sleep(SECOND)
        assert world.asked == ["up", "up"]


async def test_trouble_that_goes_on_is_told_of_each_node_each_time(clock: Clock) -> None:
    world = World(clock, says=ExternalError("down"))
    async with query_cache(world) as answers:
        for node in ("n1", "n2"):
            answers.result(node, CountingQuery())
        await clock.sleep(SECOND)
        assert (world.woken, world.failing) == (["n1", "n2"], [])
        await clock.sleep(2 * AGE)
        assert (world.woken, world.failing) == (["n1", "n2"], ["n1", "n2"] * 2)
        world.says = 1
        await clock.sleep(2 * AGE)
        assert (len(world.woken), len(world.failing)) == (4, 4)


async def test_how_often_the_outside_is_asked_for_a_node_is_known(clock: Clock) -> None:
    async with query_cache(World(clock)) as answers:
        assert answers.interval("n1") is None
        answers.result("n1", CountingQuery())
        answers.result("n1", CountingQuery("often", max_age=SECOND))
        assert answers.interval("n1") == SECOND
        answers.reset("n1")
        assert answers.interval("n1") is None
