"""What the path and the query of a request mean before anybody looks up what they name.

The path is decoded first and then taken apart, so that `%2F` divides as `/` does; the first of several values of a
parameter counts; a boolean is true unless it says `false` or `0`.
"""

from collections.abc import Mapping
from urllib.parse import unquote

from haulout.kube.transport import Request
from haulout_sandbox.apiserver.object_names import segment_problem
from haulout_sandbox.apiserver.status import bad_request

_RESOURCE_INDEX = {"api": 2, "apis": 3}  # api/v1/pods, apis/apps/v1/deployments


def path_parts(path: str) -> list[str]:
    """Return the parts of a path, decoded; a slash at the end is nothing."""
    return unquote(path).removeprefix("/").removesuffix("/").split("/")


def is_resource_path(parts: list[str]) -> bool:
    """Tell whether a path is about a resource, and not about the server."""
    return len(parts) > _RESOURCE_INDEX.get(parts[0], len(parts))


def query_parameters(request: Request) -> dict[str, str]:
    """Return the parameters of a request."""
    return dict(reversed(request.query))


def is_true(query: Mapping[str, str], name: str) -> bool:
    """Tell whether a boolean parameter is set."""
    return query.get(name, "false").lower() not in ("false", "0")


def is_watch(request: Request) -> bool:
    """Tell whether the answer will be a stream of events, if all goes well."""
    return request.method == "GET" and is_true(query_parameters(request), "watch")


def check_path_segment(name: str) -> None:
    """Refuse a name that could never be one."""
    if problem := segment_problem(name):
        raise bad_request(f'invalid name "{name}": {problem}')
