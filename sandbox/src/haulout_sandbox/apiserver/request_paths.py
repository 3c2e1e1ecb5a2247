"""Parsing of request paths and query parameters, before any kind is looked up.

The path is decoded before it is split, so that `%2F` separates as `/` does. Of several values of a parameter the first
one counts. A boolean parameter is true unless it is `false` or `0`.
"""

from collections.abc import Mapping
from urllib.parse import unquote

from haulout.kube.transport import Request
from haulout_sandbox.apiserver.object_names import segment_problem
from haulout_sandbox.apiserver.status import bad_request

_RESOURCE_INDEX = {"api": 2, "apis": 3}  # api/v1/pods, apis/apps/v1/deployments


def path_parts(path: str) -> list[str]:
    """Return the decoded parts of a path; a trailing slash is ignored."""
    return unquote(path).removeprefix("/").removesuffix("/").split("/")


def is_resource_path(parts: list[str]) -> bool:
    """Return whether a path names a resource, rather than a non-resource URL."""
    return len(parts) > _RESOURCE_INDEX.get(parts[0], len(parts))


def query_parameters(request: Request) -> dict[str, str]:
    return dict(reversed(request.query))


def is_true(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "false").lower() not in ("false", "0")


def is_watch(request: Request) -> bool:
    return request.method == "GET" and is_true(query_parameters(request), "watch")


def check_path_segment(name: str) -> None:
    """Refuse a name that cannot be a path segment."""
    if problem := segment_problem(name):
        raise bad_request(f'invalid name "{name}": {problem}')
