"""The crash points of a process: before and after each of its writes and each of its cloud calls."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from haulout.kube.transport import Request, Response, Stream, Transport

SAMPLED_CALLS = ("GetMessages", "ListInstanceMaintenanceEvents")  # most of them find nothing: every 15th will do


@dataclass
class CrashPoints:
    """Counts crash points; the process is killed at one of them."""

    crash_at: int = 0  # from 1 on; 0: nowhere
    sampled_calls: tuple[str, ...] = SAMPLED_CALLS  # calls of which only a few count
    reached: list[str] = field(default_factory=list)
    sampled_count: int = 0
    kill: Callable[[], None] = lambda: None

    async def reach(self, description: str) -> None:
        """Count a crash point; kill the process at the chosen one."""
        if description.partition(" ")[2] in self.sampled_calls:
            self.sampled_count += 1
            if self.sampled_count % 15:
                return
        self.reached.append(description)
        if len(self.reached) == self.crash_at:
            self.kill()
            await asyncio.Event().wait()

    async def call(self, operation: str, after: bool) -> None:  # noqa: FBT001 - what the model of a cloud tells
        """Count a call of OCI."""
        await self.reach(f"{'after' if after else 'before'} {operation}")


class CrashPointTransport:
    """A transport on which each write is two points."""

    def __init__(self, transport: Transport, points: CrashPoints) -> None:
        self.server = transport.server
        self._transport = transport
        self._points = points

    async def send(self, request: Request) -> Response:
        """Send a request."""
        if request.method == "GET":
            return await self._transport.send(request)
        await self._points.reach(f"before {request.method}")
        response = await self._transport.send(request)
        await self._points.reach(f"after {request.method}")
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open a stream."""
        return self._transport.stream(request)

    async def close(self) -> None:
        """Close it."""
        await self._transport.close()
