"""What is wrong with an event source now.

    problems.set("poll", f"EC2 does not answer, retrying: {error}")
    problems.set("poll")                # all is well

A problem is logged once, when it begins or changes, however often it is reported. So is the end of all problems.
"""

import logging

log = logging.getLogger(__name__)


class Problems:
    """The problems of one source, by topic; `node` is that of an agent."""

    def __init__(self, source: str, *, node: str = "") -> None:
        self._source = source
        self._extra = {"node": node} if node else None
        self._by_topic: dict[str, tuple[str, ...]] = {}

    def set(self, topic: str, *problems: str) -> None:
        """Replace the problems of a topic; empty texts do not count."""
        before = self.lines()
        self._by_topic[topic] = tuple(f"{self._source}: {problem}" for problem in problems if problem)
        for line in dict.fromkeys(self._by_topic[topic]):
            if line not in before:
                log.warning("%s", line, extra=self._extra)
        if before and not self:
            log.info("%s: all problems are resolved", self._source, extra=self._extra)

    def has(self, topic: str) -> bool:
        return bool(self._by_topic.get(topic))

    def lines(self) -> tuple[str, ...]:
        """Return one line per problem."""
        return tuple(dict.fromkeys(line for lines in self._by_topic.values() for line in lines))

    def __bool__(self) -> bool:
        return any(self._by_topic.values())
