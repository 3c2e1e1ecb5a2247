"""Writes of notices as steps before and after which an event source may be killed."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from haulout.kube.transport import Request, Response, Stream, Transport


class NoticeStepTransport:
    """A transport that counts each write of a notice as a step."""

    def __init__(self, transport: Transport, on_step: Callable[[str], Awaitable[None]]) -> None:
        self.server = transport.server
        self._transport = transport
        self._on_step = on_step

    async def send(self, request: Request) -> Response:
        """Send the request, with a step before and after a write."""
        is_write = request.method != "GET" and "maintenancenotices" in request.path
        if is_write:
            await self._on_step(f"before {request.method} {request.path}")
        response = await self._transport.send(request)
        if is_write:
            await self._on_step(f"after {request.method} {request.path}")
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open a stream."""
        return self._transport.stream(request)

    async def close(self) -> None:
        """Close it."""
        await self._transport.close()
