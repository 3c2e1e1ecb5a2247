"""The metadata service of each instance: IMDSv2 only, as far as it tells of maintenance.

A token is good for the time that was asked for, and refused with 401 afterwards; so is a question without one. What is
not there is a 404. Without an answer, as a hop limit has it: `cloud.faults.hang("PutToken")`.
"""

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.kube.network.plain import Fetched
from haulout_sandbox.clouds.aws.instances import Document, Instance, Instances
from haulout_sandbox.clouds.faults import Faults

_TOKEN = "/latest/api/token"  # noqa: S105 - a path
_DATA = "/latest/meta-data/"
_TTL, _GIVEN = "x-aws-ec2-metadata-token-ttl-seconds", "x-aws-ec2-metadata-token"
_LONGEST_TTL = 21_600
_OPERATIONS = {
    "instance-id": "GetInstanceId",
    "spot/instance-action": "GetSpotAction",
    "events/recommendations/rebalance": "GetRebalance",
    "events/maintenance/scheduled": "GetScheduledEvents",
    "events/maintenance/history": "GetEventHistory",
    "autoscaling/target-lifecycle-state": "GetTargetState",
}
_STATES = {"[Completed] ": "completed", "[Canceled] ": "canceled"}
_WITHIN = timedelta(seconds=10)


@dataclass(slots=True)
class MetadataServices:
    """Those of all instances."""

    clock: Clock
    machines: Instances
    faults: Faults
    tokens: dict[str, tuple[str, datetime]] = field(default_factory=dict)  # of which instance, and until when
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def answer(self, instance: str, method: str, target: str, headers: Mapping[str, str]) -> Fetched:
        """Answer an instance; raises `CloudError` with the status 0 where no answer comes."""
        named = {name.lower(): value for name, value in headers.items()}
        path = target.partition("?")[0]
        operation = "PutToken" if path == _TOKEN else _OPERATIONS.get(path.removeprefix(_DATA), "GetOther")
        try:
            return await self.faults.call(operation, lambda: self._answered(instance, method, path, named))
        except CloudError as error:
            if not error.status:
                raise
            pause = {} if error.retry_after is None else {"retry-after": f"{error.retry_after.total_seconds():.0f}"}
            return Fetched(error.status, pause, error.message.encode())

    def _answered(self, instance: str, method: str, path: str, headers: Mapping[str, str]) -> Fetched:
        machine = self.machines.by_name.get(instance)
        if machine is None:
            return Fetched(404, {}, b"")
        if path == _TOKEN:
            return self._token(instance, headers) if method == "PUT" else Fetched(405, {}, b"")
        owner, until = self.tokens.get(headers.get(_GIVEN, ""), ("", self.clock.now()))
        if owner != instance or self.clock.now() >= until:
            return Fetched(401, {}, b"Unauthorized")
        body = _shown(machine, path.removeprefix(_DATA))
        return Fetched(404, {}, b"Not Found") if body is None else Fetched(200, {"content-type": "text/plain"}, body)

    def _token(self, instance: str, headers: Mapping[str, str]) -> Fetched:
        asked = headers.get(_TTL, "")
        if not asked.isdigit() or not 1 <= int(asked) <= _LONGEST_TTL:
            return Fetched(400, {}, b"Bad Request")
        if "x-forwarded-for" in headers:
            return Fetched(403, {}, b"Forbidden")
        token = f"token-{next(self._numbers)}=="
        self.tokens[token] = instance, self.clock.now() + timedelta(seconds=int(asked))
        return Fetched(200, {_TTL: asked}, token.encode())


class Metadata:
    """The metadata service of one instance, as a `Fetch`."""

    def __init__(self, services: MetadataServices, instance: str) -> None:
        self._services = services
        self._instance = instance

    async def __call__(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = _WITHIN,
    ) -> Fetched:
        """Answer, within a time."""
        del body
        try:
            async with asyncio.timeout(within.total_seconds()):
                return await self._services.answer(self._instance, method, target, headers)
        except TimeoutError:
            raise CloudError(f"no answer within {within.total_seconds():g} s", doing=f"{method} {target}") from None


def _shown(machine: Instance, key: str) -> bytes | None:
    events = list(_events(machine))
    documents = {
        "spot/instance-action": machine.spot,
        "events/recommendations/rebalance": machine.rebalance,
        "events/maintenance/scheduled": [it for it in events if it["State"] == "active"],
        "events/maintenance/history": [it for it in events if it["State"] != "active"],
    }
    if documents.get(key) is not None:
        return msgspec.json.encode(documents[key])
    texts = {"instance-id": machine.called, "autoscaling/target-lifecycle-state": machine.target}
    return texts.get(key, "").encode() or None


def _events(machine: Instance) -> Iterator[Document]:
    for event in machine.events.values():
        prefix = next((it for it in _STATES if event["Description"].startswith(it)), "")
        times: Document = {
            key: f"{event[key]:%-d %b %Y %H:%M:%S} GMT" for key in ("NotBefore", "NotAfter") if key in event
        }
        yield {
            "Code": event["Code"],
            "Description": event["Description"],
            "EventId": event["InstanceEventId"],
            "State": _STATES.get(prefix, "active"),
            **times,
        }
