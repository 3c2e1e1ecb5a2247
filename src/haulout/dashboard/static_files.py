"""The static files of the dashboard: those in `haulout/dashboard/static`, and no others.

Files are read on request, because they are small and rarely requested: browsers store them and only revalidate. The
headers restrict a page to content from here and forbid inline scripts: text from node names and labels can never run as
a script.
"""

from importlib import resources
from importlib.resources.abc import Traversable

from aiohttp import web

from haulout.dashboard.api.responses import cacheable_response

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


def add_static_routes(app: web.Application, *, prefix: str = "/static/") -> None:
    """Serve the files below `prefix`."""
    app.router.add_get(prefix, _serve)
    app.router.add_get(f"{prefix}{{path:.+}}", _serve)


async def _serve(request: web.Request) -> web.Response:
    path = request.match_info.get("path", _INDEX)
    kind = _TYPES.get(path[path.rfind(".") :])
    file = None if kind is None else find_file(path)
    if file is None or kind is None:
        return web.Response(status=404, text="page not found\n", headers=HEADERS)
    response = await cacheable_response(request, file.read_bytes(), content_type=kind, headers=HEADERS)
    if response.body and not kind.startswith("image/"):
        response.charset = "utf-8"
    return response


def find_file(path: str) -> Traversable | None:
    """Return the file at `path`; each path component must be a listed name, so that no path leaves the folder."""
    current: Traversable | None = resources.files("haulout.dashboard") / "static"
    for name in path.split("/"):
        children = current.iterdir() if current is not None and current.is_dir() else ()
        current = next((child for child in children if child.name == name), None)
    return current if current is not None and current.is_file() else None
