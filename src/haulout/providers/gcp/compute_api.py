"""The calls of the Compute API in use: as a protocol, and over plain HTTP.

Documents are as the API returns them. Every failure is a `CloudError` with Google's reason as its code. A `status` of 0
means no response: it is unknown whether the call took effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from haulout.errors import CloudError
from haulout.providers.cloud_calls import is_transient
from haulout.providers.gcp.tokens import TokenCache
from haulout.providers.http_fetch import DECODE_ERRORS, Fetch, FetchedResponse, retry_after

Document = dict[str, Any]

NOT_FOUND = 404

_OK, _UNAUTHORIZED = 200, 401
_PAGE_SIZE = 500  # the API's maximum
_TIMEOUT = timedelta(seconds=30)
_OPERATION_WAIT = timedelta(minutes=2)  # maximum wait for an operation in one call
_INSTANCE = "id,name,zone,status,scheduling(onHostMaintenance,automaticRestart),resourceStatus/upcomingMaintenance"
_FIELDS = f"items/*/instances({_INSTANCE}),items/*/warning,nextPageToken,unreachables"
_NO_RESULTS = "NO_RESULTS_ON_PAGE"
_RETRYABLE_CODES = (
    "rateLimitExceeded",
    "userRateLimitExceeded",
    "backendError",
    "internalError",
    "RATE_LIMIT_EXCEEDED",
)
_HINTS = {
    "accessNotConfigured": "the Compute Engine API is not enabled in this project",
    "SERVICE_DISABLED": "the Compute Engine API is not enabled in this project",
    "forbidden": "the role of this account does not allow it",
    "required": "the role of this account does not allow it",
    "insufficientPermissions": "the access scopes of this machine do not allow it; use workload identity",
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": "the access scopes of this machine do not allow it; use workload identity",
    "authError": "the token is not accepted; the clock of this machine may be wrong",
    "invalid_grant": "the key or token is not valid, or the clock of this machine is wrong",
}


@dataclass(slots=True)
class Page:
    """A page of a list over all zones. The list is complete only if no page misses a zone."""

    instances: list[Document] = field(default_factory=list)
    missing_zones: list[str] = field(default_factory=list)  # zones that did not respond
    next_page_token: str = ""  # empty: last page


class Compute(Protocol):
    """Instances and their maintenance, of which Google reports at most one per instance."""

    async def instances(self, project: str, *, filter_expression: str = "", page_token: str = "") -> Page:
        """Return a page of the project's instances that match the filter."""
        ...

    async def instance(self, project: str, zone: str, name: str) -> Document: ...

    async def perform_maintenance(self, project: str, zone: str, name: str, *, request_id: str) -> Document:
        """Ask Google to begin the maintenance now; return the operation. `request_id` makes the call idempotent."""
        ...

    async def operation(self, project: str, zone: str, name: str) -> Document:
        """Return an operation when it is done, or after the API's wait time."""
        ...


class RestCompute:
    """The Compute API over HTTP, with a new token after a 401."""

    def __init__(self, fetch: Fetch, tokens: TokenCache) -> None:
        self._fetch = fetch
        self._tokens = tokens

    async def instances(self, project: str, *, filter_expression: str = "", page_token: str = "") -> Page:
        # Without it, one zone that is down fails the whole list.
        query = {"maxResults": str(_PAGE_SIZE), "fields": _FIELDS, "returnPartialSuccess": "true"}
        query |= {"filter": filter_expression} if filter_expression else {}
        query |= {"pageToken": page_token} if page_token else {}
        target = f"{_path(project)}/aggregated/instances?{urlencode(query)}"
        return _parse_page(await self._call("GET", target, doing=f"listing instances of {project}"))

    async def instance(self, project: str, zone: str, name: str) -> Document:
        query = urlencode({"fields": _INSTANCE})
        return await self._call("GET", f"{_path(project, zone, name)}?{query}", doing=f"asking for instance {name}")

    async def perform_maintenance(self, project: str, zone: str, name: str, *, request_id: str) -> Document:
        query = urlencode({"requestId": request_id})
        target = f"{_path(project, zone, name)}/performMaintenance?{query}"
        return await self._call("POST", target, doing=f"beginning maintenance of {name}")

    async def operation(self, project: str, zone: str, name: str) -> Document:
        target = f"{_path(project)}/zones/{quote(zone)}/operations/{quote(name)}/wait"
        return await self._call(
            "POST", target, doing=f"waiting for operation {name}", within=_OPERATION_WAIT + _TIMEOUT
        )

    async def _call(self, method: str, target: str, *, doing: str, within: timedelta = _TIMEOUT) -> Document:
        fetched = await self._send(method, target, within)
        if fetched.status == _UNAUTHORIZED:
            self._tokens.forget()
            fetched = await self._send(method, target, within)
        if fetched.status != _OK:
            raise _error_from(fetched, doing)
        try:
            return msgspec.json.decode(fetched.body, type=Document)
        except DECODE_ERRORS as error:
            raise CloudError(f"the answer cannot be read: {error}", doing=doing) from error

    async def _send(self, method: str, target: str, within: timedelta) -> FetchedResponse:
        headers = {"Authorization": f"Bearer {await self._tokens.current()}", "Accept": "application/json"}
        body = b"" if method == "POST" else None
        return await self._fetch(method, target, headers=headers, body=body, within=within)


def is_retryable(error: CloudError) -> bool:
    return error.code in _RETRYABLE_CODES or is_transient(error)


def explain_error(error: CloudError) -> str:
    """Format an error, with a hint about its usual cause."""
    hint = _HINTS.get(error.code)
    return f"{error} ({hint})" if hint else str(error)


def _path(project: str, zone: str = "", name: str = "") -> str:
    base = f"/compute/v1/projects/{quote(project, safe=':')}"
    return f"{base}/zones/{quote(zone)}/instances/{quote(name)}" if name else base


def _parse_page(found: Document) -> Page:
    page = Page(next_page_token=str(found.get("nextPageToken") or ""))
    page.missing_zones += [_last_segment(item) for item in _as_list(found.get("unreachables"))]
    scopes = found.get("items")
    for scope, scoped_list in scopes.items() if isinstance(scopes, Mapping) else ():
        if not isinstance(scoped_list, Mapping):
            continue
        page.instances += [dict(item) for item in _as_list(scoped_list.get("instances")) if isinstance(item, Mapping)]
        warning = scoped_list.get("warning")
        if isinstance(warning, Mapping) and warning.get("code") not in (None, _NO_RESULTS):
            page.missing_zones.append(_last_segment(scope))
    return page


def _as_list(found: object) -> Sequence[Any]:
    return found if isinstance(found, list) else ()


def _last_segment(scope: object) -> str:
    return str(scope).rpartition("/")[2]


def _error_from(fetched: FetchedResponse, doing: str) -> CloudError:
    try:
        error = msgspec.json.decode(fetched.body, type=Document).get("error")
    except DECODE_ERRORS:
        error = None
    error = error if isinstance(error, Mapping) else {}
    reasons = [item.get("reason") for item in _as_list(error.get("errors")) if isinstance(item, Mapping)]
    code = str(next((item for item in reasons if item), error.get("status")) or "")
    message = str(error.get("message") or "") or fetched.body.decode("utf-8", "replace").strip() or "no reason given"
    return CloudError(message[:300], doing=doing, status=fetched.status, code=code, retry_after=retry_after(fetched))
