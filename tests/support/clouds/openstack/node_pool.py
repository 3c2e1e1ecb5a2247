"""A node pool of Kubernikus with its cloud controller manager: servers are nodes, and deleted servers are replaced.

It accesses the cluster only through the kubelets of its machines, so it runs against a real kube-apiserver as well.
"""

import asyncio
import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout_sandbox.nodes import Kubelets, Machine
from support.clouds.openstack.cloud import OpenStackCloud, Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """How long things take in the cloud."""

    replacement: timedelta = timedelta(seconds=20)  # until Kubernikus notices that a server is missing
    boot: timedelta = timedelta(minutes=2)  # from a server to its node


class NodePool:
    """Servers with names such as `pool-1x7f2`, as many as wanted."""

    def __init__(
        self,
        kubelets: Kubelets,
        cloud: OpenStackCloud,
        *,
        name: str,
        size: int,
        paces: Paces | None = None,
    ) -> None:
        self.name = name
        self.size = size
        self._kubelets = kubelets
        self._cloud = cloud
        self._paces = paces or Paces()
        self._server_count = 0
        self._nodes: dict[str, str] = {}  # servers that became nodes: their names, by id
        self._missing_since: datetime | None = None
        self._changed = asyncio.Event()

    def fill(self) -> tuple[str, ...]:
        """Have all servers there, as nodes, at once; return the names of the nodes."""
        while len(self._servers()) < self.size:
            self._launch()
        for server in self._servers():
            self._join(server)
        return tuple(self._nodes.values())

    async def run(self) -> None:
        """Work until cancelled."""
        end = self._cloud.subscribe(self._changed.set)
        try:
            while True:
                self._changed.clear()
                await self._wait(await self._reconcile())
        finally:
            end()

    async def _reconcile(self) -> datetime | None:
        """Do what is due; return when the next step is due."""
        now, servers = self._cloud.clock.now(), self._servers()
        existing = {candidate.id for candidate in servers}
        for deleted in [candidate for candidate in self._nodes if candidate not in existing]:
            await self._remove_node(self._nodes.pop(deleted))
        due_times = [candidate.ends_at for candidate in servers if candidate.ends_at is not None]
        for server in servers:
            if server.ends_at is None and server.id not in self._nodes:
                if server.created + self._paces.boot <= now:
                    self._join(server)
                else:
                    due_times.append(server.created + self._paces.boot)
        if len(servers) >= self.size:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
            due_times.append(now + self._paces.replacement)
        elif self._missing_since + self._paces.replacement <= now:
            self._launch()
        else:
            due_times.append(self._missing_since + self._paces.replacement)
        return min(due_times, default=None)

    async def _wait(self, until: datetime | None) -> None:
        alarm = None if until is None else self._cloud.clock.call_at(until, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            if alarm is not None:
                alarm.cancel()

    def _servers(self) -> list[Server]:
        return [server for server in self._cloud.all_servers.values() if server.name.startswith(f"{self.name}-")]

    def _launch(self) -> None:
        self._server_count += 1
        self._cloud.boot(f"{self.name}-{hashlib.sha256(f'{self.name} {self._server_count}'.encode()).hexdigest()[:5]}")

    def _join(self, server: Server) -> None:
        """Register a server as a node, as its kubelet does, unless a machine of its name exists."""
        if server.id in self._nodes:
            return
        self._nodes[server.id] = server.name
        if server.name not in self._kubelets.names:
            self._kubelets.add(Machine(name=server.name, provider_id=f"openstack:///{server.id}"))

    async def _remove_node(self, node: str) -> None:
        """Delete a node, as the cloud controller manager does when its server is deleted."""
        if node in self._kubelets.names:
            await self._kubelets.remove(node)
