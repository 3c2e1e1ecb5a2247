"""The instance metadata service: IMDSv2 only, as far as maintenance needs it.

A token is valid for the requested time; a request with an expired token or without one gets 401. An unknown path gets
404. `cloud.faults.hang("PutToken")` simulates a hop limit, behind which no response arrives.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.kube.transports.h11_client import FetchedResponse
from haulout_sandbox.clouds.aws.ec2 import Document, Ec2Instance, Ec2Instances
from haulout_sandbox.clouds.faults import Faults

_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path
_METADATA_PREFIX = "/latest/meta-data/"
_TTL_HEADER, _TOKEN_HEADER = "x-aws-ec2-metadata-token-ttl-seconds", "x-aws-ec2-metadata-token"
_MAX_TTL = 21_600
_OPERATIONS = {
    "instance-id": "GetInstanceId",
    "spot/instance-action": "GetSpotAction",
    "events/recommendations/rebalance": "GetRebalance",
    "events/maintenance/scheduled": "GetScheduledEvents",
    "events/maintenance/history": "GetEventHistory",
    "autoscaling/target-lifecycle-state": "GetTargetState",
}
_STATE_BY_PREFIX = {"[Completed] ": "completed", "[Canceled] ": "canceled"}


@dataclass(slots=True)
class MetadataServices:
    clock: Clock
    ec2_instances: Ec2Instances
    faults: Faults
    tokens: dict[str, tuple[str, datetime]] = field(default_factory=dict)  # instance and expiry
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def handle(self, instance: str, method: str, target: str, headers: Mapping[str, str]) -> FetchedResponse:
        """Answer a request of an instance; raise `CloudError` with status 0 if no response arrives."""
        lower_headers = {name.lower(): value for name, value in headers.items()}
        path = target.partition("?")[0]
        operation = (
            "PutToken" if path == _TOKEN_PATH else _OPERATIONS.get(path.removeprefix(_METADATA_PREFIX), "GetOther")
        )
        try:
            return await self.faults.call(operation, lambda: self._respond(instance, method, path, lower_headers))
        except CloudError as error:
            if not error.status:
                raise
            retry_headers = (
                {} if error.retry_after is None else {"retry-after": f"{error.retry_after.total_seconds():.0f}"}
            )
            return FetchedResponse(error.status, retry_headers, error.message.encode())

    def _respond(self, instance: str, method: str, path: str, headers: Mapping[str, str]) -> FetchedResponse:
        ec2_instance = self.ec2_instances.by_id.get(instance)
        if ec2_instance is None:
            return FetchedResponse(404, {}, b"")
        if path == _TOKEN_PATH:
            return self._issue_token(instance, headers) if method == "PUT" else FetchedResponse(405, {}, b"")
        owner, expires_at = self.tokens.get(headers.get(_TOKEN_HEADER, ""), ("", self.clock.now()))
        if owner != instance or self.clock.now() >= expires_at:
            return FetchedResponse(401, {}, b"Unauthorized")
        body = _document(ec2_instance, path.removeprefix(_METADATA_PREFIX))
        return (
            FetchedResponse(404, {}, b"Not Found")
            if body is None
            else FetchedResponse(200, {"content-type": "text/plain"}, body)
        )

    def _issue_token(self, instance: str, headers: Mapping[str, str]) -> FetchedResponse:
        ttl = headers.get(_TTL_HEADER, "")
        if not ttl.isdigit() or not 1 <= int(ttl) <= _MAX_TTL:
            return FetchedResponse(400, {}, b"Bad Request")
        if "x-forwarded-for" in headers:
            return FetchedResponse(403, {}, b"Forbidden")
        token = f"token-{next(self._numbers)}=="
        self.tokens[token] = instance, self.clock.now() + timedelta(seconds=int(ttl))
        return FetchedResponse(200, {_TTL_HEADER: ttl}, token.encode())


def _document(instance: Ec2Instance, key: str) -> bytes | None:
    events = list(_event_documents(instance))
    documents = {
        "spot/instance-action": instance.spot_action,
        "events/recommendations/rebalance": instance.rebalance,
        "events/maintenance/scheduled": [event for event in events if event["State"] == "active"],
        "events/maintenance/history": [event for event in events if event["State"] != "active"],
    }
    if documents.get(key) is not None:
        return msgspec.json.encode(documents[key])
    texts = {"instance-id": instance.instance_id, "autoscaling/target-lifecycle-state": instance.target_lifecycle_state}
    return texts.get(key, "").encode() or None


def _event_documents(instance: Ec2Instance) -> Iterator[Document]:
    for event in instance.events.values():
        prefix = next((candidate for candidate in _STATE_BY_PREFIX if event["Description"].startswith(candidate)), "")
        times: Document = {
            key: f"{event[key]:%-d %b %Y %H:%M:%S} GMT" for key in ("NotBefore", "NotAfter") if key in event
        }
        yield {
            "Code": event["Code"],
            "Description": event["Description"],
            "EventId": event["InstanceEventId"],
            "State": _STATE_BY_PREFIX.get(prefix, "active"),
            **times,
        }
