"""A standard queue of SQS: at least once, in no order, and with messages that are hidden while somebody has them."""

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from haulout.core.clock import Clock
from haulout.errors import CloudError

_BAD_REQUEST = 400


@dataclass(slots=True)
class Held:
    """A message in the queue."""

    called: str
    body: str
    visible_at: datetime
    receipt: str = ""
    received: int = 0


@dataclass(slots=True)
class Queue:
    """One queue."""

    clock: Clock
    messages: list[Held] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, body: str) -> None:
        """Put a message in."""
        self.messages.append(Held(f"m-{next(self._numbers)}", body, self.clock.now()))
        self._arrived.set()

    async def wait(self, longest: timedelta) -> None:
        """Return when there is a message for somebody, or when this has lasted long enough."""
        end = self.clock.now() + longest
        while (now := self.clock.now()) < end and not self._visible():
            self._arrived.clear()
            wakes_at = min([end, *(it.visible_at for it in self.messages)])
            try:
                async with asyncio.timeout(max((wakes_at - now).total_seconds(), 0.001)):
                    await self._arrived.wait()
            except TimeoutError:
                continue

    def receive(self, *, most: int, hidden: timedelta) -> list[dict[str, Any]]:
        """Return some messages, and hide them."""
        found = self._visible()[:most]
        for message in found:
            message.received += 1
            message.receipt = f"{message.called}-{next(self._numbers)}"
            message.visible_at = self.clock.now() + hidden
        return [
            {
                "MessageId": it.called,
                "ReceiptHandle": it.receipt,
                "Body": it.body,
                "Attributes": {"ApproximateReceiveCount": str(it.received)},
            }
            for it in found
        ]

    def hide(self, receipt: str, *, hidden: timedelta) -> None:
        """Hide a message for some time from now on."""
        self._of(receipt).visible_at = self.clock.now() + hidden
        self._arrived.set()

    def delete(self, receipt: str) -> None:
        """Take a message out."""
        self.messages.remove(self._of(receipt))

    def _visible(self) -> list[Held]:
        now = self.clock.now()
        return [it for it in self.messages if it.visible_at <= now]

    def _of(self, receipt: str) -> Held:
        for message in self.messages:
            if message.receipt == receipt:
                return message
        message_text = f"The input receipt handle {receipt!r} is not a valid receipt handle."
        raise CloudError(message_text, doing="SQS", status=_BAD_REQUEST, code="ReceiptHandleIsInvalid")
