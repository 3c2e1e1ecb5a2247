"""Injects responses that an API server does not give by itself into one program, on the sandbox and on a real cluster.

injector = ResponseInjector()
cluster.run(injector.wrap_program(operate))
response = injector.inject(500, matches=lambda request: request.path == "/api/v1/pods")
…
injector.remove(response)
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from haulout.api.objects import RawObject
from haulout.kube.client import Client
from haulout.kube.transport import Request, Response, Stream, Transport
from support.clusters.process import Program

RequestPredicate = Callable[[Request], bool]


@dataclass(frozen=True, slots=True, eq=False)
class InjectedResponse:
    """A response, and the requests that get it."""

    matches: RequestPredicate
    response: Response


@dataclass(slots=True)
class ResponseInjector:
    """The injected responses, and all requests."""

    injected: list[InjectedResponse] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def inject(self, status: int, *, matches: RequestPredicate, body: RawObject | None = None) -> InjectedResponse:
        """Inject a response from now on."""
        status_body = (
            {"kind": "Status", "status": "Failure", "code": status, "message": "not today"} if body is None else body
        )
        headers = {"content-type": "application/json"}
        rule = InjectedResponse(matches, Response(status, headers, msgspec.json.encode(status_body)))
        self.injected.append(rule)
        return rule

    def remove(self, response: InjectedResponse) -> None:
        """Let the server answer again."""
        self.injected.remove(response)

    def wrap_program(self, program: Program) -> Program:
        """Return a program whose requests pass through the injector."""

        async def run(client: Client) -> None:
            await program(Client(self.wrap_transport(client.transport), clock=client.clock, random=client.random))

        return run

    def wrap_transport(self, transport: Transport) -> Transport:
        """Return a transport whose requests pass through the injector."""
        return _InjectingTransport(transport, self)

    def injected_response(self, request: Request) -> Response | None:
        """Return the injected response to a request, if there is one."""
        self.requests.append(request)
        return next((rule.response for rule in self.injected if rule.matches(request)), None)


class _InjectingTransport:
    """A transport with injected responses."""

    def __init__(self, transport: Transport, injector: ResponseInjector) -> None:
        self.server = transport.server
        self._transport = transport
        self._injector = injector

    async def send(self, request: Request) -> Response:
        return self._injector.injected_response(request) or await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        response = self._injector.injected_response(request)
        return self._transport.stream(request) if response is None else _refused_stream(response)

    async def close(self) -> None:
        await self._transport.close()


@asynccontextmanager
async def _refused_stream(response: Response) -> AsyncIterator[Stream]:
    yield _RefusedStream(response)


class _RefusedStream:
    """A watch that is refused."""

    def __init__(self, response: Response) -> None:
        self.status, self.headers = response.status, response.headers
        self._body = response.body

    async def lines(self) -> AsyncIterator[bytes]:
        yield self._body
