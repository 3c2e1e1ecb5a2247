"""Read request bodies: JSON, with limits on size and time."""

import asyncio
from datetime import timedelta
from http import HTTPStatus

from aiohttp import web

from haulout.core.clock import real_seconds
from haulout.dashboard.api.backend import HttpError

_SENT_WITHIN = timedelta(seconds=10)


async def read_body(request: web.Request, *, max_bytes: int) -> bytes:
    """Return the body; raise `HttpError` for a wrong type, size or timeout."""
    if request.content_type != "application/json":
        text = f"expected application/json, found {request.content_type}"
        raise HttpError(text, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    body = bytearray()
    try:
        async with asyncio.timeout(real_seconds(_SENT_WITHIN)):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > max_bytes:
                    raise HttpError(f"more than {max_bytes} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    except TimeoutError:
        raise HttpError("the request took too long to arrive", HTTPStatus.REQUEST_TIMEOUT) from None
    return bytes(body)
