"""The interface of event sources: each listens to one cloud and writes notices through a `NoticeWriter`.

    source = OciEventSource(…)
    await source.run(notice_writer)     # until cancelled; recovers from every failure of the cloud

A source keeps no state that must survive. It acknowledges a message only after `NoticeWriter.write` has returned, so a
new leader reads unfinished messages again, and reports may be written any number of times. An event that is missing
from a list counts as over only if the whole list was read: an error never ends a notice.

A source derives from `BaseEventSource`, which has its problems and health, and polls with a `haulout.providers.poller`.

Messages that cannot be read go to a `Quarantine`; they are counted and shown, and the source continues.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.core.clock import Clock
from haulout.providers.cloud_calls import LastAnswer
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.problems import Problems
from haulout.providers.quarantine import Quarantine


class EventSource(Protocol):
    """Listens to one cloud, and writes its events as notices. It decides nothing about nodes."""

    @property
    def name(self) -> str:
        """The value of `spec.source` in its notices."""
        ...

    @property
    def quarantine(self) -> Quarantine:
        """The messages that could not be read."""
        ...

    @property
    def messages_processed(self) -> int:
        """The number of messages that became notices."""
        ...

    @property
    def is_up(self) -> bool:
        """Whether the source receives events from its cloud; messages that cannot be read do not count as down."""
        ...

    def problems(self) -> Sequence[str]:
        """Return one line per problem, quarantined messages included; empty if there is none."""
        ...

    def time_since_last_answer(self) -> timedelta | None:
        """Return the time since the cloud's last response; None if there was none yet."""
        ...

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write the cloud's events as notices, until cancelled."""
        ...


@runtime_checkable
class ReschedulableSource(Protocol):
    """A source whose cloud can move maintenance to another time."""

    async def reschedule(self, notice: MaintenanceNotice, to: datetime) -> None:
        """Ask the cloud to begin at `to`; return once it has agreed.

        Raise `RescheduleRefused` if the cloud refuses, and another `ExternalError` if it does not answer. Repeating an
        agreed request is harmless, so it may be repeated after a crash.
        """
        ...


@runtime_checkable
class EarlyStartSource(Protocol):
    """A source whose cloud can begin at once when the node is empty."""

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Ask the cloud to begin now; return once it has agreed.

        Raise `RescheduleRefused` if the cloud refuses, and another `ExternalError` if it does not answer. Repeating the
        request is harmless, so it may be repeated after a crash.
        """
        ...


@runtime_checkable
class HasStartBlocker(Protocol):
    """An `EarlyStartSource` that may have to wait for something else before it asks its cloud to begin."""

    async def start_blocker(self, notice: MaintenanceNotice) -> str:
        """Return what blocks an early start, for users; empty if nothing does.

        Raise `ExternalError` if that is not known now.
        """
        ...


class BaseEventSource:
    """What all sources have: problems, the messages that could not be read, and the time of the last response."""

    def __init__(self, name: str, clock: Clock, *, node: str = "") -> None:
        self.name = name
        self.quarantine = Quarantine(name, clock)
        self._messages_processed = 0
        self._current_problems = Problems(name, node=node)
        self._last_answer = LastAnswer(clock)

    @property
    def messages_processed(self) -> int:
        return self._messages_processed

    @property
    def is_up(self) -> bool:
        return not self._current_problems

    def problems(self) -> Sequence[str]:
        return (*self._current_problems.lines(), *self.quarantine.problems())

    def time_since_last_answer(self) -> timedelta | None:
        return self._last_answer.age()


class AgentEventSource(BaseEventSource):
    """The source of an agent: it is up only after the first response of the metadata service."""

    def __init__(self, name: str, clock: Clock, *, node: str) -> None:
        super().__init__(name, clock, node=node)
        self._node = node

    @property
    def is_up(self) -> bool:
        return super().is_up and self._last_answer.age() is not None
