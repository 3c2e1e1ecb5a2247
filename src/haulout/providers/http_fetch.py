"""Plain HTTP requests to the metadata service of a machine, small enough for an agent on each node.

    fetch = http_fetch("http://169.254.169.254")
    answer = await fetch("GET", "/metadata/instance?api-version=2021-02-01", headers={"Metadata": "true"})

Callers take a `Fetch`, so that a fake can replace the network. A metadata service is link-local: proxy settings of the
environment are ignored, and connections are not kept.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

import msgspec

from haulout.core.limited_reader import BodyTooLarge
from haulout.errors import CloudError
from haulout.kube.transports import connection_errors
from haulout.kube.transports.h11_client import Endpoint, FetchedResponse, InvalidHttpResponse, open_request

__all__ = ["DECODE_ERRORS", "Fetch", "FetchedResponse", "checked", "http_fetch", "retry_after"]

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what msgspec raises for an arbitrary body

_TIMEOUT = timedelta(seconds=10)
_MAX_BODY_BYTES = 1 << 20  # a hundred times the size of usual metadata
_MAX_ERROR_CHARACTERS = 200  # of an error response, for the message
_OK = 200
_MAX_RETRY_AFTER = timedelta(minutes=5)  # limits Retry-After: a longer pause would delay new events
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)


class Fetch(Protocol):
    """Sends a request to a metadata service."""

    async def __call__(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = _TIMEOUT,
    ) -> FetchedResponse:
        """Return the response, whatever its status; raise `CloudError` with status 0 if there is none."""
        ...


def http_fetch(address: str) -> Fetch:
    """Return a `Fetch` for a service at a URL such as http://169.254.169.254."""
    place = Endpoint.from_url(address)

    async def fetch(
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = _TIMEOUT,
    ) -> FetchedResponse:
        doing = f"{method} {address}{target.partition('?')[0]}"
        try:
            async with (
                asyncio.timeout(within.total_seconds()),
                open_request(place, method, target, headers=headers.items(), body=body) as answer,
            ):
                return FetchedResponse(answer.status, answer.headers, await answer.read(limit=_MAX_BODY_BYTES))
        except TimeoutError:
            raise CloudError(f"no answer within {within.total_seconds():g} s", doing=doing) from None
        except OSError as error:
            raise CloudError(connection_errors.error_text(error), doing=doing) from error
        except (EOFError, InvalidHttpResponse, BodyTooLarge) as error:
            raise CloudError(f"the answer cannot be read: {error}", doing=doing) from error

    return fetch


def checked(answer: FetchedResponse, *, doing: str) -> FetchedResponse:
    """Return a successful response; raise `CloudError` for any other."""
    if answer.status == _OK:
        return answer
    text = answer.body[:_MAX_ERROR_CHARACTERS].decode("utf-8", "replace").strip()
    raise CloudError(text or "no reason given", doing=doing, status=answer.status, retry_after=retry_after(answer))


def retry_after(answer: FetchedResponse) -> timedelta | None:
    """Return the Retry-After of a response in seconds form, at most `_MAX_RETRY_AFTER`; None if there is none."""
    value = answer.headers.get("retry-after", "").strip()
    return min(timedelta(seconds=int(value)), _MAX_RETRY_AFTER) if _DIGITS.fullmatch(value) else None
