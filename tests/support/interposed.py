"""Answers that an API server does not give by itself, for one program: on the sandbox and on a real cluster alike.

answers = Interposed()
cluster.run(answers.before(operate))
strange = answers.give(500, when=lambda request: request.path == "/api/v1/pods")
…
answers.stop(strange)
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.transport import Request, Response, Stream, Transport
from support.processes import Program

When = Callable[[Request], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """An answer, and to what it is given."""

    when: When
    response: Response


@dataclass(slots=True)
class Interposed:
    """What is answered in the server's place, and what was asked at all."""

    rules: list[Rule] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)

    def give(self, status: int, *, when: When, body: RawObject | None = None) -> Rule:
        """Answer so from now on."""
        said = {"kind": "Status", "status": "Failure", "code": status, "message": "not today"} if body is None else body
        headers = {"content-type": "application/json"}
        rule = Rule(when, Response(status, headers, msgspec.json.encode(said)))
        self.rules.append(rule)
        return rule

    def stop(self, rule: Rule) -> None:
        """Let the server answer again."""
        self.rules.remove(rule)

    def before(self, program: Program) -> Program:
        """Return a program whose requests come by here first."""

        async def run(client: Client) -> None:
            await program(Client(self.on(client.transport), clock=client.clock, random=client.random))

        return run

    def on(self, transport: Transport) -> Transport:
        """Return a transport whose requests come by here first."""
        return _Line(transport, self)

    def answer(self, request: Request) -> Response | None:
        """Return what is answered in the server's place, if anything."""
        self.asked.append(request)
        return next((it.response for it in self.rules if it.when(request)), None)


class _Line:
    """A transport on which somebody else answers now and then."""

    def __init__(self, transport: Transport, answers: Interposed) -> None:
        self.server = transport.server
        self._transport = transport
        self._answers = answers

    async def send(self, request: Request) -> Response:
        return self._answers.answer(request) or await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        response = self._answers.answer(request)
        return self._transport.stream(request) if response is None else _told(response)

    async def close(self) -> None:
        await self._transport.close()


@asynccontextmanager
async def _told(response: Response) -> AsyncIterator[Stream]:
    yield _Refusal(response)


class _Refusal:
    """A watch that does not come about."""

    def __init__(self, response: Response) -> None:
        self.status, self.headers = response.status, response.headers
        self._body = response.body

    async def lines(self) -> AsyncIterator[bytes]:
        yield self._body
