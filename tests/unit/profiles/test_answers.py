"""Questions to the outside: asked once for all who want to know, and only while somebody does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from haulout.core.clock import Clock
from haulout.errors import OutsideError
from haulout.profiles.answers import Answers

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
class Asked:
    """A question."""

    name: str = "up"
    every: timedelta | None = None

    async def ask(self, outside: Any) -> Any:
        """Ask the world."""
        outside.asked.append(self.name)
        if outside.takes:
            await outside.clock.sleep(outside.takes)
        if isinstance(outside.says, Exception):
            raise outside.says
        return outside.says


@asynccontextmanager
async def answering(world: World) -> AsyncIterator[Answers]:
    outside: Any = world  # the questions here know what they get
    answers = Answers(
        outside,
        clock=world.clock,
        random=Random(1),
        wake=world.woken.append,
        fails_on=world.failing.append,
        exists=world.nodes.__contains__,
    )
    answers.allow_age(AGE)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(answers.run())
        try:
            yield answers
        finally:
            running.cancel()


async def test_a_question_of_many_nodes_is_asked_once_and_wakes_them_all(clock: Clock) -> None:
    world = World(clock, takes=SECOND)
    async with answering(world) as answers:
        assert [answers.answer(node, Asked()) for node in ("n1", "n2", "n1")] == [None, None, None]
        await clock.sleep(2 * SECOND)
        assert world.asked == ["up"]
        assert world.woken == ["n1", "n2"]
        answer = answers.answer("n3", Asked())
        assert answer is not None
        assert answer.value == 1
        assert world.asked == ["up"]


async def test_it_is_asked_again_when_the_answer_is_old_and_wakes_only_if_that_is_another_one(clock: Clock) -> None:
    world = World(clock)
    async with answering(world) as answers:
        answers.answer("n1", Asked())
        answers.answer("n1", Asked("often", every=5 * SECOND))
        await clock.sleep(31 * SECOND)
        assert (world.asked.count("up"), world.asked.count("often")) == (2, 7)
        assert world.woken == ["n1", "n1"]
        world.says = 2
        await clock.sleep(AGE)
        assert world.woken == ["n1"] * 4


async def test_nothing_is_asked_that_nobody_wants_any_more(clock: Clock) -> None:
    world = World(clock)
    async with answering(world) as answers:
        answers.answer("n1", Asked())
        answers.answer("n2", Asked("other"))
        await clock.sleep(SECOND)
        answers.begin("n1")  # and it does not ask this time
        world.nodes.remove("n2")
        await clock.sleep(10 * AGE)
        assert sorted(world.asked) == ["other", "up"]
        assert answers.answer("n1", Asked()) is None, "an old answer is not kept"


async def test_what_goes_wrong_is_an_answer_and_is_asked_again(clock: Clock) -> None:
    world = World(clock, says=OutsideError("example.com: connection refused"))
    async with answering(world) as answers:
        answers.answer("n1", Asked())
        await clock.sleep(SECOND)
        answer = answers.answer("n1", Asked())
        assert answer is not None
        assert (answer.value, answer.problem) == (None, "example.com: connection refused")
        world.says = 3
        await clock.sleep(AGE)
        answer = answers.answer("n1", Asked())
        assert answer is not None
        assert (answer.value, answer.problem) == (3, "")
        assert world.woken == ["n1", "n1"]


async def test_an_answer_that_never_comes_and_a_plugin_that_breaks_are_told_without_secrets(clock: Clock) -> None:
    world = World(clock, takes=timedelta(hours=1))
    async with answering(world) as answers:
        answers.answer("n1", Asked("slow"))
        await clock.sleep(timedelta(minutes=2))
        slow = answers.answer("n1", Asked("slow"))
        assert slow is not None
        assert slow.problem == "there was no answer within 1m0s"
        world.takes, world.says = timedelta(), ValueError("token xyz")
        answers.answer("n1", Asked("broken"))
        await clock.sleep(SECOND)
        broken = answers.answer("n1", Asked("broken"))
        assert broken is not None
        assert broken.problem == "asking failed with ValueError"


async def test_a_shorter_age_in_an_edited_file_counts_at_once(clock: Clock) -> None:
    world = World(clock)
    async with answering(world) as answers:
        answers.answer("n1", Asked())
        await clock.sleep(10 * SECOND)
        answers.allow_age(5 * SECOND)
        await clock.sleep(SECOND)
        assert world.asked == ["up", "up"]


async def test_trouble_that_goes_on_is_told_of_each_node_each_time(clock: Clock) -> None:
    world = World(clock, says=OutsideError("down"))
    async with answering(world) as answers:
        for node in ("n1", "n2"):
            answers.answer(node, Asked())
        await clock.sleep(SECOND)
        assert (world.woken, world.failing) == (["n1", "n2"], [])
        await clock.sleep(2 * AGE)
        assert (world.woken, world.failing) == (["n1", "n2"], ["n1", "n2"] * 2)
        world.says = 1
        await clock.sleep(2 * AGE)
        assert (len(world.woken), len(world.failing)) == (4, 4)


async def test_how_often_the_outside_is_asked_for_a_node_is_known(clock: Clock) -> None:
    async with answering(World(clock)) as answers:
        assert answers.asked_every("n1") is None
        answers.answer("n1", Asked())
        answers.answer("n1", Asked("often", every=SECOND))
        assert answers.asked_every("n1") == SECOND
        answers.begin("n1")
        assert answers.asked_every("n1") is None
