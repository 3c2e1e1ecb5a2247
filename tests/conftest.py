"""What all tests share: each async test runs on simulated time unless it is marked `real_time`."""

import asyncio
import random
from collections.abc import Callable, Mapping

import pytest

from haulout.core.clock import Clock, RealClock
from haulout.core.virtual import VirtualClock, VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - the hook's signature
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualLoop}


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Clock:
    """Return the clock that fits the test's loop."""
    return RealClock() if request.node.get_closest_marker("real_time") else VirtualClock()


@pytest.fixture
def rng() -> random.Random:
    """Return the test's source of chance, the same in every run."""
    return random.Random(7)
