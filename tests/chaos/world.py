"""The objects that a fault can act on: the control plane, the replicas, and their permissions."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from chaos.api_client import ApiClient
from chaos.observer import Observer
from chaos.recording import read_audit
from chaos.replicas import NAMESPACE, Replica
from chaos.workload import P, Workload
from controlplane import ControlPlane
from haulout.api.leases import LEADER_LEASE
from haulout.core.clock import RealClock


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCluster:
    """One round's cluster."""

    control_plane: ControlPlane
    api: ApiClient  # as a user who may do everything
    replicas: tuple[Replica, Replica]
    observer: Observer
    workload: Workload
    rng: random.Random
    audit_log: Path
    group: asyncio.TaskGroup
    clock: RealClock

    async def leader(self) -> Replica:
        """Return the replica that wrote the leader's lease last."""
        lines = (await asyncio.to_thread(self.audit_log.read_text)).splitlines()
        users = {replica.user: replica for replica in self.replicas}
        for event in reversed(list(read_audit(replica for replica in lines if LEADER_LEASE in replica))):
            is_lease = event.resource == "leases" and event.namespace == NAMESPACE and event.succeeded
            if is_lease and event.user in users and event.request:
                return users[event.user]
        return self.replicas[0]

    async def standby(self) -> Replica:
        """Return the replica that does not lead."""
        leader = await self.leader()
        return next(replica for replica in self.replicas if replica is not leader)

    async def pause(self, at_least: float, at_most: float) -> None:
        """Wait for some seconds, by the seed."""
        await self.clock.sleep(timedelta(seconds=self.rng.uniform(at_least, at_most)))

    async def retry(self, send: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a request until the server takes it."""
        await self.workload.retry(send, *args, **kwargs)

    async def in_thread(self, function: Callable[[], object]) -> None:
        """Call something that blocks, in a thread."""
        await asyncio.to_thread(function)

    def in_background(self, act: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background of the round."""
        self.group.create_task(act)
