"""The dashboard's files: what is in `haulout/web/static`, and nothing else.

They are read when they are asked for, as they are small and rarely asked for: a browser keeps them and asks only
whether they still hold. Their headers let a page load and ask nothing but what comes from here, and run no script
that stands in it: whatever a node's name or label says, it stays text.
"""

from importlib import resources
from importlib.resources.abc import Traversable

from aiohttp import web

from haulout.web.api.answering import answer

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_INDEX = "index.html"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}


def add_assets(app: web.Application, *, at: str = "/static/") -> None:
    """Serve the files below `at`."""
    app.router.add_get(at, _serve)
    app.router.add_get(f"{at}{{path:.+}}", _serve)


async def _serve(request: web.Request) -> web.Response:
    path = request.match_info.get("path", _INDEX)
    kind = _TYPES.get(path[path.rfind(".") :])
    file = None if kind is None else found(path)
    if file is None or kind is None:
        return web.Response(status=404, text="there is no such page\n", headers=HEADERS)
    response = await answer(request, file.read_bytes(), content_type=kind, headers=HEADERS)
    if response.body and not kind.startswith("image/"):
        response.charset = "utf-8"
    return response


def found(path: str) -> Traversable | None:
    """Return the file at `path`: each step of the way is a name that is listed there, so no way leads out."""
    here: Traversable | None = resources.files("haulout.web") / "static"
    for name in path.split("/"):
        inside = here.iterdir() if here is not None and here.is_dir() else ()
        here = next((it for it in inside if it.name == name), None)
    return here if here is not None and here.is_file() else None
