"""The check `kubernikusCount`."""

from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

import msgspec

from haulout.errors import OutsideError
from haulout.kube.access import Permission
from haulout.profiles import openstack, topics
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Outside, Scene, Verdict, broken, fails, passes, unknown
from haulout.profiles.words import counted

_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """Where a Secret is."""

    name: str = option("The Secret's name.", default="")
    namespace: str = option("The Secret's namespace.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSizes:
    """The question how many nodes a Kubernikus cluster should have; the answer is a number."""

    cluster: str
    secret: SecretReference

    @property
    def every(self) -> timedelta | None:
        """How old an answer may be."""
        return None

    async def ask(self, outside: Outside) -> int:
        """Ask Keystone for a token, and Kubernikus for the cluster."""
        settings = await openstack.settings(outside, namespace=self.secret.namespace, secret=self.secret.name)
        token = await openstack.token(outside, settings)
        host = f"kubernikus.{settings.region}.cloud.sap"
        url = f"https://{host}/api/v1/clusters/{quote(self.cluster, safe='')}"
        headers = {"x-auth-token": token, "Accept": "application/json"}
        status, body = await outside.request("GET", url, headers=headers)
        if status != _OK:
            raise OutsideError(f"{host} answered {status} when asked for cluster {self.cluster}")
        return _sum(body, where=f"what {host} says of cluster {self.cluster}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernikusCount(Check):
    """Passes if the cluster has at least as many nodes as the pools of its Kubernikus cluster should have.

    Use it where maintenance replaces nodes: the next one is not taken before the last one's successor has come.

    The credentials come from the key `cloudprovider.conf` of a Secret or, if none is named, from the file
    `./provider/cloudprovider.conf`. Kubernikus is asked again after `intervals.requeue`. If it does not answer, or says
    something else than the sizes of node pools, the check could not be made, which is an error.
    """

    type = "kubernikusCount"
    example = "cluster: shop\ncloudProviderSecret:\n  name: cloud-provider\n  namespace: kube-system"

    cluster: str = option("The name of the cluster in Kubernikus.", required=True)
    cloud_provider_secret: SecretReference = option(
        "The Secret with the credentials; both name and namespace are needed.", default=SecretReference()
    )

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        answer = scene.sights.answer(PoolSizes(cluster=self.cluster, secret=self.cloud_provider_secret))
        if answer is None:
            why = f"Kubernikus has not said yet how many nodes cluster {self.cluster} should have"
            return unknown(why, reason=why)
        if answer.problem:
            return broken(answer.problem)
        wanted: int = answer.value
        current = len(scene.sights.nodes())
        why = f"the cluster has {counted(current, 'node')}, and its pools in Kubernikus should have {wanted}"
        return passes(why, reason=why) if current >= wanted else fails(why, reason=why)

    def permissions(self, home: str) -> tuple[Permission, ...]:
        """Return what it takes to read the Secret, if there is one."""
        del home
        secret = self.cloud_provider_secret
        if not (secret.name and secret.namespace):
            return ()
        return (Permission(("get",), "", "secrets", secret.namespace, "read credentials", names=(secret.name,)),)

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        del node
        return (topics.NODE_COUNT,)


def _sum(body: bytes, *, where: str) -> int:
    try:
        return sum(pool.size for pool in msgspec.json.decode(body, type=_Cluster).spec.node_pools)
    except (msgspec.ValidationError, msgspec.DecodeError):
        raise OutsideError(f"{where} has no spec.nodePools with a size each") from None


class _Pool(msgspec.Struct):
    size: int


class _Spec(msgspec.Struct, rename="camel"):
    node_pools: tuple[_Pool, ...]


class _Cluster(msgspec.Struct):
    spec: _Spec
