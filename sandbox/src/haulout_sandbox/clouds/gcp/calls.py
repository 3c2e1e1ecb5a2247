"""Requests that the model of Google Cloud answers: of the Compute API, for tokens, and of metadata servers."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from haulout.errors import CloudError
from haulout_sandbox.clouds.faults import Faults
from haulout_sandbox.clouds.gcp import metadata
from haulout_sandbox.clouds.gcp.access import Access
from haulout_sandbox.clouds.gcp.instances import Document, Instances, refused
from haulout_sandbox.clouds.gcp.operations import PERFORM, SIMULATE, Operations

_ROOT = "https://www.googleapis.com/compute/v1"
_API, _TOKEN, _EXCHANGE = "/compute/v1/projects/", "/token", "/v1/token"
_ACCOUNTS, _SPEAK = "/v1/projects/-/serviceAccounts/", ":generateAccessToken"
_MACHINE = "/machines/"  # before the paths of a metadata server: whose it is
_SERVED_TOKEN = "/instance/service-accounts/default/token"  # noqa: S105 - a path
_FLAVOR = {"metadata-flavor": "Google", "server": "Metadata Server for VM"}
_LIMIT = 500
_OK = 200

Names = Mapping[str, str]


class Answer(NamedTuple):
    """What is answered; names of headers are lower-case."""

    status: int
    headers: Names
    body: bytes


class Calls:
    """Answers requests."""

    def __init__(self, machines: Instances, *, operations: Operations, access: Access, faults: Faults) -> None:
        self._machines = machines
        self._operations = operations
        self._access = access
        self._faults = faults

    async def answer(self, method: str, target: str, headers: Names, body: bytes) -> Answer:
        """Answer a request; raises `CloudError` with the status 0 if no answer is to come."""
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        sent = {name.lower(): value for name, value in headers.items()}
        speaks = (
            _metadata_error
            if metadata.BASE in url.path
            else _token_error
            if url.path in (_TOKEN, _EXCHANGE)
            else _api_error
        )
        try:
            if metadata.BASE in url.path:
                return await self._of_machine(url.path, query, sent)
            if url.path.startswith(_MACHINE):
                return Answer(_OK, _FLAVOR, b"computeMetadata/\n")  # by which it is known
            if url.path in (_TOKEN, _EXCHANGE) or url.path.startswith(_ACCOUNTS):
                return _json(await self._of_tokens(url.path, sent, body))
            return _json(await self._of_api(f"{method} {url.path}", query, sent))
        except CloudError as error:
            if not error.status:
                raise
            pause = {} if error.retry_after is None else {"retry-after": f"{error.retry_after.total_seconds():.0f}"}
            answer = speaks(error)
            return Answer(error.status, {**answer.headers, **pause}, answer.body)

    async def _of_machine(self, path: str, query: Names, headers: Names) -> Answer:
        if headers.get("metadata-flavor") != "Google":
            raise CloudError("Missing Metadata-Flavor:Google header.", doing="metadata", status=403)
        who, _, key = path.partition(metadata.BASE)
        if key == _SERVED_TOKEN:
            return _json(await self._faults.call("MetadataToken", self._access.give), _FLAVOR)
        instance = self._machines.by_name.get(who.removeprefix(_MACHINE))
        if instance is None:
            raise CloudError("there is no such machine", doing="metadata", status=0)
        await self._faults.call(f"Metadata {key.strip('/')}", lambda: None)
        value, etag = await metadata.answer(instance, key.removeprefix("/"), query)
        return Answer(_OK, {**_FLAVOR, "etag": etag}, value.encode())

    async def _of_tokens(self, path: str, headers: Names, body: bytes) -> Document:
        if path == _TOKEN:
            return await self._faults.call("Token", lambda: self._access.issue(body))
        if path == _EXCHANGE:
            return await self._faults.call("Exchange", lambda: self._access.exchange(body))
        account, bearer = path.removeprefix(_ACCOUNTS).removesuffix(_SPEAK), headers.get("authorization", "")
        return await self._faults.call("Speak", lambda: self._access.speak_for(account, bearer, body))

    async def _of_api(self, asked: str, query: Names, headers: Names) -> Document:
        self._access.check(headers.get("authorization", ""))
        method, _, path = asked.partition(" ")
        match [method, *path.removeprefix(_API).split("/")]:
            case ["GET", project, "aggregated", "instances"]:
                return await self._faults.call("AggregatedList", lambda: self._listed(project, query))
            case ["GET", project, "zones", zone, "instances", name]:
                found = self._machines.get
                return await self._faults.call("GetInstance", lambda: found(project, zone, name).document(_ROOT))
            case ["POST", project, "zones", zone, "instances", name, what] if what in (PERFORM, SIMULATE):
                called, operate = what[0].upper() + what[1:], self._operations.operate
                instance = self._machines.get(project, zone, name)
                return await self._faults.call(called, lambda: operate(instance, what, query))
            case ["GET", _, "zones", _, "operations", name] | ["POST", _, "zones", _, "operations", name, "wait"]:
                return await self._faults.call("WaitOperation", lambda: self._operations.get(name))
        raise refused(f"{asked} is not known", status=404, code="notFound")

    def _listed(self, project: str, query: Names) -> Document:
        limit = int(query.get("maxResults", _LIMIT))
        return self._machines.listed(project, limit=limit, page=query.get("pageToken", ""), root=_ROOT)


def _json(document: Document, headers: Names | None = None) -> Answer:
    return Answer(_OK, {"content-type": "application/json", **(headers or {})}, msgspec.json.encode(document))


def _metadata_error(error: CloudError) -> Answer:
    return Answer(error.status, _FLAVOR, error.message.encode())


def _token_error(error: CloudError) -> Answer:
    return _json({"error": error.code, "error_description": error.message})


def _api_error(error: CloudError) -> Answer:
    reason = {"reason": error.code, "message": error.message}
    return _json({"error": {"code": error.status, "message": error.message, "errors": [reason]}})
