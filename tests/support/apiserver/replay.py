"""Replays requests on the real API server and on the sandbox, and normalizes the responses for comparison.

Values that each server chooses (uids, revisions, timestamps, generated names) are replaced. Causes are sorted, because
the real server iterates over Go maps in random order. Managed fields are left out: the real server tracks the fields of
every manager, the sandbox only those of server-side apply.
"""

import asyncio
import http.client
import json
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from controlplane import ControlPlane
from haulout.kube.transport import Request, Transport
from haulout_sandbox.apiserver import JsonObject

JSON = "application/json"
APPLY, JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"
MERGE_PATCH, STRATEGIC_PATCH = "application/merge-patch+json", "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_AGE = re.compile(r"\d+s")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GENERATED = re.compile(r"(?i)\b(gen[-_])[bcdfghjklmnpqrstvwxz2456789]{5}")
_WARNING = re.compile(r'299 \S+ ("(?:[^"\\]|\\.)*")')
_MAX_REQUESTS = 20_000
_SERVER_CHOSEN = {"resourceVersion": "1", "uid": "uid", "continue": "token"}


@dataclass(frozen=True)
class RequestStep:
    """One request; `change` computes its body from the object at `path`."""

    method: str
    path: str
    body: Any = None
    content: str = JSON
    accept: str = JSON
    change: Callable[[JsonObject], JsonObject] | None = None


@dataclass(frozen=True)
class RecordedResponse:
    """What a server answered."""

    status: int
    text: str
    warnings: list[str] = field(default_factory=list)

    @property
    def documents(self) -> list[Any]:
        """Return the JSON documents of the response, one per line, or the text if it is not JSON."""
        try:
            return [json.loads(self.text)]
        except ValueError:
            pass
        try:
            return [json.loads(line) for line in self.text.splitlines()]
        except ValueError:
            return [self.text]


class Server(Protocol):
    """Answers requests."""

    async def send_step(self, step: RequestStep, body: Any) -> RecordedResponse:
        """Send one request."""
        ...


class RealServer:
    """The real server, over one connection."""

    def __init__(self, cluster: ControlPlane) -> None:
        tls = ssl.create_default_context(cadata=cluster.ca.decode())
        self._connection = http.client.HTTPSConnection(urlsplit(cluster.server).netloc, context=tls)
        self._token = cluster.token()

    async def send_step(self, step: RequestStep, body: Any) -> RecordedResponse:
        """Send one request; retry while the server is not ready yet for a new definition."""
        while True:
            response = await asyncio.to_thread(self._send_request, step, body)
            if response.status != http.HTTPStatus.TOO_MANY_REQUESTS or "(re)initializing" not in response.text:
                return response

    def _send_request(self, step: RequestStep, body: Any) -> RecordedResponse:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": step.content, "Accept": step.accept}
        self._connection.request(step.method, step.path, encoded(body), headers)
        response = self._connection.getresponse()
        text = response.read().decode()
        return RecordedResponse(
            response.status, text, warnings_in(", ".join(response.headers.get_all("Warning") or []))
        )

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class SandboxServer:
    """The sandbox, in-process."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send_step(self, step: RequestStep, body: Any) -> RecordedResponse:
        """Send one request."""
        path, _, query = step.path.partition("?")
        request = Request(
            method=step.method,
            path=path,
            query=tuple(parse_qsl(query, keep_blank_values=True)),
            body=encoded(body),
            content_type=step.content,
            accept=step.accept,
        )
        response = await self._transport.send(request)
        return RecordedResponse(
            response.status, response.body.decode(), warnings_in(response.headers.get("warning", ""))
        )


async def response_when(server: Server, step: RequestStep, wanted: object) -> tuple[int, list[Any], list[str]]:
    """Return the response once it equals `wanted`, or the last one after a timeout."""
    for _ in range(_MAX_REQUESTS):
        response = await comparable_response(server, step)
        if response == wanted:
            break
    return response


async def comparable_response(server: Server, step: RequestStep) -> tuple[int, list[Any], list[str]]:
    """Return the normalized response to a request."""
    body = step.body
    if step.change is not None:
        at = step.path.partition("?")[0].removesuffix("/status")
        (found,) = (await server.send_step(RequestStep("GET", at), None)).documents
        body = step.change(found)
    response = await server.send_step(step, body)
    return response.status, [comparable(document) for document in response.documents], response.warnings


def encoded(body: Any) -> bytes | None:
    """Return a body as bytes: JSON, unless it is a text already."""
    if body is None or isinstance(body, str):
        return None if body is None else body.encode()
    return json.dumps(body).encode()


def warnings_in(header: str) -> list[str]:
    """Return the texts of a Warning header."""
    return [json.loads(quoted) for quoted in _WARNING.findall(header)]


def comparable(value: Any) -> Any:
    """Return a response without the values that each server chooses."""
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, str):
        return _GENERATED.sub(r"\1xxxxx", _UID.sub("uid", _TIME.sub("time", value)))
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "Status" and value.get("reason") in ("BadRequest", "Invalid"):
        return {name: value[name] for name in ("code", "reason")}  # the sandbox has its own texts
    if isinstance(value.get("causes"), list):
        value = value | {
            "causes": sorted(value["causes"], key=lambda element: (element.get("field", ""), element["message"]))
        }
    if value.get("kind") == "Status" and isinstance(value.get("message"), str):
        value = value | {"message": _sorted_problems(value["message"])}
    if value.get("kind") == "APIResourceList":
        value = value | {"resources": sorted(value["resources"], key=lambda element: str(element["name"]))}
    if isinstance(value.get("cells"), list):
        value = value | {"cells": ["age" if _AGE.fullmatch(str(element)) else element for element in value["cells"]]}
    if "columnDefinitions" in value:
        value = value | {
            "columnDefinitions": [element | {"description": ""} for element in value["columnDefinitions"] or ()]
        }
    kept = {name: item for name, item in value.items() if name != "managedFields"}
    return {
        name: _SERVER_CHOSEN.get(name, "") if item and name in _SERVER_CHOSEN else comparable(item)
        for name, item in kept.items()
    }


def _sorted_problems(message: str) -> Any:
    """Return the problems that a message lists as a sorted list."""
    head, bracket, tail = message.partition(": [")
    return [head, *sorted(tail.removesuffix("]").split(", "))] if bracket else message
