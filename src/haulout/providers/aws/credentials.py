"""Region and credentials for AWS, from the sources that the Machine Maintenance Operator uses.

    credentials = ClusterCredentials(client, region="", secret="namespace/name")
    await credentials.current()

On OpenShift the region is read from the cluster, if permitted. A Secret has the keys, and is read again every few
minutes, so that new keys apply without a restart. Without a Secret boto3 uses its default chain: variables, files, web
identity, and the instance profile.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import yaml

from haulout.api.objects import RawObject
from haulout.api.resources import SECRETS, Resource
from haulout.errors import CredentialsError, Forbidden, NotFound
from haulout.kube.client import Client
from haulout.kube.rbac import Permission

_CACHE_TTL = timedelta(minutes=5)
_KEY, _SECRET, _TOKEN = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"
_INSTALL_CONFIG = "cluster-config-v1"
_INFRASTRUCTURES: Resource[RawObject] = Resource(
    "config.openshift.io", "v1", "infrastructures", "Infrastructure", namespaced=False, model=RawObject
)
_CONFIG_MAPS: Resource[RawObject] = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=RawObject)


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """Region and credentials; boto3 determines what is empty."""

    region: str = ""
    key: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


class ClusterCredentials:
    """Reads region and credentials from the cluster; `secret` is NAMESPACE/NAME or empty."""

    def __init__(self, client: Client, *, region: str = "", secret: str = "") -> None:
        self._client = client
        self._region = region
        self._secret = secret
        self._cached: tuple[AwsCredentials, float] | None = None

    async def current(self) -> AwsCredentials:
        """Return region and credentials, cached for `_CACHE_TTL`; raise `KubeError` if they cannot be read."""
        now = self._client.clock.monotonic()
        if self._cached is not None and now < self._cached[1]:
            return self._cached[0]
        key, secret, token = await self._keys()
        credentials = AwsCredentials(
            region=self._region or await self._cluster_region(), key=key, secret=secret, token=token
        )
        self._cached = credentials, now + _CACHE_TTL.total_seconds()
        return credentials

    def forget(self) -> None:
        """Drop the cached credentials, since they were rejected."""
        self._cached = None

    async def _keys(self) -> tuple[str, str, str]:
        if not self._secret:
            return "", "", ""
        namespace, _, name = self._secret.rpartition("/")
        try:
            data = (await self._client.get(SECRETS, name, namespace=namespace)).data or {}
        except NotFound as error:
            # Not the default chain of boto3: a Secret that is named but missing is an error of the installation, and
            # credentials of the node could act on another account.
            raise CredentialsError(f"AWS needs credentials: there is no Secret {self._secret}") from error
        key, secret, token = (self._value(data, key_name) for key_name in (_KEY, _SECRET, _TOKEN))
        for name, value in ((_KEY, key), (_SECRET, secret)):
            if not value:
                raise CredentialsError(f"AWS needs credentials: Secret {self._secret} has no {name}")
        return key, secret, token

    def _value(self, data: Mapping[str, str], key: str) -> str:
        try:
            return base64.b64decode(data.get(key, ""), validate=True).decode().strip()
        except ValueError:
            raise CredentialsError(
                f"AWS needs credentials: {key} of Secret {self._secret} is not text in base64"
            ) from None

    async def _cluster_region(self) -> str:
        """Return the region that an OpenShift cluster reports; empty on other clusters."""
        try:
            infrastructure = await self._client.get(_INFRASTRUCTURES, "cluster")
        except (NotFound, Forbidden):  # Forbidden: without OpenShift there is usually no permission
            return ""
        platform = _get_path(infrastructure, "status", "platformStatus")
        # The order is that of the Machine Maintenance Operator: the ConfigMap counts only if the Infrastructure
        # object is too old to have `platformStatus`. A platform other than AWS has no region, which is then no error.
        if platform is not None:
            return str(_get_path(platform, "aws", "region") or "")
        return await self._install_config_region()

    async def _install_config_region(self) -> str:
        where = f"ConfigMap kube-system/{_INSTALL_CONFIG}"
        try:
            found = await self._client.get(_CONFIG_MAPS, _INSTALL_CONFIG, namespace="kube-system")
        except NotFound as error:
            raise CredentialsError(
                f"AWS needs a region: Infrastructure cluster names none, and there is no {where}"
            ) from error
        text = _get_path(found, "data", "install-config")
        try:
            install_config = yaml.safe_load(text) if isinstance(text, str) else None
        except yaml.YAMLError as error:
            raise CredentialsError(f"AWS needs a region: install-config of {where} is not valid YAML") from error
        region = _get_path(install_config, "platform", "aws", "region")
        if not isinstance(region, str) or not region:
            raise CredentialsError(f"AWS needs a region: install-config of {where} has no platform.aws.region")
        return region


def permissions(secret: str) -> tuple[Permission, ...]:
    """Return the permissions to read a Secret (NAMESPACE/NAME); with a known region the first one is enough."""
    namespace, _, name = secret.rpartition("/")
    resource = _INFRASTRUCTURES
    return (
        Permission(("get",), "", "secrets", namespace, "log in to AWS", names=(name,)),
        Permission(("get",), resource.group, resource.plural, None, "find the AWS region", names=("cluster",)),
        Permission(("get",), "", "configmaps", "kube-system", "find the AWS region", names=(_INSTALL_CONFIG,)),
    )


def _get_path(document: Any, *keys: str) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document
