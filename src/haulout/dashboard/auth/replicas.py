"""The addresses of other replicas: of pods in our namespace with our ServiceAccount.

A replica that does not lead forwards requests to the leader, and names the address of the client in a header that any
client could send. The header therefore counts only if the connection comes from a replica. The proof is the address
that the API server shows for its pod: pods reach each other without NAT, as the network model of Kubernetes requires,
and no credential has to travel over plain HTTP. If something translates addresses nevertheless (the sidecar of a
service mesh), replicas are not recognized, and all anonymous clients of one replica share its limit.

This decides only which rate limit a request counts against. It must never decide who a user is.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta

import msgspec

from haulout.api.objects import Base, Object
from haulout.api.resources import PODS
from haulout.core.clock import real_seconds
from haulout.dashboard.auth.rate_limits import canonical_address
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.rbac import Permission

log = logging.getLogger(__name__)

_TTL = timedelta(seconds=10)
_MIN_LIST_INTERVAL = timedelta(seconds=2)  # for unknown addresses
_LIST_TIMEOUT = timedelta(seconds=2)
_ENDED = ("Succeeded", "Failed")  # such pods keep an address that may belong to another pod by now


class Replicas:
    """Recognizes other replicas; `identity` is ours, `<pod>_<anything>`."""

    def __init__(self, client: Client, *, namespace: str, identity: str) -> None:
        self._client = client
        self._namespace = namespace
        self._pod = identity.partition("_")[0]
        self._addresses: frozenset[str] = frozenset()
        self._listed_at: float | None = None
        self._list_lock = asyncio.Lock()

    async def includes(self, peer: str | None) -> bool:
        """Return whether another replica has this address."""
        address = canonical_address(peer)
        if address is None:
            return False
        async with self._list_lock:
            if self._is_due(address):
                self._addresses = await self._list()
                self._listed_at = self._client.clock.monotonic()
        return address in self._addresses

    def _is_due(self, address: str) -> bool:
        if self._listed_at is None:
            return True
        ttl = _TTL if address in self._addresses else _MIN_LIST_INTERVAL
        return self._client.clock.monotonic() - self._listed_at >= ttl.total_seconds()

    async def _list(self) -> frozenset[str]:
        try:
            async with asyncio.timeout(real_seconds(_LIST_TIMEOUT)):
                found = await self._client.list(PODS.with_model(_Pod), namespace=self._namespace)
        except (KubeError, TimeoutError) as error:
            log.warning(
                "cannot list the pods of Haulout, so other replicas are not recognized: %s", str(error) or "timeout"
            )
            return frozenset()
        return frozenset(_addresses_of_others(found.items, self._pod))


def permissions(namespace: str) -> tuple[Permission, ...]:
    """Return the permissions to find the leader and to recognize replicas."""
    return (Permission(("get", "list"), "", "pods", namespace, "ask the leader, and recognize other replicas"),)


class _Spec(Base, frozen=True):
    service_account_name: str = ""
    host_network: bool = False


class _PodIP(Base, frozen=True):
    ip: str = ""


class _Status(Base, frozen=True):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    pod_ips: tuple[_PodIP, ...] = msgspec.field(name="podIPs", default=())


class _Pod(Object, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


def _addresses_of_others(pods: Iterable[_Pod], own_pod: str) -> Iterable[str]:
    pods = tuple(pods)
    account = next((item.spec.service_account_name for item in pods if item.name == own_pod), "")
    for pod in pods:
        is_replica = bool(account) and pod.spec.service_account_name == account and pod.name != own_pod
        # A pod with hostNetwork shares its address with everything else on the node.
        if not is_replica or pod.spec.host_network or pod.status.phase in _ENDED:
            continue
        for ip in (pod.status.pod_ip, *(item.ip for item in pod.status.pod_ips)):
            if address := canonical_address(ip):
                yield address
