"""Answers to what checks ask the outside: each question is asked once for all nodes that want to know.

    answers.begin("n1")                     # a look at a node begins: what it asked for before does not count any more
    answers.answer("n1", question)          # None: it is asked from now on, and the node is woken with the answer

An answer is asked for again when it is as old as the question allows, or else the configuration, and only while some
node that exists still wants it. What goes wrong is an answer, too. Nodes are woken by an answer that is another one
than before; one that is the same again only looks younger. If that is the same trouble, it is told of each node.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from haulout.core import duration
from haulout.core.clock import Clock
from haulout.errors import HauloutError
from haulout.kube.meters import Meters
from haulout.kube.queue import Queue
from haulout.profiles.plugin import Answer, Outside, Question

_ANSWERED_WITHIN = timedelta(minutes=1)
_AT_ONCE = 8
_DEFAULT_AGE = timedelta(minutes=1)


@dataclass(slots=True)
class _Asked:
    """A question that somebody asks, who these are, and the last answer."""

    nodes: dict[str, None] = field(default_factory=dict)  # a set with an order
    answer: Answer | None = None


class Answers:
    """Questions and their answers; `exists` tells nodes from ghosts.

    `wake` hears whose question has another answer, `fails_on` whose question could not be answered once more.
    """

    def __init__(
        self,
        outside: Outside,
        *,
        clock: Clock,
        random: Random,
        wake: Callable[[str], object],
        fails_on: Callable[[str], object] = lambda _: None,
        exists: Callable[[str], bool],
        meters: Meters | None = None,
    ) -> None:
        self._outside = outside
        self._clock = clock
        self._wake = wake
        self._fails_on = fails_on
        self._exists = exists
        self._age = _DEFAULT_AGE
        self._asked: dict[Question, _Asked] = {}
        self._wants: dict[str, list[Question]] = {}
        self._queue: Queue[Question] = Queue(
            self._see_to, clock=clock, random=random, workers=_AT_ONCE, meters=meters, name="questions"
        )

    async def run(self) -> None:
        """Ask what is to be asked, until cancelled."""
        await self._queue.run()

    def allow_age(self, age: timedelta) -> None:
        """Let answers become so old, unless their question says how old they may be."""
        self._age = age
        for question, asked in self._asked.items():
            if asked.answer is not None:
                self._queue.wake_at(question, asked.answer.at + self._lifetime(question))

    def begin(self, node: str) -> None:
        """Begin a look at a node: it wants what it asks for from now on, and nothing else."""
        for question in self._wants.pop(node, ()):
            if question in self._asked:
                self._asked[question].nodes.pop(node, None)

    def answer(self, node: str, question: Question) -> Answer | None:
        """Return the last answer, for a node that wants to know when it changes."""
        asked = self._asked.get(question)
        if asked is None:
            asked = self._asked[question] = _Asked()
            self._queue.add(question)
        if node not in asked.nodes:
            asked.nodes[node] = None
            self._wants.setdefault(node, []).append(question)
        return asked.answer

    def known(self, question: Question) -> Answer | None:
        """Return the last answer to what somebody has asked, for one who does not want to be woken."""
        asked = self._asked.get(question)
        return None if asked is None else asked.answer

    def asked_every(self, node: str) -> timedelta | None:
        """Return how often the outside is asked for a node; None: it wants to know nothing."""
        return min(map(self._lifetime, self._wants.get(node, ())), default=None)

    def _lifetime(self, question: Question) -> timedelta:
        return self._age if question.every is None else question.every

    async def _see_to(self, question: Question) -> datetime | None:
        """Ask, if anybody still wants to know; return when to ask again."""
        asked = self._asked[question]
        for node in [it for it in asked.nodes if not self._exists(it)]:
            self.begin(node)
        if not asked.nodes:
            del self._asked[question]
            return None
        before, asked.answer = asked.answer, await self._ask(question)
        is_new = before is None or (before.value, before.problem) != (asked.answer.value, asked.answer.problem)
        for node in tuple(asked.nodes):
            if is_new:
                self._wake(node)
            elif asked.answer.problem:
                self._fails_on(node)
        return asked.answer.at + self._lifetime(question)

    async def _ask(self, question: Question) -> Answer:
        at = self._clock.now()
        try:
            async with asyncio.timeout(_ANSWERED_WITHIN.total_seconds()):
                return Answer(at, await question.ask(self._outside))
        except TimeoutError:
            return Answer(at, problem=f"there was no answer within {duration.format(_ANSWERED_WITHIN)}")
        except HauloutError as error:
            return Answer(at, problem=str(error))
        except Exception as error:  # noqa: BLE001 - a plugin of anybody: what it raises may hold a secret
            return Answer(at, problem=f"asking failed with {type(error).__name__}")
