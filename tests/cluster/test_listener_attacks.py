"""Attacks on all ports of a running operator: probes, webhook and dashboard answer, and memory stays bounded.

The container has 280 MiB, and so has the operator here (`support.operators.memory_limit`). Without limits 3,000 TLS
connections that never say hello cost 155 MiB, and 2,000 idle connections to the health port have every probe of a
kubelet refused, so that it restarts the operator.
"""

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from haulout.core.clock import RealClock
from support.expectations.eventually import eventually
from support.operators.memory_limit import memory_limit
from support.operators.operator_process import OperatorUnderAttack, Port, operator_under_attack

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
REQUEST = HEAD + b"\r\n"
HALF = HEAD + b"X-Slow: "
SLOW_BODY = (
    b"POST /api/v2/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
)
CONTAINER_MIB = 280
TAKEN_MIB = {"uvloop": 90, "asyncio": 190}  # by an attack; asyncio has 256 KiB for each TLS connection
LEFT_MIB = 40  # after it, in buffers and caches that its first requests filled

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """Let this process have as many connections as an attacker has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 20_000:
        pytest.skip(f"an attack takes 20,000 files, and this process may have {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 20_000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def attack(operator: OperatorUnderAttack, *, from_many: bool) -> None:
    floods: list[tuple[int, Port, tuple[bytes, ...]]] = [
        (3000, Port.WEBHOOK, ()),  # silent
        (500, Port.METRICS, (b"\x16\x03\x01",)),  # half a hello
        (2000, Port.HEALTH, (REQUEST,)),  # idle
        (500, Port.HEALTH, (REQUEST, HALF)),  # a slow second request
        (1000, Port.DASHBOARD, (HALF,)),
        (500, Port.DASHBOARD, (REQUEST,)),
        (500, Port.DASHBOARD, (SLOW_BODY,)),
    ]
    for count, port, sent in floods:
        await operator.flood(count, port, *sent, from_many_addresses=from_many)
        assert await operator.ports_not_answering() == [], f"after {count} connections to {port.name}"


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
async def test_connection_floods_do_not_stop_probes_and_memory_stays_bounded(
    loop: str, record_property: Callable[[str, object], None]
) -> None:
    clock = RealClock()
    async with operator_under_attack(loop=loop, limit_mib=CONTAINER_MIB) as operator:
        record_property("memory limit", operator.limit.kind)
        assert await operator.ports_not_answering() == []
        before = operator.memory_mib()
        await attack(operator, from_many=False)
        await attack(operator, from_many=True)
        peak = operator.memory_mib("VmHWM")
        assert peak < CONTAINER_MIB
        assert peak - before < TAKEN_MIB[loop]

        async def has_closed_all_that_wait() -> bool:
            assert await operator.ports_not_answering() == []
            return operator.open_connections() <= 500  # idle on the dashboard, which may be so for longer

        await eventually(clock, has_closed_all_that_wait, every=timedelta(seconds=1))
        operator.close_connections()
        await eventually(clock, lambda: operator.memory_mib() - before < LEFT_MIB)
        assert await operator.ports_not_answering() == []
        record_property("peak MiB under the limit", operator.limit.peak_mib)


def test_process_above_the_memory_limit_is_killed() -> None:
    """Otherwise the test above would say nothing."""
    with memory_limit(CONTAINER_MIB) as limit:
        for mib, survives in ((CONTAINER_MIB // 2, True), (2 * CONTAINER_MIB, False)):
            line = f"bytearray(b'x') * ({mib} << 20)"
            done = subprocess.run([*limit.command, sys.executable, "-c", line], capture_output=True, check=False)
            assert (done.returncode == 0) is survives, (limit.kind, mib)
