"""The calls of the Compute API that we make: as a protocol, and over plain HTTP.

Documents are as they are on the wire. Whatever goes wrong is a `CloudError` with Google's reason as its code; a
`status` of 0 is no answer, after which nobody knows whether the call took effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from haulout.errors import CloudError
from haulout.notices.sources.calls import is_passing
from haulout.notices.sources.fetching import UNREADABLE, Fetch, Fetched, pause_of
from haulout.notices.sources.gcp.tokens import Tokens

Document = dict[str, Any]

NOT_FOUND = 404

_OK, _UNAUTHORIZED = 200, 401
_PAGE = 500  # the most that it gives
_WITHIN = timedelta(seconds=30)
_WAITS = timedelta(minutes=2)  # an operation is waited for no longer than this, in one call
_INSTANCE = "id,name,zone,status,scheduling(onHostMaintenance,automaticRestart),resourceStatus/upcomingMaintenance"
_FIELDS = f"items/*/instances({_INSTANCE}),items/*/warning,nextPageToken,unreachables"
_EMPTY = "NO_RESULTS_ON_PAGE"
_BUSY = ("rateLimitExceeded", "userRateLimitExceeded", "backendError", "internalError", "RATE_LIMIT_EXCEEDED")
_HINTS = {
    "accessNotConfigured": "the Compute Engine API is not enabled in this project",
    "SERVICE_DISABLED": "the Compute Engine API is not enabled in this project",
    "forbidden": "the role of this account does not allow it",
    "required": "the role of this account does not allow it",
    "insufficientPermissions": "the access scopes of this machine do not allow it; use workload identity",
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": "the access scopes of this machine do not allow it; use workload identity",
    "authError": "the token is not accepted; the clock of this machine may be wrong",
    "invalid_grant": "the key or token is not believed, or the clock of this machine is wrong",
}


@dataclass(slots=True)
class Page:
    """A part of a list."""

    instances: list[Document] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # zones that did not answer
    next: str = ""  # empty: it was the last


class Compute(Protocol):
    """Instances and their maintenance."""

    async def instances(self, project: str, *, wanted: str = "", page: str = "") -> Page:
        """Return a page of all instances of a project that fit an expression."""
        ...

    async def instance(self, project: str, zone: str, name: str) -> Document:
        """Return an instance."""
        ...

    async def perform_maintenance(self, project: str, zone: str, name: str, *, request: str) -> Document:
        """Have maintenance begin now; return the operation. The same request again changes nothing."""
        ...

    async def operation(self, project: str, zone: str, name: str) -> Document:
        """Return an operation, when it is done or after a while."""
        ...


class RestCompute:
    """Asks over HTTP."""

    def __init__(self, fetch: Fetch, tokens: Tokens) -> None:
        self._fetch = fetch
        self._tokens = tokens

    async def instances(self, project: str, *, wanted: str = "", page: str = "") -> Page:
        """Return a page of all instances of a project that fit an expression."""
        query = {"maxResults": str(_PAGE), "fields": _FIELDS, "returnPartialSuccess": "true"}
        query |= {"filter": wanted} if wanted else {}
        query |= {"pageToken": page} if page else {}
        target = f"{_path(project)}/aggregated/instances?{urlencode(query)}"
        return _page(await self._call("GET", target, doing=f"listing instances of {project}"))

    async def instance(self, project: str, zone: str, name: str) -> Document:
        """Return an instance."""
        query = urlencode({"fields": _INSTANCE})
        return await self._call("GET", f"{_path(project, zone, name)}?{query}", doing=f"asking for instance {name}")

    async def perform_maintenance(self, project: str, zone: str, name: str, *, request: str) -> Document:
        """Have maintenance begin now; return the operation."""
        query = urlencode({"requestId": request})
        target = f"{_path(project, zone, name)}/performMaintenance?{query}"
        return await self._call("POST", target, doing=f"beginning maintenance of {name}")

    async def operation(self, project: str, zone: str, name: str) -> Document:
        """Return an operation, when it is done or after a while."""
        target = f"{_path(project)}/zones/{quote(zone)}/operations/{quote(name)}/wait"
        return await self._call("POST", target, doing=f"waiting for operation {name}", within=_WAITS + _WITHIN)

    async def _call(self, method: str, target: str, *, doing: str, within: timedelta = _WITHIN) -> Document:
        fetched = await self._sent(method, target, within)
        if fetched.status == _UNAUTHORIZED:
            self._tokens.forget()
            fetched = await self._sent(method, target, within)
        if fetched.status != _OK:
            raise _refusal(fetched, doing)
        try:
            return msgspec.json.decode(fetched.body, type=Document)
        except UNREADABLE as error:
            raise CloudError(f"the answer cannot be read: {error}", doing=doing) from error

    async def _sent(self, method: str, target: str, within: timedelta) -> Fetched:
        headers = {"Authorization": f"Bearer {await self._tokens.current()}", "Accept": "application/json"}
        body = b"" if method == "POST" else None
        return await self._fetch(method, target, headers=headers, body=body, within=within)


def is_busy(error: CloudError) -> bool:
    """Tell whether it may go well in a moment."""
    return error.code in _BUSY or is_passing(error)


def explained(error: CloudError) -> str:
    """Return an error in words, with what is behind it."""
    hint = _HINTS.get(error.code)
    return f"{error} ({hint})" if hint else str(error)


def _path(project: str, zone: str = "", name: str = "") -> str:
    base = f"/compute/v1/projects/{quote(project, safe=':')}"
    return f"{base}/zones/{quote(zone)}/instances/{quote(name)}" if name else base


def _page(found: Document) -> Page:
    page = Page(next=str(found.get("nextPageToken") or ""))
    page.missing += [_last(it) for it in _sequence(found.get("unreachables"))]
    scopes = found.get("items")
    for scope, said in scopes.items() if isinstance(scopes, Mapping) else ():
        if not isinstance(said, Mapping):
            continue
        page.instances += [dict(it) for it in _sequence(said.get("instances")) if isinstance(it, Mapping)]
        warning = said.get("warning")
        if isinstance(warning, Mapping) and warning.get("code") not in (None, _EMPTY):
            page.missing.append(_last(scope))
    return page


def _sequence(found: object) -> Sequence[Any]:
    return found if isinstance(found, list) else ()


def _last(scope: object) -> str:
    return str(scope).rpartition("/")[2]


def _refusal(fetched: Fetched, doing: str) -> CloudError:
    try:
        said = msgspec.json.decode(fetched.body, type=Document).get("error")
    except UNREADABLE:
        said = None
    said = said if isinstance(said, Mapping) else {}
    reasons = [it.get("reason") for it in _sequence(said.get("errors")) if isinstance(it, Mapping)]
    code = str(next((it for it in reasons if it), said.get("status")) or "")
    message = str(said.get("message") or "") or fetched.body.decode("utf-8", "replace").strip() or "no reason given"
    return CloudError(message[:300], doing=doing, status=fetched.status, code=code, retry_after=pause_of(fetched))
