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

from haulout.controllers.profiles.plugin import ExternalClient, ExternalQuery, QueryResult
from haulout.core import duration
from haulout.core.clock import Clock
from haulout.errors import HauloutError
from haulout.kube.metrics import KubeMetrics
from haulout.kube.workqueue import WorkQueue

_QUERY_TIMEOUT = timedelta(minutes=1)
_CONCURRENCY = 8
_DEFAULT_MAX_AGE = timedelta(minutes=1)


@dataclass(slots=True)
class _CachedQuery:
    """A question that somebody asks, who these are, and the last answer."""

    nodes: dict[str, None] = field(default_factory=dict)  # a set with an order
    result: QueryResult | None = None


class QueryCache:
    """Questions and their answers; `exists` tells nodes from ghosts.

    `requeue` hears whose question has another answer, `on_repeated_failure` whose question could not be answered once
    more.
    """

    def __init__(
        self,
        external: ExternalClient,
        *,
        clock: Clock,
        random: Random,
        requeue: Callable[[str], object],
        on_repeated_failure: Callable[[str], object] = lambda _: None,
        exists: Callable[[str], bool],
        metrics: KubeMetrics | None = None,
    ) -> None:
        self._outside = external
        self._clock = clock
        self._requeue = requeue
        self._on_repeated_failure = on_repeated_failure
        self._exists = exists
        self._default_max_age = _DEFAULT_MAX_AGE
        self._queries: dict[ExternalQuery, _CachedQuery] = {}
        self._queries_by_node: dict[str, list[ExternalQuery]] = {}
        self._queue: WorkQueue[ExternalQuery] = WorkQueue(
            self._refresh, clock=clock, random=random, workers=_CONCURRENCY, metrics=metrics, name="questions"
        )

    async def run(self) -> None:
        """Ask what is to be asked, until cancelled."""
        await self._queue.run()

    def set_max_age(self, max_age: timedelta) -> None:
        """Let answers become so old, unless their question says how old they may be."""
        self._default_max_age = max_age
        for query, cached in self._queries.items():
            if cached.result is not None:
                self._queue.add_at(query, cached.result.asked_at + self._max_age(query))

    def reset(self, node: str) -> None:
        """Begin a look at a node: it wants what it asks for from now on, and nothing else."""
        for query in self._queries_by_node.pop(node, ()):
            if query in self._queries:
                self._queries[query].nodes.pop(node, None)

    def result(self, node: str, query: ExternalQuery) -> QueryResult | None:
        """Return the last answer, for a node that wants to know when it changes."""
        cached = self._queries.get(query)
        if cached is None:
            cached = self._queries[query] = _CachedQuery()
            self._queue.add(query)
        if node not in cached.nodes:
            cached.nodes[node] = None
            self._queries_by_node.setdefault(node, []).append(query)
        return cached.result

    def cached_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the last answer to what somebody has asked, for one who does not want to be woken."""
        cached = self._queries.get(query)
        return None if cached is None else cached.result

    def interval(self, node: str) -> timedelta | None:
        """Return how often the outside is asked for a node; None: it wants to know nothing."""
        return min(map(self._max_age, self._queries_by_node.get(node, ())), default=None)

    def _max_age(self, query: ExternalQuery) -> timedelta:
        return self._default_max_age if query.max_age is None else query.max_age

    async def _refresh(self, query: ExternalQuery) -> datetime | None:
        """Ask, if anybody still wants to know; return when to ask again."""
        cached = self._queries[query]
        for node in [node_name for node_name in cached.nodes if not self._exists(node_name)]:
            self.reset(node)
        if not cached.nodes:
            del self._queries[query]
            return None
        before, cached.result = cached.result, await self._fetch(query)
        is_new = before is None or (before.value, before.problem) != (cached.result.value, cached.result.problem)
        for node in tuple(cached.nodes):
            if is_new:
                self._requeue(node)
            elif cached.result.problem:
                self._on_repeated_failure(node)
        return cached.result.asked_at + self._max_age(query)

    async def _fetch(self, query: ExternalQuery) -> QueryResult:
        asked_at = self._clock.now()
        try:
            async with asyncio.timeout(_QUERY_TIMEOUT.total_seconds()):
                return QueryResult(asked_at, await query.fetch(self._outside))
        except TimeoutError:
            return QueryResult(asked_at, problem=f"there was no answer within {duration.format(_QUERY_TIMEOUT)}")
        except HauloutError as error:
            return QueryResult(asked_at, problem=str(error))
        except Exception as error:  # noqa: BLE001 - a plugin of anybody: what it raises may hold a secret
            return QueryResult(asked_at, problem=f"asking failed with {type(error).__name__}")
