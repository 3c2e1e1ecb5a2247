"""The simulated OpenStack over HTTP, for openstacksdk: Keystone v3 below `/v3`, Nova v2.1 below `/compute`.

    async with serving(cloud, host="127.0.0.1") as port:
        auth_url = f"http://127.0.0.1:{port}/v3"

Keystone issues tokens with a catalog that contains the URL of Nova, and every call of Nova needs a valid token.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.clouds.http_server import serve_app
from haulout_sandbox.https_server import listen
from support.clouds.openstack.cloud import REGION, Account, OpenStackCloud

_KEYSTONE, _NOVA = "/v3", "/compute/v2.1"
_MICROVERSIONS = {"version": "2.96", "min_version": "2.1"}
_PAGE = 1000
_KINDS = {400: "badRequest", 401: "unauthorized", 403: "forbidden", 404: "itemNotFound", 409: "conflictingRequest"}

Answer = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def serving(cloud: OpenStackCloud, *, host: str, port: int = 0) -> AsyncIterator[int]:
    """Answer while the context lasts; yields the port."""
    app = web.Application()
    mount(app, cloud)
    async with serve_app(app, listen(host, port)) as at:
        yield at


def mount(app: web.Application, cloud: OpenStackCloud) -> None:
    """Add the routes of Keystone and Nova to an application."""
    front = _Api(cloud)
    app.router.add_get(_KEYSTONE, front.keystone)
    app.router.add_post(f"{_KEYSTONE}/auth/tokens", _with_error_responses(front.authenticate, keystone=True))
    app.router.add_get("/compute/", front.versions)
    app.router.add_get(f"{_NOVA}/", front.version)
    app.router.add_get(f"{_NOVA}/servers", _with_error_responses(front.servers))
    app.router.add_get(f"{_NOVA}/servers/detail", _with_error_responses(front.servers))
    app.router.add_get(f"{_NOVA}/servers/{{id}}", _with_error_responses(front.server))
    app.router.add_delete(f"{_NOVA}/servers/{{id}}", _with_error_responses(front.delete))
    app.router.add_get(f"{_NOVA}/os-services", _with_error_responses(front.services))


class _Api:
    def __init__(self, cloud: OpenStackCloud) -> None:
        self._cloud = cloud

    # Keystone

    async def keystone(self, request: web.Request) -> web.Response:
        links = [{"rel": "self", "href": f"{_origin(request)}{_KEYSTONE}/"}]
        return web.json_response({"version": {"id": "v3.14", "status": "stable", "links": links, "media-types": []}})

    async def authenticate(self, request: web.Request) -> web.Response:
        request_auth = msgspec.json.decode(await request.read(), type=_TokenRequest).auth
        user = request_auth.identity.password.user
        account = Account(
            username=user.name, password=user.password, domain=user.domain.name, project=request_auth.scope.project.id
        )
        token, until = await self._cloud.authenticate(account)
        domain = {"id": "default", "name": account.domain}
        described = {
            "methods": ["password"],
            "user": {"id": "u1", "name": account.username, "domain": domain},
            "project": {"id": account.project, "name": "sandbox", "domain": domain},
            "roles": [{"id": "r1", "name": "member"}],
            "issued_at": f"{self._cloud.clock.now():%Y-%m-%dT%H:%M:%S.%fZ}",
            "expires_at": f"{until:%Y-%m-%dT%H:%M:%S.%fZ}",
            "catalog": [
                _service("identity", "keystone", f"{_origin(request)}{_KEYSTONE}"),
                _service("compute", "nova", f"{_origin(request)}{_NOVA}"),
            ],
        }
        headers = {"X-Subject-Token": token}
        return web.json_response({"token": described}, status=HTTPStatus.CREATED, headers=headers)

    # Nova

    async def versions(self, request: web.Request) -> web.Response:
        return web.json_response({"versions": [self._version(request)]}, status=HTTPStatus.MULTIPLE_CHOICES)

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": self._version(request)})

    def _version(self, request: web.Request) -> dict[str, Any]:
        links = [{"rel": "self", "href": f"{_origin(request)}{_NOVA}/"}]
        return {"id": "v2.1", "status": "CURRENT", "updated": "2013-07-23T11:33:21Z", "links": links, **_MICROVERSIONS}

    async def servers(self, request: web.Request) -> web.Response:
        found = list(await self._cloud.list_servers(self._project(request), name=request.query.get("name", "")))
        ids = [server["id"] for server in found]
        marker = request.query.get("marker", "")
        if marker and marker not in ids:
            raise CloudError(f"marker [{marker}] not found", doing="Nova", status=HTTPStatus.BAD_REQUEST)
        first = ids.index(marker) + 1 if marker else 0
        next_index = first + min(int(request.query.get("limit", _PAGE)), _PAGE)
        answer: dict[str, Any] = {"servers": found[first:next_index]}
        if next_index < len(found):
            more = request.url.update_query(marker=ids[next_index - 1])
            answer["servers_links"] = [{"rel": "next", "href": str(more)}]
        return web.json_response(answer)

    async def server(self, request: web.Request) -> web.Response:
        found = await self._cloud.show_server(self._project(request), request.match_info["id"])
        return web.json_response({"server": found})

    async def delete(self, request: web.Request) -> web.Response:
        await self._cloud.delete_server(self._project(request), request.match_info["id"])
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def services(self, request: web.Request) -> web.Response:
        self._project(request)
        wanted = {key: value for key, value in request.query.items() if key in ("binary", "host")}
        found = [
            service
            for service in await self._cloud.services()
            if all(service[key] == value for key, value in wanted.items())
        ]
        return web.json_response({"services": found})

    def _project(self, request: web.Request) -> str:
        return self._cloud.project_of(request.headers.get("X-Auth-Token", ""))


def _with_error_responses(answer: Answer, *, keystone: bool = False) -> Answer:
    """Return the handler with errors in the format of Keystone and Nova."""

    async def handle(request: web.Request) -> web.Response:
        try:
            return await answer(request)
        except (msgspec.DecodeError, ValueError) as problem:
            error = CloudError(str(problem), doing="OpenStack", status=HTTPStatus.BAD_REQUEST)
        except CloudError as refused:
            error = refused
        if not error.status:
            if request.transport is not None:
                request.transport.abort()  # no answer at all
            return web.Response()
        error_fields = {"code": error.status, "message": error.message}
        body: Mapping[str, Any] = (
            {"error": error_fields} if keystone else {_KINDS.get(error.status, "computeFault"): error_fields}
        )
        headers = {"Retry-After": str(int(error.retry_after.total_seconds()))} if error.retry_after else {}
        return web.json_response(body, status=error.status, headers=headers)

    return handle


def _service(kind: str, name: str, url: str) -> dict[str, Any]:
    endpoint = {"id": f"{name}-public", "interface": "public", "region": REGION, "region_id": REGION, "url": url}
    return {"id": name, "type": kind, "name": name, "endpoints": [endpoint]}


def _origin(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}"


class _Domain(msgspec.Struct):
    name: str


class _User(msgspec.Struct):
    name: str
    password: str
    domain: _Domain


class _Password(msgspec.Struct):
    user: _User


class _Identity(msgspec.Struct):
    password: _Password


class _Project(msgspec.Struct):
    id: str


class _Scope(msgspec.Struct):
    project: _Project


class _Auth(msgspec.Struct):
    identity: _Identity
    scope: _Scope


class _TokenRequest(msgspec.Struct):
    auth: _Auth
