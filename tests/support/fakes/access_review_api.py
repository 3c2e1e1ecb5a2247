"""A fake API server that answers only version, discovery and access review requests."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from haulout.kube.transport import Request, Response, Stream
from support.fakes.scripted_transport import ScriptedStream, json_response, status_response


@dataclass
class AccessReviewApi:
    """Answers for a user who may do all but what is `refused`.

    A path that matches in `fixed_responses` is answered as told.
    """

    username: str = "alice"
    groups: list[str] = field(default_factory=lambda: ["ops", "system:authenticated"])
    refused: set[str] = field(default_factory=set)  # "create pods/eviction"; "*" is everything
    refusal_reason: str = ""  # with each refusal
    served: dict[str, list[str]] = field(default_factory=dict)  # "haulout.dev/v1alpha1": ["maintenancenotices"]
    unavailable_versions: list[str] = field(default_factory=list)  # "haulout.dev/v1alpha1"
    fixed_responses: dict[str, Response] = field(default_factory=dict)
    server: str = "https://10.0.0.1:6443"

    async def send(self, request: Request) -> Response:
        """Answer as a `Transport`."""
        return self.respond(request.path, request.body)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Answer as a `Transport`, though nothing here is watched."""
        yield ScriptedStream(await self.send(request))

    async def close(self) -> None:
        """Do nothing."""

    def respond(self, path: str, body: bytes | None) -> Response:
        """Answer one request."""
        for pattern, given in self.fixed_responses.items():
            if fnmatch(path, pattern):
                return given
        answers: dict[str, Callable[[], Any]] = {
            "version": lambda: {"gitVersion": "v1.36.3", "platform": "linux/amd64"},
            "selfsubjectreviews": lambda: {"status": {"userInfo": {"username": self.username, "groups": self.groups}}},
            "selfsubjectaccessreviews": lambda: {"status": self._access_review_status(body or b"")},
            "api": lambda: {"kind": "APIGroupDiscoveryList", "items": []},
            "apis": lambda: {"kind": "APIGroupDiscoveryList", "items": self._groups()},
        }
        known = answers.get(path.rpartition("/")[2])
        return json_response(known()) if known else status_response(404, "NotFound", "no such path")

    def _groups(self) -> list[dict[str, Any]]:
        current = [_group(name, plurals, "Current") for name, plurals in self.served.items()]
        return current + [_group(name, [], "Stale") for name in self.unavailable_versions]

    def _access_review_status(self, review: bytes) -> dict[str, Any]:
        attributes = json.loads(review)["spec"]["resourceAttributes"]
        resource = "/".join(part for part in (attributes["resource"], attributes.get("subresource")) if part)
        if not self.refused & {"*", f"{attributes['verb']} {resource}"}:
            return {"allowed": True}
        return {"allowed": False, "reason": self.refusal_reason}


def _group(api_version: str, plurals: list[str], freshness: str) -> dict[str, Any]:
    group, _, version = api_version.partition("/")
    resources = [{"resource": plural, "responseKind": {"kind": plural}, "verbs": ["list"]} for plural in plurals]
    return {
        "metadata": {"name": group},
        "versions": [{"version": version, "resources": resources, "freshness": freshness}],
    }
