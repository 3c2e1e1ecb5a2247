"""Fixtures and hooks of all tests.

Each async test runs on simulated time, unless it is marked `real_time` or `--backend=real` has behaviour tests run on a
real control plane.
"""

import asyncio
import gc
import os
import random
import re
import secrets
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from controlplane import AssetsMissing, ControlPlane, find
from haulout.core.clock import Clock, RealClock
from haulout.core.memory import SHORT_LIVED
from haulout_sandbox.event_loops.virtual_time import VirtualClock, VirtualLoop
from support.expectations.invariant_checks import InvariantChecks
from support.faults import crash_test
from support.file_order import duration_rank
from support.servers.event_loops import ConnectionClosingLoop

_CRASHES_PER_SCENARIO = 8  # of each story
_CLUSTER_FOLDERS = {"behaviour", "cluster"}
_EVERY_LOOP = {"asyncio": asyncio.new_event_loop}
with suppress(ImportError):  # not on every platform
    from haulout.cli.event_loop import EventLoop

    _EVERY_LOOP["uvloop"] = EventLoop

# Deadlines would test the machine, not the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell without job control has what it starts in the background ignore SIGINT, and so would all programs that tests
# start and end with Ctrl-C. A handler of ours is not passed on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        choices=["sandbox", "real"],
        default="sandbox",
        help="the cluster that behaviour tests run on: the sandbox (default), or a real control plane",
    )

    parser.addoption(
        "--rounds",
        type=int,
        default=None,
        help="how many rounds of each fault the history of nodes is judged after; by default a few",
    )

    parser.addoption(
        "--crashes",
        choices=["some", "all"],
        default="some",
        help="at how many of its writes tests kill a process that they kill at each: some (default), or all",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set how many crash points the crash tests try."""
    crash_test.CRASH_SAMPLING.max_crashes = _CRASHES_PER_SCENARIO if config.getoption("--crashes") == "some" else None


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Have `--numprocesses=auto` mean one worker more than there are cores, unless the environment says how many.

    Tests with sockets, threads and processes wait for about a tenth of the time, and a core would be idle then.
    """
    found = yield
    return found if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else found + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort files on a real control plane so that long files start first."""
    if config.getoption("--backend") == "real":
        items.sort(key=lambda item: duration_rank(item.path))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: nearly all that is made then stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exclude long-lived objects from garbage collection, and collect less often.

    Thousands of tests are a large heap: looking through it again and again took a fifth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SHORT_LIVED)


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - the hook's signature
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("every_loop"):
        return _EVERY_LOOP
    if _on_a_real_cluster(item):
        return {"real": ConnectionClosingLoop}
    if _on_real_time(item):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualLoop}


def _on_a_real_cluster(item: pytest.Item) -> bool:
    return bool(_CLUSTER_FOLDERS.intersection(Path(item.path).parts) and item.config.getoption("--backend") == "real")


def _on_real_time(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("real_time")) or _on_a_real_cluster(item)


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Clock:
    """Return the clock that fits the test's loop."""
    return RealClock() if _on_real_time(request.node) else VirtualClock()


@pytest.fixture
def rng() -> random.Random:
    """Return the test's random generator, with the same seed in every run."""
    return random.Random(7)


@pytest.fixture
def check_invariants() -> Iterator[InvariantChecks]:
    """Return a function that registers invariants to check on a history after a test (clusters: `with_invariants`)."""
    checks = InvariantChecks()
    yield checks
    checks.check()


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Run a control plane for all tests.

    A test that breaks it repairs it; a test that needs its own starts another one.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():  # a first build takes minutes and prints its progress
            assets = find()
    except AssetsMissing as problem:
        pytest.exit(str(problem), returncode=1)
    with ControlPlane(assets) as cluster:
        yield cluster


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a new namespace, named after the test; its deletion is requested, but needs a controller to complete."""
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).removeprefix("test-")[:50].strip("-")
    name = f"{readable}-{secrets.token_hex(3)}"
    response = control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert response.status == 201, response.body
    yield name
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}")
