"""HTTP responses: JSON with ETags, compressed if large.

The `ETag` is a hash of the bytes, so that it is correct whatever the response depends on. With `no-cache` a browser may
store a response, but must revalidate it each time.
"""

import asyncio
import gzip
from hashlib import blake2b
from http import HTTPStatus

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from haulout.dashboard.api.types import Problem

_COMPRESS_FROM = 2 << 10  # bytes from which compression pays off
_COMPRESS_IN_THREAD_FROM = 64 << 10  # bytes from which compression needs a thread
_GZIP_LEVEL = 3

_encode = msgspec.json.Encoder().encode


async def cacheable_response(
    request: web.Request, body: bytes, *, content_type: str = "application/json", headers: dict[str, str] | None = None
) -> web.Response:
    """Return the response, or 304 if the client has it already."""
    etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    response_headers = CIMultiDict({"ETag": etag, "Vary": "Accept-Encoding"})
    response_headers.update({"Cache-Control": "no-cache", **(headers or {})})
    if _etag_matches(request, etag):
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=response_headers)
    if len(body) >= _COMPRESS_FROM and _accepts_gzip(request):
        body = await compress(body)
        response_headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, content_type=content_type, headers=response_headers)


async def compress(body: bytes) -> bytes:
    """Return the body compressed with gzip."""
    if len(body) < _COMPRESS_IN_THREAD_FROM:
        return _compress(body)
    return await asyncio.to_thread(_compress, body)


def uncached_response(value: object) -> web.Response:
    """Return a response that must not be stored."""
    return web.Response(body=_encode(value), content_type="application/json", headers={"Cache-Control": "no-store"})


def problem_response(text: str, status: HTTPStatus, *, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=_encode(Problem(error=text, status=status)),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def encode(value: object) -> bytes:
    return _encode(value)


def _compress(body: bytes) -> bytes:
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)


def _accepts_gzip(request: web.Request) -> bool:
    for part in request.headers.get("Accept-Encoding", "").split(","):
        name, _, quality = part.partition(";")
        if name.strip().casefold() == "gzip":
            return quality.replace(" ", "").rstrip("0") not in ("q=", "q=0.")
    return False


def _etag_matches(request: web.Request, etag: str) -> bool:
    """Return whether the client has this version.

    `If-None-Match` may list several ETags, and proxies that compress make them weak.
    """
    if_none_match = request.headers.get("If-None-Match", "")
    return if_none_match.strip() == "*" or etag in (
        candidate.strip().removeprefix("W/") for candidate in if_none_match.split(",")
    )
