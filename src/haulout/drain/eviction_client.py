"""The requests that make pods leave: eviction, deletion, deletion without grace; each for one pod and no other.

The uid of the pod is a precondition of each, so that nothing happens to another pod of the same name. `EvictionClient`
is what all drains of a process share: how many such requests may be under way at once, and which evictions the server
speaks.
"""

import asyncio
import re
from datetime import timedelta

from haulout.api.objects import Base, Pod
from haulout.api.resources import PODS
from haulout.drain.decision import PodAction
from haulout.drain.escalation import EscalationStep
from haulout.errors import Conflict, KubeError, NotFound
from haulout.kube import responses
from haulout.kube.client import Client
from haulout.kube.transport import Request

# The one is said by evictions and by the start of a deletion, the other by the storage below.
_UID_MISMATCH = re.compile(r"UID in (the )?precondition")
_POLICY_V1 = "policy/v1"
_POLICY_V1BETA1 = "policy/v1beta1"


class EvictionClient:
    """What the drains of a process share; `max_in_flight` requests may be under way at once."""

    def __init__(self, client: Client, *, max_in_flight: int = 32) -> None:
        self.limiter = asyncio.Semaphore(max_in_flight)
        self._client = client
        self._discovery_lock = asyncio.Lock()
        self._version: str | None = None

    async def eviction_version(self) -> str:
        """Return the version in which the server takes evictions; empty if it takes none, so that pods are deleted."""
        async with self._discovery_lock:
            if self._version is None:
                self._version = await self._discover()
            return self._version

    async def send(self, action: PodAction) -> None:
        """Ask the server for what `action` says; raises what it answers, if that is not yes."""
        await self._send(action.pod, evicts=action.step is EscalationStep.EVICT, grace=action.grace)

    async def dry_run(self, pod: Pod, *, evicts: bool, grace: timedelta | None) -> None:
        """Ask the server whether a pod may leave, and change nothing; raises what it answers, if that is not yes."""
        async with self.limiter:
            await self._send(pod, evicts=evicts, grace=grace, dry_run=True)

    async def _send(self, pod: Pod, *, evicts: bool, grace: timedelta | None, dry_run: bool = False) -> None:
        version = await self.eviction_version() if evicts else ""
        if version:
            await self._client.evict(
                pod.name, namespace=pod.namespace, uid=pod.uid, grace=grace, dry_run=dry_run, api_version=version
            )
        else:
            await self._client.delete(
                PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace=grace, dry_run=dry_run
            )

    async def _discover(self) -> str:
        doing = "discovering which evictions the server takes"
        response = await self._client.request(Request(method="GET", path="/api/v1"), doing=doing)
        found = responses.decode(_Resources, response.body, doing=doing).resources or ()
        eviction = next(
            (resource for resource in found if (resource.name, resource.kind) == ("pods/eviction", "Eviction")), None
        )
        if eviction is None or not eviction.group or not eviction.version:
            return ""
        return _POLICY_V1 if f"{eviction.group}/{eviction.version}" == _POLICY_V1 else _POLICY_V1BETA1


def is_gone(error: KubeError) -> bool:
    """Tell whether the server says that the pod is not there any more, or is another one."""
    return isinstance(error, NotFound) or (
        isinstance(error, Conflict) and _UID_MISMATCH.search(error.message) is not None
    )


class _Resource(Base, frozen=True):
    name: str = ""
    kind: str = ""
    group: str = ""
    version: str = ""


class _Resources(Base, frozen=True):
    resources: tuple[_Resource, ...] | None = None
