"""How often garbage in cycles is looked for while something of ours runs, and that others find it as they left it."""

import gc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from haulout.cli import looping
from haulout.core.garbage import HARDLY_EVER, RARELY, Pace
from haulout_sandbox.event_loops.virtual import run_virtual

USUAL = (700, 10, 10)
Runs = Callable[[Coroutine[Any, Any, Pace]], Pace]


@pytest.fixture(autouse=True)
def _as_usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


async def the_pace() -> Pace:
    return gc.get_threshold()


async def a_failure() -> Pace:
    raise ValueError("no")


@pytest.mark.parametrize(("run", "pace"), [(looping.run, RARELY), (run_virtual, HARDLY_EVER)])
def test_what_runs_has_its_pace_and_leaves_none_behind(run: Runs, pace: Pace) -> None:
    assert run(the_pace()) == pace
    assert gc.get_threshold() == USUAL
    with pytest.raises(ValueError, match="no"):
        run(a_failure())
    assert gc.get_threshold() == USUAL
