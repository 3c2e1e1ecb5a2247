"""The Azure Instance Metadata Service: the name of the machine, its Scheduled Events, and their approval.

The first call enables Scheduled Events for the machine, and may take two minutes; after a day without calls Azure
disables them. Requests must not go through a proxy, and do not.
"""

from datetime import timedelta
from typing import Any

import msgspec

from haulout.errors import CloudError
from haulout.providers.http_fetch import DECODE_ERRORS, Fetch, FetchedResponse, checked

ADDRESS = "http://169.254.169.254"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"  # the first version that has the duration of an event
INSTANCE = "/metadata/instance?api-version=2021-02-01"
# Azure answers 400 without it, so that a forwarded request gets nothing.
_HEADERS = {"Metadata": "true"}
_TIMEOUT = timedelta(seconds=10)
FIRST_TIMEOUT = timedelta(minutes=2, seconds=30)


class AzureInstanceMetadata:
    """Calls the service; raises `CloudError`, with status 0 if there is no response."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._has_answered = False

    async def machine(self) -> str:
        """Return the name of this machine, as used in events."""
        doing = "asking Azure for the name of this machine"
        answer = await self._request("GET", INSTANCE, doing=doing)
        try:
            found: Any = msgspec.json.decode(answer.body)
            name = found["compute"]["name"]
        except (*DECODE_ERRORS, KeyError, TypeError):
            name = None
        if not isinstance(name, str) or not name:
            raise CloudError("expected JSON with a compute.name", doing=doing, status=answer.status)
        return name

    async def events(self) -> bytes:
        """Return the document of Scheduled Events, unparsed."""
        # Azure needs up to two minutes to enable Scheduled Events at the first call.
        within = _TIMEOUT if self._has_answered else FIRST_TIMEOUT
        answer = await self._request("GET", EVENTS, doing="asking Azure for scheduled events", within=within)
        self._has_answered = True
        return answer.body

    async def start_event(self, event: str) -> None:
        """Approve an event for all of its machines; Azure ignores it if the event has begun."""
        body = msgspec.json.encode({"StartRequests": [{"EventId": event}]})
        await self._request("POST", EVENTS, doing=f"asking Azure to begin {event}", body=body)

    async def _request(
        self, method: str, target: str, *, doing: str, body: bytes | None = None, within: timedelta = _TIMEOUT
    ) -> FetchedResponse:
        headers = _HEADERS if body is None else {**_HEADERS, "Content-Type": "application/json"}
        try:
            answer = await self._fetch(method, target, headers=headers, body=body, within=within)
        except CloudError as error:
            raise CloudError(error.message, doing=doing) from error
        return checked(answer, doing=doing)
