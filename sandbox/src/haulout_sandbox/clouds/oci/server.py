"""The OCI model over HTTP: six calls of Streaming and four of Compute, as Oracle's SDK makes them.

    async with serve(cloud, host="127.0.0.1") as port:
        client = oci.streaming.StreamClient({}, f"http://127.0.0.1:{port}", signer=…)

Requests must be signed; signatures are not verified.
"""

import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.clouds.http_server import abort, serve_routes
from haulout_sandbox.clouds.oci.cloud import STREAM, OciCloud

_STREAMS_PATH, _COMPUTE_PATH = "/20180418/streams/{stream}", "/20160918"
_DEFAULT_LIMIT = 100

Respond = Callable[[], web.Response]
Handler = Callable[[web.Request], Awaitable[Respond]]


def add_routes(app: web.Application, cloud: OciCloud) -> None:
    request_handler = _RequestHandler(cloud)
    for method, path, operation, handler in request_handler.routes():
        app.router.add_route(method, path, request_handler.wrap(operation, handler))


serve = partial(serve_routes, add_routes)


class _RequestHandler:
    def __init__(self, cloud: OciCloud) -> None:
        self._cloud = cloud
        self._request_numbers = itertools.count(1)

    def routes(self) -> list[tuple[str, str, str, Handler]]:
        return [
            ("POST", f"{_STREAMS_PATH}/groupCursors", "CreateGroupCursor", self._create_group_cursor),
            ("GET", f"{_STREAMS_PATH}/messages", "GetMessages", self._get_messages),
            ("POST", f"{_STREAMS_PATH}/messages", "PutMessages", self._put_messages),
            ("POST", f"{_STREAMS_PATH}/commit", "ConsumerCommit", self._commit),
            ("POST", f"{_STREAMS_PATH}/heartbeat", "ConsumerHeartbeat", self._heartbeat),
            ("GET", f"{_STREAMS_PATH}/groups/{{group}}", "GetGroup", self._get_group),
            ("GET", f"{_COMPUTE_PATH}/instanceMaintenanceEvents", "ListInstanceMaintenanceEvents", self._list_events),
            (
                "GET",
                f"{_COMPUTE_PATH}/instanceMaintenanceEvents/{{id}}",
                "GetInstanceMaintenanceEvent",
                self._get_event,
            ),
            (
                "PUT",
                f"{_COMPUTE_PATH}/instanceMaintenanceEvents/{{id}}",
                "UpdateInstanceMaintenanceEvent",
                self._update_event,
            ),
            ("GET", f"{_COMPUTE_PATH}/instances/{{id}}", "GetInstance", self._get_instance),
        ]

    def wrap(self, operation: str, endpoint: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                self._authenticate(request)
                respond = await endpoint(request)
                response = await self._cloud.faults.call(operation, respond)
            except CloudError as error:
                response = _error_response(request, error)
            response.headers["opc-request-id"] = f"sandbox/{next(self._request_numbers)}"
            return response

        return handle

    def _authenticate(self, request: web.Request) -> None:
        if not request.headers.get("Authorization", "").startswith("Signature "):
            message = "The required information to complete authentication was not provided"
            raise CloudError(message, doing="a call", status=401, code="NotAuthenticated")
        if request.match_info.get("stream", STREAM) != STREAM:
            raise CloudError("no such stream", doing="a call", status=404, code="NotAuthorizedOrNotFound")

    # Streaming

    async def _create_group_cursor(self, request: web.Request) -> Respond:
        details = await _json_body(request)
        return lambda: _json_response({"value": self._cloud.stream.create_group_cursor(details)}, status=201)

    async def _get_messages(self, request: web.Request) -> Respond:
        def respond() -> web.Response:
            limit = int(request.query.get("limit", _DEFAULT_LIMIT))
            messages, cursor = self._cloud.stream.get_messages(request.query["cursor"], limit)
            return _json_response(messages, headers={"opc-next-cursor": cursor})

        return respond

    async def _put_messages(self, request: web.Request) -> Respond:
        details = await _json_body(request)
        return lambda: _json_response(self._cloud.stream.put_messages(details.get("messages", [])))

    async def _commit(self, request: web.Request) -> Respond:
        return lambda: _json_response({"value": self._cloud.stream.commit(request.query["cursor"])}, status=201)

    async def _heartbeat(self, request: web.Request) -> Respond:
        return lambda: _json_response({"value": self._cloud.stream.heartbeat(request.query["cursor"])}, status=201)

    async def _get_group(self, request: web.Request) -> Respond:
        name = request.match_info["group"]
        return lambda: _json_response({"streamId": STREAM, **self._cloud.stream.get_group(name)})

    # Compute

    async def _list_events(self, request: web.Request) -> Respond:
        def respond() -> web.Response:
            events, page = self._cloud.compute_service.list_events(dict(request.query))
            return _json_response(events, headers={"opc-next-page": page} if page else {})

        return respond

    async def _get_event(self, request: web.Request) -> Respond:
        def respond() -> web.Response:
            event, etag = self._cloud.compute_service.get_event(request.match_info["id"])
            return _json_response(event, headers={"etag": etag})

        return respond

    async def _update_event(self, request: web.Request) -> Respond:
        details, headers = await _json_body(request), request.headers

        def respond() -> web.Response:
            etag, token = headers.get("if-match", ""), headers.get("opc-retry-token", "")
            self._cloud.compute_service.update_event(request.match_info["id"], details, etag=etag, token=token)
            return web.Response(status=HTTPStatus.ACCEPTED, headers={"opc-work-request-id": "sandbox"})

        return respond

    async def _get_instance(self, request: web.Request) -> Respond:
        return lambda: _json_response(self._cloud.compute_service.get_instance(request.match_info["id"]))


async def _json_body(request: web.Request) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(await request.read() or b"{}")
    except msgspec.DecodeError as error:
        raise CloudError(str(error), doing="reading the body", status=400, code="CannotParseRequest") from None
    if not isinstance(document, dict):
        raise CloudError("expected an object", doing="reading the body", status=400, code="CannotParseRequest")
    return document


def _json_response(document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(document)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _error_response(request: web.Request, error: CloudError) -> web.Response:
    if not error.status:
        return abort(request)
    seconds = None if error.retry_after is None else error.retry_after.total_seconds()
    headers = {} if seconds is None else {"retry-after": f"{seconds:.0f}"}
    return _json_response(
        {"code": error.code or "Error", "message": error.message}, status=error.status, headers=headers
    )
