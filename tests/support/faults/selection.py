"""Selects the faults for a test: all in a long run, otherwise one third, a different one in each of three files.

    @pytest.mark.parametrize("fault", faults_for_turn(1), ids=str)

Together the three thirds contain every fault several times, so a whole run of the tests covers all faults.
"""

from collections.abc import Sequence

from support.faults.crash_test import CRASH_SAMPLING
from support.faults.named_faults import FAULTS, Fault

_THIRDS = 3


def faults_for_turn(turn: int) -> Sequence[Fault]:
    """Return the faults of a turn, which is any number; `--crashes=all` makes them all."""
    return FAULTS if CRASH_SAMPLING.max_crashes is None else FAULTS[turn % _THIRDS :: _THIRDS]
