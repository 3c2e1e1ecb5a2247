"""A minimal API client for everything in a round except the operator.

It shares no code with the operator's client: a defect there must not hide itself from the invariants.
"""

import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

_PATCHES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=10)
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)

ROOTS = {
    "namespaces": "/api/v1",
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "configmaps": "/api/v1",
    "serviceaccounts": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "events": "/apis/events.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
    "validatingadmissionpolicies": "/apis/admissionregistration.k8s.io/v1",
    "validatingadmissionpolicybindings": "/apis/admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1",
    "nodemaintenances": "/apis/nodemaintenance.medik8s.io/v1beta1",
    "maintenancerecords": "/apis/haulout.dev/v1alpha1",
    "maintenancenotices": "/apis/haulout.dev/v1alpha1",
}

Raw = dict[str, Any]


class ApiError(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def path(resource: str, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
    """Return the path of a collection or, with a name, of an object."""
    namespace_part = f"/namespaces/{namespace}" if namespace else ""
    tail = "".join(f"/{item}" for item in (name, subresource) if item)
    return f"{ROOTS[resource]}{namespace_part}/{resource}{tail}"


@dataclass(frozen=True, slots=True)
class ApiClient:
    """The API server, as one user."""

    session: aiohttp.ClientSession
    server: str
    token: str
    tls: ssl.SSLContext

    async def create(self, resource: str, obj: Raw, *, namespace: str = "") -> Raw:
        """Create an object."""
        return await self._send("POST", path(resource, namespace=namespace), obj)

    async def get(self, resource: str, name: str, *, namespace: str = "") -> Raw:
        """Return an object."""
        return await self._send("GET", path(resource, name, namespace=namespace))

    async def patch(
        self, resource: str, name: str, change: Any, *, namespace: str = "", subresource: str = "", kind: str = "merge"
    ) -> Raw:
        """Change an object by a merge patch, or by a JSON patch with `kind="json"`."""
        object_path = path(resource, name, namespace=namespace, subresource=subresource)
        return await self._send("PATCH", object_path, change, content_type=_PATCHES[kind])

    async def delete(self, resource: str, name: str, *, namespace: str = "", now: bool = False) -> None:
        """Delete an object; `now` without a grace period. An object that does not exist is fine."""
        body = {"gracePeriodSeconds": 0} if now else None
        try:
            await self._send("DELETE", path(resource, name, namespace=namespace), body)
        except ApiError as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise

    async def list(self, resource: str) -> tuple[list[Raw], str]:
        """Return all objects of a kind, and the resourceVersion of the list."""
        found = await self._send("GET", path(resource))
        return found.get("items") or [], str(found["metadata"]["resourceVersion"])

    async def watch(self, resource: str, since: str) -> AsyncIterator[Raw]:
        """Yield the events of a kind after a resourceVersion, until the server ends the watch."""
        url = f"{self.server}{path(resource)}"
        query = {"watch": "1", "resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": "3600"}
        request = self.session.get(url, params=query, headers=self._headers(), ssl=self.tls, timeout=_NO_TIMEOUT)
        async with request as response:
            if response.status != HTTPStatus.OK:
                raise ApiError(response.status, await response.text())
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    async def _send(
        self, method: str, request_path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Raw:
        headers = self._headers() | {"Content-Type": content_type}
        data = None if body is None else json.dumps(body)
        request = self.session.request(
            method, f"{self.server}{request_path}", data=data, headers=headers, ssl=self.tls, timeout=_REQUEST_TIMEOUT
        )
        async with request as response:
            text = await response.text()
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise ApiError(response.status, text)
            answer: Raw = json.loads(text)
            return answer

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
