"""A cache of external query results: each query is sent once for all nodes that need its result.

    queries.reset("n1")          # a reconcile of the node starts: queries from before no longer count
    queries.result("n1", query)  # None: the query is sent from now on, and the node is requeued with the result

A result is refreshed when it reaches the maximum age of its query, or else of the configuration, and only while an
existing node needs it. A failure is a result, too. Nodes are requeued if the result differs from the one before; an
equal result only becomes younger. If an equal result is a failure, it is reported for each node.
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
    """A query, the nodes that need it, and its last result."""

    nodes: dict[str, None] = field(default_factory=dict)  # a set in insertion order
    result: QueryResult | None = None


class QueryCache:
    """Queries and their results. `exists` returns whether a node still exists.

    `requeue` is called with nodes whose query has a new result, `on_repeated_failure` with nodes whose query has failed
    in the same way again.
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
        await self._queue.run()

    def set_max_age(self, max_age: timedelta) -> None:
        """Set the maximum age of results whose query has none of its own."""
        self._default_max_age = max_age
        for query, cached in self._queries.items():
            if cached.result is not None:
                self._queue.add_at(query, cached.result.asked_at + self._max_age(query))

    def reset(self, node: str) -> None:
        """Drop the queries of a node at the start of a reconcile: its checks register those that they still need."""
        for query in self._queries_by_node.pop(node, ()):
            if query in self._queries:
                self._queries[query].nodes.pop(node, None)

    def result(self, node: str, query: ExternalQuery) -> QueryResult | None:
        """Return the last result, and register the query for a node, which is requeued when the result changes."""
        cached = self._queries.get(query)
        if cached is None:
            cached = self._queries[query] = _CachedQuery()
            self._queue.add(query)
        if node not in cached.nodes:
            cached.nodes[node] = None
            self._queries_by_node.setdefault(node, []).append(query)
        return cached.result

    def cached_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the last result of a registered query, without registering it for a node."""
        cached = self._queries.get(query)
        return None if cached is None else cached.result

    def interval(self, node: str) -> timedelta | None:
        """Return how often queries are sent for a node; None: it has none."""
        return min(map(self._max_age, self._queries_by_node.get(node, ())), default=None)

    def _max_age(self, query: ExternalQuery) -> timedelta:
        return self._default_max_age if query.max_age is None else query.max_age

    async def _refresh(self, query: ExternalQuery) -> datetime | None:
        """Send the query if an existing node still needs it; return when to send it again."""
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
            return QueryResult(asked_at, problem=f"no answer within {duration.format(_QUERY_TIMEOUT)}")
        except HauloutError as error:
            return QueryResult(asked_at, problem=str(error))
        # A query runs in a task of the cache. An exception would end the cache for all plugins.
        except Exception as error:  # noqa: BLE001 - plugins may be third-party code; the error may hold a secret
            return QueryResult(asked_at, problem=f"the query failed with {type(error).__name__}")
