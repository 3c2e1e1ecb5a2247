"""Sources: each listens to one cloud, and reports what it says to the inbox.

    source = OciSource(…)
    await source.run(inbox)         # until cancelled; it comes back by itself from whatever the cloud does

A source keeps nothing that matters. A message is acknowledged only after `NoticeWriter.write` has returned, so whoever
takes over reads again what was not finished, and reports may be taken any number of times. What a list does not show
any more is over only if the list itself came whole: an error never says that something is gone.

What cannot be read is put aside (`Quarantine`), counted and shown, and the source goes on.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine


class EventSource(Protocol):
    """Listens to a cloud."""

    @property
    def name(self) -> str:
        """What `spec.source` of its notices says."""
        ...

    @property
    def quarantine(self) -> Quarantine:
        """What it could not read."""
        ...

    @property
    def messages_processed(self) -> int:
        """How many messages have become notices."""
        ...

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what its cloud says; that this makes no sense is another matter."""
        ...

    def problems(self) -> Sequence[str]:
        """Return what keeps it from its work, and what it could not read, a line each; nothing if all is well."""
        ...

    def time_since_last_answer(self) -> timedelta | None:
        """Return how long ago the cloud last answered; None if it has not yet."""
        ...

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Report what the cloud says, until cancelled."""
        ...


@runtime_checkable
class ReschedulableSource(Protocol):
    """A source whose cloud can be asked for another time."""

    async def reschedule(self, notice: MaintenanceNotice, to: datetime) -> None:
        """Return once the cloud has agreed; raises `CannotMove` if it says no, `OutsideError` if it says nothing.

        Asking for what was agreed already is harmless, so it may be asked again after a crash.
        """
        ...


@runtime_checkable
class EarlyStartSource(Protocol):
    """A source whose cloud can be told to begin at once, as the node is empty."""

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Return once the cloud has agreed; raises `CannotMove` if it says no, `OutsideError` if it says nothing.

        Telling it twice is harmless, so it may be told again after a crash.
        """
        ...


@runtime_checkable
class HasStartBlocker(Protocol):
    """A starter that may have to wait for others before its cloud is told to begin."""

    async def start_blocker(self, notice: MaintenanceNotice) -> str:
        """Return what is in the way, for people; empty if nothing is. Raises `OutsideError` if it cannot tell."""
        ...
