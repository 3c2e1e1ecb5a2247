"""A standard SQS queue: at-least-once delivery, no order, visibility timeouts."""

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
class SqsMessage:
    message_id: str
    body: str
    visible_at: datetime
    receipt: str = ""
    receive_count: int = 0


@dataclass(slots=True)
class SqsQueue:
    clock: Clock
    messages: list[SqsMessage] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _messages_available: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, body: str) -> None:
        self.messages.append(SqsMessage(f"m-{next(self._numbers)}", body, self.clock.now()))
        self._messages_available.set()

    async def wait(self, max_wait: timedelta) -> None:
        """Return when a message is visible, or after the timeout."""
        end = self.clock.now() + max_wait
        while (now := self.clock.now()) < end and not self._visible_messages():
            self._messages_available.clear()
            next_check_at = min([end, *(message.visible_at for message in self.messages)])
            try:
                async with asyncio.timeout(max((next_check_at - now).total_seconds(), 0.001)):
                    await self._messages_available.wait()
            except TimeoutError:
                continue

    def receive(self, *, max_messages: int, visibility_timeout: timedelta) -> list[dict[str, Any]]:
        """Return some messages and hide them."""
        messages = self._visible_messages()[:max_messages]
        for message in messages:
            message.receive_count += 1
            message.receipt = f"{message.message_id}-{next(self._numbers)}"
            message.visible_at = self.clock.now() + visibility_timeout
        return [
            {
                "MessageId": message.message_id,
                "ReceiptHandle": message.receipt,
                "Body": message.body,
                "Attributes": {"ApproximateReceiveCount": str(message.receive_count)},
            }
            for message in messages
        ]

    def change_visibility(self, receipt: str, *, visibility_timeout: timedelta) -> None:
        self._message_by_receipt(receipt).visible_at = self.clock.now() + visibility_timeout
        self._messages_available.set()

    def delete(self, receipt: str) -> None:
        self.messages.remove(self._message_by_receipt(receipt))

    def _visible_messages(self) -> list[SqsMessage]:
        now = self.clock.now()
        return [message for message in self.messages if message.visible_at <= now]

    def _message_by_receipt(self, receipt: str) -> SqsMessage:
        for message in self.messages:
            if message.receipt == receipt:
                return message
        problem = f"The input receipt handle {receipt!r} is not a valid receipt handle."
        raise CloudError(problem, doing="SQS", status=_BAD_REQUEST, code="ReceiptHandleIsInvalid")
