"""Routing of requests to the Compute API and to the metadata servers."""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from haulout.errors import CloudError
from haulout_sandbox.clouds.faults import Faults
from haulout_sandbox.clouds.gcp import metadata_server
from haulout_sandbox.clouds.gcp.access_tokens import AccessTokens
from haulout_sandbox.clouds.gcp.instances import Document, Instances, api_error
from haulout_sandbox.clouds.gcp.operations import PERFORM_MAINTENANCE, SIMULATE_MAINTENANCE_EVENT, Operations

_API_ROOT = "https://www.googleapis.com/compute/v1"
_PROJECTS_PREFIX = "/compute/v1/projects/"
_MACHINES_PREFIX = "/machines/"  # followed by the machine and the paths of its metadata server
_METADATA_TOKEN_KEY = "/instance/service-accounts/default/token"  # noqa: S105 - a path
_METADATA_HEADERS = {"metadata-flavor": "Google", "server": "Metadata Server for VM"}
_DEFAULT_LIMIT = 500
_OK = 200

StringMap = Mapping[str, str]


class HttpResponse(NamedTuple):
    """A response; header names are lower-case."""

    status: int
    headers: StringMap
    body: bytes


class RequestHandler:
    def __init__(
        self, instances: Instances, *, operations: Operations, access_tokens: AccessTokens, faults: Faults
    ) -> None:
        self._instances = instances
        self._operations = operations
        self._access_tokens = access_tokens
        self._faults = faults

    async def handle(self, method: str, target: str, headers: StringMap) -> HttpResponse:
        """Answer a request; raise `CloudError` with status 0 if no response must be sent."""
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        lower_headers = {name.lower(): value for name, value in headers.items()}
        encode_error = _metadata_error if metadata_server.BASE_PATH in url.path else _api_error
        try:
            if metadata_server.BASE_PATH in url.path:
                return await self._handle_metadata(url.path, query, lower_headers)
            if url.path.startswith(_MACHINES_PREFIX):
                # the response by which clients detect a metadata server
                return HttpResponse(_OK, _METADATA_HEADERS, b"computeMetadata/\n")
            return json_response(await self._handle_compute(f"{method} {url.path}", query, lower_headers))
        except CloudError as error:
            return error_response(error, encode_error)

    async def _handle_metadata(self, path: str, query: StringMap, headers: StringMap) -> HttpResponse:
        if headers.get("metadata-flavor") != "Google":
            raise CloudError("Missing Metadata-Flavor:Google header.", doing="metadata", status=403)
        machine_path, _, key = path.partition(metadata_server.BASE_PATH)
        if key == _METADATA_TOKEN_KEY:
            return json_response(await self._faults.call("MetadataToken", self._access_tokens.issue), _METADATA_HEADERS)
        instance = self._instances.by_name.get(machine_path.removeprefix(_MACHINES_PREFIX))
        if instance is None:
            raise CloudError("there is no such machine", doing="metadata", status=0)
        await self._faults.call(f"Metadata {key.strip('/')}", lambda: None)
        value, etag = await metadata_server.get_value(instance, key.removeprefix("/"), query)
        return HttpResponse(_OK, {**_METADATA_HEADERS, "etag": etag}, value.encode())

    async def _handle_compute(self, method_and_path: str, query: StringMap, headers: StringMap) -> Document:
        self._access_tokens.check(headers.get("authorization", ""))
        method, _, path = method_and_path.partition(" ")
        match [method, *path.removeprefix(_PROJECTS_PREFIX).split("/")]:
            case ["GET", project, "aggregated", "instances"]:
                return await self._faults.call("AggregatedList", lambda: self._list_instances(project, query))
            case ["GET", project, "zones", zone, "instances", name]:
                get_instance = self._instances.get
                return await self._faults.call(
                    "GetInstance", lambda: get_instance(project, zone, name).to_document(_API_ROOT)
                )
            case ["POST", project, "zones", zone, "instances", name, operation_type] if operation_type in (
                PERFORM_MAINTENANCE,
                SIMULATE_MAINTENANCE_EVENT,
            ):
                fault_name, start_operation = (
                    operation_type[0].upper() + operation_type[1:],
                    self._operations.start_operation,
                )
                instance = self._instances.get(project, zone, name)
                return await self._faults.call(fault_name, lambda: start_operation(instance, operation_type, query))
            case ["GET", _, "zones", _, "operations", name] | ["POST", _, "zones", _, "operations", name, "wait"]:
                return await self._faults.call("WaitOperation", lambda: self._operations.get(name))
        raise api_error(f"{method_and_path} is not known", status=404, code="notFound")

    def _list_instances(self, project: str, query: StringMap) -> Document:
        limit = int(query.get("maxResults", _DEFAULT_LIMIT))
        return self._instances.list_page(project, limit=limit, page=query.get("pageToken", ""), root=_API_ROOT)


def json_response(document: Document, headers: StringMap | None = None) -> HttpResponse:
    return HttpResponse(_OK, {"content-type": "application/json", **(headers or {})}, msgspec.json.encode(document))


def error_response(error: CloudError, encode: Callable[[CloudError], HttpResponse]) -> HttpResponse:
    """Return the response for an error; raise it again if no response must be sent."""
    if not error.status:
        raise error
    retry_headers = {} if error.retry_after is None else {"retry-after": f"{error.retry_after.total_seconds():.0f}"}
    answer = encode(error)
    return HttpResponse(error.status, {**answer.headers, **retry_headers}, answer.body)


def _metadata_error(error: CloudError) -> HttpResponse:
    return HttpResponse(error.status, _METADATA_HEADERS, error.message.encode())


def _api_error(error: CloudError) -> HttpResponse:
    reason = {"reason": error.code, "message": error.message}
    return json_response({"error": {"code": error.status, "message": error.message, "errors": [reason]}})
