"""The history is complete although the API server dies, permissions are revoked and clocks jump.

The audit counts changes from the writes to the objects themselves. `--rounds` sets the number of rounds.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.clusters.process import Process
from support.expectations.maintenance_records import with_record_crd
from support.fakes.external_client import FakeExternalClient
from support.faults.history_audit import MAINTENANCES, RECORDS, HistoryAudit
from support.operators.nodemaintenance import create_maintenance, phase, with_operator_rbac
from support.operators.profiles import (
    ANNOTATION_CONFIGURATION,
    a_configuration_file,
    annotate,
    operator_with_profiles,
    set_profiles,
    state,
)

_DEFAULT_ROUNDS = 10
_OPERATOR = "operator"
_HISTORY = timedelta(minutes=15)


class FaultyRun:
    """A cluster with an operator, user actions and an audit of the history."""

    def __init__(self, cluster: SandboxCluster, operator: Process, random: Random) -> None:
        self.cluster = cluster
        self.operator = operator
        self.random = random
        self.audit = HistoryAudit()
        self._read = 0

    async def round(self, number: int) -> None:
        """Maintain one node with a NodeMaintenance, and another one with its profile."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._order(f"patch-{number % 2}"))  # names are reused
            group.create_task(self._lead())

    async def pause(self, up_to: float) -> None:
        """Let some time pass."""
        await self.cluster.pass_time(seconds=self.random.uniform(0, up_to))

    def problems(self) -> list[str]:
        """Return the current problems of the records."""
        writes = self.cluster.history
        for write in writes[self._read :]:
            self.audit.observe(write.kind.plural, write.key, write.after)
        self._read = len(writes)
        for name, record in self.cluster.by_key(RECORDS).items():
            self.audit.read_record(name, record)
        return self.audit.problems()

    async def _order(self, name: str) -> None:
        await create_maintenance(self.cluster, "n1", name=name)
        await self.cluster.eventually(lambda: phase(self.cluster, name), becomes="Succeeded", within=_HISTORY)
        await self.pause(3)
        await self.cluster.delete(MAINTENANCES, name)
        await self.cluster.eventually(lambda: not self.cluster.has(MAINTENANCES, name), within=_HISTORY)

    async def _lead(self) -> None:
        cluster = self.cluster
        await annotate(cluster, "n2", "done", None)
        await annotate(cluster, "n2", "wanted", "")
        await cluster.eventually(lambda: state(cluster, "n2"), becomes="in-maintenance", within=_HISTORY)
        await self.pause(3)
        await annotate(cluster, "n2", "wanted", None)
        await annotate(cluster, "n2", "done", "")
        await cluster.eventually(lambda: state(cluster, "n2"), becomes="operational", within=_HISTORY)


def _any_request(request: Request) -> bool:
    del request
    return True


def _record_requests(request: Request) -> bool:
    return RECORDS in request.path


async def _kill_server(run: FaultyRun) -> None:
    """Stop the API server; after its return it answers 403 for a while."""
    transport = run.cluster.transport(_OPERATOR)
    transport.cut()
    await run.pause(8)
    rule = transport.faults.fail_before_effect(response=403, where=_any_request, times=None)
    transport.mend()
    await run.pause(5)
    transport.faults.remove(rule)


async def _withdraw_permissions(run: FaultyRun) -> None:
    """Revoke all permissions, or those for the history, for a while."""
    where = run.random.choice([_any_request, _record_requests])
    rule = run.cluster.transport(_OPERATOR).faults.fail_before_effect(response=403, where=where, times=None)
    await run.pause(60)
    run.cluster.transport(_OPERATOR).faults.remove(rule)


async def _set_clock(run: FaultyRun) -> None:
    """Move the wall clock of the operator by up to two hours."""
    clock = run.operator.clock
    assert isinstance(clock, VirtualClock)
    clock.move_wall_clock(timedelta(hours=run.random.uniform(-2, 2)))


async def _kill_operator(run: FaultyRun) -> None:
    run.operator.kill()
    await run.pause(5)
    run.operator.start()


FAULTS: dict[str, Callable[[FaultyRun], Awaitable[None]]] = {
    "the server dies": _kill_server,
    "rights are withdrawn": _withdraw_permissions,
    "a clock is set": _set_clock,
    "the operator dies": _kill_operator,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the configuration."""
    return a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """Return how many rounds there are."""
    wanted = request.config.getoption("--rounds")
    return _DEFAULT_ROUNDS if wanted is None else int(wanted)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
async def test_history_misses_no_change_under_faults(
    clock: Clock, file: Path, fault: str, seed: int, rounds: int
) -> None:
    random = Random(f"{fault} {seed}")
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}  # so that a drain takes a while
    plan = (
        with_record_crd(with_operator_rbac(a_cluster(clock)))
        .with_nodes(2)
        .with_deployment("shop/cart", replicas=3, pods=pods)
    )
    async with plan.on_the_sandbox() as cluster:
        run = FaultyRun(
            cluster,
            cluster.run(operator_with_profiles(file, external_client=FakeExternalClient()), name=_OPERATOR),
            random,
        )
        await set_profiles(cluster, "n2", "os")
        for number in range(rounds):
            async with asyncio.TaskGroup() as group:
                group.create_task(run.round(number))
                for _ in range(random.randint(1, 3)):
                    await run.pause(4)
                    await FAULTS[fault](run)
            await cluster.eventually(run.problems, becomes=[], within=_HISTORY)
    assert run.audit.changes == rounds * 6
    assert run.audit.missing_count() == 0
