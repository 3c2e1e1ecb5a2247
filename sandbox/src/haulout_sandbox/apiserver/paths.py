"""What the path and the query of a request mean before anybody looks up what they name.

As the real server: the path is decoded first and then taken apart, so that `%2F` divides as `/` does; the first of
several values of a parameter counts; a boolean is true unless it says `false` or `0`. Watches have an old form,
`/api/v1/watch/…`, which `modern` turns into the one that everybody uses.
"""

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

from haulout.kube.transport import Request
from haulout_sandbox.apiserver.status import Refused, bad_request, failure

_RESOURCES_BEGIN = {"api": 2, "apis": 3}  # api/v1/pods, apis/apps/v1/deployments
_WATCH = "watch"
_SPECIAL = (_WATCH, "proxy")  # what may stand before a resource


class BadPath(Exception):
    """Nobody knows what this path is about; the message says why, as the server does."""


def path_parts(path: str) -> list[str]:
    """Return the parts of a path, decoded; a slash at the end is nothing."""
    return unquote(path).removeprefix("/").removesuffix("/").split("/")


def is_resource(parts: list[str]) -> bool:
    """Tell whether a path is about a resource, and not about the server."""
    return len(parts) > _RESOURCES_BEGIN.get(parts[0], len(parts))


def is_old_watch(parts: list[str]) -> bool:
    """Tell whether a path is one of a watch in the old form."""
    place = _RESOURCES_BEGIN.get(parts[0], len(parts))
    return len(parts) > place + 1 and parts[place] == _WATCH


def parameters(request: Request) -> dict[str, str]:
    """Return the parameters of a request."""
    return dict(reversed(request.query))


def is_true(query: Mapping[str, str], name: str) -> bool:
    """Tell whether a boolean parameter is set."""
    return query.get(name, "false").lower() not in ("false", "0")


def is_watch(request: Request) -> bool:
    """Tell whether the answer will be a stream of events, if all goes well."""
    return request.method == "GET" and (is_old_watch(path_parts(request.path)) or is_true(parameters(request), _WATCH))


def modern(request: Request) -> Request:
    """Return the request in today's form."""
    parts = path_parts(request.path)
    if parts[-1] in _SPECIAL and len(parts) == _RESOURCES_BEGIN.get(parts[0], -1) + 1:
        raise BadPath(f"unable to determine kind and namespace from url, {request.path}")
    if request.method != "GET" or not is_old_watch(parts):
        return request
    place = _RESOURCES_BEGIN[parts[0]]
    del parts[place]
    query = [(name, value) for name, value in request.query if name != _WATCH]
    below = parts[place:]
    deep = 3 if below[0] == "namespaces" and len(below) > 3 else 1  # noqa: PLR2004 - namespaces/NAME/pods/NAME
    if len(below) == deep + 1:
        query.append(("fieldSelector", f"metadata.name={parts.pop()}"))
    return msgspec.structs.replace(request, path="/" + "/".join(parts), query=((_WATCH, "1"), *query))


def check_name(name: str) -> None:
    """Refuse a name that could never be one."""
    if why := segment_problem(name):
        raise bad_request(f'Name parameter invalid: "{name}": {why}')


def check_namespace(namespace: str, *, plural: str, name: str, creates: bool) -> None:
    """Refuse the two namespaces that mean something else in a path; the server stumbles over them late."""
    why = segment_problem(namespace) if namespace in (".", "..") else ""
    if not why:
        return
    if creates:
        said = f'invalid resource name "{namespace}": [{why}]'
        details = {"causes": [{"message": said}]}
        raise Refused(failure(500, "InternalError", f"Internal error occurred: {said}", details))
    key = f"/{plural}/{namespace}" + (f"/{name}" if name else "")
    raise Refused(failure(500, "", f'invalid key: "{key}"'))


def segment_problem(name: str) -> str:
    """Return why a name cannot be part of a path, or nothing."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return ", ".join(f"may not contain '{it}'" for it in "/%" if it in name)
