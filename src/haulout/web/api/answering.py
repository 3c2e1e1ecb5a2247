"""How an answer is sent: as JSON that is not kept by anybody, packed if it is large, or not at all if they have it.

An `ETag` is made of the bytes, so that it is right whatever the answer depends on. `no-cache` lets a browser keep an
answer as long as it asks each time whether it still holds.
"""

import asyncio
import gzip
from hashlib import blake2b
from http import HTTPStatus

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from haulout.web.api.shapes import Problem

_LARGE = 2 << 10  # bytes from which packing is worth it
_LONG = 64 << 10  # from which it takes so long that a thread does it
_LEVEL = 3

_encode = msgspec.json.Encoder().encode


async def answer(
    request: web.Request, body: bytes, *, content_type: str = "application/json", headers: dict[str, str] | None = None
) -> web.Response:
    """Return the answer, or that what they have still holds."""
    etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    shared = CIMultiDict({"ETag": etag, "Vary": "Accept-Encoding"})
    shared.update({"Cache-Control": "no-cache", **(headers or {})})
    if _is_known(request, etag):
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=shared)
    if len(body) >= _LARGE and _takes_gzip(request):
        body = await packed(body)
        shared["Content-Encoding"] = "gzip"
    return web.Response(body=body, content_type=content_type, headers=shared)


async def packed(body: bytes) -> bytes:
    """Return it in fewer bytes."""
    if len(body) < _LONG:
        return _packed(body)
    return await asyncio.to_thread(_packed, body)


def once(shape: object) -> web.Response:
    """Return an answer that holds for this question only."""
    return web.Response(body=_encode(shape), content_type="application/json", headers={"Cache-Control": "no-store"})


def problem(text: str, status: HTTPStatus, *, headers: dict[str, str] | None = None) -> web.Response:
    """Return why there is no other answer."""
    return web.Response(
        body=_encode(Problem(error=text, status=status)),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def encoded(shape: object) -> bytes:
    """Return a shape as JSON."""
    return _encode(shape)


def _packed(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)


def _takes_gzip(request: web.Request) -> bool:
    for part in request.headers.get("Accept-Encoding", "").split(","):
        name, _, quality = part.partition(";")
        if name.strip().casefold() == "gzip":
            return quality.replace(" ", "").rstrip("0") not in ("q=", "q=0.")
    return False


def _is_known(request: web.Request, etag: str) -> bool:
    """Tell whether they have it: `If-None-Match` may list several, and a proxy that packs makes them weak."""
    known = request.headers.get("If-None-Match", "")
    return known.strip() == "*" or etag in (it.strip().removeprefix("W/") for it in known.split(","))
