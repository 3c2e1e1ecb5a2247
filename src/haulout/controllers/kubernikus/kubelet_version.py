"""Label nodes whose kubelet version differs from the API server's.

The API server sends no event when its version changes, so it is polled, once for all nodes.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.controllers.kubernikus.decision import KubeletVersion
from haulout.controllers.kubernikus.labels import NEEDS_UPDATE
from haulout.core import semver
from haulout.core.semver import Version
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import merge_patch

# Compare kubelet and API server versions. Pure.
# Versions are compared as Semantic Versions: build metadata is ignored, and a newer kubelet differs, too. A malformed
# version is reported, and the label stays as it is.


class MalformedVersion(ValueError):
    """A version cannot be parsed."""


def needs_update(*, server: str, kubelet: str) -> bool:
    """Return whether the kubelet's version differs from the server's; raise `MalformedVersion`."""
    return _parse_version(kubelet, component="its kubelet") != _parse_version(server, component="the API server")


def _parse_version(text: str, *, component: str) -> Version:
    if not text:
        raise MalformedVersion(f"{component} reports no version")
    try:
        return semver.parse(text.removeprefix("v"))
    except ValueError:
        raise MalformedVersion(f"{component} reports version {text!r:.60}, expected one such as v1.31.4") from None


log = logging.getLogger(__name__)

_YES, _NO = "true", "false"


class KubeletVersions:
    """Polls the server's version; `on_change` is called when it changes."""

    def __init__(self, client: Client, nodes: MutationCache[Node], *, on_change: Callable[[], object]) -> None:
        self.problem = ""  # why the version is unknown
        self._client = client
        self._nodes = nodes
        self._on_change = on_change
        self._version = ""  # empty: not known yet
        self._check_due = asyncio.Event()

    async def run(self, interval: Callable[[], timedelta]) -> None:
        """Poll until cancelled."""
        while True:
            self._check_due.clear()
            await self._read_server_version()
            next_check_at = self._client.clock.now() + interval()
            alarm = self._client.clock.call_at(next_check_at, self._check_due.set, on_set_back=self._check_due.set)
            try:
                await self._check_due.wait()
            finally:
                alarm.cancel()

    def check_now(self) -> None:
        """Poll now, for example after the interval changed."""
        self._check_due.set()

    def outdated_count(self) -> int:
        """Return how many nodes are labeled as outdated."""
        return sum(node.metadata.labels.get(NEEDS_UPDATE) == _YES for node in self._nodes.informer.all())

    def check(self, node: Node) -> KubeletVersion:
        """Return what the label of a node should be."""
        if not self._version:
            return KubeletVersion()
        try:
            is_old = needs_update(server=self._version, kubelet=node.status.node_info.kubelet_version)
        except MalformedVersion as error:
            problem = (
                f"label {NEEDS_UPDATE} is not changed, because it is unknown whether the kubelet is outdated: {error}"
            )
            return KubeletVersion(problem=problem)
        return KubeletVersion(label=_YES if is_old else _NO)

    async def label(self, node: Node, change: RawObject) -> None:
        """Set the label of a node."""
        self._nodes.record_write(await self._client.patch(NODES, node.name, merge_patch(change)))
        value = change["metadata"]["labels"][NEEDS_UPDATE]
        log.info("node %s: set label %s to %s", node.name, NEEDS_UPDATE, value, extra={"node": node.name})

    async def _read_server_version(self) -> None:
        try:
            version = (await self._client.server_version()).git_version
        except KubeError as error:
            self.problem = f"the version of the API server cannot be read: {error}"
            log.warning("%s", self.problem)
            return
        self.problem = ""
        if version != self._version:
            log.info("the API server has version %s", version)
            self._version = version
            self._on_change()
