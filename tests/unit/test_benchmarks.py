"""Smoke tests of the benchmarks: each once, on a small cluster."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from support.servers.certificates import Authority

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform != "linux", reason="benchmarks read /proc and pin cores"),
]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PODS, NODES, EVENTS = 60, 2, 150


class Site(NamedTuple):
    """A running benchmark server."""

    port: int
    folder: Path

    def kubeconfig(self, mode: str) -> str:
        """Return a kubeconfig for the cluster in this mode."""
        path = self.folder / f"{mode}.json"
        server = f"http://127.0.0.1:{self.port}/{mode}/{PODS}"
        content = {
            "clusters": [{"name": "bench", "cluster": {"server": server}}],
            "users": [{"name": "bench", "user": {}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
        path.write_text(json.dumps(content))
        return str(path)


@pytest.fixture(autouse=True)
def benchmarks_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    from fake_apiserver import Server
    from fleet import fleet

    serving = await asyncio.start_server(Server({PODS: fleet(PODS)}).serve, "127.0.0.1", 0)
    yield Site(serving.sockets[0].getsockname()[1], tmp_path)
    serving.close()


@pytest.mark.parametrize("mode", ["streaming", "paged"])
async def test_sync_benchmark_loads_all_objects_and_receives_all_events(site: Site, mode: str) -> None:
    import tasks

    numbers = await tasks.sync(kubeconfig=site.kubeconfig(mode), port=site.port, events=EVENTS)
    assert (numbers["load_count"], numbers["follow_count"]) == (PODS + NODES, EVENTS)


async def test_memory_benchmark_measures_all_pods(site: Site) -> None:
    import tasks

    numbers = await tasks.keep(kubeconfig=site.kubeconfig("streaming"))
    assert numbers["objects"] == PODS
    assert numbers["peak"] > 0


async def test_comparison_benchmark_measures_each_operation(site: Site) -> None:
    import tasks

    where = {"kubeconfig": site.kubeconfig("streaming"), "contender": "haulout"}
    numbers = await tasks.compare(**where, port=site.port, events=EVENTS) | await tasks.request(**where, gets=40)
    assert {name for name in numbers if name.endswith("_wall")} == {
        f"{what}_wall" for what in ("load", "follow", "get", "get_together")
    }


def test_day_benchmark_simulates_all_restarts() -> None:
    import simulations

    numbers = simulations.day(nodes=3, deployments=2, replicas=4, hours=0.25, restart_every_seconds=300)
    assert numbers["restarts"] == 3 * 4
    assert numbers["writes"] > 10 * numbers["restarts"]


def test_start_benchmark_ends_when_all_pods_are_ready() -> None:
    import simulations

    numbers = simulations.start(nodes=3, deployments=2, replicas=4)
    assert numbers["pods"] == 3 + 2 * 4
    assert numbers["writes"] > 5 * numbers["pods"]


def test_idle_benchmark_measures_idle_nodes() -> None:
    import simulations

    numbers = simulations.idle(nodes=2, seconds=0.1)
    assert numbers["wall"] >= 0.1


async def test_sandbox_request_benchmark_uses_tls(tmp_path: Path) -> None:
    import sandbox
    import sandbox_server
    import tasks

    authority, certificate = Authority(), tmp_path / "server.pem"
    issued = authority.issue("127.0.0.1")
    certificate.write_bytes(issued.key_pem + issued.cert_pem)
    async with sandbox_server.serving(certificate) as port:
        kubeconfig = sandbox.kubeconfig(tmp_path, port, ca_pem=authority.pem)
        numbers = await tasks.request(kubeconfig=kubeconfig, contender="haulout", gets=20)
    assert numbers["get_together_count"] == 20


def test_rendered_objects_have_the_size_of_real_ones() -> None:
    from fleet import fleet

    sample = fleet(PODS)
    assert 4_000 < sum(map(len, sample.pods)) / PODS < 9_000
    assert 10_000 < len(sample.nodes[0]) < 15_000


def test_benchmark_of_one_section_keeps_the_others_in_the_report() -> None:
    from report import Section, document

    def measured(*titles: str, hour: int, before: str = "") -> str:
        sections = [Section(title, "How.", ("What", "Figure"), [("speed", f"{hour}/s")]) for title in titles]
        at = datetime(2026, 11, 16, hour, tzinfo=UTC)
        return document(sections, at=at, machine="Machine: ours.", others=0.01, before=before)

    report = measured("One", "Two", "Three", hour=8)
    again = measured("Two", hour=9, before=report)
    assert [line for line in again.splitlines() if line.startswith("## ")] == ["## One", "## Two", "## Three"]
    first, second, third = again.split("\n## ")[1:]
    assert (first, third) == (report.split("\n## ")[1], report.split("\n## ")[3])
    assert "9/s" in second
    assert "Measured on 2026-11-16 09:00 UTC." in second
