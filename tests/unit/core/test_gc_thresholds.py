"""The runners set up the garbage collector, and restore what it was."""

import gc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from haulout.cli import asyncio_runner
from haulout.core.memory import LONG_RUNNING, SHORT_LIVED, GcThresholds
from haulout_sandbox.event_loops.virtual_time import run_virtual

USUAL = (700, 10, 10)
Runs = Callable[[Coroutine[Any, Any, GcThresholds]], GcThresholds]


@pytest.fixture(autouse=True)
def _usual_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


async def current_thresholds() -> GcThresholds:
    return gc.get_threshold()


async def a_failure() -> GcThresholds:
    raise ValueError("no")


@pytest.mark.parametrize(("run", "thresholds"), [(asyncio_runner.run, LONG_RUNNING), (run_virtual, SHORT_LIVED)])
def test_runners_set_their_gc_thresholds_and_restore_the_previous_ones(run: Runs, thresholds: GcThresholds) -> None:
    assert run(current_thresholds()) == thresholds
    assert gc.get_threshold() == USUAL
    with pytest.raises(ValueError, match="no"):
        run(a_failure())
    assert gc.get_threshold() == USUAL


def test_process_collects_only_what_is_made_while_it_runs() -> None:
    before = gc.get_freeze_count()

    async def permanent() -> int:
        return gc.get_freeze_count()

    assert asyncio_runner.run(permanent()) > before + 10_000
    assert gc.get_freeze_count() == before
