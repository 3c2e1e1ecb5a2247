"""Replicas of the operator as processes of this machine, with a kubeconfig: started, killed, and signalled.

    async with replica_processes(kubeconfig, clock=clock, namespace="haulout") as replicas:
        await replicas.wait_for_standby()
        replicas.kill_leader()

The leader, and what a standby has observed, are read from the logs.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.core.clock import Clock
from support.expectations.eventually import eventually

_WITHIN = timedelta(minutes=2)
_LEASES = (LEADER_LEASE, PROFILES_LEASE)


class ReplicaProcess:
    """One replica, and what it has logged."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log: list[str] = []

    async def read_log(self) -> None:
        """Keep what it logs, until it ends."""
        while self.process.stderr and (line := await self.process.stderr.readline()):
            self.log.append(line.decode(errors="replace").rstrip())

    @property
    def leases(self) -> set[str]:
        """The leases that it holds, by the last that it logged about each."""
        return {
            lease
            for lease in _LEASES
            if self._last_lease_line(lease).endswith(f"leads now: lease {self._full_name(lease)}")
        }

    def has_observed_leader(self, lease: str) -> bool:
        """Tell whether it observes that another holds a lease."""
        return " leads: lease " in self._last_lease_line(lease)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def _full_name(self, lease: str) -> str:
        return self._last_lease_line(lease).rpartition(" ")[2]

    def _last_lease_line(self, lease: str) -> str:
        lines = (line for line in reversed(self.log) if line.endswith(f"/{lease}") and "lease" in line)
        return next(lines, "")


class ReplicaProcesses:
    """All replicas that run."""

    def __init__(
        self,
        kubeconfig: Path,
        group: asyncio.TaskGroup,
        *,
        clock: Clock,
        namespace: str,
        flags: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.clock = clock
        self.running: list[ReplicaProcess] = []
        self.messages: list[str] = []
        self.leases: tuple[str, ...] = _LEASES  # that a leader has when it does all of its work
        self._command = (
            *(sys.executable, "-m", "haulout", "run", "--kubeconfig", str(kubeconfig), "--namespace", namespace),
            *("--log-format", "text", *flags),
        )
        self._environ = {**os.environ, **(environ or {})}
        self._group = group
        self._ended: list[ReplicaProcess] = []

    async def start(self) -> ReplicaProcess:
        """Start another one."""
        process = await asyncio.create_subprocess_exec(
            *self._command, stderr=asyncio.subprocess.PIPE, env=self._environ
        )
        replica = ReplicaProcess(process)
        self._group.create_task(replica.read_log())
        self.running.append(replica)
        return replica

    @property
    def leader(self) -> ReplicaProcess | None:
        """The leader, if there is one."""
        return next((replica for replica in self.running if LEADER_LEASE in replica.leases), None)

    def signal_leader(self, number: signal.Signals) -> ReplicaProcess:
        """Send the leader a signal, and count it as gone."""
        leader = self.leader
        assert leader is not None
        self.running.remove(leader)
        self._ended.append(leader)
        leader.send(number)
        return leader

    def kill_leader(self) -> None:
        """Kill the leader and start another replica."""
        self.signal_leader(signal.SIGKILL)
        self._group.create_task(self.start())

    async def wait_for_standby(self) -> None:
        """Return when one replica holds all leases, and another one has observed that."""

        def has_standby() -> bool:
            leads = [replica for replica in self.running if replica.leases == set(self.leases)]
            standbys = [
                replica for replica in self.running if all(replica.has_observed_leader(lease) for lease in self.leases)
            ]
            return len(leads) == 1 and bool(standbys)

        await eventually(self.clock, has_standby, within=_WITHIN, recent_events=self.recent_log_lines)

    def recent_log_lines(self) -> list[str]:
        """Return the last log lines of each process, for failure messages."""
        return [line for replica in (*self._ended[-1:], *self.running) for line in ("--", *replica.log[-12:])]

    async def stop(self) -> None:
        """Kill all that is left."""
        for replica in self.running:
            with suppress(ProcessLookupError):
                replica.process.kill()
        for replica in (*self.running, *self._ended):
            await replica.process.wait()


@asynccontextmanager
async def replica_processes(
    kubeconfig: Path,
    *,
    clock: Clock,
    namespace: str,
    flags: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[ReplicaProcesses]:
    """Yield two replicas; none is left at the end."""
    async with asyncio.TaskGroup() as group:
        replicas = ReplicaProcesses(kubeconfig, group, clock=clock, namespace=namespace, flags=flags, environ=environ)
        try:
            await replicas.start()
            await replicas.start()
            yield replicas
        finally:
            await replicas.stop()
