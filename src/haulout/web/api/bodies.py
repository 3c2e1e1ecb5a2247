"""What is sent with a request: JSON, not too much of it, and not too slowly."""

import asyncio
from datetime import timedelta
from http import HTTPStatus

from aiohttp import web

from haulout.web.api.pace import seconds_of_life
from haulout.web.api.source import Unanswerable

_SENT_WITHIN = timedelta(seconds=10)


async def body_of(request: web.Request, *, largest: int) -> bytes:
    """Return what they sent, which is bounded, as is the time that they have for it; raises `Unanswerable`."""
    if request.content_type != "application/json":
        text = f"expected application/json, found {request.content_type}"
        raise Unanswerable(text, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds_of_life(_SENT_WITHIN)):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > largest:
                    raise Unanswerable(f"more than {largest} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    except TimeoutError:
        raise Unanswerable("the request took too long to arrive", HTTPStatus.REQUEST_TIMEOUT) from None
    return bytes(body)
