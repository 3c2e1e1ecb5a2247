"""The state of a fleet: loaded once, then updated by the operator's event stream.

The cache holds values of `haulout.dashboard.api.types` unchanged, and has no part in their display.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from haulout.cli.top.api_client import ApiClient
from haulout.core.clock import Clock
from haulout.dashboard.api.types import (
    NodeDetail,
    NodeList,
    NodesChanged,
    NodeState,
    NodeSummary,
    Notice,
    NoticeList,
    NoticesChanged,
    Summary,
)
from haulout.errors import ExternalError

T = TypeVar("T")


class _Hello(msgspec.Struct, frozen=True):
    time: datetime | None = None


@dataclass
class FleetCache:
    """The last known state of the fleet."""

    clock: Clock
    summary: Summary = field(default_factory=lambda: Summary(version=""))
    tiles: dict[str, NodeSummary] = field(default_factory=dict)
    notices: dict[str, Notice] = field(default_factory=dict)
    details: dict[str, NodeDetail] = field(default_factory=dict)
    problem: str = "connecting"  # why it may be stale; empty: it is not
    _clock_offset: timedelta = timedelta()  # server clock minus ours

    @property
    def now(self) -> datetime:
        """The current time by the clock of the server, which may differ from the local one."""
        return self.clock.now() + self._clock_offset

    async def load(self, client: ApiClient) -> None:
        """Load everything; raise `HauloutError`."""
        summary = decode(Summary, await client.get("summary"))
        fleet = decode(NodeList, await client.get("nodes"))
        self.summary = summary
        self.tiles = {item.name: item for item in fleet.nodes}
        self._set_time(summary.time)
        if summary.has_notices:
            self.notices = {item.name: item for item in decode(NoticeList, await client.get("notices")).notices}

    async def stream_events(self, client: ApiClient, node: str = "") -> None:
        """Apply events until the stream ends; raise `HauloutError`."""
        path = f"events?node={node}" if node else "events"
        async with client.stream(path) as lines:
            async for event, data in parse_events(lines):
                if event in ("hello", "reset"):
                    await self.load(client)
                    self._set_time(decode(_Hello, data).time if event == "hello" else None)
                    self.problem = ""
                else:
                    self.apply_event(event, data)

    def apply_event(self, event: str, data: bytes) -> None:
        """Apply one event; ignore unknown ones."""
        match event:
            case "summary":
                self.summary = decode(Summary, data)
            case "nodes":
                changed = decode(NodesChanged, data)
                self.tiles |= {item.name: item for item in changed.changed}
                for name in changed.deleted:
                    self.tiles.pop(name, None)
            case "notices":
                notices_changed = decode(NoticesChanged, data)
                self.notices |= {item.name: item for item in notices_changed.changed}
                for name in notices_changed.deleted:
                    self.notices.pop(name, None)
            case "node":
                detail = decode(NodeDetail, data)
                self.details[detail.summary.name] = detail

    def count_by_state(self) -> dict[NodeState, int]:
        """Return the number of nodes per state."""
        return {state: sum(tile.state is state for tile in self.tiles.values()) for state in NodeState}

    def _set_time(self, server_time: datetime | None) -> None:
        if server_time is not None:
            self._clock_offset = server_time - self.clock.now()


async def parse_events(lines: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the name and the data of each server-sent event."""
    event, data = "", b""
    async for line in lines:
        text = line.rstrip(b"\r")
        key, _, value = text.partition(b":")
        value = value.removeprefix(b" ")
        if not text:
            if event:
                yield event, data
            event, data = "", b""
        elif key == b"event":
            event = value.decode(errors="replace")
        elif key == b"data":
            data = data + b"\n" + value if data else value


def decode(model: type[T], body: bytes) -> T:
    """Decode a response; raise `ExternalError`."""
    try:
        return msgspec.json.decode(body or b"{}", type=model)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ExternalError(f"unexpected response of the operator: {error}") from None


def to_document(fleet: FleetCache) -> Any:
    """Return the document of -o json."""
    busy = [tile for tile in fleet.tiles.values() if tile.state is not NodeState.IDLE]
    return {"summary": fleet.summary, "nodes": busy, "notices": list(fleet.notices.values())}
