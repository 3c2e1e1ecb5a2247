"""The requests that make pods leave: eviction, deletion and force-deletion, each for one pod.

The UID of the pod is a precondition of each request, so that no other pod of the same name is affected. All drains of a
process share an `EvictionClient`: it limits the requests in flight, and knows which eviction API version the server
supports.
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

# Messages of the UID precondition: from evictions and the start of a deletion
# (staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go), and from the storage layer (pkg/storage/interfaces.go
# there). A conflict of the resourceVersion has the same code and reason, so only the text tells them apart.
_UID_MISMATCH = re.compile(r"UID in (the )?precondition")
_POLICY_V1 = "policy/v1"
_POLICY_V1BETA1 = "policy/v1beta1"


class EvictionClient:
    """Sends evictions and deletions for all drains; at most `max_in_flight` at once."""

    def __init__(self, client: Client, *, max_in_flight: int = 32) -> None:
        self.limiter = asyncio.Semaphore(max_in_flight)
        self._client = client
        self._discovery_lock = asyncio.Lock()
        self._version: str | None = None

    async def eviction_version(self) -> str:
        """Return the API version of evictions; empty if the server has none, so that pods are deleted instead."""
        # Twenty evictions may start at once. One of them asks the server.
        async with self._discovery_lock:
            if self._version is None:
                self._version = await self._discover()
            return self._version

    async def send(self, action: PodAction) -> None:
        """Send the request of `action`; raise the API server's error if it is refused."""
        await self._send(action.pod, evicts=action.step is EscalationStep.EVICT, grace=action.grace)

    async def dry_run(self, pod: Pod, *, evicts: bool, grace: timedelta | None) -> None:
        """Dry-run the eviction or deletion of a pod; raise the API server's error if it is refused."""
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
        doing = "discovering the eviction API of the server"
        response = await self._client.request(Request(method="GET", path="/api/v1"), doing=doing)
        found = responses.decode(_Resources, response.body, doing=doing).resources or ()
        eviction = next(
            (resource for resource in found if (resource.name, resource.kind) == ("pods/eviction", "Eviction")), None
        )
        if eviction is None or not eviction.group or not eviction.version:
            return ""
        # Servers since Kubernetes 1.22 accept both (AcceptsGroupVersion in pkg/registry/core/pod/storage/eviction.go);
        # older ones only the beta.
        return _POLICY_V1 if f"{eviction.group}/{eviction.version}" == _POLICY_V1 else _POLICY_V1BETA1


def is_gone(error: KubeError) -> bool:
    """Return whether the error means that the pod does not exist, or that another pod has its name."""
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
