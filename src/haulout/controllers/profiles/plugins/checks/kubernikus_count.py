"""The check `kubernikusCount`: whether all nodes that Kubernikus should provide have joined."""

from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

import msgspec

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.external import keystone
from haulout.controllers.profiles.plugin import (
    Check,
    CheckResult,
    ExternalClient,
    PluginContext,
    check_error,
    fails,
    passes,
    unknown,
)
from haulout.controllers.profiles.view import topics
from haulout.core.text import format_count
from haulout.errors import ExternalError
from haulout.kube.rbac import Permission

_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """A reference to a Secret."""

    name: str = option("The Secret's name.", default="")
    namespace: str = option("The Secret's namespace.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSizesQuery:
    """An external query for the desired number of nodes of a Kubernikus cluster; the result is a number."""

    cluster: str
    secret: SecretReference

    @property
    def max_age(self) -> timedelta | None:
        return None

    async def fetch(self, external: ExternalClient) -> int:
        """Get a token from Keystone, and the cluster from Kubernikus."""
        settings = await keystone.read_settings(external, namespace=self.secret.namespace, secret=self.secret.name)
        token = await keystone.fetch_token(external, settings)
        host = f"kubernikus.{settings.region}.cloud.sap"
        url = f"https://{host}/api/v1/clusters/{quote(self.cluster, safe='')}"
        headers = {"x-auth-token": token, "Accept": "application/json"}
        response = await external.request("GET", url, headers=headers)
        if response.status != _OK:
            raise ExternalError(f"{host} answered {response.status} to the request for cluster {self.cluster}")
        return _total_size(response.body, where=f"the response of {host} for cluster {self.cluster}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernikusCount(Check):
    """Passes if the cluster has at least as many nodes as the pools of its Kubernikus cluster should have.

    Use it where maintenance replaces nodes: the next node starts only after the replacement of the last one has joined.

    The credentials come from the key `cloudprovider.conf` of a Secret or, if none is named, from the file
    `./provider/cloudprovider.conf`. Kubernikus is queried again after `intervals.requeue`. If it does not answer, or
    its response does not contain the sizes of node pools, the check fails with an error.
    """

    type = "kubernikusCount"
    example = "cluster: shop\ncloudProviderSecret:\n  name: cloud-provider\n  namespace: kube-system"
    object_options = frozenset({"cloud_provider_secret"})

    cluster: str = option("The name of the cluster in Kubernikus.", required=True)
    cloud_provider_secret: SecretReference = option(
        "The Secret with the credentials; both name and namespace are needed.", default=SecretReference()
    )

    def evaluate(self, context: PluginContext) -> CheckResult:
        result = context.cluster.query_result(PoolSizesQuery(cluster=self.cluster, secret=self.cloud_provider_secret))
        if result is None:
            reason = f"waiting for Kubernikus to respond how many nodes cluster {self.cluster} should have"
            return unknown(reason, reason=reason)
        if result.problem:
            return check_error(result.problem)
        wanted: int = result.value
        current = len(context.cluster.nodes())
        reason = f"the cluster has {format_count(current, 'node')}, and its pools in Kubernikus should have {wanted}"
        return passes(reason, reason=reason) if current >= wanted else fails(reason, reason=reason)

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        """Return the permission to read the Secret, if one is named."""
        del namespace
        secret = self.cloud_provider_secret
        if not (secret.name and secret.namespace):
            return ()
        return (Permission(("get",), "", "secrets", secret.namespace, "read credentials", names=(secret.name,)),)

    def topics(self, node: str) -> tuple[str, ...]:
        del node
        return (topics.NODE_COUNT,)


def _total_size(body: bytes, *, where: str) -> int:
    try:
        return sum(pool.size for pool in msgspec.json.decode(body, type=_Cluster).spec.node_pools)
    except (msgspec.ValidationError, msgspec.DecodeError):
        raise ExternalError(f"{where} has no spec.nodePools with a size each") from None


class _Pool(msgspec.Struct):
    size: int


class _Spec(msgspec.Struct, rename="camel"):
    node_pools: tuple[_Pool, ...]


class _Cluster(msgspec.Struct):
    spec: _Spec
