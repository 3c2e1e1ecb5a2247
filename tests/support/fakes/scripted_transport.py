"""A transport with scripted responses, for tests of single requests."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from haulout.kube.transport import Request, Response, Stream

ScriptedAnswer = Response | Exception


def json_response(body: Any = None, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer with a JSON body, or with the very bytes that are given."""
    return Response(status, headers or {}, body if isinstance(body, bytes) else json.dumps(body).encode())


def status_response(code: int, reason: str, message: str = "no", **details: Any) -> Response:
    """Return a response with a failed Status."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json_response({**status, "message": message, "details": details}, status=code)


@dataclass
class ScriptedTransport:
    """Gives its answers in order and remembers the requests."""

    answers: list[ScriptedAnswer]
    server: str = "https://scripted"
    requests: list[Request] = field(default_factory=list)

    async def send(self, request: Request) -> Response:
        """Give the next answer."""
        if request.before_send:
            request.before_send()
        self.requests.append(request)
        given = self.answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Give the lines of the next answer."""
        yield ScriptedStream(await self.send(request))

    async def close(self) -> None:
        """Do nothing."""


class ScriptedStream:
    """The lines of an answer."""

    def __init__(self, given: Response) -> None:
        self.status = given.status
        self.headers = given.headers
        self._body = given.body

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield them."""
        for line in self._body.splitlines():
            yield line
