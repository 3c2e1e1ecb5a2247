"""Labels nodes whose kubelet has another version than the API server.

The server tells nobody when it is another: it is asked at an interval, once for all nodes.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.fresh import Fresh
from haulout.kube.objects import Node
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.kubernikus import versions
from haulout.kubernikus.keys import NEEDS_UPDATE
from haulout.kubernikus.telling import Teller

log = logging.getLogger(__name__)

_YES, _NO = "true", "false"


class Kubelets:
    """Knows the server's version; `changed` is called when it is another."""

    def __init__(self, client: Client, nodes: Fresh[Node], teller: Teller, *, changed: Callable[[], object]) -> None:
        self.problem = ""  # why the version is not known
        self._client = client
        self._nodes = nodes
        self._teller = teller
        self._changed = changed
        self._version = ""  # empty: not known yet
        self._is_due = asyncio.Event()

    async def run(self, interval: Callable[[], timedelta]) -> None:
        """Ask again and again, until cancelled."""
        while True:
            self._is_due.clear()
            await self._ask()
            again_at = self._client.clock.now() + interval()
            alarm = self._client.clock.call_at(again_at, self._is_due.set, set_back=self._is_due.set)
            try:
                await self._is_due.wait()
            finally:
                alarm.cancel()

    def hurry(self) -> None:
        """Ask now: the interval is another."""
        self._is_due.set()

    def outdated(self) -> int:
        """Return of how many nodes it is said that their kubelet has another version than the server."""
        return sum(it.metadata.labels.get(NEEDS_UPDATE) == _YES for it in self._nodes.cache.all())

    async def label(self, node: Node) -> None:
        """Say on a node whether its kubelet is old, if that is not said already."""
        if not self._version:
            return
        try:
            is_old = versions.needs_update(server=self._version, kubelet=node.status.node_info.kubelet_version)
        except versions.OddVersion as error:
            problem = f"label {NEEDS_UPDATE} stays as it is, for nobody knows whether the kubelet is old: {error}"
            self._teller.knows_version(node, problem=problem)
            return
        self._teller.knows_version(node)
        said = _YES if is_old else _NO
        if node.metadata.labels.get(NEEDS_UPDATE) != said:
            patch = merge_patch({"metadata": {"uid": node.uid, "labels": {NEEDS_UPDATE: said}}})
            self._nodes.note(await self._client.patch(NODES, node.name, patch))
            log.info("node %s: label %s is %s now", node.name, NEEDS_UPDATE, said, extra={"node": node.name})

    async def _ask(self) -> None:
        try:
            found = (await self._client.server_version()).git_version
        except KubeError as error:
            self.problem = f"which version the API server has cannot be told: {error}"
            log.warning("%s", self.problem)
            return
        self.problem = ""
        if found != self._version:
            log.info("the API server says that its version is %s", found)
            self._version = found
            self._changed()
