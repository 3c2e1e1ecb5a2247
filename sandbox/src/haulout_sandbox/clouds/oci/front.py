"""The model of OCI over HTTP: eight calls of Streaming and four of Compute, as Oracle's SDK makes them.

    async with serving(cloud, host="127.0.0.1") as port:
        client = oci.streaming.StreamClient({}, f"http://127.0.0.1:{port}", signer=…)

Requests have to be signed; whether the signature is right is not looked at.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.clouds.answering import answering
from haulout_sandbox.clouds.oci.cloud import STREAM, OciCloud
from haulout_sandbox.front import listening

_STREAMING, _COMPUTE = "/20180418/streams/{stream}", "/20160918"
_DEFAULT_LIMIT = 100

Work = Callable[[], web.Response]
Handler = Callable[[web.Request], Awaitable[Work]]


@asynccontextmanager
async def serving(cloud: OciCloud, *, host: str, port: int = 0) -> AsyncIterator[int]:
    """Answer while the context lasts; yields the port."""
    app = web.Application()
    mount(app, cloud)
    async with answering(app, listening(host, port)) as at:
        yield at


def mount(app: web.Application, cloud: OciCloud) -> None:
    """Have an application answer these calls."""
    front = _Front(cloud)
    for method, path, operation, handler in front.routes():
        app.router.add_route(method, path, front.handling(operation, handler))


class _Front:
    def __init__(self, cloud: OciCloud) -> None:
        self._cloud = cloud
        self._requests = itertools.count(1)

    def routes(self) -> list[tuple[str, str, str, Handler]]:
        return [
            ("POST", f"{_STREAMING}/groupCursors", "CreateGroupCursor", self._create_group_cursor),
            ("POST", f"{_STREAMING}/cursors", "CreateCursor", self._create_cursor),
            ("GET", f"{_STREAMING}/messages", "GetMessages", self._get_messages),
            ("POST", f"{_STREAMING}/messages", "PutMessages", self._put_messages),
            ("POST", f"{_STREAMING}/commit", "ConsumerCommit", self._commit),
            ("POST", f"{_STREAMING}/heartbeat", "ConsumerHeartbeat", self._heartbeat),
            ("GET", f"{_STREAMING}/groups/{{group}}", "GetGroup", self._get_group),
            ("PUT", f"{_STREAMING}/groups/{{group}}", "UpdateGroup", self._update_group),
            ("GET", f"{_COMPUTE}/instanceMaintenanceEvents", "ListInstanceMaintenanceEvents", self._list_events),
            ("GET", f"{_COMPUTE}/instanceMaintenanceEvents/{{id}}", "GetInstanceMaintenanceEvent", self._get_event),
            (
                "PUT",
                f"{_COMPUTE}/instanceMaintenanceEvents/{{id}}",
                "UpdateInstanceMaintenanceEvent",
                self._update_event,
            ),
            ("GET", f"{_COMPUTE}/instances/{{id}}", "GetInstance", self._get_instance),
        ]

    def handling(self, operation: str, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                self._admit(request)
                work = await handler(request)
                response = await self._cloud.faults.call(operation, work)
            except CloudError as error:
                response = _refusal(request, error)
            response.headers["opc-request-id"] = f"sandbox/{next(self._requests)}"
            return response

        return handle

    def _admit(self, request: web.Request) -> None:
        if not request.headers.get("Authorization", "").startswith("Signature "):
            message = "The required information to complete authentication was not provided"
            raise CloudError(message, doing="a call", status=401, code="NotAuthenticated")
        if request.match_info.get("stream", STREAM) != STREAM:
            raise CloudError("no such stream", doing="a call", status=404, code="NotAuthorizedOrNotFound")

    # Streaming

    async def _create_group_cursor(self, request: web.Request) -> Work:
        details = await _body(request)
        return lambda: _json({"value": self._cloud.stream.create_group_cursor(details)}, status=201)

    async def _create_cursor(self, request: web.Request) -> Work:
        details = await _body(request)
        return lambda: _json({"value": self._cloud.stream.create_cursor(details)}, status=201)

    async def _get_messages(self, request: web.Request) -> Work:
        def work() -> web.Response:
            limit = int(request.query.get("limit", _DEFAULT_LIMIT))
            found, cursor = self._cloud.stream.get_messages(request.query["cursor"], limit)
            return _json(found, headers={"opc-next-cursor": cursor})

        return work

    async def _put_messages(self, request: web.Request) -> Work:
        details = await _body(request)
        return lambda: _json(self._cloud.stream.put_messages(details.get("messages", [])))

    async def _commit(self, request: web.Request) -> Work:
        return lambda: _json({"value": self._cloud.stream.commit(request.query["cursor"])}, status=201)

    async def _heartbeat(self, request: web.Request) -> Work:
        return lambda: _json({"value": self._cloud.stream.heartbeat(request.query["cursor"])}, status=201)

    async def _get_group(self, request: web.Request) -> Work:
        name = request.match_info["group"]
        return lambda: _json({"streamId": STREAM, **self._cloud.stream.get_group(name)})

    async def _update_group(self, request: web.Request) -> Work:
        name, details = request.match_info["group"], await _body(request)

        def work() -> web.Response:
            self._cloud.stream.update_group(name, details)
            return web.Response(status=HTTPStatus.NO_CONTENT)

        return work

    # Compute

    async def _list_events(self, request: web.Request) -> Work:
        def work() -> web.Response:
            found, page = self._cloud.machines.list_events(dict(request.query))
            return _json(found, headers={"opc-next-page": page} if page else {})

        return work

    async def _get_event(self, request: web.Request) -> Work:
        def work() -> web.Response:
            found, etag = self._cloud.machines.get_event(request.match_info["id"])
            return _json(found, headers={"etag": etag})

        return work

    async def _update_event(self, request: web.Request) -> Work:
        details, headers = await _body(request), request.headers

        def work() -> web.Response:
            etag, token = headers.get("if-match", ""), headers.get("opc-retry-token", "")
            self._cloud.machines.update_event(request.match_info["id"], details, etag=etag, token=token)
            return web.Response(status=HTTPStatus.ACCEPTED, headers={"opc-work-request-id": "sandbox"})

        return work

    async def _get_instance(self, request: web.Request) -> Work:
        return lambda: _json(self._cloud.machines.get_instance(request.match_info["id"]))


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(await request.read() or b"{}")
    except msgspec.DecodeError as error:
        raise CloudError(str(error), doing="reading the body", status=400, code="CannotParseRequest") from None
    if not isinstance(found, dict):
        raise CloudError("expected an object", doing="reading the body", status=400, code="CannotParseRequest")
    return found


def _json(found: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(found)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _refusal(request: web.Request, error: CloudError) -> web.Response:
    if not error.status:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
    seconds = None if error.retry_after is None else error.retry_after.total_seconds()
    headers = {} if seconds is None else {"retry-after": f"{seconds:.0f}"}
    return _json({"code": error.code or "Error", "message": error.message}, status=error.status, headers=headers)
