"""What is known of a fleet: asked for once, and kept by the event stream of an operator.

It holds values of `haulout.web.api.shapes` as they came, and decides nothing about how they look.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from haulout.cli.topping.ways import Way
from haulout.core.clock import Clock
from haulout.errors import OutsideError
from haulout.web.api.shapes import (
    Fleet,
    NodeDetail,
    NodesChanged,
    NodeState,
    Notice,
    NoticeList,
    NoticesChanged,
    Summary,
    Tile,
)

T = TypeVar("T")


class _Hello(msgspec.Struct, frozen=True):
    time: datetime | None = None


@dataclass
class Picture:
    """The fleet, as it was told last."""

    clock: Clock
    summary: Summary = field(default_factory=lambda: Summary(version=""))
    tiles: dict[str, Tile] = field(default_factory=dict)
    notices: dict[str, Notice] = field(default_factory=dict)
    details: dict[str, NodeDetail] = field(default_factory=dict)
    problem: str = "connecting"  # why it may be old; empty: it is not
    _ahead: timedelta = timedelta()  # of our clock

    @property
    def now(self) -> datetime:
        """What time it is there."""
        return self.clock.now() + self._ahead

    async def load(self, way: Way) -> None:
        """Ask for everything; raises `HauloutError`."""
        summary = read(Summary, await way.get("summary"))
        fleet = read(Fleet, await way.get("nodes"))
        self.summary = summary
        self.tiles = {it.name: it for it in fleet.nodes}
        self._set_time(summary.time)
        if summary.has_notices:
            self.notices = {it.name: it for it in read(NoticeList, await way.get("notices")).notices}

    async def follow(self, way: Way, node: str = "") -> None:
        """Take what is told, until the stream ends; raises `HauloutError`."""
        path = f"events?node={node}" if node else "events"
        async with way.stream(path) as lines:
            async for event, data in events(lines):
                if event in ("hello", "reset"):
                    await self.load(way)
                    self._set_time(read(_Hello, data).time if event == "hello" else None)
                    self.problem = ""
                else:
                    self.take(event, data)

    def take(self, event: str, data: bytes) -> None:
        """Take what an event tells; what is not known here is left out."""
        match event:
            case "summary":
                self.summary = read(Summary, data)
            case "nodes":
                changed = read(NodesChanged, data)
                self.tiles |= {it.name: it for it in changed.changed}
                for name in changed.gone:
                    self.tiles.pop(name, None)
            case "notices":
                told = read(NoticesChanged, data)
                self.notices |= {it.name: it for it in told.changed}
                for name in told.gone:
                    self.notices.pop(name, None)
            case "node":
                detail = read(NodeDetail, data)
                self.details[detail.tile.name] = detail

    def counts(self) -> dict[NodeState, int]:
        """Return how many nodes are in each state."""
        return {state: sum(it.state is state for it in self.tiles.values()) for state in NodeState}

    def _set_time(self, there: datetime | None) -> None:
        if there is not None:
            self._ahead = there - self.clock.now()


async def events(lines: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    """Yield server-sent events: their names and data."""
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


def read(model: type[T], body: bytes) -> T:
    """Return what an operator says; raises `OutsideError`."""
    try:
        return msgspec.json.decode(body or b"{}", type=model)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise OutsideError(f"the operator does not speak as this command expects: {error}") from None


def as_json(picture: Picture) -> Any:
    """Return all of it for programs."""
    busy = [it for it in picture.tiles.values() if it.state is not NodeState.IDLE]
    return {"summary": picture.summary, "nodes": busy, "notices": list(picture.notices.values())}
